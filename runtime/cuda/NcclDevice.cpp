//===- NcclDevice.cpp - Collectives on device memory -----------------------===//

#include "runtime/cuda/NcclRank.h"

#include <algorithm>
#include <thread>

namespace tbc::cuda {

using comm::Group;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using Clock = std::chrono::steady_clock;

static void *pointerTo(DeviceAddress address) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Returns, for example, "all_gather of 4xf32, 6xf32", with the elements of one rank's part.
static std::string describeTensors(const std::string &call,
                                   const std::vector<DeviceOperand> &tensors) {
  std::string text;
  for (const DeviceOperand &tensor : tensors)
    text += (text.empty() ? " of " : ", ") +
            kernels::toString(kernels::TensorType{tensor.dtype, {tensor.count}});
  return call + text;
}

/// Returns a type of the same width, for calls that only move elements.
static NcclType movedType(DType dtype) {
  switch (kernels::byteWidth(dtype)) {
  case 8:
    return NcclType::U64;
  case 4:
    return NcclType::U32;
  case 2:
    return NcclType::F16;
  default:
    return NcclType::U8;
  }
}

/// Calls `function` for each tensor, as one NCCL group if there are several.
static NcclCode callAll(const Nccl &nccl, const std::vector<DeviceOperand> &tensors,
                        const std::function<NcclCode(const DeviceOperand &)> &function) {
  if (tensors.size() == 1)
    return function(tensors[0]);
  NcclCode code = nccl.groupStart();
  for (size_t t = 0; t < tensors.size() && isTaken(code); ++t)
    code = function(tensors[t]);
  NcclCode end = nccl.groupEnd();
  return isTaken(code) ? end : code;
}

bool NcclRank::reduces(DType dtype, comm::ReduceKind kind) const {
  return reducedType(dtype, Arith::Native, kind).has_value() && kind != comm::ReduceKind::PremulSum;
}

/// Returns the link of this name after all of its ranks have joined and NCCL has accepted all
/// calls.
Result<NcclLink *> NcclRank::joinedLink(const Group &group, const std::string &name,
                                        const std::string &what) {
  auto link = linkOf(group, name);
  if (!link)
    return fail(link.error(), what);
  if (!(*link)->isIdle())
    if (Status status = settle(**link, what); !status)
      return status.error();
  return link;
}

/// Returns an unused call.
Result<std::unique_ptr<DeviceCall>> NcclRank::takeCall(NcclLink &link, const std::string &what) {
  constexpr size_t manyCalls = 64;
  if (calls.size() >= manyCalls)
    if (Status status = pollCalls(); !status)
      return status.error();
  std::unique_ptr<DeviceCall> call;
  if (spareCalls.empty()) {
    call = std::make_unique<DeviceCall>();
    for (Event *event : {&call->begun, &call->done}) {
      Result<Event> made = Event::create(device);
      if (!made)
        return made.error();
      *event = std::move(*made);
    }
  } else {
    call = std::move(spareCalls.back());
    spareCalls.pop_back();
  }
  call->link = &link;
  call->number = link.numCalls++;
  call->what = what;
  call->isMessage = call->isEnqueued = call->hasBegun = false;
  call->toldBegin = 0;
  return call;
}

/// Enqueues a call of the whole group in the stream.
Status NcclRank::enqueueCall(const Group &group, const std::string &callText, const Stream &stream,
                             const std::string &place, const GroupFn &function) {
  if (Status status = watch->status(); !status)
    return status;
  std::string what = place + ", " + callText;
  if (isRecording) {
    auto met = links.find(nameOf(group));
    if (met == links.end() || !met->second->isJoined() || options.checksCalls)
      return Error{ErrorCode::Usage, what + " cannot be part of a graph"};
    return recordCall(*met->second, what, stream, function);
  }
  auto link = joinedLink(group, nameOf(group), what);
  if (!link)
    return link.error();
  if (options.checksCalls)
    if (Status status = compareCalls(**link, callText, place); !status)
      return status;
  auto call = takeCall(**link, what);
  if (!call)
    return fail(call.error(), what);
  Status status = stream.record((*call)->begun);
  if (status)
    status = callNow(**link, {what, [&] { return function(**link); }, {}});
  if (status)
    status = stream.record((*call)->done);
  if (!status)
    return fail(status.error());
  (*call)->isEnqueued = true;
  calls.push_back(std::move(*call));
  noteOldest();
  return Status::ok();
}

Status NcclRank::enqueueAllReduce(const Group &group, comm::ReduceKind kind,
                                  const std::vector<DeviceOperand> &tensors, const Stream &stream,
                                  const std::string &place) {
  return enqueueCall(group, describeTensors(describe(comm::Call(kind)), tensors), stream, place,
                     [&](const NcclLink &link) {
                       return callAll(nccl, tensors, [&](const DeviceOperand &tensor) {
                         return nccl.allReduce(pointerTo(tensor.from), pointerTo(tensor.to),
                                               size_t(tensor.count),
                                               *reducedType(tensor.dtype, Arith::Native, kind),
                                               plainOp(kind), link.handle(), stream.handle());
                       });
                     });
}

Status NcclRank::enqueueAllGather(const Group &group, const std::vector<DeviceOperand> &tensors,
                                  const Stream &stream, const std::string &place) {
  return enqueueCall(
      group, describeTensors("all_gather", tensors), stream, place, [&](const NcclLink &link) {
        return callAll(nccl, tensors, [&](const DeviceOperand &tensor) {
          return nccl.allGather(pointerTo(tensor.from), pointerTo(tensor.to), size_t(tensor.count),
                                movedType(tensor.dtype), link.handle(), stream.handle());
        });
      });
}

Status NcclRank::enqueueReduceScatter(const Group &group, const std::vector<DeviceOperand> &tensors,
                                      const Stream &stream, const std::string &place) {
  comm::ReduceKind sum = comm::ReduceKind::Sum;
  return enqueueCall(group, describeTensors("reduce_scatter", tensors), stream, place,
                     [&](const NcclLink &link) {
                       return callAll(nccl, tensors, [&](const DeviceOperand &tensor) {
                         return nccl.reduceScatter(pointerTo(tensor.from), pointerTo(tensor.to),
                                                   size_t(tensor.count),
                                                   *reducedType(tensor.dtype, Arith::Native, sum),
                                                   NcclOp::Sum, link.handle(), stream.handle());
                       });
                     });
}

Status NcclRank::enqueueExchange(const Group &group, const std::vector<DevicePart> &sent,
                                 const std::vector<DevicePart> &received, const Stream &stream,
                                 const std::string &what, const std::string &place) {
  int64_t bytes = 0;
  for (const DevicePart &part : sent)
    bytes += part.bytes;
  return enqueueCall(
      group, what + " of " + std::to_string(bytes) + " bytes", stream, place,
      [&](const NcclLink &link) {
        // One NCCL group, so that all transfers run at once.
        NcclCode code = nccl.groupStart();
        for (size_t i = 0; i < sent.size() && isTaken(code); ++i)
          code = nccl.send(pointerTo(sent[i].address), size_t(sent[i].bytes), NcclType::U8,
                           int(sent[i].index), link.handle(), stream.handle());
        for (size_t i = 0; i < received.size() && isTaken(code); ++i)
          code = nccl.recv(pointerTo(received[i].address), size_t(received[i].bytes), NcclType::U8,
                           int(received[i].index), link.handle(), stream.handle());
        NcclCode end = nccl.groupEnd();
        return isTaken(code) ? end : code;
      });
}

//===----------------------------------------------------------------------===//
// Registered memory
//===----------------------------------------------------------------------===//

Status NcclRank::registerMemory(const Group &group, DeviceAddress begin, int64_t bytes,
                                const std::string &place) {
  if (Status status = watch->status(); !status)
    return status;
  if (!nccl.registerMemory || bytes == 0)
    return Status::ok();
  std::string what = place + ", registering the memory plan";
  auto link = joinedLink(group, nameOf(group), what);
  if (!link)
    return link.error();
  for (const Registration &one : registrations)
    if (one.link == *link && one.begin == begin)
      return Status::ok();
  void *handle = nullptr;
  auto call = [&] {
    return nccl.registerMemory((*link)->handle(), pointerTo(begin), size_t(bytes), &handle);
  };
  if (Status status = callNow(**link, {what, call, {}}); !status)
    return status;
  registrations.push_back({*link, begin, handle});
  return Status::ok();
}

void NcclRank::deregisterAll() {
  for (const Registration &one : registrations)
    if (!watch->hasFailed() && one.handle) // neither aborted, nor disabled by its environment
      nccl.deregister(one.link->handle(), one.handle);
  registrations.clear();
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Returns unused memory of at least this size.
Result<DeviceMemory> NcclRank::takeSent(int64_t bytes) {
  for (DeviceMemory &memory : spareSent)
    if (memory.bytes() >= bytes && memory.bytes() <= 2 * bytes) {
      std::swap(memory, spareSent.back());
      DeviceMemory taken = std::move(spareSent.back());
      spareSent.pop_back();
      return taken;
    }
  return DeviceMemory::allocate(device, bytes, "the copy of a message");
}

/// A message runs concurrently to the rest of a step. CUDA does not guarantee this for branches of
/// a graph.
static Error noMessage(const std::string &place) {
  return Error{ErrorCode::Usage, place + ": a message cannot be part of a graph"};
}

/// Sends a copy concurrently, in the stream of its link.
Status NcclRank::enqueueSend(int64_t to, comm::Tag tag, DeviceAddress from, int64_t bytes,
                             const Stream &stream, const std::string &place) {
  if (Status status = watch->status(); !status)
    return status;
  if (isRecording)
    return noMessage(place);
  if (bytes == 0)
    return Status::ok();
  Group pair = {self, to};
  std::string callText =
      "send " + std::to_string(tag.channel) + " of " + std::to_string(bytes) + " bytes";
  std::string what = place + ", " + callText;
  auto link = linkOf(pair, nameOfMessages(pair, tag.lane));
  if (!link)
    return fail(link.error(), what);
  if (options.checksCalls)
    if (Status status = compareMessage(**link, callText, /*isSender=*/true, place); !status)
      return status;
  if (Status status = pollCalls(); !status)
    return fail(status.error());
  auto memory = takeSent(bytes);
  if (!memory)
    return fail(memory.error(), what);
  auto call = takeCall(**link, what);
  if (!call)
    return fail(call.error(), what);
  (*call)->sent = std::move(*memory);
  (*call)->isMessage = true;
  Status status = (*link)->needStream();
  if (status)
    status = stream.copyWithin((*call)->sent.address(), from, bytes);
  if (status)
    status = stream.record((*call)->begun);
  if (status)
    status = (*link)->stream().waitFor((*call)->begun);
  DeviceCall *raw = call->get();
  calls.push_back(std::move(*call));
  auto begin = [this, raw, bytes] {
    return nccl.send(pointerTo(raw->sent.address()), size_t(bytes), NcclType::U8, 1,
                     raw->link->handle(), raw->link->stream().handle());
  };
  auto then = [raw]() -> Status {
    Status done = raw->link->stream().record(raw->done);
    raw->isEnqueued = bool(done);
    return done;
  };
  if (status)
    status = (*link)->call({what, begin, then});
  return status ? Status::ok() : Status(failOfNccl(status.error()));
}

Status NcclRank::enqueueRecv(int64_t from, comm::Tag tag, DeviceAddress into, int64_t bytes,
                             const Stream &stream, const std::string &place) {
  if (Status status = watch->status(); !status)
    return status;
  if (isRecording)
    return noMessage(place);
  if (bytes == 0)
    return Status::ok();
  Group pair = {from, self};
  std::string callText =
      "recv " + std::to_string(tag.channel) + " of " + std::to_string(bytes) + " bytes";
  std::string what = place + ", " + callText;
  auto link = joinedLink(pair, nameOfMessages(pair, tag.lane), what);
  if (!link)
    return link.error();
  if (options.checksCalls)
    if (Status status = compareMessage(**link, callText, /*isSender=*/false, place); !status)
      return status;
  auto call = takeCall(**link, what);
  if (!call)
    return fail(call.error(), what);
  // In the link's own stream: messages wait only for their sender, and for the memory.
  Status status = (*link)->needStream();
  if (!status)
    return fail(status.error());
  const Stream &own = (*link)->stream();
  status = stream.record((*call)->begun);
  if (status)
    status = own.waitFor((*call)->begun);
  auto begin = [&] {
    return nccl.recv(pointerTo(into), size_t(bytes), NcclType::U8, 0, (*link)->handle(),
                     own.handle());
  };
  if (status)
    status = callNow(**link, {what, begin, {}});
  if (status)
    status = own.record((*call)->done);
  if (status)
    status = stream.waitFor((*call)->done);
  if (!status)
    return fail(status.error());
  (*call)->isEnqueued = true;
  calls.push_back(std::move(*call));
  noteOldest();
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Status NcclRank::beginRecording(std::shared_ptr<const Progress> ofGraph) {
  if (Status status = watch->status(); !status)
    return status;
  progress = std::move(ofGraph);
  recordedCalls.clear();
  isRecording = true;
  return Status::ok();
}

/// Enqueues a call in the captured stream.
Status NcclRank::recordCall(NcclLink &link, const std::string &what, const Stream &stream,
                            const GroupFn &function) {
  int told = 2 * int(recordedCalls.size()) + 1;
  if (told + 1 > Progress::most)
    return Error{ErrorCode::Usage, "a step has too many collectives to be one graph"};
  recordedCalls.push_back({&link, what});
  Status status = progress->tell(stream, Progress::Collectives, told);
  // NCCL detects the capture.
  if (status)
    status = callNow(link, {what + ", as part of a graph", [&] { return function(link); }, {}});
  if (status)
    status = progress->tell(stream, Progress::Collectives, told + 1);
  return status;
}

Status NcclRank::launched() {
  if (Status status = watch->status(); !status)
    return status;
  // The calls of the previous launch have ended.
  auto over = std::stable_partition(calls.begin(), calls.end(),
                                    [](const auto &call) { return call->toldBegin == 0; });
  numCallsEnded += calls.end() - over;
  std::move(over, calls.end(), std::back_inserter(spareCalls));
  calls.erase(over, calls.end());
  for (size_t i = 0; i < recordedCalls.size(); ++i) {
    auto call = takeCall(*recordedCalls[i].link, recordedCalls[i].what);
    if (!call)
      return fail(call.error());
    (*call)->toldBegin = 2 * int(i) + 1;
    (*call)->isEnqueued = true;
    calls.push_back(std::move(*call));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Waits on a stream
//===----------------------------------------------------------------------===//

Result<bool> NcclRank::hasEnded(const DeviceCall &call) const {
  if (call.toldBegin > 0)
    return progress->seen(Progress::Collectives) > call.toldBegin;
  return call.isEnqueued ? call.done.hasPassed() : Result<bool>(false);
}

Result<bool> NcclRank::hasBegun(const DeviceCall &call) const {
  if (call.toldBegin > 0)
    return progress->seen(Progress::Collectives) >= call.toldBegin;
  return call.begun.hasPassed();
}

/// Updates which calls have begun and which have ended.
Status NcclRank::pollCalls() {
  for (size_t i = 0; i < calls.size();) {
    DeviceCall &call = *calls[i];
    Result<bool> isDone = hasEnded(call);
    Result<bool> isBegun =
        call.hasBegun || !isDone || *isDone ? Result<bool>(call.hasBegun) : hasBegun(call);
    if (!isDone || !isBegun)
      return isDone ? isBegun.error() : isDone.error();
    if (!*isDone) {
      if (*isBegun && !call.hasBegun)
        call.hasBegun = true, call.since = Clock::now();
      ++i;
      continue;
    }
    if (call.sent.bytes() > 0)
      spareSent.push_back(std::move(call.sent));
    call.sent = DeviceMemory();
    spareCalls.push_back(std::move(calls[i]));
    calls.erase(calls.begin() + std::ptrdiff_t(i));
    ++numCallsEnded;
  }
  noteOldest();
  return Status::ok();
}

Status NcclRank::checkCalls() {
  Status status = watch->status();
  if (status)
    status = progressAll();
  if (!status)
    return status;
  if (status = pollCalls(); status)
    return status;
  auto atWork = std::find_if(calls.begin(), calls.end(),
                             [](const auto &call) { return call->hasBegun && !call->isMessage; });
  return atWork == calls.end() ? fail(status.error()) : fail(status.error(), (*atWork)->what);
}

void NcclRank::standsAt(const std::string &kernels) {
  auto atWork = std::find_if(calls.begin(), calls.end(),
                             [](const auto &call) { return call->hasBegun && !call->isMessage; });
  const std::string &what = atWork == calls.end() ? kernels : (*atWork)->what;
  if (standing == what)
    return;
  movesOn();
  standing = what;
  recorder.begin(standing);
  if (atWork != calls.end())
    recorder.waitFor((*atWork)->link->others());
}

void NcclRank::movesOn() {
  if (!standing.empty())
    recorder.end();
  standing.clear();
}

/// Notes the oldest call for the watch, which does not call the driver, because the driver may
/// hang.
void NcclRank::noteOldest() {
  auto first =
      std::find_if(calls.begin(), calls.end(), [](const auto &call) { return !call->isMessage; });
  std::lock_guard<std::mutex> lock(oldestMutex);
  oldest = first == calls.end() ? "" : (*first)->what;
  oldestOthers = first == calls.end() ? Group() : (*first)->link->others();
}

bool NcclRank::isAnyUnderWay() const {
  return std::any_of(calls.begin(), calls.end(),
                     [](const auto &call) { return call->hasBegun && !call->isMessage; });
}

std::optional<Error> NcclRank::hangingCall() {
  for (const auto &call : calls)
    if (call->hasBegun && !call->isMessage && watch->limit().count() > 0 &&
        Clock::now() - call->since > watch->limit())
      return timedOut(*call->link, call->what);
  return std::nullopt;
}

/// Waits until all sent messages have been received.
Status NcclRank::finishMessages() {
  auto deadline = Clock::now() + watch->limit();
  auto isMessage = [](const auto &call) { return call->isMessage; };
  while (!watch->hasFailed() && std::any_of(calls.begin(), calls.end(), isMessage)) {
    if (Status status = checkCalls(); !status)
      return status;
    if (watch->limit().count() > 0 && Clock::now() > deadline) {
      auto call = std::find_if(calls.begin(), calls.end(), isMessage);
      return timedOut(*(*call)->link, (*call)->what);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return Status::ok();
}

} // namespace tbc::cuda
