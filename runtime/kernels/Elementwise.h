//===- Elementwise.h - Kernels applied element by element ------------------===//
//
// Part of tbc.
//
// Operands and result have equal shapes; nothing is broadcast.
//
//   neg abs relu            floats and integers. In residues x > 0 means orderKey(x) > 0, so
//                           abs(x) = x > 0 ? x : -x and relu(x) = x > 0 ? x : 0 take both branches.
//   exp log sqrt tanh erf sigmoid sin cos atan
//                           floats; in residues the keyed hash of the function.
//   rsqrt reciprocal        1 / sqrt(x), 1 / x.
//   is_nan                  float -> bool; false for every residue.
//   not and or              bool.
//   add sub mul div pow     floats and integers. Integer division truncates towards zero; by 0 it
//   is
//                           an error. Integer overflow wraps. In residues x / 0 = 0, and pow is
//                           repeated multiplication for integer exponents up to 2^20, else a hash
//                           of both.
//   maximum minimum compare{predicate}
//                           the first of equals; residues in the order of orderKey. A maximum or
//                           minimum of NaN is NaN, and of NaN only "ne" holds.
//   select                  pred, x, y -> pred ? x : y.
//   cast                    float -> float rounds (identity in residues); float -> integer
//                           truncates (in residues: the centered integer), NaN is an error, and
//                           castOfTooLarge() is for floats beyond 64 bits; integer -> float rounds;
//                           any type -> bool is x != 0; integer -> integer wraps.
//   relu_grad               x, dy -> x <= 0 ? 0 : dy. NaN passes both, as in PyTorch.
//   detach                  x -> x.
//
// Example: cast of 300 from i32 to u8 is 44.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ELEMENTWISE_H
#define TBC_RUNTIME_KERNELS_ELEMENTWISE_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &elementwiseKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ELEMENTWISE_H
