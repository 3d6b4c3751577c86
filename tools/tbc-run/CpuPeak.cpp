//===- CpuPeak.cpp - Upper bound on the FLOP/s of this machine's CPUs --------===//

#include "tools/tbc-run/CpuPeak.h"

#include "runtime/launch/Environment.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tbc::cli {

double mostCpuFlopsPerSecond(int64_t cores, bool hasMatrixUnits) {
  constexpr double vectorFlopsPerCycle = 2 * 2 * 16, matrixFlopsPerCycle = 2 * 1024, cycles = 6e9;
  return double(cores) * cycles * (hasMatrixUnits ? matrixFlopsPerCycle : vectorFlopsPerCycle);
}

bool mayBePlanOfCpus(double peakPerRank, int64_t numLocalRanks) {
  bool hasMatrixUnits = false;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; !hasMatrixUnits && std::getline(file, line);)
    hasMatrixUnits = line.find(" amx_bf16") != std::string::npos;
  int64_t cores = std::max<int64_t>(1, launch::numCores() / std::max<int64_t>(1, numLocalRanks));
  return peakPerRank <= mostCpuFlopsPerSecond(cores, hasMatrixUnits);
}

} // namespace tbc::cli
