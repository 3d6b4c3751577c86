//===- Overlap.h - Joined collectives of parameters, and gathers ahead -----===//
//
// Plain C++. Joins the collectives of `derive` and moves them; it adds and removes none.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_OVERLAP_H
#define TBC_PLANNER_RESHARD_OVERLAP_H

#include "planner/reshard/Graph.h"

#include <functional>

namespace tbc::reshard {

/// As in a plan (planner::overlapOf).
struct OverlapSettings {
  int64_t bucketBytes = 0; // of joined reductions of gradients, and gathers of an update
  int64_t prefetch = 0;    // gathers by which a parameter is gathered ahead of its use
  int64_t gatherBytes = 0; // of joined gathers of stored parameters
  /// Not of a plan but of its executor: whether the gathers of an update are joined.
  bool joinsUpdates = true;
  bool operator==(const OverlapSettings &o) const {
    return bucketBytes == o.bucketBytes && prefetch == o.prefetch && gatherBytes == o.gatherBytes &&
           joinsUpdates == o.joinsUpdates;
  }
};

/// Reductions or gathers that share collectives of several tensors: indices of two or more
/// reshards, in their order.
struct Bucket {
  std::vector<int> reshards;
};

struct Overlap {
  std::vector<Bucket> buckets;
  /// By reshard, or empty: the bucket that it is a member of, or -1.
  std::vector<int> bucketOf;
  /// By reshard, or empty: for a ParameterUse the op before which its gather is issued, its own or
  /// an earlier one; -1: right before its op. Members of a bucket have the same.
  std::vector<int> issuedBefore;

  /// Of a reshard of `derivation`, by itself.
  int bucket(const Derivation &derivation, const Reshard &reshard) const {
    return bucketOf.empty() ? -1 : bucketOf[size_t(&reshard - derivation.reshards.data())];
  }
};

/// The pure function after `derive`, shared by planner and partitioner:
///
/// Buckets. Collectives with equal messages over equal axes are joined, in the order of derivation:
///  - reductions of gradients: GradientMicro and GradientLast within a block, GradientStep within
///  an
///    update;
///  - gathers of parameters: ParameterUse within a block, ParameterStep within an update.
///
/// A bucket has at most `bucketBytes` (of ParameterUse `gatherBytes`), by the bytes of the largest
/// message; a larger one is alone. The messages of a bucket are all_reduces, flat reduce_scatters
/// and flat all_gathers of several tensors. Slices stay separate. Example: 10, 20, 30 MiB with 32
/// MiB are two buckets.
///
/// Reductions in a block, and gathers in an update, run as soon as the last member is computed;
/// reductions in an update, and gathers in a block, before the first use of any member. Excluded:
/// gradients that an op of the block reads or a block keeps, moves along a dim, and in the update
/// the parameters of several stages.
///
/// Gathers ahead. In each block the gather of a stored parameter, or of a bucket of them, is issued
/// `prefetch` gathers ahead. Example: with 2, gather 5 is issued before the op that uses gather 3.
Overlap planOverlap(const Graph &graph, const Derivation &derivation,
                    const OverlapSettings &settings);

/// The messages of a bucket: each with the bytes and elements of all members.
std::vector<Collective> jointMessages(const Derivation &derivation, const Bucket &bucket);

/// Calls `visit` for every executed collective, without slices: once per message of a bucket, with
/// the bucket's last member, and once per step of a reshard without a bucket.
void forEachCollective(const Derivation &derivation, const Overlap &overlap,
                       const std::function<void(const Reshard &, const Collective &)> &visit);

/// The collectives of one step as in Graph.h, with buckets joined.
std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation, const Overlap &overlap);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_OVERLAP_H
