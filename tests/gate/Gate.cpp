//===- Gate.cpp - Static estimate of a kernel's speed ----------------------===//

#include "tests/gate/Gate.h"

#include <algorithm>
#include <cmath>

namespace tbc::gate {

static constexpr double sectorBytes = 32;
/// Cycles between two dependent instructions of a warp: 4 on Volta and later (Jia et al.,
/// "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv 1804.06826).
static constexpr double dependentCycles = 4;

const char *name(Criterion criterion) {
  switch (criterion) {
  case Criterion::Parallelism:
    return "parallelism";
  case Criterion::Instructions:
    return "instructions";
  case Criterion::Coalescing:
    return "coalescing";
  case Criterion::LocalMemory:
    return "local-memory";
  }
  return "";
}

Device deviceOf(const planner::Cluster &cluster, const roofline::Processor &processor) {
  Device device;
  device.bandwidth = cluster.memoryBytesPerSecond *
                     cluster.kernel(reshard::KernelClass::Elementwise).memoryFraction;
  device.latency = processor.latencySeconds;
  device.issueRate = processor.issuePerSecond();
  device.clock = processor.clockHertz;
  device.mmaFlops =
      processor.mmaShare * cluster.peakFlops(reshard::KernelClass::Matmul, kernels::DType::BF16);
  device.schedulers = processor.multiprocessors * processor.schedulers;
  device.residentThreads =
      double(processor.multiprocessors) * double(processor.threadsPerMultiprocessor);
  return device;
}

Verdict judge(const Sample &sample, double tensorBytes, const Device &device) {
  const ptx::Counts &counts = sample.counts;
  Verdict verdict;
  double accessed = sample.ofAll(counts.fewestSectors) * sectorBytes;
  // A cut sample has not counted all accesses.
  verdict.movedBytes = counts.isCut ? tensorBytes : std::min(tensorBytes, accessed);
  verdict.isJudged = verdict.movedBytes > judgedBytes || counts.longestWarp > judgedInstructions;
  if (!verdict.isJudged)
    return verdict;

  double threads = double(sample.blocks) * double(sample.threads);
  double warps = threads / ptx::warpLanes;
  double residentWarps = std::min(threads, device.residentThreads) / ptx::warpLanes;
  verdict.bytesInFlight = counts.flightBytes() * residentWarps;
  double needed = device.bytesNeededInFlight();
  if (!counts.isCut)
    needed = std::min(needed, sample.ofAll(uint64_t(counts.flightSum)));
  bool fills = threads >= device.residentThreads;
  if (!fills && verdict.bytesInFlight < needed)
    verdict.failed.push_back(Criterion::Parallelism);

  double instructions = sample.ofAll(counts.warpInstructions);
  verdict.instructionsPerByte = instructions / verdict.movedBytes;
  double products = sample.ofAll(counts.matrixFlops) / device.mmaFlops;
  verdict.idealSeconds = std::max(verdict.movedBytes / device.bandwidth, products);
  if (instructions > device.issueRate * verdict.idealSeconds)
    verdict.failed.push_back(Criterion::Instructions);

  verdict.sectorRatio = double(counts.sectors) / std::max(1.0, double(counts.fewestSectors));
  if (verdict.sectorRatio > largestSectorRatio)
    verdict.failed.push_back(Criterion::Coalescing);

  verdict.localBytes = sample.localBytes;
  if (verdict.localBytes > 0)
    verdict.failed.push_back(Criterion::LocalMemory);

  double flight = fills || needed <= 0 ? 1 : std::min(1.0, verdict.bytesInFlight / needed);
  double issue = instructions / (device.issueRate * std::min(1.0, warps / device.schedulers));
  double path = double(counts.longestWarp) * dependentCycles / device.clock;
  double l2 = verdict.movedBytes / device.bandwidth * verdict.sectorRatio / largestSectorRatio;
  verdict.seconds = std::max({verdict.idealSeconds / flight, issue, path, l2});
  return verdict;
}

} // namespace tbc::gate
