//===- Streams.cpp - The streams of a rank on its GPU ----------------------===//

#include "runtime/cuda/Streams.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tbc::cuda {

// Large enough for the link's full speed, and small enough to overlap with packing the next piece.
static constexpr int64_t stageBytes = int64_t(4) << 20;
static constexpr int numStages = 3;

/// Moves the value of `result` to `to`.
template <typename T> static Status take(Result<T> result, T &to) {
  if (!result)
    return result.error();
  to = std::move(*result);
  return Status::ok();
}

Result<std::shared_ptr<Streams>> Streams::create(const DevicePtr &device,
                                                 std::chrono::milliseconds timeout,
                                                 std::shared_ptr<HostWatch> watch) {
  auto streams = std::make_shared<Streams>();
  streams->device = device;
  streams->timeout = timeout;
  streams->watched = std::move(watch);
  streams->stages.resize(numStages);
  Status status;
  for (Stage &stage : streams->stages) {
    if (status = take(PinnedMemory::allocate(device, stageBytes), stage.memory); !status)
      return status.error();
    if (status = take(Event::create(device), stage.done); !status)
      return status.error();
  }
  for (Event *event : {&streams->computed, &streams->communicated, &streams->copied,
                       &streams->launched, &streams->copiedAside})
    if (status = take(Event::create(device), *event); !status)
      return status.error();
  if (status = take(HostCopies::create(device), streams->copies); !status)
    return status.error();
  if (status = take(Stream::create(device, "compute"), streams->computeStream); !status)
    return status.error();
  if (status = take(Stream::create(device, "communication"), streams->communicationStream); !status)
    return status.error();
  if (status = take(Stream::create(device, "copy"), streams->copyStream); !status)
    return status.error();
  return streams;
}

