//===- Warp.h - The state that actions see ---------------------------------===//
//
// Internal to the executor.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_WARP_H
#define TBC_TESTS_PTX_WARP_H

#include "tests/ptx/Executor.h"
#include "tests/ptx/Flight.h"

#include <bitset>
#include <cstring>
#include <set>

namespace tbc::ptx {

enum class AccessKind { Read, Write, Atomic };

/// A running launch.
struct Run {
  const LoadedModule &loaded;
  const Kernel &kernel;
  Memory &memory;
  const Launch &launch;
  Touches *touches = nullptr; // null: races are not checked
  std::vector<unsigned char> parameters;
  Counts counts = {};
  Block *lastBlock = nullptr; // of the last access
  /// Blocks of threads whose writes this one may read, after atomic operations at one address.
  std::set<uint32_t> acquired = {};
  std::map<uint64_t, std::set<uint32_t>> released = {}; // by address
};

/// Thrown when a launch has spent its instruction budget.
struct BudgetSpent {};

/// Shared memory of a block of threads, or local memory of a warp.
struct SmallMemory {
  std::vector<unsigned char> bytes, written;
  std::vector<uint32_t> writers,
      readers; // phase << 8 | 1 + warp, 0xff for atomic; of shared memory
  void reset(size_t size, bool isShared);
};

struct Barrier {
  uint32_t arrived = 0, expected = 0; // threads
  uint32_t ones = 0;                  // arrived threads with a true predicate
};

class Warp;
struct ThreadBlock {
  ThreadBlock(Run &run, uint32_t index) : run(run), index(index) {}

  Run &run;
  uint32_t index; // linear
  Dims position = {0, 0, 0};
  SmallMemory shared;
  uint32_t phase = 1; // counts barriers
  std::array<Barrier, 16> barriers = {};
  std::vector<Warp> warps;
};

class Warp {
public:
  Warp(ThreadBlock &block, int index, uint32_t lanes, unsigned char *file);

  template <typename T> T *at(int offset) { return reinterpret_cast<T *>(file + offset); }
  uint32_t &mask(int offset) { return *at<uint32_t>(offset); }

  /// Runs to the next barrier (returns true) or until all lanes have ended (false).
  bool run();

  /// Checks and records an access of the executing lanes. Returns one pointer per such lane in
  /// `pointers`. `bytes` is the size per lane, of all elements together.
  void access(const Instruction &i, AccessKind kind, const uint64_t *addresses, int bytes,
              unsigned char **pointers);
  /// Computes the addresses of the executing lanes: register `base` (or 0 if it is -1) plus the
  /// offset.
  void addresses(const Instruction &i, int base, uint64_t *out);

  /// Called before an atomic operation at these addresses. If the operation is ordered or follows
  /// a fence, it acquires from the blocks that released there and releases this block's writes.
  void synchronize(const Instruction &i, const uint64_t *addresses, bool isOrdered);

  [[noreturn]] void fail(const Instruction &i, const std::string &why, int lane = -1) const;
  /// Fails unless all unended lanes in `members` are executing.
  void needLanes(const Instruction &i, uint32_t members) const;

  uint32_t lanes = 0; // executing the instruction
  ThreadBlock &block;
  const int index;
  bool hasEnded = false;
  int barrier = -1; // the barrier it waits at
  const Instruction *waiting = nullptr;
  bool hasFenced = false; // since its last atomic operation
  SmallMemory local;      // of all lanes, one after the other

private:
  struct Entry {
    int pc, reconvergence;
    uint32_t lanes;
  };
  void branch(const Instruction &i, uint32_t taken);
  void leave(uint32_t gone);
  void globalAccess(const Instruction &i, AccessKind kind, const uint64_t *addresses, int bytes,
                    unsigned char **pointers);
  void smallAccess(const Instruction &i, AccessKind kind, SmallMemory &memory, bool isShared,
                   const uint64_t *addresses, uint64_t window, int bytes, unsigned char **pointers);
  void checkGlobal(const Instruction &i, AccessKind kind, Block &found, uint64_t address,
                   uint64_t bytes, int lane, int bytesOfLane);
  void checkInitialization(const Instruction &i, AccessKind kind, Block &found, uint64_t address,
                           uint64_t bytes, int lane, int bytesOfLane);
  /// If the launch measures: counts an access of `distinctBytes` distinct bytes.
  void measure(AccessKind kind, uint64_t distinctBytes);
  void checkRace(const Instruction &i, AccessKind kind, uint64_t address, uint64_t bytes, int lane,
                 int bytesOfLane);
  [[noreturn]] void failAccess(const Instruction &i, AccessKind kind, uint64_t address, int bytes,
                               int lane, const std::string &why) const;

  unsigned char *file;
  uint32_t existing; // lanes that have not ended
  std::vector<Entry> stack;
  uint64_t numExecuted = 0;
  std::unique_ptr<Flight> flight; // if the launch measures
};

//===----------------------------------------------------------------------===//
// For actions
//===----------------------------------------------------------------------===//

/// Writes f(lane) for the executing lanes. It is computed for every lane, so it must not trap.
template <typename T, typename F> inline void each(Warp &warp, int to, F f) {
  T out[warpLanes];
  for (int lane = 0; lane < warpLanes; ++lane)
    out[lane] = f(lane);
  T *result = warp.at<T>(to);
  if (warp.lanes == allLanes) {
    std::memcpy(result, out, sizeof out);
    return;
  }
  for (int lane = 0; lane < warpLanes; ++lane)
    result[lane] = (warp.lanes >> lane & 1) ? out[lane] : result[lane];
}

/// Writes the predicate bits of the executing lanes.
inline void setMask(Warp &warp, int to, uint32_t bits) {
  uint32_t &mask = warp.mask(to);
  mask = (mask & ~warp.lanes) | (bits & warp.lanes);
}

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_WARP_H
