//===- Overlap.h - Buckets of gradients, and gathers ahead -----------------===//
//
// Plain C++. Joins the collectives of `derive` and moves them; it adds and removes none.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_OVERLAP_H
#define TBC_PLANNER_RESHARD_OVERLAP_H

#include "planner/reshard/Graph.h"

#include <functional>

namespace tbc::reshard {

/// As in a plan.
struct OverlapSettings {
  int64_t bucketBytes = 0; // of joined reductions of gradients; 0: no buckets
  int64_t prefetch = 0;    // gathers by which a parameter is gathered ahead of its use
  bool operator==(const OverlapSettings &o) const {
    return bucketBytes == o.bucketBytes && prefetch == o.prefetch;
  }
};

/// Reductions that share collectives of several tensors: indices of two or more reshards, in their
/// order.
struct Bucket {
  std::vector<int> reshards;
};

struct Overlap {
  std::vector<Bucket> buckets;
  /// By reshard, or empty: the bucket that it is a member of, or -1.
  std::vector<int> bucketOf;
  /// By reshard, or empty: for a ParameterUse the op before which its gather is issued, its own or
  /// an earlier one; -1: right before its op.
  std::vector<int> issuedBefore;

  /// Of a reshard of `derivation`, by itself.
  int bucket(const Derivation &derivation, const Reshard &reshard) const {
    return bucketOf.empty() ? -1 : bucketOf[size_t(&reshard - derivation.reshards.data())];
  }
};

/// The pure function after `derive`, shared by planner and partitioner:
///
/// Buckets. Reductions of gradients with equal messages over equal axes are joined, in the order of
/// derivation: GradientMicro within a block, GradientStep within a stage's update. A bucket has at
/// most `bucketBytes`, by the bytes of the largest message; a larger reduction is alone. The
/// messages of a bucket are all_reduces and flat reduce_scatters of several tensors. Slices stay
/// separate. A bucket runs after its last member: in a block after the op of that member, in an
/// update before the first use of any. Excluded: results that an op of the block reads or a block
/// keeps, moves along a dim, and in the update the parameters of several stages. Example: 10, 20,
/// 30 MiB with 32 MiB are two buckets.
///
/// Gathers ahead. In each block the gather of a stored parameter is issued `prefetch` gathers
/// ahead. Example: with 2, gather 5 is issued before the op that uses gather 3.
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
