//===- Gpu.h - What GPUs reach ---------------------------------------------===//
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
  int64_t ranks = 1; // a GPU each
  bool isQuick = false;
};

/// Starts a rank per GPU and measures: copies within the device and to and from the host, products
/// by cuBLASLt, collectives over NCCL. Errors: Other, a library that is missing, saying what to
/// install; Usage, fewer GPUs than ranks; a rank failed, which has said so on stderr.
Result<Measurements> measureGpus(const GpuOptions &options);

/// Of `measureGpus`, in each rank, on its device; fills all but `ranks`, alike on all of them. Of
/// one rank there are no collectives; of several the communicator is a cuda::DeviceCommunicator
/// too.
Status measureGpu(const cuda::DevicePtr &device, const cuda::CublasLt &cublas, bool isQuick,
                  comm::Communicator &communicator, Measurements &measurements);

} // namespace tbc::calibrate

#endif // TBC_TOOLS_CALIBRATE_GPU_H
