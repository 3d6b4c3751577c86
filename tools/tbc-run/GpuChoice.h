//===- GpuChoice.h - Choose and open the GPU of a rank ------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_GPUCHOICE_H
#define TBC_TOOLS_TBC_RUN_GPUCHOICE_H

#include "runtime/cuda/HostWatch.h"
#include "tools/tbc-run/RunOptions.h"

namespace tbc::cli {

/// Whether the run computes on GPUs: the program is compiled for them, in the arithmetic of its
/// types, and --kernels reference is not given.
bool usesGpus(const train::LoadedProgram &loaded, const RunOptions &options);

/// Checks that this machine has the driver and, for several ranks, NCCL. Starts neither, so that
/// processes may still be forked. Errors: Other, with the package to install.
Status checkGpuLibraries(int64_t numRanks, const RunOptions &options);

/// Returns the GPU of the rank `localRank` on its machine, out of `count` visible ones: the one
/// with the same number. With `mayBeOwn` (a launcher chose the visible GPUs), a single visible GPU
/// is the rank's. Errors: Usage, there are fewer GPUs than ranks.
Result<int> gpuOfRank(int64_t localRank, int count, bool mayBeOwn);

/// Opens the GPU of a rank. `isStartedHere`: no launcher started it. Errors: Other, no driver;
/// Usage, as in `gpuOfRank`; RankFailed, the driver's error.
Result<cuda::DevicePtr> openGpu(int64_t localRank, bool isStartedHere);

/// Checks options that need GPUs, or exclude each other. Errors: Usage.
Status checkGpuOptions(const train::LoadedProgram &loaded, const RunOptions &options);

/// Fixes NCCL's order of summation (NCCL_ALGO, NCCL_PROTO), unless the user's environment sets it.
/// Call before NCCL is opened.
void fixNcclAlgorithms();

/// Sets CUDA_MODULE_LOADING, CUDA_DEVICE_MAX_CONNECTIONS and NCCL_RUNTIME_CONNECT for programs with
/// messages between ranks (docs/gpus.md, NCCL). Call before CUDA and NCCL are opened. Variables of
/// the user's environment stay as they are.
void preparePipelines(const program::Program &program);

/// Whether to register the memory plan with NCCL: true unless TBC_NCCL_REGISTER=0.
bool registersMemory();

/// Loads the program's kernels on the device. `nccl` must outlive the backend; null with one rank.
/// If `isSpeaker`, prints the ops executed by the host to stderr. Errors: those of
/// `KernelModule::load`.
Result<runtime::MachineMaker> gpuMachine(const train::LoadedProgram &loaded,
                                         const RunOptions &options, const cuda::DevicePtr &device,
                                         const std::shared_ptr<cuda::HostWatch> &watch,
                                         const cuda::Nccl *nccl, bool isSpeaker);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_GPUCHOICE_H
