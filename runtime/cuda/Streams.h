//===- Streams.h - The streams of a rank on its GPU ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_STREAMS_H
#define TBC_RUNTIME_CUDA_STREAMS_H

#include "runtime/abi/Program.h"
#include "runtime/cuda/DeviceCommunicator.h"

#include <chrono>
#include <deque>
#include <vector>

namespace tbc::cuda {

/// The streams of a rank: those of the Program, kernels in one and communication in the other, and
/// one for copies from and to the host, through pinned memory, a piece after the other, so that
/// packing one and moving another go on at the same time. Used by one thread at a time, any.
///
/// Whoever waits looks for errors of the communicator, and at the clock.
class Streams {
public:
  /// `timeout`: the longest wait without anything getting on; 0: for ever.
  static Result<std::shared_ptr<Streams>> create(const DevicePtr &device,
                                                 std::chrono::milliseconds timeout);
  ~Streams() { unwatch(); }

  const Stream &of(program::Stream stream) const {
    return stream == program::Stream::Compute ? computeStream : communicationStream;
  }
  /// What comes in `after` now waits for what is in `before` now.
  Status order(program::Stream before, program::Stream after);

  /// After what is in the program's streams now, and before what comes there next. The bytes may
  /// change as soon as it returns.
  Status upload(DeviceAddress to, const unsigned char *from, int64_t bytes);
  /// After what is in the program's streams now; waits for it.
  Status download(unsigned char *to, DeviceAddress from, int64_t bytes);
  /// Waits for all that is in the program's streams.
  Status wait();

  /// `what`, which has to stay, was launched in a stream of the program: for errors that show
  /// later.
  Status note(const std::string &what);
  /// A block has ended: what follows is looked at by itself when somebody waits.
  Status noteEnd();
  /// From now on, until `unwatch`, who waits looks after these calls too.
  void watch(DeviceCommunicator &calls) { communicator = &calls; }
  /// Waits once more for all of them.
  void unwatch();

private:
  struct Stage {
    PinnedMemory memory;
    Event done; // what its bytes were used for last
  };
  /// Kernels of the compute stream, and where they end.
  struct Mark {
    const std::string *first = nullptr, *last = nullptr;
    int64_t count = 0;
    Event end;
  };
  Status uploadPieces(DeviceAddress to, const unsigned char *from, int64_t bytes);
  Status downloadPieces(unsigned char *to, DeviceAddress from, int64_t bytes);
  Status explain(const Status &status) const;
  Result<Stage *> nextStage();
  Status orderStreams(const Stream &before, const Event &event, const Stream &after) const;
  Status beginCopy();
  Status endCopy();
  Status await(const Event &event);
  Result<int64_t> numPassed();
  Error hang();

  DevicePtr device;
  std::chrono::milliseconds timeout{0};
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
  Event computed, communicated, copied;
  Stream computeStream, communicationStream, copyStream;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STREAMS_H
