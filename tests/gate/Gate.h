//===- Gate.h - Static estimate of a kernel's speed ------------------------===//
//
// Judges a sample of a kernel's blocks by the numbers of a device. A memory-bound kernel must meet
// four criteria to run at the speed of memory:
//
// - parallelism: one of three must hold. The grid fills the device (Processor::blocksOfWave); the
//   loads in flight are at least latency * bandwidth bytes; or all loads of the kernel are in
//   flight at once. Example, h100-sxm: 242 ns * 2.85 TB/s = 689 kB. A column sum of 1 block of 96
//   threads with 16 bytes per thread in flight has 1.5 kB, 450 times too little.
// - instructions: warp instructions per byte are at most issue rate / bandwidth. Example, h100-sxm:
//   1.05e12 / 2.85e12 = 0.37, or twelve instructions of a thread per byte. If tensor cores need
//   longer than memory, instructions may take that time.
// - coalescing: a request touches at most twice the sectors that could hold its bytes. The L2 cache
//   delivers about twice the bandwidth of memory, so up to this ratio memory is the limit (A100, 40
//   GB: "2.3x the L2 bandwidth of V100", NVIDIA A100 white paper, against 1.7x of HBM).
// - local memory: not used. A thread with spills reads and writes memory beside its operands.
//
// The bandwidth is the peak times the efficiency of elementwise kernels in the cluster file. Counts
// are of PTX instructions; the assembler makes somewhat more or fewer.
//
// Kernels that move at most 1 MB are not judged, unless one of their warps executes more than
// 50,000 instructions. At 4 cycles each, the least between dependent instructions, these take 100
// us.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_GATE_GATE_H
#define TBC_TESTS_GATE_GATE_H

#include "tests/gate/Sample.h"
#include "tools/roofline/Roofline.h"

namespace tbc::gate {

enum class Criterion { Parallelism, Instructions, Coalescing, LocalMemory };

/// Returns "parallelism", "instructions", "coalescing" or "local-memory".
const char *name(Criterion criterion);

/// The rates of a device per second, and its latency in seconds.
struct Device {
  double bandwidth = 0, latency = 0, issueRate = 0, clock = 0;
  double mmaFlops = 0;        // of 16-bit types
  double residentThreads = 0; // of the device
  int schedulers = 0;         // of the device

  double bytesNeededInFlight() const { return latency * bandwidth; }
  double instructionsPerByte() const { return issueRate / bandwidth; }
};

Device deviceOf(const planner::Cluster &cluster, const roofline::Processor &processor);

struct Verdict {
  bool isJudged = false;
  /// Bytes of operands and results, each once, or of all accesses if these are fewer (a gather).
  double movedBytes = 0;
  double bytesInFlight = 0;
  double instructionsPerByte = 0; // of warps; a lower bound if the sample was cut
  double sectorRatio = 1;
  int localBytes = 0;
  double seconds = 0;      // estimated from the values above
  double idealSeconds = 0; // at the speed of memory, or of tensor cores if they need longer
  std::vector<Criterion> failed;
};

inline constexpr double judgedBytes = 1e6, largestSectorRatio = 2;
inline constexpr uint64_t judgedInstructions = 50'000;

/// `tensorBytes`: the bytes of operands and results.
Verdict judge(const Sample &sample, double tensorBytes, const Device &device);

} // namespace tbc::gate

#endif // TBC_TESTS_GATE_GATE_H
