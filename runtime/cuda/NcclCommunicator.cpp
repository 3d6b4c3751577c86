//===- NcclCommunicator.cpp - Collectives of tensors between GPUs ---------===//

#include "runtime/comm/Reduce.h"
#include "runtime/comm/Wire.h"
#include "runtime/cuda/NcclRank.h"

#include <algorithm>
#include <tuple>

namespace tbc::cuda {

using comm::Call;
using comm::CallKind;
using comm::Group;
using comm::ReduceKind;
using comm::RequestPtr;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;

//===----------------------------------------------------------------------===//
// Types and sizes
//===----------------------------------------------------------------------===//

std::optional<NcclType> reducedType(DType dtype, Arith arith, ReduceKind kind) {
  bool isFloat = kernels::isFloat(dtype);
  bool isOfFloats = kind == ReduceKind::Avg || kind == ReduceKind::PremulSum;
  bool isPlain = kind == ReduceKind::Sum || kind == ReduceKind::Product ||
                 kind == ReduceKind::Max || kind == ReduceKind::Min;
  if (kernels::isModular(arith) || (!isPlain && !(isOfFloats && isFloat)))
    return std::nullopt;
  if (isFloat && arith == Arith::F64)
    return NcclType::F64;
  switch (dtype) {
  case DType::F64:
    return NcclType::F64;
  case DType::F32:
    return NcclType::F32;
  case DType::BF16:
    return NcclType::BF16;
  case DType::F16:
    return NcclType::F16;
  case DType::I64:
    return NcclType::I64;
  case DType::I32:
    return NcclType::I32;
  case DType::I8:
    return NcclType::I8;
  case DType::U8:
    return NcclType::U8;
  case DType::F8E4M3:
  case DType::F8E5M2:
  case DType::I16:
  case DType::U16:
  case DType::U32:
  case DType::Bool:
    return std::nullopt;
  }
  return std::nullopt;
}

NcclOp plainOp(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Product:
    return NcclOp::Product;
  case ReduceKind::Max:
    return NcclOp::Max;
  case ReduceKind::Min:
    return NcclOp::Min;
  case ReduceKind::Avg:
    return NcclOp::Avg;
  default:
    return NcclOp::Sum;
  }
}

/// Returns a scalar of a float type in NCCL's encoding.
static std::vector<unsigned char> scalarBytes(NcclType type, double value) {
  DType dtype = type == NcclType::F64    ? DType::F64
                : type == NcclType::BF16 ? DType::BF16
                : type == NcclType::F16  ? DType::F16
                                         : DType::F32;
  return Tensor::fromDoubles({dtype, {1}}, Arith::Native, {value}).toBytes();
}

std::string describeType(const TensorType &type, Arith arith) {
  return toString(type) + (arith == Arith::Native      ? ""
                           : arith == Arith::F64       ? " (unrounded)"
                           : arith == Arith::Residue61 ? " (residues)"
                                                       : " (residues modulo 251)");
}

Result<DeviceMemory> allocateRegistrable(const Nccl &nccl, const DevicePtr &device, int64_t bytes,
                                         const std::string &what) {
  if (bytes == 0)
    return DeviceMemory();
  void *memory = nullptr;
  NcclCode code = nccl.memAlloc(&memory, size_t(bytes));
  if (code == NcclCode::Success)
    return DeviceMemory::own(device, DeviceAddress(reinterpret_cast<uintptr_t>(memory)), bytes,
                             [release = nccl.memFree](DeviceAddress begin) {
                               release(reinterpret_cast<void *>(uintptr_t(begin)));
                             });
  // The driver's error gives the free memory.
  if (auto plain = DeviceMemory::allocate(device, bytes, what); !plain)
    return plain.error();
  Status status = checkNccl(nccl, code, nullptr, device->name() + ": " + what);
  return Error{ErrorCode::RankFailed,
               status.error().message + "; TBC_NCCL_REGISTER=0 does without memory of NCCL's"};
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Returns buffers of at least these sizes. Used ones are kept: freeing memory waits for all work
/// of the device, possibly for a message whose receiver waits for this rank.
Result<Buffers> NcclRank::takeBuffers(int64_t inBytes, int64_t outBytes) {
  auto sizeOf = [](int64_t bytes) {
    int64_t size = bytes ? 256 : 0;
    while (size < bytes)
      size *= 2;
    return size;
  };
  auto fits = [&](const Buffers &buffers) {
    return buffers.in.bytes() == sizeOf(inBytes) && buffers.out.bytes() == sizeOf(outBytes);
  };
  if (auto found = std::find_if(spare.begin(), spare.end(), fits); found != spare.end()) {
    Buffers buffers = std::move(*found);
    spare.erase(found);
    return buffers;
  }
  Buffers buffers;
  for (auto [memory, pinned, bytes] :
       {std::tuple(&buffers.in, &buffers.hostIn, sizeOf(inBytes)),
        std::tuple(&buffers.out, &buffers.hostOut, sizeOf(outBytes))}) {
    auto made = DeviceMemory::allocate(device, bytes, "a message");
    if (!made)
      return made.error();
    *memory = std::move(*made);
    auto staged = PinnedMemory::allocate(device, bytes);
    if (!staged)
      return staged.error();
    *pinned = std::move(*staged);
  }
  auto event = Event::create(device);
  if (!event)
    return event.error();
  buffers.done = std::move(*event);
  return buffers;
}

static void *pointerTo(const DeviceMemory &memory) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(memory.address()));
}

