//===- Digits.h - Affine indices as digits of a flattened dim --------------===//
//
// An index that is affine in several dims, such as 96 b + 8 i + j, names a place of a flattened
// dim. If its terms do not carry into each other, each of them is a digit: a place in one dim of
// the tensor before it was flattened. Exporters write so: rows of samples, `as_strided`, `unfold`.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_DIGITS_H
#define TBC_FRONTEND_ONNX_DIGITS_H

#include "frontend/onnx/Emitter.h"

#include <optional>

namespace tbc::frontend {

/// One digit of an affine index, of the radix `size`. It is `offset` plus the sum of coefficient x
/// index over the core dims `cores` of the indices.
struct Digit {
  int64_t size = 1, offset = 0;
  std::vector<unsigned> cores;
  std::vector<int64_t> coefficients;
};

/// Returns the digits of affine indices into a dim of `size`, the most significant first; nullopt
/// for fewer than two digits, and for indices that are not affine, or decrease. Terms that overlap
/// share a digit. Example: 96 b + 8 i + j for b < 5, i < 11 and j < 16 in a dim of 480: digit b of
/// radix 5, and windows 8 i + j of radix 96.
std::optional<std::vector<Digit>> digitsOf(const Known &indices, int64_t size);

/// Gathers from `data` along `axis`, digit by digit, so that no index runs over several of the dims
/// that were flattened. `shape` is the shape of the gather.
Value gatherDigits(Emitter &emitter, const Value &data, const Value &indices, unsigned axis,
                   const std::vector<Digit> &digits, const Shape &shape);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_DIGITS_H
