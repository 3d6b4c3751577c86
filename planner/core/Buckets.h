//===- Buckets.h - How much is reduced together, how early is gathered -----===//
//
// Plain C++. The plan decisions `bucket_bytes` and `prefetch`: which there are to choose from, and
// what they save. What they do is reshard::planOverlap.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_BUCKETS_H
#define TBC_PLANNER_CORE_BUCKETS_H

#include "planner/core/Cost.h"
#include "planner/reshard/Overlap.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// The most gathers ahead: more than any block has is as good as all.
inline constexpr int64_t maxPrefetch = 4096;

/// "none" or, e.g., "25.0 MiB".
std::string bucketText(int64_t bucketBytes);

/// --bucket-size and --prefetch; open where they are auto.
struct OverlapPins {
  std::optional<int64_t> bucketBytes, prefetch;
};

/// The number of buckets that reductions of `seconds` (without starts) are best divided into, each
/// of which takes `startSeconds` to start. A bucket cannot be reduced before its last gradient is
/// there, so the last one is not hidden: n buckets cost n starts and 1/n of the transfer, and
///     n start + transfer / n
/// is least at n = sqrt(transfer / start). With G bytes at B bytes per second that is buckets of
///     sqrt(G start B)
/// bytes. At least 1. (Larger buckets hide worse, smaller ones start too often: Li et al.,
/// "PyTorch Distributed", VLDB 2020, section 3.2.3 and figure 7, measure that curve.)
double bestNumBuckets(double seconds, double startSeconds);

/// The number of collectives that `count` reductions of `bytes` together take: `bucketBytes` as
/// pinned.
double numReductions(const std::optional<int64_t> &bucketBytes, double count, double bytes,
                     double transferSeconds, double startSeconds);

/// The least number of collectives that `count` reductions take in any plan: one where they may be
/// joined, for what is larger than a bucket, and how large buckets are, is up to the plan.
double leastReductions(const std::optional<int64_t> &bucketBytes, double count);

/// The choices that `pins` leave for a step, the fastest first. Where something is open the last is
/// without it, which takes the least memory. Buckets of the best size for the reductions that move
/// most, in whole MiB, then a quarter of it.
std::vector<reshard::OverlapSettings> overlapChoices(const OverlapPins &pins,
                                                     const reshard::Graph &graph,
                                                     const reshard::Derivation &derivation,
                                                     const NetworkCost &network);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BUCKETS_H
