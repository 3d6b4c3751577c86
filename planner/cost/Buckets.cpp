//===- Buckets.cpp - Sizes of joined collectives, and prefetch depth ------===//

#include "planner/cost/Buckets.h"
#include "planner/support/Format.h"

#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

std::string bucketText(int64_t bucketBytes) {
  return bucketBytes == 0 ? "none" : formatBytes(double(bucketBytes));
}

double bestNumBuckets(double seconds, double startSeconds) {
  return startSeconds > 0 ? std::max(1.0, std::sqrt(std::max(0.0, seconds) / startSeconds)) : 1;
}

std::pair<double, double> startAndTransfer(const NetworkCost &network, CollectiveKind kind,
                                           const GroupShape &group, double bytes) {
  const double seconds = network.seconds(kind, group, bytes);
  const double transfer = std::min(seconds, network.seconds(kind, group, 2 * bytes) - seconds);
  return {seconds - transfer, transfer};
}

double numJoined(const std::optional<int64_t> &bucketBytes, double count, double bytes,
                 double transferSeconds, double startSeconds) {
  if (count <= 1 || bucketBytes == 0)
    return count;
  double best = bucketBytes ? std::max(1.0, bytes / double(*bucketBytes))
                            : bestNumBuckets(transferSeconds, startSeconds);
  return std::min(count, std::ceil(best));
}

constexpr int64_t mebi = int64_t(1) << 20;

int64_t gatherUnitBytes(double bytes, int64_t numBlocks) {
  return std::max<int64_t>(1, int64_t(std::ceil(bytes / double(numBlocks) / double(mebi)))) * mebi;
}

/// Returns the best bucket size in bytes, a multiple of 1 MiB; 0 if no two reductions can be
/// joined.
static int64_t bestBucketBytes(const Graph &graph, const Derivation &derivation,
                               const NetworkCost &network) {
  OverlapSettings all;
  all.bucketBytes = std::numeric_limits<int64_t>::max() / 2;
  Overlap joined = planOverlap(graph, derivation, all);
  double mostSeconds = -1, best = 0;
  for (const Bucket &bucket : joined.buckets) {
    if (derivation.reshards[bucket.reshards.front()].where == Where::ParameterStep)
      continue; // no kernel hides it
    const Collective whole = jointMessages(derivation, bucket).front();
    const auto [start, transfer] =
        startAndTransfer(network, whole.kind, network.groupShape(whole), double(whole.bytes));
    if (transfer <= mostSeconds)
      continue;
    mostSeconds = transfer;
    best = double(whole.bytes) / bestNumBuckets(transfer, start);
  }
  return int64_t(std::ceil(best / double(mebi))) * mebi;
}

std::vector<OverlapSettings> overlapChoices(const OverlapPins &pins, int64_t gatherUnit,
                                            const Graph &graph, const Derivation &derivation,
                                            const NetworkCost &network) {
  // A layer has few parameters, and the gather of a large one needs some kernels to hide behind. A
  // gather of a whole block has those of the block before.
  constexpr int64_t usualPrefetch = 4;
  bool gathers =
      std::any_of(derivation.reshards.begin(), derivation.reshards.end(),
                  [](const Reshard &reshard) { return reshard.where == Where::ParameterUse; });
  const int64_t bytes = pins.bucketBytes ? 0 : bestBucketBytes(graph, derivation, network);
  const int64_t ahead = gathers ? usualPrefetch : 0, one = ahead / usualPrefetch;
  std::vector<OverlapSettings> sizes; // pins come below
  if (gathers && pins.gatherBytes.value_or(gatherUnit) > 0)
    sizes = {
        {bytes, one, gatherUnit}, {bytes / 2, one, gatherUnit}, {bytes / 4, one, gatherUnit / 4}};
  else
    sizes = {{bytes, ahead, 0}};
  sizes.insert(sizes.end(), {{bytes / 4, one, 0}, {bytes, 0, 0}, {0, 0, 0}});
  std::vector<OverlapSettings> choices;
  for (const OverlapSettings &size : sizes) {
    OverlapSettings choice{pins.bucketBytes.value_or(size.bucketBytes),
                           pins.prefetch.value_or(size.prefetch),
                           pins.gatherBytes.value_or(size.gatherBytes)};
    if (std::find(choices.begin(), choices.end(), choice) == choices.end())
      choices.push_back(choice);
  }
  return choices;
}

} // namespace tbc::planner
