//===- NcclCommunicator.cpp - Ranks with GPUs ------------------------------===//

#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/comm/Call.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/Wire.h"
#include "runtime/cuda/NcclLink.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
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
using Clock = std::chrono::steady_clock;

namespace {

/// Where a tensor is while it travels.
struct Buffers {
  PinnedMemory hostIn, hostOut;
  DeviceMemory in, out;
  Event done;
};

/// What ranks tell each other of a call.
struct Header {
  char call[128];
  char place[128];
};

/// Bytes on their way, and what becomes of them.
struct Transfer {
  NcclLink *link = nullptr;
  int64_t number = 0; // of the call on the link
  std::string what;   // place and call, for errors
  Buffers buffers;
  bool isCalled = false; // NCCL has it, and `done` is recorded
  std::function<Result<Tensor>(const unsigned char *)> finish;
};

class NcclCommunicator : public comm::Communicator {
public:
  NcclCommunicator(int64_t self, int64_t size, comm::Store &store, const Nccl &nccl,
                   DevicePtr device, NcclOptions options)
      : self(self), size(size), store(store), nccl(nccl), device(std::move(device)),
        options(std::move(options)) {}
  ~NcclCommunicator() override;

  Status connect();

  int64_t rank() const override { return self; }
  int64_t numRanks() const override { return size; }
  RequestPtr allReduce(const Group &group, comm::Reduction reduction, const Tensor &input,
                       const std::string &place) override;
  RequestPtr broadcast(const Group &group, int64_t root, const Tensor &input,
                       const std::string &place) override;
  RequestPtr allGather(const Group &group, const Tensor &input, const std::string &place) override;
  RequestPtr reduceScatter(const Group &group, const Tensor &input,
                           const std::string &place) override;
  RequestPtr allToAll(const Group &group, const Tensor &input, const std::string &place) override;
  RequestPtr barrier(const Group &group, const std::string &place) override;
  RequestPtr send(int64_t to, comm::Tag tag, const Tensor &input,
                  const std::string &place) override;
  RequestPtr recv(int64_t from, comm::Tag tag, const TensorType &type,
                  const std::string &place) override;

  /// Waits for a transfer until its deadline.
  Result<Tensor> wait(Transfer &transfer);

private:
  /// What NCCL is asked for, from and to these addresses.
  using CallFn = std::function<NcclCode(const NcclLink &link, void *from, void *to)>;
  struct Plan {
    Group group;
    Call call;
    std::string callText; // "all_reduce sum of 4xf32"
    std::vector<unsigned char> input;
    int64_t outBytes = 0;
    CallFn function;
    std::function<Result<Tensor>(const unsigned char *)> finish;
  };

  RequestPtr start(Plan plan, const std::string &place);
  Result<std::unique_ptr<Transfer>> begin(NcclLink &link, Plan plan, const std::string &place);
  Status enqueue(Transfer &transfer, const CallFn &function, int64_t inBytes, int64_t outBytes);
  Result<NcclLink *> linkOf(const Group &group, const std::string &name);
  Result<Buffers> takeBuffers(int64_t inBytes, int64_t outBytes);

  RequestPtr hostReduce(const Group &group, comm::Reduction reduction, const Tensor &input,
                        const std::string &place, bool isScattered);
  Plan movement(const Group &group, const Call &call, const Tensor &input, int64_t outBytes,
                const kernels::Shape &outShape, CallFn function) const;
  RequestPtr message(const Group &pair, comm::Tag tag, Plan plan, const std::string &verb,
                     const std::string &place);

  Status compareCalls(NcclLink &link, const std::string &callText, const std::string &place);
  Status compareMessage(NcclLink &link, const std::string &callText, bool isSender,
                        const std::string &place);
  Result<Tensor> exchangeHeaders(NcclLink &link, const std::string &callText,
                                 const std::string &place);

  Status progressAll();
  Status check(Clock::time_point &nextStoreCheck);
  Error timedOut(const Transfer &transfer);
  Error fail(Error error);

