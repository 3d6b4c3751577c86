//===- Families.h - The makers of native kernels --------------------------------===//
//
// Part of tbc. Plain C++. One maker per family of ops. It returns an empty kernel for ops of other
// families, and for cases that it does not support.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_FAMILIES_H
#define TBC_RUNTIME_CPU_FAMILIES_H

#include "runtime/cpu/NativeKernel.h"

namespace tbc::cpu {

/// einsum as matmuls (Matmul) over strided operands.
NativeKernel makeEinsum(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                        const Types &results);

/// conv and its gradients, of f32 (ConvolutionPart).
NativeKernel makeConvolution(std::string_view op, const kernels::Attrs &attrs,
                             const Types &operands, const Types &results);

/// broadcast, transpose, reshape, slice, concat, pad: copies, of any dtype.
NativeKernel makeMovement(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                          const Types &results);

/// attention, attention_grad, attention_merge.
NativeKernel makeAttention(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                           const Types &results);

/// packed_attention, packed_attention_grad.
NativeKernel makePackedAttention(std::string_view op, const kernels::Attrs &attrs,
                                 const Types &operands, const Types &results);

/// Arithmetic, activations and their gradients, rotary, casts between floats, adam and adamw,
/// update_if.
NativeKernel makeElementwise(std::string_view op, const kernels::Attrs &attrs,
                             const Types &operands, const Types &results);

/// max_pool, avg_pool and their gradients, of f32.
NativeKernel makePooling(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                         const Types &results);

/// routed_experts and its gradients, dispatch, combine and the gradient of its weights, of f32.
NativeKernel makeExperts(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                         const Types &results);

/// layer_norm and its gradients, reduce_sum over leading or trailing dims.
NativeKernel makeNormalization(std::string_view op, const kernels::Attrs &attrs,
                               const Types &operands, const Types &results);

/// embedding and its gradient, class sums of a cross entropy.
NativeKernel makeVocabulary(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                            const Types &results);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_FAMILIES_H