/// Enqueues in the link's stream: the input to the device, the call, the output to the host.
Status NcclRank::enqueue(Transfer &transfer, const CallFn &function, int64_t inBytes,
                         int64_t outBytes) {
  NcclLink &link = *transfer.link;
  Status status = link.needStream();
  if (status && inBytes)
    status = link.stream().copyToDevice(transfer.buffers.in.address(),
                                        transfer.buffers.hostIn.data(), inBytes);
  if (!status)
    return status;
  auto begin = [&transfer, function] {
    return function(*transfer.link, pointerTo(transfer.buffers.in),
                    pointerTo(transfer.buffers.out));
  };
  auto then = [&transfer, outBytes]() -> Status {
    const Stream &stream = transfer.link->stream();
    Buffers &buffers = transfer.buffers;
    Status ended;
    if (outBytes)
      ended = stream.copyToHost(buffers.hostOut.data(), buffers.out.address(), outBytes);
    if (ended)
      ended = stream.record(buffers.done);
    transfer.isCalled = bool(ended);
    return ended;
  };
  return link.call({transfer.what, begin, then});
}

Result<std::unique_ptr<Transfer>> NcclRank::begin(NcclLink &link, Plan plan,
                                                  const std::string &place) {
  int64_t inBytes = int64_t(plan.input.size()), outBytes = plan.outBytes;
  auto transfer = std::make_unique<Transfer>();
  transfer->link = &link;
  transfer->number = link.numCalls++;
  transfer->what = place + ", " + plan.callText;
  transfer->finish = std::move(plan.finish);
  auto buffers = takeBuffers(inBytes, outBytes);
  if (!buffers)
    return fail(buffers.error(), transfer->what);
  transfer->buffers = std::move(*buffers);
  std::copy(plan.input.begin(), plan.input.end(), transfer->buffers.hostIn.data());
  if (Status status = enqueue(*transfer, plan.function, inBytes, outBytes); !status)
    return failOfNccl({status.error().code, transfer->what + ": " + status.error().message});
  return transfer;
}

RequestPtr NcclRank::start(Plan plan, const std::string &place) {
  if (Status status = watch->status(); !status)
    return ended(status.error());
  if (Status status = device->makeCurrent(); !status)
    return ended(fail(status.error()));
  auto link = linkOf(plan.group, nameOf(plan.group));
  if (!link)
    return ended(fail(link.error(), place));
  // Always, unlike the calls of devices: calls of the host are few, and one out of order would pair
  // with another that NCCL cannot tell from it. Example: a barrier, and the agreement on a graph.
  if (Status status = compareCalls(**link, plan.callText, place); !status)
    return ended(status.error());
  auto transfer = begin(**link, std::move(plan), place);
  if (!transfer)
    return ended(transfer.error());
  return std::make_unique<NcclRequest>(*this, std::move(*transfer));
}

/// Returns the plan of a call that moves bytes without interpreting them.
NcclRank::Plan NcclRank::movement(const Group &group, const Call &call, const Tensor &input,
                                  int64_t outBytes, const kernels::Shape &outShape,
                                  CallFn function) const {
  Arith arith = comm::arithOf(input);
  Plan plan;
  plan.group = group;
  plan.call = call;
  plan.callText = describe(call) + " of " + describeType(input.type(), arith);
  plan.input = comm::encode(input);
  plan.outBytes = outBytes;
  plan.function = std::move(function);
  plan.finish = [type = TensorType{input.dtype(), outShape},
                 arith](const unsigned char *bytes) -> Result<Tensor> {
    return comm::decode(type, arith, bytes);
  };
  return plan;
}

RequestPtr NcclRank::allReduce(const Group &group, comm::Reduction reduction, const Tensor &input,
                               const std::string &place) {
  std::optional<NcclType> type = reducedType(input.dtype(), comm::arithOf(input), reduction.kind);
  if (!type)
    return hostReduce(group, reduction, input, place, /*isScattered=*/false);
  size_t count = size_t(input.numElements());
  int64_t bytes = int64_t(comm::encode(input).size());
  return start(movement(group, Call(reduction), input, bytes, input.shape(),
                        [this, reduction, count, type](const NcclLink &link, void *from, void *to) {
                          if (reduction.kind != ReduceKind::PremulSum)
                            return nccl.allReduce(from, to, count, *type, plainOp(reduction.kind),
                                                  link.handle(), link.stream().handle());
                          NcclOp op = NcclOp::Sum;
                          std::vector<unsigned char> factor = scalarBytes(*type, reduction.factor);
                          if (NcclCode code = nccl.createPremulSum(
                                  &op, factor.data(), *type, NcclResidence::Host, link.handle());
                              code != NcclCode::Success)
                            return code;
                          NcclCode code = nccl.allReduce(from, to, count, *type, op, link.handle(),
                                                         link.stream().handle());
                          nccl.destroyOp(op, link.handle()); // running calls keep it
                          return code;
                        }),
               place);
}

