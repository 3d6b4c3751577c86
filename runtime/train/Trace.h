//===- Trace.h - A timeline of executed instructions ----------------------===//
//
// Part of tbc. Plain C++. Format: "Trace Event Format" of Chromium (complete events, times in
// microseconds), which Perfetto and chrome://tracing read. A process is a rank; its threads are the
// blocks, the kernels and the communication.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_TRACE_H
#define TBC_RUNTIME_TRAIN_TRACE_H

#include "runtime/comm/Communicator.h"
#include "runtime/exec/Observer.h"

#include <string>
#include <vector>

namespace tbc::train {

/// Returns on rank 0 the seconds by which each rank's clock (steady_clock) is ahead of rank 0's.
/// All ranks call it. Cristian's method: the fastest of several message exchanges bounds the error
/// of the offset by half its round trip. An offset within that error is returned as 0, as between
/// ranks of one host. Example: a round trip of 20 us and a measured offset of 8 us give 0. Source:
/// F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
Result<std::vector<double>> clockOffsets(comm::Communicator &communicator);

/// Records the instructions that one rank executes while `isOn`, as a device times them where one
/// executes them.
class Trace : public runtime::Observer {
public:
  Trace(const program::Program &program, int64_t rank) : program(program), rank(rank) {}
  bool isOn = false;
  Status executed(const runtime::Executed &executed) override;
  bool looksAtOnce() const override { return isOn; }
  bool timesDevices() const override { return isOn; }
  bool looksAt(schedule::Action::Kind, const program::Instruction &) const override { return isOn; }

  /// Ends the recording of a step: waits for its work on a device, whose times replace those of the
  /// calls. Errors: those of the device.
  Status finish();

  /// Joins the events of all ranks on the clock of rank 0 and writes them to `path` there. All
  /// ranks call it. `offsets` come from clockOffsets. Errors: Other, with path and reason, on rank
  /// 0.
  Status write(comm::Communicator &communicator, const std::vector<double> &offsets,
               const std::string &path) const;

private:
  struct Event {
    std::string name, category, op, block;
    int thread = 0;
    int64_t microBatch = 0, bytes = 0;
    double begin = 0, seconds = 0;                       // on this rank's clock
    std::shared_ptr<const runtime::DeviceSpan> onDevice; // null: those of the call
  };
  void addBlocks();
  std::string text(double offset) const;

  const program::Program &program;
  const int64_t rank;
  std::vector<Event> events;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_TRACE_H
