//===- EmitSparseKernels.h - The kernels of compressed sums -----------------===//

#ifndef TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H
#define TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H

#include "codegen/cuda/EmitCudaKernel.h"

#include <utility>
#include <vector>

namespace tbc::cuda {

/// Of the form for hosts, in warps of one.
inline constexpr int64_t sparseThreadsOnHost = 48;

/// Those of runtime/abi/SparseKernels.h, by their symbols.
std::vector<std::pair<const char *, cpu::Kernel>> emitSparseKernels(mlir::MLIRContext &context,
                                                                    Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EMITSPARSEKERNELS_H
