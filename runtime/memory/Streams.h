//===- Streams.h - The order of instructions on concurrent streams --------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (memory of a step), by the compiler
// (lifetimes of buffers) and by the runtime (when results take effect).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MEMORY_STREAMS_H
#define TBC_RUNTIME_MEMORY_STREAMS_H

#include <cstdint>
#include <vector>

namespace tbc::memory {

/// An instruction of a list. Instructions of one stream run in list order. Each begins after the
/// instructions in `waits` are done.
struct StreamStep {
  int stream = 0;
  std::vector<int> waits;
};

/// The happens-before of a list of instructions.
class StreamOrder {
public:
  explicit StreamOrder(const std::vector<StreamStep> &steps);

  /// Whether step `first` is always done when step `second` begins, for any durations.
  bool isBefore(int first, int second) const;
  /// The smallest n > index such that all steps from n on begin after step `index` is done; the
  /// number of steps if there is no such n. Example: step 1 communicates, step 2 computes at the
  /// same time, and step 3 computes and waits for step 1. Then settled(1) is 3.
  int settled(int index) const { return settledAt[index]; }

private:
  int numStreams = 1;
  std::vector<int> streamOf;
  std::vector<int> known; // numStreams per step: the last step of the stream sure to be done
  std::vector<int> settledAt;
};

/// The properties of an instruction for the choice of its stream.
struct StreamUse {
  bool isCommunication = false;
  std::vector<int> sources; // the producers of its operands
};

/// Assigns streams and waits: stream 0 computes, stream 1 communicates. Rules:
///
/// (1) Communication waits for the computation before it in the list. So it may be put early in the
///     list, but never runs ahead of its position.
/// (2) Computation waits for the communication of its operands.
/// (3) Communication without a reader in the list (reductions of gradients, sends) overlaps with
///     the next such communication only. When the next is issued, the following computation waits
///     for the one before. Otherwise its operands would be held to the end. Example: for sends A, B
///     and kernel K, K waits for A.
///
/// A wait that follows from others is left out.
std::vector<StreamStep> overlapCommunication(const std::vector<StreamUse> &uses);

} // namespace tbc::memory

#endif // TBC_RUNTIME_MEMORY_STREAMS_H
