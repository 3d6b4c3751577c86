//===- CutBound.cpp - Bound on pipelines of indivisible parts -------------===//

#include "planner/bound/CutBound.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace tbc::planner {

/// Tolerance for rounding: a slightly longer cut counts as equal.
static constexpr double hair = 1e-9;

CutBound::CutBound(const std::vector<WorkShare> &ops, const std::vector<bool> &mayBegin) {
  for (size_t op = 0; op < ops.size(); ++op) {
    if (parts.empty() || mayBegin[op])
      parts.emplace_back();
    parts.back().add(ops[op], 1);
  }
  for (const WorkShare &part : parts)
    sizes.push_back(part.seconds());
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sums.push_back(0);
  for (double size : sizes)
    sums.push_back(sums.back() + size);
}

/// Returns a lower bound on the number of bins of `capacity` seconds for all parts (Martello and
/// Toth, L2).
int64_t CutBound::leastBins(double capacity) const {
  if (sizes.empty())
    return 0;
  if (sizes[0] > capacity)
    return int64_t(sizes.size()) + 1; // no number of bins suffices
  // Returns the number of parts larger than `size`.
  auto larger = [&](double size) {
    return size_t(
        std::partition_point(sizes.begin(), sizes.end(), [&](double of) { return of > size; }) -
        sizes.begin());
  };
  const size_t half = larger(capacity / 2);
  int64_t most = int64_t(half);
  // Uses the parts down to some size. None of them fits beside a part larger than capacity - size.
  for (size_t last = half; last < sizes.size(); ++last) {
    if (last + 1 < sizes.size() && sizes[last + 1] == sizes[last])
      continue;
    const size_t alone = larger(capacity - sizes[last]);
    const double room = double(half - alone) * capacity - (sums[half] - sums[alone]);
    const double over = (sums[last + 1] - sums[half] - room) / capacity;
    most = std::max(most, int64_t(half) + int64_t(std::ceil(over - hair)));
  }
  return most;
}

/// Whether the bound allows a makespan of `seconds`: fills each stage greedily, minus its waits for
/// the stages before it.
bool CutBound::mayTake(const Pipeline &pipeline, double seconds) const {
  seconds *= 1 + hair;
  const double accumulation = double(pipeline.accumulation);
  if (!pipeline.hasOneChunk)
    return leastBins(seconds / accumulation) <= pipeline.stages;
  double waits = 0;
  size_t next = 0;
  for (int64_t stage = 0; stage < pipeline.stages && next < parts.size(); ++stage) {
    const double room = (seconds - waits) / accumulation;
    double on = 0;
    for (; next < parts.size() && on + parts[next].seconds() <= room; ++next) {
      on += parts[next].seconds();
      waits += pipeline.partsBackward ? parts[next].forward : parts[next].seconds();
    }
    waits += (pipeline.partsBackward ? 1 : 2) * pipeline.sendSeconds;
  }
  return next == parts.size();
}

double CutBound::leastSeconds(const Pipeline &pipeline, double least, double limit) const {
  if (least >= limit || mayTake(pipeline, least))
    return least;
  if (!mayTake(pipeline, limit))
    return limit;
  constexpr int steps = 12;
  double most = limit;
  for (int step = 0; step < steps; ++step) {
    double middle = (least + most) / 2;
    (mayTake(pipeline, middle) ? most : least) = middle;
  }
  return least;
}

} // namespace tbc::planner
