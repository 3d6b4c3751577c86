//===- Random.h - Dropout and numbers by a counter-based generator ---------===//
//
// Part of tbc.
//
//   dropout{ratio}   x -> x
//   dropout_train{ratio, seed, key}   x, step, indices .. -> y:
//       n = sum over dims d of indices[d][i_d]  for the element at (i_0, i_1, ..)
//       word = philox(counter = (n / 4 (64 bits), step, key), key = seed)[n mod 4]
//       y = 0 if word < floor(ratio * 2^32), else x * (1 / (1 - ratio))
//       at step 0, which is evaluation: y = x
//   random_uniform{key}   like -> y: random_uniform_train at step 0, seed 0 and row-major numbers
//   random_uniform_train{seed, key}   step, indices .. -> y:
//       y = floor(word / 2^8) / 2^24, with n and word as above
//   In residues the masks and numbers are the same and factors are exact.
//
// Example: ratio = 0.25 drops words below 2^30 and scales the others by 4/3. A word of 2^31 is the
// number 0.5.
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

/// The random words of one op.
class RandomWords {
public:
  /// `op` is the attribute `key` of the op.
  RandomWords(int64_t seed, int64_t op, int64_t step)
      : op(uint32_t(op)), step(uint32_t(step)),
        key({uint32_t(uint64_t(seed)), uint32_t(uint64_t(seed) >> 32)}) {}

  /// The word of element `number` of the global batch.
  uint32_t at(int64_t number);

private:
  uint32_t op, step;
  std::array<uint32_t, 2> key;
  /// The words of the last requested block of four elements.
  uint64_t block = ~uint64_t(0);
  std::array<uint32_t, 4> words = {};
};

/// The mask of one dropout.
class DropoutMask {
public:
  /// KernelError unless 0 <= ratio < 1. `op` is the attribute `key` of the op.
  DropoutMask(double ratio, int64_t seed, int64_t op, int64_t step);

  /// The ratio at a step: 0 at step 0, which is evaluation.
  static double ratioOf(double ratio, int64_t step) { return step == 0 ? 0 : ratio; }

  /// Whether element `number` of the global batch is kept.
  bool keeps(int64_t number) { return words.at(number) >= threshold; }

private:
  uint32_t threshold;
  RandomWords words;
};

const KernelTable &randomKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_RANDOM_H
