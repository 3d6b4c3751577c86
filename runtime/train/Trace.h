//===- Trace.h - When what was executed --------------------------------------===//
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

/// Seconds by which the clock of every rank (steady_clock) is ahead of that of rank 0; all ranks
/// call it, rank 0 has the answer. By Cristian's method: of some exchanges of messages the fastest
/// bounds the offset to half of its round trip; an offset that this cannot tell from none is 0, as
/// it is between ranks of one host. Source: F. Cristian, "Probabilistic clock synchronization",
/// Distributed Computing 3 (1989).
Result<std::vector<double>> clockOffsets(comm::Communicator &communicator);

/// Records what one rank executes while it is on.
class Trace : public runtime::Observer {
public:
  Trace(const program::Program &program, int64_t rank) : program(program), rank(rank) {}
  bool isOn = false;
  Status executed(const runtime::Executed &executed) override;
  bool looksAtOnce() const override { return isOn; }
  bool looksAt(schedule::Action::Kind, const program::Instruction &) const override { return isOn; }

  /// Joins the events of all ranks, on the clock of rank 0, whose `path` gets them; all ranks call
  /// it. `offsets`: of clockOffsets. Errors: Other, with path and reason, on rank 0.
  Status write(comm::Communicator &communicator, const std::vector<double> &offsets,
               const std::string &path) const;

private:
  struct Event {
    std::string name, category, op, block;
    int thread = 0;
    int64_t microBatch = 0, bytes = 0;
    double begin = 0, seconds = 0; // on this rank's clock
  };
  std::string text(double offset) const;

  const program::Program &program;
  const int64_t rank;
  std::vector<Event> events;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_TRACE_H