DeviceCommunicator *Streams::unwatch() {
  // Also for collectives whose other ranks never come: after an error of the communicator, none of
  // its calls is running.
  if (communicator && !device->isGivenUp())
    static_cast<void>(wait());
  return std::exchange(communicator, nullptr);
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

Status Streams::orderStreams(const Stream &before, const Event &event, const Stream &after) const {
  if (Status status = before.record(event); !status)
    return status;
  return after.waitFor(event);
}

Status Streams::order(program::Stream before, program::Stream after) {
  if (before == after)
    return Status::ok();
  isCommunicating = true;
  copies.noteOrder(before, after);
  return orderStreams(of(before), before == program::Stream::Compute ? computed : communicated,
                      of(after));
}

/// Makes the copy stream wait for the program's streams.
Status Streams::beginCopy() {
  Status status = orderStreams(computeStream, computed, copyStream);
  return status && isCommunicating ? orderStreams(communicationStream, communicated, copyStream)
                                   : status;
}

/// Makes the program's streams wait for the copy stream.
Status Streams::endCopy() {
  Status status = orderStreams(copyStream, copied, computeStream);
  return status && isCommunicating ? communicationStream.waitFor(copied) : status;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status Streams::explain(const Status &status) const {
  if (status || status.error().code != ErrorCode::RankFailed)
    return status;
  Error error = status.error();
  if (numUnderWay > 0)
    error.message += "; " + (numUnderWay == 1 ? "launched since the last wait: " + *oldest
                                              : "one of the " + std::to_string(numUnderWay) +
                                                    " kernels launched since the last wait, from " +
                                                    *oldest + " to " + *newest);
  if (isEnding)
    return error;
  // No other rank shall wait for this one.
  return communicator ? communicator->giveUp(error) : watched ? watched->fail(error) : error;
}

Status Streams::note(const std::string &what) {
  if (mode == Mode::Recording)
    return noteRecorded(what);
  oldest = numUnderWay++ == 0 ? &what : oldest;
  newest = &what;
  open.first = open.count++ == 0 ? &what : open.first;
  open.last = &what;
  return open.count < kernelsPerMark ? Status::ok() : noteEnd();
}

Status Streams::noteEnd() {
  if (mode == Mode::Recording)
    return markRecorded();
  if (open.count == 0 || (timeout.count() == 0 && !watched))
    return Status::ok();
  if (spareEvents.empty()) {
    Result<Event> made = Event::create(device);
    if (!made)
      return made.error();
    spareEvents.push_back(std::move(*made));
  }
  open.end = std::move(spareEvents.back());
  spareEvents.pop_back();
  Status status = computeStream.record(open.end);
  marks.push_back(std::move(open));
  open = Mark();
  return status;
}

/// Returns the number of marks passed so far.
Result<int64_t> Streams::numPassed() {
  while (!marks.empty()) {
    const Mark &mark = marks.front();
    Result<bool> passed = mark.number > 0
                              ? Result<bool>(progress->seen(Progress::Kernels) >= mark.number)
                              : mark.end.hasPassed();
    if (!passed)
      return passed.error();
    if (!*passed)
      break;
    if (mark.number == 0)
      spareEvents.push_back(std::move(marks.front().end));
    marks.pop_front();
    ++numMarksPassed;
  }
  return numMarksPassed;
}

/// Names the oldest kernels that may still be running.
std::string Streams::kernelsUnderWay() const {
  const Mark &mark = marks.empty() ? open : marks.front();
  std::string kernels = mark.count == 0 ? "copies"
                        : mark.count == 1
                            ? *mark.first
                            : "one of the " + std::to_string(mark.count) + " kernels from " +
                                  *mark.first + " to " + *mark.last;
  return kernels + (mark.number > 0 ? ", in the graph of a step" : "");
}

/// Handles a lack of progress: names the running kernels, because communication would have reported
/// its own error. The device is lost to this process: any wait for it would last forever.
Error Streams::hang() {
  device->giveUp();
  Error error{ErrorCode::HangDetected,
              device->name() + ": waited " + std::to_string(limit().count()) + " ms for " +
                  kernelsUnderWay() + "; if that is no more than it takes, raise --timeout"};
  return communicator ? communicator->giveUp(error) : watched ? watched->fail(error) : error;
}

/// Waits for the event, as long as there is progress.
Status Streams::await(const Event &event) {
  if (!communicator && !watched && timeout.count() == 0)
    return event.wait();
  // During the wait, other ranks can ask for the standing of this one.
  struct Stand {
    DeviceCommunicator *communicator;
    ~Stand() {
      if (communicator)
        communicator->movesOn();
    }
  } stand{communicator};
  static const std::string what = "a question to the driver";
  HostWatch::Call call(watched.get(), what);
  auto since = std::chrono::steady_clock::now();
  int64_t seen = -1;
  for (int turn = 0;; ++turn) {
    call.getOn();
    Result<bool> passed = event.hasPassed();
    // A stream also ends if its communicators were aborted.
    if (passed && *passed && !device->isGivenUp())
      return Status::ok();
    if (!passed)
      return passed.error();
    if (watched)
      if (Status status = watched->status(); !status)
        return status;
    if (communicator) {
      if (Status status = communicator->checkCalls(); !status)
        return status;
      if (std::optional<Error> error = communicator->hangingCall())
        return *error;
    }
    if (*passed) // the device was given up without a known reason
      return Status::ok();
    Result<int64_t> count = numPassed();
    if (!count)
      return count.error();
    int64_t now = *count + (communicator ? communicator->numEnded() : 0);
    // A running call is the awaited one, with its own time-out.
    if (now != seen || (communicator && communicator->isAnyUnderWay())) {
      seen = now;
      since = std::chrono::steady_clock::now();
    } else if (limit().count() > 0 && std::chrono::steady_clock::now() - since > limit()) {
      return hang();
    }
    constexpr int turnsPerNote = 64;
    if (communicator && turn > 100 && turn % turnsPerNote == 0)
      communicator->standsAt(device->name() + ": " + kernelsUnderWay());
    // Short waits are common, and long ones must not occupy a core.
    if (turn > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(turn / 10, 200)));
  }
}

static Error midStep() {
  return Error{ErrorCode::Usage, "the host looks at the device in the middle of a step"};
}

Status Streams::wait() {
  if (mode == Mode::Recording)
    return midStep();
  Status status = device->makeCurrent();
  if (status)
    status = beginCopy();
  if (status)
    status = orderStreams(copies.stream(), copiedAside, copyStream);
  if (status)
    status = copyStream.record(copied);
  if (status)
    status = explain(await(copied));
  numUnderWay = status ? 0 : numUnderWay;
  return status;
}

Status Streams::waitUntil(const Event &point) {
  return mode == Mode::Recording ? midStep() : explain(await(point));
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Returns the next piece of pinned memory after its last use has ended.
Result<Streams::Stage *> Streams::nextStage() {
  Stage &stage = stages[numStaged++ % stages.size()];
  if (Status status = await(stage.done); !status)
    return status.error();
  return &stage;
}

Status Streams::clear(DeviceAddress at, int64_t bytes) {
  Status status = device->makeCurrent();
  if (status)
    status = beforeUse(program::Stream::Compute, {at, bytes}, /*isWrite=*/true);
  return status && bytes > 0 ? computeStream.fill(at, 0, bytes) : status;
}

Status Streams::finishHostCopies() {
  if (mode != Mode::Executing)
    return midStep();
  Status status = device->makeCurrent();
  if (status && recorded) // the graph of a step has its copies within it
    status = explain(await(launched));
  if (status)
    status = copies.stream().record(copiedAside);
  return status ? explain(await(copiedAside)) : status;
}

Status Streams::upload(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  if (mode != Mode::Executing)
    return mode == Mode::Recording ? recordUpload(to, from, bytes) : replayUpload(to, from, bytes);
  return explain(uploadPieces(to, from, bytes));
}

Status Streams::download(unsigned char *to, DeviceAddress from, int64_t bytes) {
  if (mode != Mode::Executing)
    return midStep();
  if (Status status = device->makeCurrent(); !status)
    return status;
  Status status = explain(downloadPieces(to, from, bytes));
  numUnderWay = status ? 0 : numUnderWay;
  return status;
}

Status Streams::uploadPieces(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  Status begun = beginCopy();
  if (begun)
    begun = copies.beforeUseBy(copyStream, {to, bytes}, /*isWrite=*/true);
  if (!begun)
    return begun;
  for (int64_t done = 0; done < bytes; done += stageBytes) {
    int64_t count = std::min(stageBytes, bytes - done);
    Result<Stage *> stage = nextStage();
    if (!stage)
      return stage.error();
    std::memcpy((*stage)->memory.data(), from + done, size_t(count));
    Status status =
        copyStream.copyToDevice(to + DeviceAddress(done), (*stage)->memory.data(), count);
    if (status)
      status = copyStream.record((*stage)->done);
    if (!status)
      return status;
  }
  return endCopy();
}

Status Streams::downloadPieces(unsigned char *to, DeviceAddress from, int64_t bytes) {
  Status begun = beginCopy();
  if (begun)
    begun = copies.beforeUseBy(copyStream, {from, bytes}, /*isWrite=*/false);
  if (!begun)
    return begun;
  struct Piece {
    Stage *stage;
    int64_t begin, count;
  };
  std::vector<Piece> pieces; // in flight, oldest first
  auto finish = [&]() -> Status {
    Piece piece = pieces.front();
    pieces.erase(pieces.begin());
    if (Status status = await(piece.stage->done); !status)
      return status;
    std::memcpy(to + piece.begin, piece.stage->memory.data(), size_t(piece.count));
    return Status::ok();
  };
  for (int64_t done = 0; done < bytes; done += stageBytes) {
    if (pieces.size() == stages.size())
      if (Status status = finish(); !status)
        return status;
    Piece piece = {nullptr, done, std::min(stageBytes, bytes - done)};
    Result<Stage *> stage = nextStage();
    if (!stage)
      return stage.error();
    piece.stage = *stage;
    Status status =
        copyStream.copyToHost(piece.stage->memory.data(), from + DeviceAddress(done), piece.count);
    if (status)
      status = copyStream.record(piece.stage->done);
    if (!status)
      return status;
    pieces.push_back(piece);
  }
  while (!pieces.empty())
    if (Status status = finish(); !status)
      return status;
  return Status::ok();
}

} // namespace tbc::cuda
