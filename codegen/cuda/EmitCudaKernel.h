//===- EmitCudaKernel.h - From a function of tbc ops to threads of a GPU ----===//

#ifndef TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H
#define TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H

#include "codegen/cpu/EmitKernel.h"
#include "codegen/cuda/CudaTarget.h"
#include "runtime/abi/CudaKernels.h"

#include <optional>

namespace tbc::cuda {

inline constexpr int threadsPerBlock = 256;

/// Loads the dialects that kernels for GPUs are made of; see cpu::prepareContext.
void prepareContext(mlir::MLIRContext &context);

/// The kernel that computes what `function` returns.
///
/// Where the innermost loop is not reduced, a thread does as many neighbouring elements as one
/// access of 16 bytes moves, if their number divides the row, else fewer; it reduces the loops
/// outside of them by itself (sums over rows). Where it is reduced (softmax, norms over the last
/// dim), a warp does a row: each lane a part, combined by shuffles in a butterfly, so that all
/// lanes have the same bits.
///
/// Arithmetic as of cpu::emitKernel, functions that GPUs lack as of expandMath; the order of a sum
/// depends on shapes alone. Failure (without a diagnostic) where it takes more blocks than a launch
/// may have.
mlir::FailureOr<cpu::Kernel> emitCudaKernel(mlir::func::FuncOp function, const cpu::Domain &domain,
                                            Form form = Form::Device);

/// The function `symbol` that adds to a slot (CudaAccumulator), as the text of a module; nothing
/// where the value's type is not the slot's and no narrower float either.
std::optional<std::string> emitAccumulator(mlir::MLIRContext &context, const std::string &symbol,
                                           kernels::DType slot, kernels::DType value);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H
