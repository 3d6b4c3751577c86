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

/// The streams of a rank: those of the Program, kernels in one and communication in the other, one
/// for the Program's copies to the host and back beside them, and one for what is uploaded and
/// downloaded, through pinned memory, a piece after the other, so that packing one and moving
/// another go on at the same time. Used by one thread at a time, any.
///
/// Whoever waits looks for errors of the communicator, and at the clock.
class Streams {
public:
  /// `timeout`: the longest wait without anything getting on; 0: for ever. Where `watch` is given
  /// its time-out holds, and it is told of every failure.
  static Result<std::shared_ptr<Streams>> create(const DevicePtr &device,
                                                 std::chrono::milliseconds timeout,
                                                 std::shared_ptr<HostWatch> watch = nullptr);
  ~Streams() { unwatch(); }

  const Stream &of(program::Stream stream) const {
    return stream == program::Stream::Compute ? computeStream : communicationStream;
  }
  /// What comes in `after` now waits for what is in `before` now.
  Status order(program::Stream before, program::Stream after);

  HostCopies &hostCopies() { return copies; }
  /// What comes next in that stream reads the bytes, or writes them.
  Status beforeUse(program::Stream stream, const DeviceRange &range, bool isWrite) {
    return copies.isAny() ? copies.beforeUse(stream, of(stream), range, isWrite) : Status::ok();
  }
  /// Waits for all copies of the Program to the host and back.
  Status finishHostCopies();

  /// After what is in the program's streams now, and before what comes there next. The bytes may
  /// change as soon as it returns.
  Status upload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  /// After what is in the program's streams now; waits for it.
  Status download(unsigned char *to, DeviceAddress from, int64_t bytes);
  /// Waits for all that is in the program's streams.
  Status wait();
  /// Waits for a point of one of the program's streams.
  Status waitUntil(const Event &point);
  /// Zeros, in the compute stream.
  Status clear(DeviceAddress at, int64_t bytes);

  /// The error of a call of the driver, with the kernels whose failure it may show; the watch is
  /// told of it, if there is one, until `end`.
  Status explain(const Status &status) const;
  /// The rank ends, perhaps after an error that says more than those that follow from it.
  void end() { isEnding = true; }

  /// `what`, which has to stay, was launched in a stream of the program: for errors that show
  /// later.
  Status note(const std::string &what);
  /// A block has ended: what follows is looked at by itself when somebody waits.
  Status noteEnd();
  /// From now on, until `unwatch`, who waits looks after these calls too.
  void watch(DeviceCommunicator &calls) { communicator = &calls; }
  /// Waits once more for all of them: whose they were; null: nobody's.
  DeviceCommunicator *unwatch();

  // A step as one graph (StreamsRecording.cpp). While it is recorded nothing is executed of what is
  // put into the streams; what would wait for the device is an error of code Usage.

  /// `inputBytes`: the most that is uploaded; `keptBytes`: that is kept. Each tensor counts as a
  /// multiple of 256.
  Status beginRecording(int64_t inputBytes, int64_t keptBytes);
  /// Ends it, also after an error; then there is nothing recorded.
  Status endRecording();
  bool isRecording() const { return mode == Mode::Recording; }
  /// What the bytes are at this point of the stream, at each launch: the number by which `kept`
  /// knows them.
  Result<int> keep(program::Stream stream, DeviceAddress from, int64_t bytes);
  /// Waits for the last launch. They stay until the next one.
  Result<const unsigned char *> kept(int number);
  bool hasRecording() const { return recorded.has_value(); }
  /// How many nodes its graph has.
  int64_t numNodes() const { return recorded->graph.numNodes(); }
  void forgetRecording() { recorded.reset(); }
  /// From now on, until `launch`, uploads are those that were recorded, in the same order.
  Status beginReplay();
  Status launch();

private:
  enum class Mode { Executing, Recording, Replaying };
  struct Stage {
    PinnedMemory memory;
    Event done; // what its bytes were used for last
  };
  /// Kernels of the compute stream, and where they end.
  struct Mark {
    const std::string *first = nullptr, *last = nullptr;
    int64_t count = 0;
    Event end;
    int number = 0; // of a graph: what it tells in place of the event
  };
  /// A stretch of pinned memory of a recording.
  struct Stretch {
    DeviceAddress address = 0;
    int64_t begin = 0, bytes = 0;
  };
  struct Recorded {
    PinnedMemory inputs, kept;
    std::vector<Stretch> inputPlaces, keptPlaces;
    std::vector<Mark> marks; // without events
    Mark rest;               // after those
    int64_t numKernels = 0;
    Graph graph;         // last: it ends before what it uses is given back
    size_t numGiven = 0; // of the inputs, for the launch that comes
    int64_t inputBytes() const { return inputPlaces.empty() ? 0 : endOf(inputPlaces.back()); }
    int64_t keptBytes() const { return keptPlaces.empty() ? 0 : endOf(keptPlaces.back()); }
    static int64_t endOf(const Stretch &last) {
      return (last.begin + last.bytes + 255) / 256 * 256;
    }
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
  // Streams last, so that they end before what their operations use is given back.
  std::vector<Stage> stages;
  size_t numStaged = 0;
  const std::string *oldest = nullptr, *newest = nullptr; // noted since the last wait
  int64_t numUnderWay = 0;
  Mark open;              // not closed yet
  std::deque<Mark> marks; // closed, under way, the oldest first
  std::vector<Event> spareEvents;
  int64_t numMarksPassed = 0;
  bool isCommunicating = false; // something was put into that stream
  bool isEnding = false;
  Mode mode = Mode::Executing;
  std::shared_ptr<Progress> progress; // when first needed
  std::optional<Recorded> recorded;
  Event launched; // behind the last launch
  Event computed, communicated, copied, copiedAside;
  HostCopies copies;
  Stream computeStream, communicationStream, copyStream;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STREAMS_H
