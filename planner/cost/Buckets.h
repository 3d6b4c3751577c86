//===- Buckets.h - Sizes of joined collectives, and prefetch depth --------===//
//
// Plain C++. The plan decisions `bucket_bytes`, `gather_bytes` and `prefetch`: their choices, and
// the time they save. reshard::planOverlap carries them out.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_COST_BUCKETS_H
#define TBC_PLANNER_COST_BUCKETS_H

#include "planner/cost/Cost.h"
#include "planner/reshard/Overlap.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Returns "none" or a size. Example: "25.0 MiB".
std::string bucketText(int64_t bucketBytes);

/// --bucket-size, --gather-size and --prefetch; open if auto.
struct OverlapPins {
  std::optional<int64_t> bucketBytes, gatherBytes, prefetch;
};

/// Returns the best number of buckets for reductions of `seconds` in total (without starts), with
/// `startSeconds` to start each. A bucket starts after its last gradient is ready, so the last
/// bucket is not hidden. So n buckets cost n starts and 1/n of the transfer,
///     n start + transfer / n
/// with the minimum at n = sqrt(transfer / start). With G bytes at B bytes per second, a bucket has
///     sqrt(G start B)
/// bytes. At least 1. Example: 10 ms of transfer and 0.1 ms per start give 10 buckets. Larger
/// buckets hide worse and smaller ones start too often: Li et al., "PyTorch Distributed", VLDB
/// 2020, section 3.2.3 and figure 7, measure that curve.
double bestNumBuckets(double seconds, double startSeconds);

/// Returns the seconds of a collective of `bytes` in two parts: of its start, with all steps of its
/// algorithm, and of its bytes. Example: a ring of 7 steps of 2 us and 1 ms of bytes give (14 us +
/// start, 1 ms).
std::pair<double, double> startAndTransfer(const NetworkCost &network, reshard::CollectiveKind kind,
                                           const GroupShape &group, double bytes);

/// Returns the number of collectives for `count` tensors of `bytes` in total. `bucketBytes`: as
/// pinned.
double numJoined(const std::optional<int64_t> &bucketBytes, double count, double bytes,
                 double transferSeconds, double startSeconds);

/// Returns the most bytes of parameters that are gathered together if the plan chooses: those of a
/// graph block in the mean, in whole MiB. FSDP gathers by the same units: more bytes at once would
/// start before there are kernels to hide them (Zhao et al., "PyTorch FSDP", VLDB 2023, section
/// 3.3: a unit is gathered while the one before computes). `bytes`: of all parameters on a rank,
/// gathered. Example: 16.1 GB in 32 blocks give 480 MiB.
int64_t gatherUnitBytes(double bytes, int64_t numBlocks);

/// Returns the choices for a step under `pins`, the fastest first. If something is open, the last
/// choice is without it and takes the least memory.
/// - Bucket sizes, in whole MiB: the best for the kind of reduction that moves most; half of it,
/// with
///   whole gathers; a quarter.
/// - Sizes of gathers: `gatherUnit` and a quarter of it; 0 if the executor decides.
///
/// Example: buckets of 88 MiB and gathers of 480 MiB, one ahead; of 22 and 120 MiB, one ahead;
/// buckets of 22 MiB with one gather ahead; of 88 MiB with none; no buckets with none.
std::vector<reshard::OverlapSettings> overlapChoices(const OverlapPins &pins, int64_t gatherUnit,
                                                     const reshard::Graph &graph,
                                                     const reshard::Derivation &derivation,
                                                     const NetworkCost &network);

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_BUCKETS_H
