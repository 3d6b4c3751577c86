//===- Streams.h - The streams of a rank on its GPU ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_STREAMS_H
#define TBC_RUNTIME_CUDA_STREAMS_H

#include "runtime/abi/Program.h"
#include "runtime/cuda/DeviceCommunicator.h"
#include "runtime/cuda/Graph.h"
#include "runtime/cuda/HostCopies.h"
#include "runtime/cuda/HostWatch.h"
#include "runtime/cuda/Progress.h"

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

namespace tbc::cuda {

/// The streams of a rank. Two are the Program's, for kernels and communication. One is for the
/// Program's copies between host and device. One is for uploads and downloads, which go through
/// pinned memory piece by piece, so that packing and moving overlap. One thread at a time uses
/// them, any thread.
///
/// Every wait checks for errors of the communicator, and the clock.
class Streams {
public:
  /// `timeout`: the longest wait without any progress; 0: forever. If `watch` is given, its
  /// time-out applies, and it learns of every failure.
  static Result<std::shared_ptr<Streams>> create(const DevicePtr &device,
                                                 std::chrono::milliseconds timeout,
                                                 std::shared_ptr<HostWatch> watch = nullptr);
  ~Streams() { unwatch(); }

  const Stream &of(program::Stream stream) const {
    return stream == program::Stream::Compute ? computeStream : communicationStream;
  }
  /// Makes later work in `after` wait for the current work in `before`.
  Status order(program::Stream before, program::Stream after);

  HostCopies &hostCopies() { return copies; }
  /// Announces that the next work in this stream reads or writes the bytes.
  Status beforeUse(program::Stream stream, const DeviceRange &range, bool isWrite) {
    return copies.isAny() ? copies.beforeUse(stream, of(stream), range, isWrite) : Status::ok();
  }
  /// Waits for all of the Program's copies between host and device.
  Status finishHostCopies();

  /// Copies after the current work of the program's streams, and before their later work. The bytes
  /// may change as soon as it returns.
  Status upload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  /// Copies after the current work of the program's streams, and waits.
  Status download(unsigned char *to, DeviceAddress from, int64_t bytes);
  /// Waits for all work in the program's streams.
  Status wait();
  /// Waits for a point of one of the program's streams.
  Status waitUntil(const Event &point);
  /// Enqueues zeros in the compute stream.
  Status clear(DeviceAddress at, int64_t bytes);

  /// Returns the error of a driver call, with the kernels that may have caused it. Reports it to
  /// the watch, if there is one, until `end`.
  Status explain(const Status &status) const;
  /// Begins the end of the rank. Later errors may only follow from an earlier one, and are not
  /// reported.
  void end() { isEnding = true; }

  /// Notes that `what`, which must stay valid, was launched in a stream of the program: for errors
  /// that show later.
  Status note(const std::string &what);
  /// Notes the end of a block: waits report later launches separately.
  Status noteEnd();
  /// Makes waits also check these calls, until `unwatch`.
  void watch(DeviceCommunicator &calls) { communicator = &calls; }
  /// Waits once more for all calls. Returns their communicator, or null.
  DeviceCommunicator *unwatch();

  // A step as one graph (StreamsRecording.cpp). During recording, enqueued work is not executed,
  // and calls that would wait for the device are errors of code Usage.

  /// `inputBytes` and `keptBytes`: the most bytes to be uploaded and kept. Each tensor counts as a
  /// multiple of 256. Example: tensors of 4 and 300 bytes count as 768.
  Status beginRecording(int64_t inputBytes, int64_t keptBytes);
  /// Ends the recording. After an error there is no recording.
  Status endRecording();
  bool isRecording() const { return mode == Mode::Recording; }
  /// Keeps, at each launch, the bytes at this point of the stream. Returns their id for `kept`.
  Result<int> keep(program::Stream stream, DeviceAddress from, int64_t bytes);
  /// Waits for the last launch. The bytes are valid until the next one.
  Result<const unsigned char *> kept(int number);
  bool hasRecording() const { return recorded.has_value(); }
  /// Returns the number of nodes of its graph.
  int64_t numNodes() const { return recorded->graph.numNodes(); }
  void forgetRecording() { recorded.reset(); }
  /// Begins a replay: until `launch`, uploads must be those of the recording, in the same order.
  Status beginReplay();
  Status launch();

private:
  enum class Mode { Executing, Recording, Replaying };
  struct Stage {
    PinnedMemory memory;
    Event done; // the last use of its bytes
  };
  /// Kernels of the compute stream, and their end.
  struct Mark {
    const std::string *first = nullptr, *last = nullptr;
    int64_t count = 0;
    Event end;
    int number = 0; // in a graph: the number reported in place of the event
  };
  /// A range of pinned memory of a recording.
  struct Stretch {
    DeviceAddress address = 0;
    int64_t begin = 0, bytes = 0;
  };
  struct Recorded {
    PinnedMemory inputs, kept;
    std::vector<Stretch> inputPlaces, keptPlaces;
    std::vector<Mark> marks; // without events
    Mark rest;               // after `marks`
    int64_t numKernels = 0;
    Graph graph;         // last: it ends before its memory is freed
    size_t numGiven = 0; // inputs given so far for the next launch
    int64_t inputBytes() const { return inputPlaces.empty() ? 0 : endOf(inputPlaces.back()); }
    int64_t keptBytes() const { return keptPlaces.empty() ? 0 : endOf(keptPlaces.back()); }
    static int64_t endOf(const Stretch &last) { return aligned(last.begin + last.bytes); }
  };
  Status recordUpload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  Status replayUpload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  Status noteRecorded(const std::string &what);
  Status markRecorded();
  Status fork();
  Status join();
  Status uploadPieces(DeviceAddress to, const unsigned char *from, int64_t bytes);
  Status downloadPieces(unsigned char *to, DeviceAddress from, int64_t bytes);
  std::chrono::milliseconds limit() const { return watched ? watched->limit() : timeout; }
  std::string kernelsUnderWay() const;
  Result<Stage *> nextStage();
  Status orderStreams(const Stream &before, const Event &event, const Stream &after) const;
  Status beginCopy();
  Status endCopy();
  Status await(const Event &event);
  Result<int64_t> numPassed();
  Error hang();

  DevicePtr device;
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<HostWatch> watched; // may be null
  DeviceCommunicator *communicator = nullptr;
  // Streams are last, so that they end before the memory of their operations is freed.
  std::vector<Stage> stages;
  size_t numStaged = 0;
  const std::string *oldest = nullptr, *newest = nullptr; // noted since the last wait
  int64_t numUnderWay = 0;
  static constexpr int64_t kernelsPerMark = 32; // one event shows their progress
  Mark open;                                    // not closed yet
  std::deque<Mark> marks;                       // closed and running, oldest first
  std::vector<Event> spareEvents;
  int64_t numMarksPassed = 0;
  bool isCommunicating = false; // the communication stream was used
  bool isEnding = false;
  Mode mode = Mode::Executing;
  std::shared_ptr<Progress> progress; // created on first use
  std::optional<Recorded> recorded;
  Event launched; // behind the last launch
  Event computed, communicated, copied, copiedAside;
  HostCopies copies;
  Stream computeStream, communicationStream, copyStream;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STREAMS_H
