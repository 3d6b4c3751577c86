//===- CpuPeak.h - Upper bound on the FLOP/s of this machine's CPUs ----------===//

#ifndef TBC_TOOLS_TBC_RUN_CPUPEAK_H
#define TBC_TOOLS_TBC_RUN_CPUPEAK_H

#include <cstdint>

namespace tbc::cli {

/// Returns an upper bound on the FLOP/s of `cores` cores of any existing CPU at 6 GHz: two FMAs of
/// 16 floats per cycle (AVX-512), or 1,024 of bf16 with matrix units (AMX). Example: 8 cores
/// without matrix units do less than 3.1 TFLOP/s.
double mostCpuFlopsPerSecond(int64_t cores, bool hasMatrixUnits);

/// Whether a plan for `peakPerRank` FLOP/s can be for this machine's CPUs, shared equally by its
/// ranks. A plan for GPUs is far above.
bool mayBePlanOfCpus(double peakPerRank, int64_t numLocalRanks);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_CPUPEAK_H
