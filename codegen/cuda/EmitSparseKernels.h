//===- EmitSparseKernels.h - GPU kernels of compressed all-reduce -----------===//

#ifndef TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H
#define TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H

#include "codegen/cuda/EmitCudaKernel.h"

#include <utility>
#include <vector>

namespace tbc::cuda {

/// Number of threads in the host form, with one lane per warp.
inline constexpr int64_t sparseThreadsOnHost = 48;

/// Returns the kernels of runtime/abi/SparseKernels.h, by symbol.
std::vector<std::pair<const char *, region::Kernel>> emitSparseKernels(mlir::MLIRContext &context,
                                                                       Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H
