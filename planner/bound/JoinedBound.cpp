//===- JoinedBound.cpp - Bound on collectives that may be joined -----------===//

#include "planner/bound/JoinedBound.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

double leastJoinedSeconds(const std::function<double(double)> &seconds,
                          const std::map<double, double> &sizes, double mostBytes,
                          double leastCount) {
  double apart = 0, number = 0, bytes = 0, parts = 0;
  double large = 0, numLarge = 0; // of tensors with more than `mostBytes`
  for (auto [size, count] : sizes) {
    number += count;
    bytes += size * count;
    if (mostBytes == 0) {
      apart += count * seconds(size);
    } else if (size > mostBytes) {
      large += count * seconds(size);
      numLarge += count;
    } else {
      parts += count * size / mostBytes;
    }
  }
  if (mostBytes == 0 || number == 0)
    return apart;
  constexpr double rounding = 1e-9;
  const double least = std::min(number, leastCount), start = seconds(0);
  const double groups = std::max(std::ceil(parts - rounding), least - numLarge);
  const double all = std::max(1.0, groups + numLarge);
  const double together = (all - 1) * start + seconds(bytes);
  if (!std::isfinite(mostBytes))
    return together;
  return std::max(together, large + std::max(0.0, groups) * start +
                                std::max(0.0, parts) * (seconds(mostBytes) - start));
}

} // namespace tbc::planner
