//===- EmitCudaKernel.h - Lower a function of tbc ops to GPU threads --------===//

#ifndef TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H
#define TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H

#include "codegen/cuda/CudaTarget.h"
#include "codegen/region/Kernel.h"
#include "runtime/abi/CudaKernels.h"

#include <optional>

namespace tbc::cuda {

inline constexpr int threadsPerBlock = 256;

/// Loads the dialects of GPU kernels; see `region::prepareContext`.
void prepareContext(mlir::MLIRContext &context);

/// Returns the kernel that computes the results of `function`.
///
/// If the innermost loop is not reduced, a thread does the neighbouring elements of one 16-byte
/// access, or fewer if the row length is no multiple. It reduces the outer loops by itself (sums
/// over rows). Example: 4 elements of f32, 8 of bf16.
///
/// If the innermost loop is reduced (softmax, norms over the last dim), a warp does a row. Each
/// lane reduces a part; a butterfly of shuffles combines the parts, so all lanes end with the same
/// bits.
///
/// A kernel with few threads and long reduced loops takes parts of these loops. It has a launch per
/// pass (in the host form two), and partial results in a workspace: its functions have that as a
/// further argument. Example: a sum over 16,384 rows of 768 bf16 has 512 parts.
///
/// If there are column sums beside reduced rows, a block takes rows, with a sum per column in its
/// registers. The last blocks to end add these sums, in a fixed order. The host form has no such
/// kernel, since it has no blocks.
///
/// Arithmetic as in `cpu::emitKernel`; functions without GPU instructions as in `expandMath`. The
/// order of a sum depends on shapes alone. Fails without a diagnostic if it needs more blocks than
/// a launch allows.
mlir::FailureOr<region::Kernel>
emitCudaKernel(mlir::func::FuncOp function, const region::Domain &domain, Form form = Form::Device);

/// Returns the text of a module with the function `symbol`, which adds to a slot
/// (`CudaAccumulator`). Null unless the value has the slot's type or a narrower float type.
std::optional<std::string> emitAccumulator(mlir::MLIRContext &context, const std::string &symbol,
                                           kernels::DType slot, kernels::DType value);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_EMITCUDAKERNEL_H
