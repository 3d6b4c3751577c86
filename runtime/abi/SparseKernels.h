//===- SparseKernels.h - GPU kernels of top-k gradient compression --------===//
//
// Part of tbc. Plain C++. Kernels of compressed all-reduces: a sum of f32 over ranks that sends
// only the elements of largest magnitude. A program for GPUs has them beside the kernels of its
// regions (CudaKernels.h). All parameters are addresses, aligned to their element type. Sizes lie
// in memory, because they are known only when a run begins.
//
// A slice has f32 `residual` [count] and i64 `sizes` = {count, numEntries}. The threshold is found
// by radix selection over the bits of magnitudes, highest digit first. Bit patterns of magnitudes
// have the order of the magnitudes. The progress lies in i64 `state` = {digits found so far, number
// of elements to take among those that begin with them, first bit of the next digit}.
//
//   add     gradient f32 [count], sizes, residual: adds the gradient to the residual
//   count   residual, state, sizes, counts i32: for each warp and each value of the next digit, the
//           number of elements with the digits so far and this one
//   choose  counts, state: appends the next digit of the threshold
//   tally   residual, state, sizes, tallies i32, warpTallies i32: for each thread (on its own
//           contiguous range) and each warp, the number of elements above the threshold, and equal
//           to it
//   take    tallies, warpTallies, state, sizes, residual, indices i32, values f32: moves the
//   elements
//           above the threshold, and the first ones equal to it, out of the residual, in order
//   sum     words i32, the same as f32, sizes, result f32: adds the received values of one slice by
//           index, in the order of ranks, in f64, rounded once; other elements of `result` stay.
//           Its i64 sizes are {number of ranks, numEntries, words from rank to rank, first index
//           among them, binary search steps for numEntries}.
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

/// Threads of a launch, for any sizes. `choose` is an exception: it is one warp.
inline constexpr int64_t numThreads = int64_t(1) << 15;
inline constexpr int64_t warpThreads = 32, numWarps = numThreads / warpThreads;

inline constexpr int64_t digitBits = 4, numDigits = int64_t(1) << digitBits;
/// A magnitude has 32 bits of digits. `state` begins as {0, number of elements to take,
/// firstShift}.
inline constexpr int64_t numRounds = 32 / digitBits, firstShift = 32 - digitBits;

} // namespace tbc::program::sparse

#endif // TBC_RUNTIME_ABI_SPARSEKERNELS_H
