//===- GpuChoice.h - The GPU of a rank ----------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_GPUCHOICE_H
#define TBC_TOOLS_TBC_RUN_GPUCHOICE_H

#include "runtime/cuda/HostWatch.h"
#include "tools/tbc-run/RunCommand.h"

namespace tbc::cli {

/// Whether the run computes on GPUs: a program compiled for them, in the arithmetic of its types,
/// not by --kernels reference.
bool usesGpus(const train::LoadedProgram &loaded, const RunOptions &options);

/// Whether this machine has what such a run opens: the driver and, of several ranks, NCCL. Starts
/// neither, so that processes may still be forked. Errors: Other, saying what to install.
Status checkGpuLibraries(int64_t numRanks, const RunOptions &options);

/// Which of `count` visible GPUs the rank of this number on its machine takes: the one of the same
/// number; where `mayBeOwn`, a launcher having chosen which GPUs the rank sees, the only one.
/// Errors: Usage, there are fewer GPUs than ranks.
Result<int> gpuOfRank(int64_t localRank, int count, bool mayBeOwn);

/// Opens it. `isStartedHere`: no launcher did. Errors: Other, no driver; Usage, as above;
/// RankFailed, what the driver refuses.
Result<cuda::DevicePtr> openGpu(int64_t localRank, bool isStartedHere);

/// What goes only with GPUs, or not with each other. Errors: Usage.
Status checkGpuOptions(const train::LoadedProgram &loaded, const RunOptions &options);

/// Has NCCL, before it is opened, sum in one order (NCCL_ALGO, NCCL_PROTO), unless the user's
/// environment says how.
void fixNcclAlgorithms();

/// Sets CUDA_MODULE_LOADING, CUDA_DEVICE_MAX_CONNECTIONS and NCCL_RUNTIME_CONNECT, before CUDA and
/// NCCL are opened, for programs with messages between ranks (docs/gpus.md, NCCL). Variables of the
/// user's environment stay as they are.
void preparePipelines(const program::Program &program);

/// Whether the memory plan is registered with NCCL: unless TBC_NCCL_REGISTER=0 says not.
bool registersMemory();

/// Loads the program's kernels on it. `nccl`, which outlives the machine: null without several
/// ranks. Says to stderr, if `isSpeaker`, which ops the host executes.
/// Errors: as of KernelModule::load.
Result<runtime::MachineMaker> gpuMachine(const train::LoadedProgram &loaded,
                                         const RunOptions &options, const cuda::DevicePtr &device,
                                         const std::shared_ptr<cuda::HostWatch> &watch,
                                         const cuda::Nccl *nccl, bool isSpeaker);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_GPUCHOICE_H
