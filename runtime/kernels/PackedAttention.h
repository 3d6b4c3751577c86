//===- PackedAttention.h - Attention of the columns of one tensor ----------===//
//
// Part of tbc. Plain C++.
//
//   packed_attention{packed_width, ...}        x[b,s,c], masks... -> o, m, l
//   packed_attention_grad{packed_width, ...}   do, x, o, m, l, masks... -> dx[b,s,c]
//       attention and attention_grad (Attention.h) of q, k and v that are the columns of x, in this
//       order: q[b,s,h*d], k[b,s,hk*d], v[b,s,hk*e], with d = packed_width. dx has the columns of
//       dq, dk and dv. `heads` is h, `key_heads` is hk; token_major has the letter of o alone.
//
// Example: a linear layer of GPT-2 makes x[16, 1024, 2304], with 12 heads of 64 columns: q is its
// columns 0 to 767, k those to 1535, v the rest. No tensor is copied.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_PACKEDATTENTION_H
#define TBC_RUNTIME_KERNELS_PACKEDATTENTION_H

#include <string_view>
#include <vector>

namespace tbc::kernels {

inline constexpr std::string_view packedWidthAttr = "packed_width";

/// A packed op as one of three tensors: x stands for each of q, k and v, and dx for each of dq, dk
/// and dv. HeadLayout finds the columns of each in it.
struct PackedAttention {
  static constexpr size_t numParts = 3;

  /// Whether `op` is one of the two packed ops.
  static bool is(std::string_view op) {
    return op == "packed_attention" || op == "packed_attention_grad";
  }
  explicit PackedAttention(std::string_view op) : isGradient(op != "packed_attention") {}

  /// The name of the op of three tensors.
  const char *plainOp() const { return isGradient ? "attention_grad" : "attention"; }

  /// Returns what the op of three tensors has as operands or results.
  template <typename T> std::vector<T> operands(const std::vector<T> &packed) const {
    return repeated(packed, packedOperand());
  }
  template <typename T> std::vector<T> results(const std::vector<T> &packed) const {
    return isGradient ? repeated(packed, 0) : packed;
  }
  /// Returns `packed`, which has an op, operands and results, as the op of three tensors.
  template <typename Call> Call plain(Call packed) const {
    packed.op = plainOp();
    packed.operands = operands(packed.operands);
    packed.results = results(packed.results);
    return packed;
  }
  /// Returns the number of the packed op's operand or result, from that of the op of three tensors.
  int operandOf(int number) const { return numberOf(number, packedOperand()); }
  int resultOf(int number) const { return isGradient ? numberOf(number, 0) : number; }

  int packedOperand() const { return isGradient ? 1 : 0; }

  bool isGradient;

private:
  template <typename T> static std::vector<T> repeated(std::vector<T> list, int at) {
    const T x = list.at(size_t(at));
    list.insert(list.begin() + at, numParts - 1, x);
    return list;
  }
  static int numberOf(int number, int at) {
    const int behind = at + int(numParts) - 1;
    return number <= at ? number : number <= behind ? at : number - int(numParts) + 1;
  }
};

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_PACKEDATTENTION_H
