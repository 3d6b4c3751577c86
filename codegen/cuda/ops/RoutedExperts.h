//===- RoutedExperts.h - Experts without a capacity, on GPUs ---------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_ROUTEDEXPERTS_H
#define TBC_CODEGEN_CUDA_OPS_ROUTEDEXPERTS_H

#include "codegen/cuda/ThreadKernel.h"

namespace tbc::cuda {

/// Returns the kernels of `routed_experts` and `routed_experts_grad`: grouped matmuls
/// (GroupedMatmul.h) of the tokens of each expert.
///
/// Tokens are listed by expert, in their order. The list of an expert is filled up to whole tiles
/// of 128 rows, so a tile has rows of one expert. Example: of 300 tokens with two of 8 experts
/// each, 600 rows are in at most (600 + 8 * 127) / 128 = 12 tiles.
///
/// | launch | forward | gradient |
/// |---|---|---|
/// | tokens per expert, lists | 3 launches | the same 3 |
/// | first layer | a = act(gate) up | gate and up |
/// | second layer | w out a | da = out^T dy; w a, d gate, d up, terms of dw |
/// | sums over the experts of a token | y | dx (after in^T of d gate, d up), dw |
/// | weights, over the tokens of an expert | | d in, d out |
///
/// Rows of both layers are rounded to the op's type; sums over experts are in f32 and in the order
/// of the experts. A token with more than `top` experts gives NaN.
mlir::FailureOr<region::Kernel> emitRoutedExperts(mlir::MLIRContext &context, const OpCall &call,
                                                  Form form);
mlir::FailureOr<region::Kernel> emitRoutedExpertsGrad(mlir::MLIRContext &context,
                                                      const OpCall &call, Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_ROUTEDEXPERTS_H
