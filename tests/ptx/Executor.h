//===- Executor.h - Executes PTX with every lane of every warp -------------===//
//
// Blocks run one after the other. Within a block the warps run in turn, each to its next barrier.
// Lanes of a warp run in lock-step. After a divergent branch they run one path after the other and
// reconverge at the branch's immediate post-dominator.
//
// Refused, with kernel, line, instruction, block, thread and address:
//
// - an access outside of every allocation, or not aligned to its width
// - a read of unwritten bytes
// - a race: two warps access the same bytes of shared memory between two barriers, or two blocks
//   the same bytes of global memory, and one of them writes. It is no race if both are atomic, or
//   if one has released (a fence and an atomic operation) and the other has acquired.
// - two lanes that store different values to one address by one instruction
// - a shuffle, vote or barrier with missing lanes, and a shuffle from a lane that takes no part
// - a warp that does not end
//
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
  std::vector<std::vector<unsigned char>> arguments = {}; // the bytes of each parameter
  /// The executed range of blocks, by linear index.
  uint64_t firstBlock = 0, endBlock = UINT64_MAX;
  /// Limit of instructions per warp. A warp beyond it counts as endless.
  uint64_t instructionLimit = uint64_t(1) << 32;
  bool checksRaces = true;
  /// If false, unwritten bytes may be read, so a sample needs no values.
  bool checksInitialization = true;
  /// If true, counts the values below marked "if the launch measures". Execution is slower.
  bool measures = false;
  /// Warp instructions after which execution ends with Counts::isCut.
  uint64_t instructionBudget = UINT64_MAX;
};

/// Counts of one launch.
struct Counts {
  uint64_t warpInstructions = 0, laneInstructions = 0;
  uint64_t loads = 0, stores = 0;            // by warps, to global memory
  uint64_t loadedBytes = 0, storedBytes = 0; // by all lanes
  uint64_t sectors = 0;                      // of 32 bytes, summed over these loads and stores
  /// If the launch measures: the fewest sectors that could hold the bytes of each of these loads
  /// and stores. Example: 32 lanes that read 4 bytes each, 1024 bytes apart, touch 32 sectors; 4
  /// could hold the 128 bytes.
  uint64_t fewestSectors = 0;
  /// If the launch measures: the mean bytes in flight per warp (Flight.h).
  double flightBytes() const { return flightSum > 0 ? flightSquares / flightSum : 0; }
  double flightSum = 0, flightSquares = 0; // over groups of loads: bytes, and bytes squared
  uint64_t longestWarp = 0;                // instructions of the longest warp
  uint64_t matrixFlops = 0;                // of `mma`, two for each multiply-add
  bool isCut = false;                      // ended by the budget

  Counts &operator+=(const Counts &o);
};

/// A loaded module, with its variables in memory.
struct LoadedModule {
  Module module;
  uint64_t globals = 0; // address of its global variables
  Block constants;      // of its constant memory
};

/// Loads a module. Its global variables become a block at `address`.
LoadedModule load(Module module, Memory &memory, uint64_t address);

class Executor {
public:
  explicit Executor(Memory &memory) : memory(memory) {}

  /// Runs a launch. Throws Fault.
  Counts run(LoadedModule &loaded, const std::string &kernel, const Launch &launch);

  /// Returns the global memory touched by the last launch; empty if it did not check races.
  const Touches &touches() const { return lastTouches; }

private:
  Memory &memory;
  Touches lastTouches;
};

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_EXECUTOR_H