  const int64_t self, size;
  comm::Store &store;
  const Nccl &nccl;
  const DevicePtr device;
  const NcclOptions options;
  std::map<std::string, std::unique_ptr<NcclLink>> links; // by name
  std::vector<std::unique_ptr<Transfer>> orphans;         // sends that nobody waits for
  std::vector<Buffers> spare;
  bool hasFailed = false;
  Error failure;
  friend class NcclRequest;
};

/// Belongs to a communicator, which outlives it.
class NcclRequest : public comm::Request {
public:
  NcclRequest(NcclCommunicator &owner, std::unique_ptr<Transfer> transfer)
      : owner(owner), transfer(std::move(transfer)) {}
  ~NcclRequest() override {
    // Its buffers are in use until it has ended.
    if (transfer)
      owner.orphans.push_back(std::move(transfer));
  }
  Result<Tensor> wait() override {
    std::unique_ptr<Transfer> mine = std::move(transfer);
    return owner.wait(*mine);
  }

private:
  NcclCommunicator &owner;
  std::unique_ptr<Transfer> transfer;
};

} // namespace

static RequestPtr ended(Result<Tensor> result) {
  return std::make_unique<comm::EndedRequest>(std::move(result));
}

//===----------------------------------------------------------------------===//
// Types and sizes
//===----------------------------------------------------------------------===//

/// The type that NCCL reduces elements of this one as; nothing: it cannot.
static std::optional<NcclType> reducedType(const Tensor &tensor, comm::Reduction reduction) {
  Arith arith = comm::arithOf(tensor);
  ReduceKind kind = reduction.kind;
  bool isFloat = kernels::isFloat(tensor.dtype());
  bool isOfFloats = kind == ReduceKind::Avg || kind == ReduceKind::PremulSum;
  bool isPlain = kind == ReduceKind::Sum || kind == ReduceKind::Product ||
                 kind == ReduceKind::Max || kind == ReduceKind::Min;
  if (arith == Arith::Residue61 || (!isPlain && !(isOfFloats && isFloat)))
    return std::nullopt;
  if (isFloat && arith == Arith::F64)
    return NcclType::F64;
  switch (tensor.dtype()) {
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
  case DType::I16:
  case DType::Bool:
    return std::nullopt;
  }
  return std::nullopt;
}

