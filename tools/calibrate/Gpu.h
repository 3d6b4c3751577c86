//===- Gpu.h - Measure GPUs ------------------------------------------------===//
//
// Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_CALIBRATE_GPU_H
#define TBC_TOOLS_CALIBRATE_GPU_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Device.h"
#include "tools/calibrate/Calibrate.h"

namespace tbc::calibrate {

struct GpuOptions {
  int64_t ranks = 1; // one GPU each
  bool isQuick = false;
};

/// Starts a rank per GPU and measures: copies within the device and to and from the host, matmuls
/// by cuBLASLt, collectives over NCCL. Errors: Other for a missing library, with the package to
/// install; Usage for fewer GPUs than ranks; a failed rank, with its message on stderr.
Result<Measurements> measureGpus(const GpuOptions &options);

/// Measures in one rank of `measureGpus`, on its device. Fills all fields but `ranks`, with the
/// same values on all ranks. One rank measures no collectives; with several, the communicator must
/// be a `cuda::DeviceCommunicator`.
Status measureGpu(const cuda::DevicePtr &device, const cuda::CublasLt &cublas, bool isQuick,
                  comm::Communicator &communicator, Measurements &measurements);

} // namespace tbc::calibrate

#endif // TBC_TOOLS_CALIBRATE_GPU_H
