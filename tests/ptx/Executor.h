//===- Executor.h - Executes PTX with every lane of every warp -------------===//
//
// Blocks run one after the other; within a block warps run in turn, each to its next barrier. Lanes
// of a warp run in lock-step; where a branch parts them they go one way after the other and meet at
// the branch's immediate post-dominator.
//
// Refused, with kernel, line, instruction, block, thread and address:
//  - an access outside of every allocation, or not aligned to its width;
//  - a read of bytes that nobody wrote;
//  - a race: two warps at the same bytes of shared memory between two barriers, two blocks at the
//    same bytes of global memory, one of them writing, unless both are atomic or the one has
//    released (a fence and an atomic operation) what the other acquires;
//  - two lanes that store different values to one address by one instruction;
//  - a shuffle, vote or barrier that lanes miss, and a shuffle from a lane that takes no part;
//  - a warp that does not end.
// Example: "kernel k, line 20 `ld.global.f32 %f1, [%rd3];`, block (1, 0, 0), thread (33, 0, 0):
// reads 4 bytes at 0xd000000000000400, outside of memory: …".
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_EXECUTOR_H
#define TBC_TESTS_PTX_EXECUTOR_H

#include "tests/ptx/Memory.h"
#include "tests/ptx/Program.h"

namespace tbc::ptx {

struct Dims {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

struct Launch {
  Dims blocks, threads;
  uint32_t dynamicSharedBytes = 0;
  std::vector<std::vector<unsigned char>> arguments = {}; // of each parameter its bytes
  /// Only these blocks are executed, by their linear index.
  uint64_t firstBlock = 0, endBlock = UINT64_MAX;
  /// Instructions of one warp after which it counts as one that does not end.
  uint64_t instructionLimit = uint64_t(1) << 32;
  bool checksRaces = true;
  /// Off: bytes that nobody wrote are read as they are, so a sample needs no values.
  bool checksInitialization = true;
  /// On: the counts below that say so are taken, which makes execution slower.
  bool measures = false;
  /// Warp instructions after which execution ends; Counts::isCut says so.
  uint64_t instructionBudget = UINT64_MAX;
};

/// What a launch did.
struct Counts {
  uint64_t warpInstructions = 0, laneInstructions = 0;
  uint64_t loads = 0, stores = 0;            // of warps, to global memory
  uint64_t loadedBytes = 0, storedBytes = 0; // by all lanes
  uint64_t sectors = 0;                      // of 32 bytes, summed over those loads and stores
  /// Where the launch measures: the fewest sectors that could hold the bytes of each of those
  /// loads and stores. Example: 32 lanes that read 4 bytes each, 1024 bytes apart, touch 32
  /// sectors; 4 could hold the 128 bytes.
  uint64_t fewestSectors = 0;
  /// Where the launch measures: the mean bytes that a warp waits for at a time (Flight.h).
  double flightBytes() const { return flightSum > 0 ? flightSquares / flightSum : 0; }
  double flightSum = 0, flightSquares = 0; // of groups of loads: their bytes, and these squared
  uint64_t longestWarp = 0;                // instructions of the warp that executed most
  bool isCut = false;                      // the budget ended it

  Counts &operator+=(const Counts &o);
};

/// A module that was loaded: its variables lie in memory.
struct LoadedModule {
  Module module;
  uint64_t globals = 0; // address of its global variables
  Block constants;      // of its constant memory
};

/// Loads a module; its global variables become a block at `address`.
LoadedModule load(Module module, Memory &memory, uint64_t address);

class Executor {
public:
  explicit Executor(Memory &memory) : memory(memory) {}

  /// Throws Fault.
  Counts run(LoadedModule &loaded, const std::string &kernel, const Launch &launch);

  /// What the last launch touched of global memory; empty where it did not check races.
  const Touches &touches() const { return lastTouches; }

private:
  Memory &memory;
  Touches lastTouches;
};

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_EXECUTOR_H
