//===- CudaTarget.h - What kernels for GPUs are compiled for ----------------===//

#ifndef TBC_CODEGEN_CUDA_CUDATARGET_H
#define TBC_CODEGEN_CUDA_CUDATARGET_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cuda {

inline constexpr const char *defaultArchitectures = "sm_80,sm_90";

enum class Form {
  /// A kernel as of runtime/abi/CudaKernels.h; its extent is the number of blocks.
  Device,
  /// The same threads one after the other on a CPU, in warps of one: a kernel as of
  /// runtime/abi/CompiledKernel.h, whose extent is the number of threads. For tests.
  Host,
};

struct CudaTarget {
  std::vector<int> architectures; // ascending: 80 for sm_80
  /// Whether ops that no kernel is known for are left to the host, which executes their reference
  /// kernels and copies operands and results; else they are an error.
  bool allowsHostOps = false;
  Form form = Form::Device;
};

/// Of "sm_80,sm_90": architectures from sm_80 on that this compiler has. Errors: Usage.
Result<CudaTarget> parseCudaTarget(const std::string &architectures);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_CUDATARGET_H
