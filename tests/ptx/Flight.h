//===- Flight.h - The bytes a warp has in flight ---------------------------===//
//
// Internal to the executor. A warp issues loads until an instruction needs the result of one. This
// class counts the bytes of such a group of loads. The assembler moves loads ahead of uses, but not
// out of their basic block and not across stores. So a group ends at:
//
// - a load whose address depends on a load of the group
// - a store of a value that depends on one
// - a branch whose predicate depends on one, or after a use of one
//
// Example: a loop with `ld a; ld b; add s, a, b; bra` has groups of two loads, 256 bytes per warp
// for loads of 4 bytes. Unrolled by four it has groups of eight, so it keeps four times the bytes
// in flight.
//
// Source: Little's law as Volkov applies it to GPUs ("Better Performance at Lower Occupancy", GTC
// 2010): bandwidth = bytes in flight / latency.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_FLIGHT_H
#define TBC_TESTS_PTX_FLIGHT_H

#include "tests/ptx/Executor.h"

namespace tbc::ptx {

class Flight {
public:
  explicit Flight(int fileBytes);

  /// Called before an instruction is executed.
  void step(const Instruction &i);
  /// The instruction loads `bytes` bytes.
  void load(uint64_t bytes) { groupBytes += bytes; }
  /// Called when the warp has ended.
  void addTo(Counts &counts);

private:
  void endGroup();
  uint32_t &groupOf(int place);

  /// By place: the last group of loads on which the value depends, or 0.
  std::vector<uint32_t> groups;
  uint32_t current = 1;
  bool isUsed = false; // a load of the current group
  uint64_t groupBytes = 0;
  double sum = 0, squares = 0;
};

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_FLIGHT_H
