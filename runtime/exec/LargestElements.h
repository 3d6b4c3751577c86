//===- LargestElements.h - Top-k selection by magnitude ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_LARGESTELEMENTS_H
#define TBC_RUNTIME_EXEC_LARGESTELEMENTS_H

#include <cstdint>

namespace tbc::runtime {

/// Moves the `k` elements of largest magnitude out of `values` [count] and leaves zeros. Their
/// indices go to `indices` [k], ascending, and their values to `largest` [k]. Among equal
/// magnitudes lower indices win. A NaN counts as larger than any number, so that it is never kept
/// back. 0 <= k <= count < 2^31.
///
/// The time is linear in `count` and independent of `k`: radix selection finds the threshold digit
/// by digit, over the bits of the magnitudes, whose order is that of integers. Example: values {1,
/// -5, 3}, k = 2 give indices {1, 2}, largest {-5, 3} and leave {1, 0, 0}.
void takeLargest(float *values, int64_t count, int64_t k, int32_t *indices, float *largest);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_LARGESTELEMENTS_H
