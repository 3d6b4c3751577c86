//===- StartLibraries.h - Starting NVIDIA's libraries on a device ------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_STARTLIBRARIES_H
#define TBC_RUNTIME_CUDA_STARTLIBRARIES_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Nccl.h"

#include <chrono>
#include <functional>

namespace tbc::cuda {

/// Returns the sonames of cuBLASLt to try, in order, for a driver of this CUDA version (12040 is
/// 12.4). The major of the driver comes first, then older majors, then newer ones. Example: 12040
/// gives {"libcublasLt.so.12", "libcublasLt.so.13"}.
std::vector<std::string> cublasSonames(int driverVersion);

/// Creates a handle of the library on the device and destroys it. This fails for a library built
/// for a newer CUDA than the driver. Errors: RankFailed, with the library's sentence and both
/// versions.
Status tryCublasLt(const DevicePtr &device, const CublasLt &library);
Status tryCudnn(const DevicePtr &device, const Cudnn &library);
/// The same with a communicator of one rank. Errors: also HangDetected, after `timeout`.
Status tryNccl(const DevicePtr &device, const Nccl &library, std::chrono::milliseconds timeout);

/// Opens cuBLASLt by its soname.
using CublasLoader = std::function<Result<CublasLt>(const std::string &soname)>;
Result<CublasLt> loadCublasLtBySoname(const std::string &soname);

/// Returns the first cuBLASLt, in the order of cublasSonames, that starts on the device. `refusals`
/// gets the errors of earlier ones that are installed but do not start. Errors: Other, with the
/// reason for every soname.
Result<CublasLt> startedCublasLt(const DevicePtr &device, std::vector<std::string> &refusals,
                                 const CublasLoader &load = loadCublasLtBySoname);
/// Returns this machine's cuDNN. Errors: Other, if it is not installed; RankFailed, if it does not
/// start.
Result<Cudnn> startedCudnn(const DevicePtr &device);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STARTLIBRARIES_H
