//===- LargestElements.cpp - Top-k selection by magnitude -------------------===//

#include "runtime/exec/LargestElements.h"

#include <cstring>
#include <vector>

namespace tbc::runtime {

/// Returns the bits of the magnitude. As integers they have the order of the magnitudes.
static uint32_t keyOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffffu;
}

// A key has 31 bits: a high digit of 16 and a low one of 15.
static constexpr int lowBits = 15;
static constexpr uint32_t numHigh = 1u << 16, numLow = 1u << lowBits;

/// Returns the digit of the `left`-th largest key, from the counts per digit. `left` becomes how
/// many keys with this digit are taken. Example: counts {5, 2, 3} and left = 4 give digit 1 and
/// left = 1.
static uint32_t lastDigit(const std::vector<uint32_t> &counts, int64_t &left) {
  uint32_t digit = uint32_t(counts.size()) - 1;
  for (; left > counts[digit]; --digit)
    left -= counts[digit];
  return digit;
}

void takeLargest(float *values, int64_t count, int64_t k, int32_t *indices, float *largest) {
  if (k == 0)
    return;
  std::vector<uint32_t> high(numHigh, 0), low(numLow, 0);
  for (int64_t i = 0; i < count; ++i)
    ++high[keyOf(values[i]) >> lowBits];
  int64_t numEqual = k; // finally: how many keys equal to the threshold are taken
  uint32_t prefix = lastDigit(high, numEqual);
  for (int64_t i = 0; i < count; ++i)
    if (uint32_t key = keyOf(values[i]); key >> lowBits == prefix)
      ++low[key & (numLow - 1)];
  uint32_t threshold = prefix << lowBits | lastDigit(low, numEqual);
  for (int64_t i = 0, next = 0; next < k; ++i) {
    uint32_t key = keyOf(values[i]);
    if (key < threshold || (key == threshold && numEqual-- <= 0))
      continue;
    indices[next] = int32_t(i);
    largest[next++] = values[i];
    values[i] = 0;
  }
}

} // namespace tbc::runtime
