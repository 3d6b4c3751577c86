//===- KernelChoice.h - Choose kernels and report their times -----------------===//

#ifndef TBC_TOOLS_TBC_RUN_KERNELCHOICE_H
#define TBC_TOOLS_TBC_RUN_KERNELCHOICE_H

#include "runtime/cpu/KernelCheck.h"
#include "tools/tbc-run/RunOptions.h"

namespace tbc::cli {

/// Returns the threads of each rank: those of --threads, else an equal share of the machine's
/// cores.
int numThreads(const RunOptions &options, int64_t numLocalRanks);

/// Returns the backend for --kernels and --threads. Arithmetic other than that of the types uses
/// reference kernels. With --self-check, kernels of the first step write to `comparisons`. Errors:
/// Usage, compiled kernels that cannot be used.
Result<runtime::MachineMaker> machineOf(const train::LoadedProgram &loaded,
                                        const RunOptions &options, int64_t numLocalRanks,
                                        const std::shared_ptr<cpu::KernelComparisons> &comparisons);

/// Prints to stderr that all kernels agreed, after the first step.
void reportSelfCheck(const cpu::KernelComparisons &comparisons);

/// Prints kernel times to stderr, those of one step for a device: every op if `isVerbose`, else ops
/// on reference kernels with a significant share.
void reportKernels(std::vector<runtime::KernelShare> shares, bool isVerbose);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_KERNELCHOICE_H