RequestPtr NcclRank::broadcast(const Group &group, int64_t root, const Tensor &input,
                               const std::string &place) {
  size_t bytes = comm::encode(input).size();
  return start(movement(group, Call(CallKind::Broadcast, root), input, int64_t(bytes),
                        input.shape(),
                        [this, bytes, root](const NcclLink &link, void *from, void *to) {
                          return nccl.broadcast(from, to, bytes, NcclType::U8, int(root),
                                                link.handle(), link.stream().handle());
                        }),
               place);
}

RequestPtr NcclRank::allGather(const Group &group, const Tensor &input, const std::string &place) {
  size_t bytes = comm::encode(input).size();
  int64_t n = int64_t(group.size());
  return start(movement(group, Call(CallKind::AllGather), input, n * int64_t(bytes),
                        {n * input.numElements()},
                        [this, bytes](const NcclLink &link, void *from, void *to) {
                          return nccl.allGather(from, to, bytes, NcclType::U8, link.handle(),
                                                link.stream().handle());
                        }),
               place);
}

RequestPtr NcclRank::reduceScatter(const Group &group, const Tensor &input,
                                   const std::string &place) {
  std::optional<NcclType> type = reducedType(input.dtype(), comm::arithOf(input), ReduceKind::Sum);
  if (!type)
    return hostReduce(group, ReduceKind::Sum, input, place, /*isScattered=*/true);
  int64_t n = int64_t(group.size());
  int64_t share = input.numElements() / n;
  int64_t bytes = int64_t(comm::encode(input).size()) / n;
  return start(movement(group, Call(CallKind::ReduceScatter), input, bytes, {share},
                        [this, share, type](const NcclLink &link, void *from, void *to) {
                          return nccl.reduceScatter(from, to, size_t(share), *type, NcclOp::Sum,
                                                    link.handle(), link.stream().handle());
                        }),
               place);
}

RequestPtr NcclRank::allToAll(const Group &group, const Tensor &input, const std::string &place) {
  int64_t n = int64_t(group.size());
  size_t bytes = comm::encode(input).size();
  size_t part = bytes / size_t(n);
  return start(
      movement(group, Call(CallKind::AllToAll), input, int64_t(bytes), {input.numElements()},
               [this, n, part](const NcclLink &link, void *from, void *to) {
                 // One NCCL group, so that all transfers run at once.
                 NcclCode code = nccl.groupStart();
                 for (int peer = 0; peer < n && isTaken(code); ++peer) {
                   code = nccl.send(static_cast<char *>(from) + size_t(peer) * part, part,
                                    NcclType::U8, peer, link.handle(), link.stream().handle());
                   if (isTaken(code))
                     code = nccl.recv(static_cast<char *>(to) + size_t(peer) * part, part,
                                      NcclType::U8, peer, link.handle(), link.stream().handle());
                 }
                 NcclCode end = nccl.groupEnd();
                 return isTaken(code) ? end : code;
               }),
      place);
}

RequestPtr NcclRank::barrier(const Group &group, const std::string &place) {
  Tensor one = Tensor::fromInts({DType::U8, {1}}, {1});
  Plan plan = movement(group, Call(CallKind::Barrier), one, 1, {1},
                       [this](const NcclLink &link, void *from, void *to) {
                         return nccl.allReduce(from, to, 1, NcclType::U8, NcclOp::Max,
                                               link.handle(), link.stream().handle());
                       });
  plan.callText = describe(plan.call);
  plan.finish = [](const unsigned char *) -> Result<Tensor> { return Tensor(); };
  return start(std::move(plan), place);
}

/// Performs the reductions that NCCL lacks: gathers all inputs on all ranks.
RequestPtr NcclRank::hostReduce(const Group &group, comm::Reduction reduction, const Tensor &input,
                                const std::string &place, bool isScattered) {
  int64_t n = int64_t(group.size()), bytes = int64_t(comm::encode(input).size());
  Plan plan = movement(group, isScattered ? Call(CallKind::ReduceScatter) : Call(reduction), input,
                       n * bytes, {}, [this, bytes](const NcclLink &link, void *from, void *to) {
                         return nccl.allGather(from, to, size_t(bytes), NcclType::U8, link.handle(),
                                               link.stream().handle());
                       });
  int64_t share = input.numElements() / n;
  int64_t index = std::find(group.begin(), group.end(), self) - group.begin();
  plan.finish = [=, type = input.type(),
                 arith = comm::arithOf(input)](const unsigned char *data) -> Result<Tensor> {
    std::vector<Tensor> inputs;
    for (int64_t i = 0; i < n; ++i)
      inputs.push_back(comm::decode(type, arith, data + i * bytes));
    Tensor reduced = comm::reduce(reduction, inputs);
    return isScattered ? comm::cutFlat(reduced, index * share, share) : reduced;
  };
  return start(std::move(plan), place);
}

} // namespace tbc::cuda
