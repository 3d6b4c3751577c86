//===- Streams.h - Instructions that run side by side ----------------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (what a step will take), by the compiler
// (when bytes are free) and by the runtime (when results take effect).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MEMORY_STREAMS_H
#define TBC_RUNTIME_MEMORY_STREAMS_H

#include <cstdint>
#include <vector>

namespace tbc::memory {

/// An instruction of a list. Those of one stream run in the order of the list, each when those that
/// it waits for, which stand before it, are done.
struct StreamStep {
  int stream = 0;
  std::vector<int> waits;
};

/// What is known to be done when.
class StreamOrder {
public:
  explicit StreamOrder(const std::vector<StreamStep> &steps);

  /// Whether step `first` is done when step `second` begins, however long steps take.
  bool isBefore(int first, int second) const;
  /// The number from which on every step begins when step `index` is done; that of all steps if
  /// there is none such. At least index + 1.
  int settled(int index) const { return settledAt[index]; }

private:
  int numStreams = 1;
  std::vector<int> streamOf;
  std::vector<int> known; // numStreams per step: the last step of the stream known to be done
  std::vector<int> settledAt;
};

/// What an instruction does, for those who distribute instructions over streams.
struct StreamUse {
  bool isCommunication = false;
  std::vector<int> sources; // the instructions that made what it reads
};

/// Stream 0 computes, stream 1 communicates. Rules:
///  1. Communication waits for the computation before it in the list: it may be put early in the
///     list, but never runs ahead of its place.
///  2. Computation waits for the communication that made what it reads.
///  3. Of communication of which nothing is read in the list (reductions of gradients, sends) one
///  is
///     under way at a time, beside the one that follows it: when the next is issued, the next
///     computation waits for the one before. What it reads would be held to the end otherwise.
/// A wait that follows from others is left out.
std::vector<StreamStep> overlapCommunication(const std::vector<StreamUse> &uses);

} // namespace tbc::memory

#endif // TBC_RUNTIME_MEMORY_STREAMS_H
