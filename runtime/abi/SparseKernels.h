//===- SparseKernels.h - The kernels of compressed sums on GPUs -------------===//
//
// Part of tbc. Plain C++. A program for GPUs that sums f32 over ranks has beside the kernels of its
// regions (CudaKernels.h) those by which sums send their largest elements alone. All parameters are
// addresses, aligned as their elements are; sizes are known when a run begins, and lie in memory.
//
// A slice is `residual`, f32 [count], and i64 `sizes` = {count, numEntries}. The threshold is found
// digit by digit, the highest first, over the bits of magnitudes, which are in their order; where
// that is lies in i64 `state` = {the digits so far, how many of the elements that begin with them
// are taken, the bit at which the next digit begins}.
//
//   add     gradient f32 [count], sizes, residual: adds the one to the other
//   count   residual, state, sizes, counts i32: by warp, how many elements that begin with the
//           digits so far have each next one
//   choose  counts, state: appends the digit of the last element that is taken
//   tally   residual, state, sizes, tallies i32, warpTallies i32: by thread, each with a stretch of
//           its own, and by warp, how many elements are above the threshold, and equal to it
//   take    tallies, warpTallies, state, sizes, residual, indices i32, values f32: moves what is
//           above it, and the first of what is equal to it, out of the residual, in order
//   sum     words i32, the same as f32, sizes, result f32: of what a rank was sent for one slice,
//           adds up the values of each index in the order of the ranks, in f64, rounded once; other
//           elements stay. Its i64 sizes are {number of ranks, numEntries, words from rank to rank,
//           first index among them, steps to search numEntries}.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_SPARSEKERNELS_H
#define TBC_RUNTIME_ABI_SPARSEKERNELS_H

#include <cstdint>

namespace tbc::program::sparse {

inline constexpr const char *add = "tbc_sparse_add", *count = "tbc_sparse_count",
                            *choose = "tbc_sparse_choose", *tally = "tbc_sparse_tally",
                            *take = "tbc_sparse_take", *sum = "tbc_sparse_sum";
inline constexpr const char *all[] = {add, count, choose, tally, take, sum};

/// Of a launch, but for `choose`, which is one warp; the same for any sizes.
inline constexpr int64_t numThreads = int64_t(1) << 15;
inline constexpr int64_t warpThreads = 32, numWarps = numThreads / warpThreads;

inline constexpr int64_t digitBits = 4, numDigits = int64_t(1) << digitBits;
/// Digits of 32 bits; at first `state` is {0, how many are taken, firstShift}.
inline constexpr int64_t numRounds = 32 / digitBits, firstShift = 32 - digitBits;

} // namespace tbc::program::sparse

#endif // TBC_RUNTIME_ABI_SPARSEKERNELS_H
