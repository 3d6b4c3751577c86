//===- Overlap.h - What is communicated together, and what ahead -----------===//
//
// Plain C++. What `derive` says, in how many pieces it is done and when: never what.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_OVERLAP_H
#define TBC_PLANNER_RESHARD_OVERLAP_H

#include "planner/reshard/Graph.h"

#include <functional>

namespace tbc::reshard {

/// As in a plan.
struct OverlapSettings {
  int64_t bucketBytes = 0; // of reductions of gradients that are joined; 0: none is
  int64_t prefetch = 0;    // how many gathers ahead of its use a stored parameter is gathered
  bool operator==(const OverlapSettings &o) const {
    return bucketBytes == o.bucketBytes && prefetch == o.prefetch;
  }
};

/// Reductions whose messages are collectives of several tensors: two reshards or more, by number,
/// in their order.
struct Bucket {
  std::vector<int> reshards;
};

struct Overlap {
  std::vector<Bucket> buckets;
  /// By reshard, or empty: the bucket that it is a member of, or -1.
  std::vector<int> bucketOf;
  /// By reshard, or empty: of a ParameterUse the op, no later than its own, before which it is
  /// issued; -1: right before its op.
  std::vector<int> issuedBefore;

  /// Of a reshard of `derivation`, by itself.
  int bucket(const Derivation &derivation, const Reshard &reshard) const {
    return bucketOf.empty() ? -1 : bucketOf[size_t(&reshard - derivation.reshards.data())];
  }
};

/// The pure function that planner and partitioner share, after `derive`:
///
/// Buckets. Reductions of gradients (GradientMicro within a block, GradientStep within a stage's
/// update) by the same messages over the same axes are joined, in the order in which they are
/// derived, into buckets of at most `bucketBytes`, by the bytes of their largest message; a larger
/// one is alone. The messages of a bucket are all_reduces and flat reduce_scatters of several
/// tensors; slices stay those of one. A bucket runs when its last member is there: in a block after
/// the op that makes that, in an update where its first member is wanted. Left out are reductions
/// of which an op of the block reads the result or which a block keeps, those that move along a
/// dim, and in the update the parameters that several stages hold.
///
/// Gathers ahead. In each block the gather of a stored parameter is issued `prefetch` gathers
/// ahead: before the op that uses the parameter gathered so many gathers before it, or the first.
Overlap planOverlap(const Graph &graph, const Derivation &derivation,
                    const OverlapSettings &settings);

/// The messages of a bucket: each with the bytes and elements of all members.
std::vector<Collective> jointMessages(const Derivation &derivation, const Bucket &bucket);

/// Calls `visit` for every collective of the reshards as it is executed, slices left out: one for
/// each message of a bucket, with the bucket's last member, one for each step of what is in none.
void forEachCollective(const Derivation &derivation, const Overlap &overlap,
                       const std::function<void(const Reshard &, const Collective &)> &visit);

/// The collectives of one step, as of Graph.h, with those of buckets joined.
std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation, const Overlap &overlap);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_OVERLAP_H
