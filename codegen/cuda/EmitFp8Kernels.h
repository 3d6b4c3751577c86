//===- EmitFp8Kernels.h - GPU kernels that quantise matrices to fp8 ---------===//

#ifndef TBC_CODEGEN_CUDA_EMITFP8KERNELS_H
#define TBC_CODEGEN_CUDA_EMITFP8KERNELS_H

#include "codegen/cuda/EmitCudaKernel.h"
#include "runtime/abi/Fp8Kernels.h"

#include <set>
#include <utility>
#include <vector>

namespace tbc::cuda {

/// Number of threads in the host form, with one lane per warp.
inline constexpr int64_t fp8ThreadsOnHost = 48;

/// Returns the kernels of runtime/abi/Fp8Kernels.h for matrices of these types, by symbol.
std::vector<std::pair<std::string, region::Kernel>>
emitFp8Kernels(mlir::MLIRContext &context, const std::set<kernels::DType> &types, Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EMITFP8KERNELS_H
