//===- StreamsRecording.cpp - A step as one graph ---------------------------===//

#include "runtime/cuda/Streams.h"

#include <cstring>

namespace tbc::cuda {

static Error unrecorded(const std::string &why) { return Error{ErrorCode::Usage, why}; }

//===----------------------------------------------------------------------===//
// Recording
//===----------------------------------------------------------------------===//

/// Makes all other streams wait for the compute stream.
Status Streams::fork() {
  Status status = computeStream.record(computed);
  for (const Stream *stream :
       std::initializer_list<const Stream *>{&communicationStream, &copyStream, &copies.stream()})
    if (status)
      status = stream->waitFor(computed);
  return status;
}

/// Makes the compute stream wait for all others; they follow it before their next work.
Status Streams::join() {
  Status status = orderStreams(communicationStream, communicated, computeStream);
  if (status)
    status = orderStreams(copyStream, copied, computeStream);
  if (status)
    status = orderStreams(copies.stream(), copiedAside, computeStream);
  copies.forget();
  return status;
}

Status Streams::beginRecording(int64_t inputBytes, int64_t keptBytes) {
  recorded.reset();
  Status status = device->makeCurrent();
  if (!status)
    return status;
  Recorded next;
  for (auto [memory, bytes] :
       {std::pair(&next.inputs, inputBytes), std::pair(&next.kept, keptBytes)}) {
    auto made = PinnedMemory::allocate(device, bytes);
    if (!made)
      return made.error();
    *memory = std::move(*made);
  }
  if (!progress) {
    auto made = Progress::create(device);
    if (!made)
      return made.error();
    progress = std::move(*made);
  }
  // Captured work must not depend on work outside the capture.
  if (status = join(); !status)
    return status;
  if (communicator)
    status = communicator->beginRecording(progress);
  if (status)
    status = Graph::beginCapture(device, computeStream);
  if (!status) {
    if (communicator)
      communicator->endRecording();
    return status;
  }
  mode = Mode::Recording;
  recorded = std::move(next);
  if (status = fork(); !status)
    static_cast<void>(endRecording()); // the first error counts
  return status;
}

Status Streams::endRecording() {
  Status status = markRecorded();
  Status joined = join();
  mode = Mode::Executing;
  if (communicator)
    communicator->endRecording();
  // Even after an error: only this call ends the capture.
  auto graph = Graph::endCapture(device, computeStream);
  for (const Status &one : {status, joined, graph ? Status::ok() : Status(graph.error())})
    if (!one) {
      recorded.reset();
      return one;
    }
  recorded->graph = std::move(*graph);
  return Status::ok();
}

Status Streams::noteRecorded(const std::string &what) {
  ++recorded->numKernels;
  Mark &rest = recorded->rest;
  rest.first = rest.count++ == 0 ? &what : rest.first;
  rest.last = &what;
  return rest.count < kernelsPerMark ? Status::ok() : markRecorded();
}

Status Streams::markRecorded() {
  Mark &rest = recorded->rest;
  int number = int(recorded->marks.size()) + 1;
  // Without numbers left, the event behind the graph covers the rest.
  if (rest.count == 0 || (timeout.count() == 0 && !watched) || number > Progress::most)
    return Status::ok();
  rest.number = number;
  recorded->marks.push_back(std::move(rest));
  rest = Mark();
  return progress->tell(computeStream, Progress::Kernels, number);
}

Status Streams::recordUpload(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  int64_t begin = recorded->inputBytes();
  if (begin + bytes > recorded->inputs.bytes())
    return unrecorded("the inputs of a step are larger than the Program says");
  if (bytes == 0)
    return Status::ok();
  unsigned char *place = recorded->inputs.data() + begin;
  std::memcpy(place, from, size_t(bytes));
  recorded->inputPlaces.push_back({to, begin, bytes});
  Status status = beginCopy();
  if (status)
    status = copies.beforeUseBy(copyStream, {to, bytes}, /*isWrite=*/true);
  if (status)
    status = copyStream.copyToDevice(to, place, bytes);
  return status ? endCopy() : status;
}

Result<int> Streams::keep(program::Stream stream, DeviceAddress from, int64_t bytes) {
  int64_t begin = recorded->keptBytes();
  if (begin + bytes > recorded->kept.bytes())
    return unrecorded("too much is looked at in a step");
  recorded->keptPlaces.push_back({from, begin, bytes});
  if (Status status = of(stream).copyToHost(recorded->kept.data() + begin, from, bytes); !status)
    return status.error();
  return int(recorded->keptPlaces.size()) - 1;
}

//===----------------------------------------------------------------------===//
// Replay
//===----------------------------------------------------------------------===//

Status Streams::beginReplay() {
  Status status = device->makeCurrent();
  if (status) // the previous launch may still read its inputs
    status = explain(await(launched));
  if (!status)
    return status;
  numUnderWay = 0;
  if (Result<int64_t> passed = numPassed(); !passed)
    return passed.error();
  recorded->numGiven = 0;
  mode = Mode::Replaying;
  return Status::ok();
}

Status Streams::replayUpload(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  if (bytes == 0)
    return Status::ok();
  const std::vector<Stretch> &places = recorded->inputPlaces;
  if (recorded->numGiven == places.size())
    return unrecorded("a step has more inputs than the one that was recorded");
  const Stretch &place = places[recorded->numGiven++];
  if (place.address != to || place.bytes != bytes)
    return unrecorded("a step has other inputs than the one that was recorded");
  std::memcpy(recorded->inputs.data() + place.begin, from, size_t(bytes));
  return Status::ok();
}

Status Streams::launch() {
  bool isReplay = mode == Mode::Replaying;
  mode = Mode::Executing;
  if (isReplay && recorded->numGiven != recorded->inputPlaces.size())
    return unrecorded("a step has fewer inputs than the one that was recorded");
  progress->reset();
  static const std::string what = "launching the graph of a step";
  HostWatch::Call call(watched.get(), what);
  // Copies of an executed step may still run. The graph does not know them, and may use their
  // memory. Example: new optimizer states on their way to the host after a timed step.
  Status status = copies.isAny() ? join() : Status::ok();
  if (status)
    status = recorded->graph.launch(computeStream);
  if (status)
    status = computeStream.record(launched);
  if (status && communicator)
    status = communicator->launched();
  if (!status)
    return status;
  auto add = [&](const Mark &mark) {
    oldest = numUnderWay == 0 ? mark.first : oldest;
    newest = mark.last;
    numUnderWay += mark.count;
  };
  for (const Mark &mark : recorded->marks) {
    add(mark);
    marks.push_back({mark.first, mark.last, mark.count, Event(), mark.number});
  }
  const Mark &rest = recorded->rest;
  if (rest.count == 0)
    return Status::ok();
  add(rest);
  open.first = rest.first, open.last = rest.last, open.count = rest.count;
  return noteEnd();
}

Result<const unsigned char *> Streams::kept(int number) {
  if (Status status = explain(await(launched)); !status)
    return status.error();
  return static_cast<const unsigned char *>(recorded->kept.data() +
                                            recorded->keptPlaces.at(size_t(number)).begin);
}

} // namespace tbc::cuda
