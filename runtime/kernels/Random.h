//===- Random.h - Dropout by a counter-based generator ---------------------===//
//
// Part of tbc.
//
//   dropout{ratio}   x -> x
//   dropout_train{ratio, seed, key}   x, step, indices .. -> y:
//       n = sum over dims d of indices[d][i_d]  for the element at (i_0, i_1, ..)
//       word = philox(counter = (n / 4 (64 bits), step, key), key = seed)[n mod 4]
//       y = 0 if word < floor(ratio * 2^32), else x * (1 / (1 - ratio))
//       at step 0, which is evaluation: y = x
//   In residues the mask is the same and the factor is exact.
//
// Example: ratio = 0.25 drops words below 2^30 and scales the others by 4/3.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_RANDOM_H
#define TBC_RUNTIME_KERNELS_RANDOM_H

#include "runtime/kernels/Support.h"

#include <array>

namespace tbc::kernels {

/// Philox 4x32 with ten rounds: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
/// (2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// The mask of one dropout.
class DropoutMask {
public:
  /// KernelError unless 0 <= ratio < 1. `op` is the attribute `key` of the op.
  DropoutMask(double ratio, int64_t seed, int64_t op, int64_t step);

  /// The ratio at a step: 0 at step 0, which is evaluation.
  static double ratioOf(double ratio, int64_t step) { return step == 0 ? 0 : ratio; }

  /// Whether element `number` of the global batch is kept.
  bool keeps(int64_t number);

private:
  uint32_t threshold, op, step;
  std::array<uint32_t, 2> key;
  /// The words of the last requested block of four elements.
  uint64_t block = ~uint64_t(0);
  std::array<uint32_t, 4> words = {};
};

const KernelTable &randomKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_RANDOM_H