static NcclOp plainOp(ReduceKind kind) {
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

/// A scalar of a float type as NCCL reads it.
static std::vector<unsigned char> scalarBytes(NcclType type, double value) {
  DType dtype = type == NcclType::F64    ? DType::F64
                : type == NcclType::BF16 ? DType::BF16
                : type == NcclType::F16  ? DType::F16
                                         : DType::F32;
  return Tensor::fromDoubles({dtype, {1}}, Arith::Native, {value}).toBytes();
}

static std::string describeType(const TensorType &type, Arith arith) {
  return toString(type) + (arith == Arith::Native ? ""
                           : arith == Arith::F64  ? " (unrounded)"
                                                  : " (residues)");
}

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

static std::string hexOf(const NcclId &id) {
  std::string text;
  for (char byte : id.bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

static NcclId idOf(const std::string &hex) {
  NcclId id{};
  for (size_t i = 0; i < sizeof id.bytes && 2 * i + 1 < hex.size(); ++i)
    id.bytes[i] = char(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

static std::string nameOf(const Group &group) {
  std::string text = "group";
  for (int64_t rank : group)
    text += "." + std::to_string(rank);
  return text;
}

Status NcclCommunicator::connect() {
  if (Status status = device->makeCurrent(); !status)
    return status;
  Group all(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < size; ++rank)
    all[rank] = rank;
  auto world = linkOf(all, nameOf(all));
  if (!world)
    return fail(world.error());
  // Parting needs a communicator that is joined.
  Transfer joining;
  joining.link = *world;
  joining.what = "connecting by NCCL";
  if (!options.partitions.empty()) {
    joining.isCalled = true; // nothing but joining is waited for
    if (auto joined = wait(joining); !joined)
      return joined.error();
  }
  for (const std::vector<Group> &partition : options.partitions) {
    if (partition.size() == 1 && partition[0] == all)
      continue; // there already
    const Group *mine = nullptr;
    int color = -1; // NCCL_SPLIT_NOCOLOR
    for (size_t g = 0; g < partition.size(); ++g)
      if (std::count(partition[g].begin(), partition[g].end(), self))
        mine = &partition[g], color = int(g);
    auto link = (*world)->split(mine ? *mine : Group{self}, color, self);
    if (!link)
      return fail(link.error());
    if (mine && !links.count(nameOf(*mine)))
      links[nameOf(*mine)] = std::move(*link);
  }
  return Status::ok();
}

/// The link of this name, made where there is none yet. Whoever comes first gives it its id.
Result<NcclLink *> NcclCommunicator::linkOf(const Group &group, const std::string &name) {
  if (auto found = links.find(name); found != links.end())
    return found->second.get();
  NcclId id{};
  if (Status status = checkNccl(nccl, nccl.getUniqueId(&id), nullptr, "an id for " + name); !status)
    return status.error();
  Result<std::string> agreed = store.claim("nccl/" + name, hexOf(id));
  if (!agreed)
    return agreed.error();
  auto link = NcclLink::join(nccl, device, group, self, idOf(*agreed));
  if (!link)
    return link.error();
  return (links[name] = std::move(*link)).get();
}

NcclCommunicator::~NcclCommunicator() {
  static_cast<void>(device->makeCurrent());
  // What was sent is on its way before anything is given back.
  while (!hasFailed && !orphans.empty()) {
    std::unique_ptr<Transfer> transfer = std::move(orphans.back());
    orphans.pop_back();
    static_cast<void>(wait(*transfer));
  }
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Of at least these sizes. Used ones are kept: giving memory back waits for all that the device
/// does, also for a message whose receiver waits for us.
Result<Buffers> NcclCommunicator::takeBuffers(int64_t inBytes, int64_t outBytes) {
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

/// In the link's stream: the input to the device, the call, the output to the host.
Status NcclCommunicator::enqueue(Transfer &transfer, const CallFn &function, int64_t inBytes,
                                 int64_t outBytes) {
  const Stream &stream = transfer.link->stream();
  Buffers &buffers = transfer.buffers;
  Status status;
  if (inBytes)
    status = stream.copyToDevice(buffers.in.address(), buffers.hostIn.data(), inBytes);
  if (status)
    status = transfer.link->settle(
        function(*transfer.link, pointerTo(buffers.in), pointerTo(buffers.out)), transfer.what);
  if (status && outBytes)
    status = stream.copyToHost(buffers.hostOut.data(), buffers.out.address(), outBytes);
  if (status)
    status = stream.record(buffers.done);
  transfer.isCalled = bool(status);
  return status;
}

Result<std::unique_ptr<Transfer>> NcclCommunicator::begin(NcclLink &link, Plan plan,
                                                          const std::string &place) {
  int64_t inBytes = int64_t(plan.input.size()), outBytes = plan.outBytes;
  auto transfer = std::make_unique<Transfer>();
  transfer->link = &link;
  transfer->number = link.numCalls++;
  transfer->what = place + ", " + plan.callText;
  transfer->finish = std::move(plan.finish);
  auto buffers = takeBuffers(inBytes, outBytes);
  if (!buffers)
    return fail({buffers.error().code, transfer->what + ": " + buffers.error().message});
  transfer->buffers = std::move(*buffers);
  std::copy(plan.input.begin(), plan.input.end(), transfer->buffers.hostIn.data());
  Transfer *raw = transfer.get();
  if (Status status = link.call([this, raw, function = std::move(plan.function), inBytes,
                                 outBytes] { return enqueue(*raw, function, inBytes, outBytes); });
      !status)
    return fail({status.error().code, raw->what + ": " + status.error().message});
  return transfer;
}

RequestPtr NcclCommunicator::start(Plan plan, const std::string &place) {
  if (hasFailed)
    return ended(failure);
  if (Status status = device->makeCurrent(); !status)
    return ended(fail(status.error()));
  auto link = linkOf(plan.group, nameOf(plan.group));
  if (!link)
    return ended(fail({link.error().code, place + ": " + link.error().message}));
  if (options.checksCalls)
    if (Status status = compareCalls(**link, plan.callText, place); !status)
      return ended(status.error());
  auto transfer = begin(**link, std::move(plan), place);
  if (!transfer)
    return ended(transfer.error());
  return std::make_unique<NcclRequest>(*this, std::move(*transfer));
}

/// Moves bytes, whatever they mean.
NcclCommunicator::Plan NcclCommunicator::movement(const Group &group, const Call &call,
                                                  const Tensor &input, int64_t outBytes,
                                                  const kernels::Shape &outShape,
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

RequestPtr NcclCommunicator::allReduce(const Group &group, comm::Reduction reduction,
                                       const Tensor &input, const std::string &place) {
  std::optional<NcclType> type = reducedType(input, reduction);
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
                          nccl.destroyOp(op, link.handle()); // what is under way keeps it
                          return code;
                        }),
               place);
}

RequestPtr NcclCommunicator::broadcast(const Group &group, int64_t root, const Tensor &input,
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

RequestPtr NcclCommunicator::allGather(const Group &group, const Tensor &input,
                                       const std::string &place) {
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

RequestPtr NcclCommunicator::reduceScatter(const Group &group, const Tensor &input,
                                           const std::string &place) {
  std::optional<NcclType> type = reducedType(input, ReduceKind::Sum);
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

RequestPtr NcclCommunicator::allToAll(const Group &group, const Tensor &input,
                                      const std::string &place) {
  int64_t n = int64_t(group.size());
  size_t bytes = comm::encode(input).size();
  size_t part = bytes / size_t(n);
  return start(
      movement(group, Call(CallKind::AllToAll), input, int64_t(bytes), {input.numElements()},
               [this, n, part](const NcclLink &link, void *from, void *to) {
                 // One group, so that all of them go at once.
                 NcclCode code = nccl.groupStart();
                 for (int peer = 0; peer < n && code == NcclCode::Success; ++peer) {
                   code = nccl.send(static_cast<char *>(from) + size_t(peer) * part, part,
                                    NcclType::U8, peer, link.handle(), link.stream().handle());
                   if (code == NcclCode::Success)
                     code = nccl.recv(static_cast<char *>(to) + size_t(peer) * part, part,
                                      NcclType::U8, peer, link.handle(), link.stream().handle());
                 }
                 NcclCode end = nccl.groupEnd();
                 return code == NcclCode::Success ? end : code;
               }),
      place);
}

RequestPtr NcclCommunicator::barrier(const Group &group, const std::string &place) {
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

/// What NCCL cannot reduce: all inputs to all ranks.
RequestPtr NcclCommunicator::hostReduce(const Group &group, comm::Reduction reduction,
                                        const Tensor &input, const std::string &place,
                                        bool isScattered) {
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

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// `pair`: sender, receiver.
RequestPtr NcclCommunicator::message(const Group &pair, comm::Tag tag, Plan plan,
                                     const std::string &verb, const std::string &place) {
  if (hasFailed)
    return ended(failure);
  if (Status status = device->makeCurrent(); !status)
    return ended(fail(status.error()));
  bool isSender = pair[0] == self;
  auto link = linkOf(pair, "message." + std::to_string(pair[0]) + "." + std::to_string(pair[1]) +
                               "." + std::to_string(tag.lane));
  if (!link)
    return ended(fail({link.error().code, place + ": " + link.error().message}));
  plan.group = pair;
  plan.callText = verb + " " + std::to_string(tag.channel) + " of " + plan.callText;
  if (options.checksCalls)
    if (Status status = compareMessage(**link, plan.callText, isSender, place); !status)
      return ended(status.error());
  auto transfer = begin(**link, std::move(plan), place);
  if (!transfer)
    return ended(transfer.error());
  auto request = std::make_unique<NcclRequest>(*this, std::move(*transfer));
  if (!isSender)
    return request;
  request.reset(); // it goes on by itself
  return ended(Tensor());
}

RequestPtr NcclCommunicator::send(int64_t to, comm::Tag tag, const Tensor &input,
                                  const std::string &place) {
  if (comm::arithOf(input) != Arith::Native)
    return ended(fail({ErrorCode::Usage, place + ": messages between GPUs are of elements in the "
                                                 "precision of their type"}));
  Plan plan;
  plan.input = comm::encode(input);
  plan.callText = describeType(input.type(), comm::arithOf(input));
  plan.function = [this, bytes = plan.input.size()](const NcclLink &link, void *from, void *) {
    return nccl.send(from, bytes, NcclType::U8, 1, link.handle(), link.stream().handle());
  };
  plan.finish = [](const unsigned char *) -> Result<Tensor> { return Tensor(); };
  return message({self, to}, tag, std::move(plan), "send", place);
}

RequestPtr NcclCommunicator::recv(int64_t from, comm::Tag tag, const TensorType &type,
                                  const std::string &place) {
  Plan plan;
  plan.outBytes = kernels::numElements(type.shape) * kernels::byteWidth(type.dtype);
  plan.callText = describeType(type, Arith::Native);
  plan.function = [this, bytes = size_t(plan.outBytes)](const NcclLink &link, void *, void *to) {
    return nccl.recv(to, bytes, NcclType::U8, 0, link.handle(), link.stream().handle());
  };
  plan.finish = [type](const unsigned char *bytes) -> Result<Tensor> {
    return comm::decode(type, Arith::Native, bytes);
  };
  return message({from, self}, tag, std::move(plan), "recv", place);
}

//===----------------------------------------------------------------------===//
// Calls that must match
//===----------------------------------------------------------------------===//

static Header headerOf(const std::string &call, const std::string &place) {
  Header header{};
  call.copy(header.call, sizeof header.call - 1);
  place.copy(header.place, sizeof header.place - 1);
  return header;
}

static Tensor headerTensor(const Header &header) {
  return Tensor::fromBytes({DType::U8, {int64_t(sizeof header)}}, Arith::Native, &header);
}

static Header headerIn(const unsigned char *bytes) {
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  header.call[sizeof header.call - 1] = header.place[sizeof header.place - 1] = 0;
  return header;
}

Status NcclCommunicator::compareCalls(NcclLink &link, const std::string &callText,
                                      const std::string &place) {
  Plan plan =
      movement(link.group(), Call(CallKind::AllGather), headerTensor(headerOf(callText, place)),
               int64_t(link.group().size() * sizeof(Header)),
               {int64_t(link.group().size() * sizeof(Header))},
               [this](const NcclLink &on, void *from, void *to) {
                 return nccl.allGather(from, to, sizeof(Header), NcclType::U8, on.handle(),
                                       on.stream().handle());
               });
  plan.callText = callText;
  auto transfer = begin(link, std::move(plan), place);
  if (!transfer)
    return transfer.error();
  Result<Tensor> all = wait(**transfer);
  if (!all)
    return all.error();
  std::vector<unsigned char> bytes = all->toBytes();
  Header mine = headerOf(callText, place);
  for (size_t i = 0; i < link.group().size(); ++i) {
    Header other = headerIn(bytes.data() + i * sizeof(Header));
    if (std::strcmp(other.call, mine.call) != 0)
      return fail({ErrorCode::RankFailed, place + ", " + callText + ": rank " +
                                              std::to_string(link.group()[i]) + " calls " +
                                              other.call + " at " + other.place});
  }
  return Status::ok();
}

/// The sender says what comes; the receiver compares.
Status NcclCommunicator::compareMessage(NcclLink &link, const std::string &callText, bool isSender,
                                        const std::string &place) {
  Plan plan;
  plan.group = link.group();
  plan.callText = callText;
  auto headerBytes = std::make_shared<std::vector<unsigned char>>();
  if (isSender)
    plan.input = comm::encode(headerTensor(headerOf(callText, place)));
  else
    plan.outBytes = sizeof(Header);
  plan.function = [this, isSender](const NcclLink &on, void *from, void *to) {
    return isSender
               ? nccl.send(from, sizeof(Header), NcclType::U8, 1, on.handle(), on.stream().handle())
               : nccl.recv(to, sizeof(Header), NcclType::U8, 0, on.handle(), on.stream().handle());
  };
  plan.finish = [headerBytes, isSender](const unsigned char *bytes) -> Result<Tensor> {
    if (!isSender) // a sender's call has no output
      headerBytes->assign(bytes, bytes + sizeof(Header));
    return Tensor();
  };
  auto transfer = begin(link, std::move(plan), place);
  if (!transfer)
    return transfer.error();
  if (isSender) {
    orphans.push_back(std::move(*transfer));
    return Status::ok();
  }
  if (Result<Tensor> received = wait(**transfer); !received)
    return received.error();
  Header header = headerIn(headerBytes->data());
  // "send" and "recv" have four letters each.
  if (callText.compare(4, std::string::npos, header.call + 4) == 0)
    return Status::ok();
  return fail({ErrorCode::RankFailed, place + ", " + callText + ": the next message of rank " +
                                          std::to_string(link.group()[0]) + " is " + header.call +
                                          " at " + header.place});
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status NcclCommunicator::progressAll() {
  for (auto &[name, link] : links)
    if (Status status = link->progress(); !status)
      return status;
  // Sends that have ended.
  for (size_t i = 0; i < orphans.size();) {
    Result<bool> passed =
        orphans[i]->isCalled ? orphans[i]->buffers.done.hasPassed() : Result<bool>(false);
    if (!passed)
      return passed.error();
    if (!*passed) {
      ++i;
      continue;
    }
    spare.push_back(std::move(orphans[i]->buffers));
    orphans.erase(orphans.begin() + std::ptrdiff_t(i));
  }
  return Status::ok();
}

/// Errors of NCCL, and of the job.
Status NcclCommunicator::check(Clock::time_point &nextStoreCheck) {
  if (Status status = progressAll(); !status)
    return status;
  // The store is a process elsewhere; ask it seldom.
  constexpr std::chrono::milliseconds storeEvery(200);
  if (Clock::now() < nextStoreCheck)
    return Status::ok();
  nextStoreCheck = Clock::now() + storeEvery;
  auto alive = store.claim("nccl/alive." + std::to_string(self), "yes");
  return alive ? Status::ok() : Status(alive.error());
}

Result<Tensor> NcclCommunicator::wait(Transfer &transfer) {
  if (hasFailed)
    return failure;
  if (Status status = device->makeCurrent(); !status)
    return fail(status.error());
  auto deadline = Clock::now() + options.timeout;
  auto nextStoreCheck = Clock::now() + std::chrono::milliseconds(50);
  for (int turn = 0;; ++turn) {
    if (Status status = check(nextStoreCheck); !status)
      return fail({status.error().code, transfer.what + ": " + status.error().message});
    bool isDone = transfer.isCalled && transfer.link->isJoined();
    if (isDone && transfer.finish) {
      Result<bool> passed = transfer.buffers.done.hasPassed();
      if (!passed)
        return fail({passed.error().code, transfer.what + ": " + passed.error().message});
      isDone = *passed;
    }
    if (isDone)
      break;
    if (Clock::now() > deadline)
      return fail(timedOut(transfer));
    // Short waits are common, and long ones must not take a core.
    if (turn > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(turn, 1000)));
  }
  if (!transfer.finish)
    return Tensor();
  Result<Tensor> result = transfer.finish(transfer.buffers.hostOut.data());
  spare.push_back(std::move(transfer.buffers));
  return result;
}

/// Asks, through the store, which ranks of the group wait too.
Error NcclCommunicator::timedOut(const Transfer &transfer) {
  std::string key =
      "nccl/waits." + nameOf(transfer.link->group()) + "." + std::to_string(transfer.number) + ".";
  auto claimed = store.claim(key + std::to_string(self), transfer.what);
  if (!claimed)
    return claimed.error();
  std::string missing;
  // All have the same time-out, so those that are here are here by now, give or take.
  auto grace = std::min<std::chrono::milliseconds>(options.timeout / 4, std::chrono::seconds(2));
  for (int64_t rank : transfer.link->group())
    if (rank != self && !store.get(key + std::to_string(rank), grace))
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return {ErrorCode::HangDetected,
          transfer.what + ": waited " + std::to_string(options.timeout.count()) + " ms for " +
              (missing.empty() ? describeRanks(transfer.link->group()) +
                                     ", which are all here: the network between them is stuck"
                               : missing)};
}

/// Ends all communication, here and of the job; the first error counts.
Error NcclCommunicator::fail(Error error) {
  if (hasFailed)
    return failure;
  hasFailed = true;
  failure = std::move(error);
  for (auto &[name, link] : links) {
    link->abort();
    // Buffers are given back from now on. An error here is a consequence of the first.
    static_cast<void>(link->stream().synchronize());
  }
  store.abort(failure);
  return failure;
}

Result<std::unique_ptr<comm::Communicator>> connectNccl(int64_t rank, int64_t numRanks,
                                                        comm::Store &store, const Nccl &nccl,
                                                        const DevicePtr &device,
                                                        const NcclOptions &options) {
  auto communicator =
      std::make_unique<NcclCommunicator>(rank, numRanks, store, nccl, device, options);
  if (Status status = communicator->connect(); !status)
    return status.error();
  return std::unique_ptr<comm::Communicator>(std::move(communicator));
}

} // namespace tbc::cuda
