//===- TiledAttention.h - Attention on GPUs by tensor cores -----------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_TILEDATTENTION_H
#define TBC_CODEGEN_CUDA_OPS_TILEDATTENTION_H

#include "codegen/cuda/ops/AttentionCall.h"

namespace tbc::cuda {

/// Whether the kernels below take these types and widths: bf16 or f16, on a device, and head widths
/// in multiples of 8 up to 128, or of 32 up to 256.
bool isTiled(const AttentionCall &a, Form form);

/// Attention in tiles (Dao, FlashAttention-2, arXiv 2307.08691, algorithm 1): a warp has 16 queries
/// and their results in registers. Tiles of keys and values go through shared memory. No tensor
/// over queries and keys is stored, and tiles outside of the window are not visited.
///
/// Masks are predicates and scores have biases and a cap, as in the op. Weights are rounded to the
/// element type before they multiply v. Example: 16,384 queries of a head are 128 blocks.
mlir::FailureOr<region::Kernel> emitTiledAttention(mlir::MLIRContext &context,
                                                   const AttentionCall &a);

/// Its gradients. A launch writes the row's m + log(l) and the sum of its do * o to the workspace
/// (`ir/TiledAttention.h`). Then dq has a launch over tiles of queries, and dk and dv have one
/// over tiles of keys, or two if a head is wider than 64. Weights are computed again in each. Every
/// sum has one order, without atomics.
mlir::FailureOr<region::Kernel> emitTiledAttentionGrad(mlir::MLIRContext &context,
                                                       const AttentionCall &a);

/// Whether the kernel below takes the gradient of the call's bias: one over queries and keys, and
/// maybe samples and heads.
bool isTiledBiasGradient(const AttentionCall &a, Form form);
/// The gradient of a bias. A block makes a tile of queries and keys, summed in order over the
/// samples and heads that the bias lacks.
mlir::FailureOr<region::Kernel> emitTiledBiasGradient(mlir::MLIRContext &context,
                                                      const AttentionCall &a);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_TILEDATTENTION_H
