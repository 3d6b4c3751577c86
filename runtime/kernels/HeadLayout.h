//===- HeadLayout.h - The rows of an attention's tensor in memory ----------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_HEADLAYOUT_H
#define TBC_RUNTIME_KERNELS_HEADLAYOUT_H

#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

namespace tbc::kernels {

/// A tensor with a row of `width` elements for each sample, head and token: head-major is
/// [b, h, s, d], token-major is [b, s, h, d] or, merged, [b, s, h * d]. The rows may be columns of
/// a packed tensor (PackedAttention.h).
///
/// Example: token-major [1, 8, 2, 64] has 2 heads and 8 tokens. The rows of two tokens of one head
/// are 128 elements apart, and those of two heads of one token 64. As the keys of a packed tensor
/// of 2 heads, [1, 8, 384], they begin at element 128, and those of two tokens are 384 apart.
struct HeadLayout {
  HeadLayout(int64_t batch, int64_t heads, int64_t tokens, int64_t width, bool isTokenMajor)
      : batch(batch), heads(heads), tokens(tokens), width(width), isTokenMajor(isTokenMajor),
        columns(heads * width) {}
  /// `tensor`: a letter of the attribute token_major of an attention, q, k, v or o. `shape` is that
  /// of the tensor, or for q, k and v of the packed one; throws KernelError if it is not one of its
  /// rank, or heads do not divide it.
  HeadLayout(const Attrs &attrs, char tensor, const Shape &shape);

  /// Distances in elements, between neighbours.
  int64_t sampleStride() const { return tokens * columns; }
  int64_t tokenStride() const { return isTokenMajor ? columns : width; }
  int64_t headStride() const { return isTokenMajor ? width : tokens * width; }
  /// Returns the first element of a row.
  int64_t offset(int64_t sample, int64_t head, int64_t token) const {
    return first + sample * sampleStride() + head * headStride() + token * tokenStride();
  }

  /// Returns the shape of such a tensor with heads and columns apart.
  Shape shape() const {
    return isTokenMajor ? Shape{batch, tokens, heads, width} : Shape{batch, heads, tokens, width};
  }

  /// Whether the tensor with this letter is token-major, merged or not.
  static bool isTokenMajorIn(const Attrs &attrs, char tensor);

  int64_t batch, heads, tokens, width;
  bool isTokenMajor;
  int64_t columns;   // of all heads; of a packed tensor all that it has
  int64_t first = 0; // the first element of the first row

private:
  void takePacked(const Attrs &attrs, char tensor, const Shape &shape);
};

/// The layout of o in an attention_merge, from the shapes of o and m. Throws KernelError if they do
/// not fit.
HeadLayout layoutOfMerge(const Attrs &attrs, const Shape &o, const Shape &m);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_HEADLAYOUT_H
