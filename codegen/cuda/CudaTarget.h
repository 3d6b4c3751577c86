//===- CudaTarget.h - Target GPUs of compiled kernels -----------------------===//

#ifndef TBC_CODEGEN_CUDA_CUDATARGET_H
#define TBC_CODEGEN_CUDA_CUDATARGET_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

inline constexpr const char *defaultArchitectures = "sm_80,sm_90";

enum class Form {
  /// A GPU kernel, see runtime/abi/CudaKernels.h. Its extent is the number of blocks.
  Device,
  /// The same threads in sequence on a CPU, with one lane per warp; see
  /// runtime/abi/CompiledKernel.h. Its extent is the number of threads. For tests.
  Host,
};

struct CudaTarget {
  std::vector<int> architectures; // ascending: 80 for sm_80
  /// If true, ops without a GPU kernel run on the host: its reference kernels execute them, and
  /// operands and results are copied. If false, such ops are an error.
  bool allowsHostOps = false;
  Form form = Form::Device;
};

/// Parses a list such as "sm_80,sm_90": architectures from sm_80 on, supported by this compiler.
/// Errors: Usage.
Result<CudaTarget> parseCudaTarget(const std::string &architectures);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_CUDATARGET_H
