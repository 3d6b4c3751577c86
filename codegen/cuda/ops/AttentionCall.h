//===- AttentionCall.h - Shapes and masks of an attention on GPUs -----------===//
//
// Internal to the kernels of attention.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_ATTENTIONCALL_H
#define TBC_CODEGEN_CUDA_OPS_ATTENTIONCALL_H

#include "codegen/cuda/ThreadKernel.h"
#include "ir/Attention.h"

namespace tbc::cuda {

/// Operands of the gradients of attention.
struct GradientOperand {
  static constexpr int cotangent = 0, query = 1, key = 2, value = 3, result = 4, maximum = 5,
                       denominator = 6, terms = 7;
};

/// Shapes and masks of an attention or its gradient.
struct AttentionCall {
  using HeadLayout = kernels::HeadLayout;

  /// `first`: the operand index of q; `terms`: of what follows the tensors.
  AttentionCall(const OpCall &call, int first, int terms);

  /// Whether rows without a key are zeros, or cannot exist. `hidden_rows` has other treatments.
  bool isSupported() const;
  /// Whether masks that are data may leave a query without a key.
  bool mayHideRows() const;
  HeadLayout layout(int operand, char tensor) const {
    return {call.attrs, tensor, call.operands[size_t(first) + size_t(operand)].shape};
  }
  /// The most that j may be ahead of i in the window, absent if any; `left` has the least.
  std::optional<int64_t> mostAhead() const {
    return isCausal ? 0 : right >= 0 ? std::optional(right) : std::nullopt;
  }

  const OpCall &call;
  int first, terms, mask; // operands: q; the first bias; the first mask, then the next one
  HeadLayout q, k, v, o;
  int64_t batch, heads, keyHeads, queries, keys, width, valueWidth;
  int keyMask, segments, ordered, placed, dropout; // operands, -1 if absent
  bool isCausal;
  int64_t left, right;
  std::vector<kernels::BiasLayout> biases;
  int sink = -1;  // operand
  double cap = 0; // 0: none
};

/// Returns the row sum l as it is stored and divided by: 0 for a row without a key, and NaN if a
/// bias makes all scores of a row -inf, as in the reference. Beside masks that are data both are 0,
/// because l alone does not tell them apart.
mlir::Value rowSumOf(const ThreadKernel &k, const AttentionCall &a, mlir::Value l);

/// Returns the dropout factor of a weight, 0 or 1 / (1 - ratio), for the number of its element:
/// the sum of one index of each dim.
mlir::Value dropoutFactor(const ThreadKernel &k, const AttentionCall &a, mlir::Value number);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_ATTENTIONCALL_H
