//===- Gate.h - Whether a kernel can be fast on a device -------------------===//
//
// Judges a sample of a kernel's blocks against the numbers of a device. Four criteria, each
// necessary for a kernel that moves bytes to run at the speed of memory:
//
//  - parallelism: the grid fills the device (Processor::blocksOfWave), or the loads under way are
//    at least latency * bandwidth bytes, or all bytes that the kernel loads are under way at once.
//    h100-sxm: 242 ns * 2.85 TB/s = 689 kB. A column sum of 1 block of 96 threads that waits for
//    16 bytes a thread at a time has 1.5 kB: 450 times too few.
//  - instructions: instructions of warps per byte are within issue rate / bandwidth. h100-sxm:
//    1.05e12 / 2.85e12 = 0.37, twelve instructions of a thread per byte.
//  - coalescing: a request touches at most twice the sectors that could hold its bytes. The L2
//    cache delivers about twice the bandwidth of memory, so up to there memory is the limit
//    (A100, 40 GB: "2.3x the L2 bandwidth of V100", NVIDIA A100 white paper, against 1.7x of HBM).
//  - local memory: none. A thread that spills reads and writes memory beside its operands.
//
// The bandwidth is what the cluster file says that elementwise kernels reach of the peak.
// Instructions are those of PTX, of which an assembler makes some more or fewer.
//
// Kernels that move at most 1 MB are not judged, unless a warp of theirs executes more than 50,000
// instructions: 4 cycles for each, the least between dependent ones, are 100 us.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_GATE_GATE_H
#define TBC_TESTS_GATE_GATE_H

#include "tests/gate/Sample.h"
#include "tools/roofline/Roofline.h"

namespace tbc::gate {

enum class Criterion { Parallelism, Instructions, Coalescing, LocalMemory };

/// "parallelism", "instructions", "coalescing", "local-memory".
const char *name(Criterion criterion);

/// What a device can do, all per second or in seconds.
struct Device {
  double bandwidth = 0, latency = 0, issueRate = 0, clock = 0;
  double residentThreads = 0; // of the device
  int schedulers = 0;         // of the device

  double bytesNeededInFlight() const { return latency * bandwidth; }
  double instructionsPerByte() const { return issueRate / bandwidth; }
};

Device deviceOf(const planner::Cluster &cluster, const roofline::Processor &processor);

struct Verdict {
  bool isJudged = false;
  /// Of operands and results, each once, or of all accesses where these are fewer (a gather).
  double movedBytes = 0;
  double bytesInFlight = 0;
  double instructionsPerByte = 0; // of warps; at least, where the sample was cut
  double sectorRatio = 1;
  int localBytes = 0;
  double seconds = 0;      // that it takes about, by the above
  double idealSeconds = 0; // at the speed of memory
  std::vector<Criterion> failed;
};

inline constexpr double judgedBytes = 1e6, largestSectorRatio = 2;
inline constexpr uint64_t judgedInstructions = 50'000;

/// `tensorBytes`: of operands and results.
Verdict judge(const Sample &sample, double tensorBytes, const Device &device);

} // namespace tbc::gate

#endif // TBC_TESTS_GATE_GATE_H
