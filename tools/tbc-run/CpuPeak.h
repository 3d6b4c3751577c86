//===- CpuPeak.h - What this machine's CPUs can compute at most --------------===//

#ifndef TBC_TOOLS_TBC_RUN_CPUPEAK_H
#define TBC_TOOLS_TBC_RUN_CPUPEAK_H

#include <cstdint>

namespace tbc::cli {

/// An upper bound on the FLOP/s of `cores` cores of any CPU that there is: two fused multiply-adds
/// of 16 floats per cycle (AVX-512), or 1,024 of bf16 where there are matrix units (AMX), at 6 GHz.
/// Example: 8 cores without matrix units do less than 3.1 TFLOP/s.
double mostCpuFlopsPerSecond(int64_t cores, bool hasMatrixUnits);

/// Whether a plan that reckons with so many FLOP/s per rank may be one for this machine's CPUs, of
/// which a rank has an equal share. One for GPUs is far above.
bool mayBePlanOfCpus(double peakPerRank, int64_t numLocalRanks);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_CPUPEAK_H
