//===- Clocks.h - Finished instructions when an instruction begins ---------===//
//
// Part of tbc. Internal to runtime/verify. Independent of the planner's own stream order.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_VERIFY_CLOCKS_H
#define TBC_RUNTIME_VERIFY_CLOCKS_H

#include "runtime/abi/Program.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tbc::verify {

/// The number of the last finished instruction of each stream; -1 before the first.
using Clock = std::array<int, program::numStreams>;

/// Vector clocks of a block (Mattern, "Virtual Time and Global States of Distributed Systems",
/// 1989).
class Clocks {
public:
  explicit Clocks(const program::Block &block) : block(block) {
    Clock nothing;
    nothing.fill(-1);
    Clock now[program::numStreams];
    for (Clock &clock : now)
      clock = nothing;
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const program::Instruction &instruction = block.instructions[i];
      Clock &clock = now[int(instruction.stream)];
      for (int wait : instruction.waits)
        for (int s = 0; s < program::numStreams; ++s)
          clock[s] = std::max(clock[s], after[wait][s]);
      begin.push_back(clock);
      clock[int(instruction.stream)] = int(i);
      after.push_back(clock);
    }
  }

  /// Returns whether instruction `first` is done when `second` begins.
  bool isDone(int first, int second) const {
    return begin[second][int(block.instructions[first].stream)] >= first;
  }

private:
  const program::Block &block;
  std::vector<Clock> begin, after;
};

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_CLOCKS_H
