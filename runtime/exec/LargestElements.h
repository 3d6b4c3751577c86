//===- LargestElements.h - The largest of many numbers ----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_LARGESTELEMENTS_H
#define TBC_RUNTIME_EXEC_LARGESTELEMENTS_H

#include <cstdint>

namespace tbc::runtime {

/// Moves the `k` elements of largest magnitude out of `values` [count]: their indices, ascending,
/// into `indices` [k], what they were into `largest` [k]; zeros stay in their places. Of equal
/// magnitudes those of lower index go. What is no number counts as larger than any, so that it is
/// not kept back. 0 <= k <= count < 2^31. Takes a time that grows with `count` alone: the threshold
/// is found digit by digit (radix selection), over the bits of magnitudes, which are in their
/// order.
void takeLargest(float *values, int64_t count, int64_t k, int32_t *indices, float *largest);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_LARGESTELEMENTS_H
