//===- KernelChoice.h - What executes a run's kernels, and what they took -----===//

#ifndef TBC_TOOLS_TBC_RUN_KERNELCHOICE_H
#define TBC_TOOLS_TBC_RUN_KERNELCHOICE_H

#include "runtime/cpu/KernelCheck.h"
#include "tools/tbc-run/RunCommand.h"

namespace tbc::cli {

/// By --kernels and --threads; other arithmetics than that of the types have their reference
/// kernels only. With --self-check the kernels of the first step go to `comparisons`. Errors:
/// Usage, compiled kernels that cannot be used.
Result<runtime::MachineMaker> machineOf(const train::LoadedProgram &loaded,
                                        const RunOptions &options, int64_t numLocalRanks,
                                        const std::shared_ptr<cpu::KernelComparisons> &comparisons);

/// To stderr, once a step was computed in which no kernel differs.
void reportSelfCheck(const cpu::KernelComparisons &comparisons);

/// To stderr: every op, if `isVerbose`; else those that were executed by their reference kernels,
/// where they matter.
void reportKernels(std::vector<runtime::KernelShare> shares, bool isVerbose);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_KERNELCHOICE_H
