//===- Collective.h - The collectives between two shardings ----------------===//
//
// Plain C++. What the planner prices and what the passes emit.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_COLLECTIVE_H
#define TBC_PLANNER_RESHARD_COLLECTIVE_H

#include "planner/reshard/Sharding.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::reshard {

enum class CollectiveKind {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  ShardSlice,
  Send,
  Permute
};

const char *name(CollectiveKind kind);

/// One segment of a dim as a collective sees it: the full dim has outer x (n*k) x inner elements of
/// it, the local one outer x k x inner (n = group size). Group index g holds k-indices g*k ..
/// g*k+k-1. "Full" and "local" are meant along the collective's own axes: other axes may shard the
/// same dim.
struct SegmentShape {
  int64_t outer = 1;
  int64_t k = 1;
  int64_t inner = 1;
  bool operator==(const SegmentShape &o) const {
    return outer == o.outer && k == o.k && inner == o.inner;
  }
};

/// One communication (or, for ShardSlice, a local copy) on a tensor. Field use by kind:
///   AllReduce      axes, reduce
///   AllGather      axes, dim, segments      local -> full along dim
///   ReduceScatter  axes, dim, segments      full, summed -> local along dim
///   ShardSlice     axes, dim, segments      full -> local along dim, no communication
///   AllToAll       axes, dim + segments: the dim that becomes full;
///                  splitDim + splitSegments: the dim that becomes local
///   Send           stages[0] -> stages[1]
///   Permute        axes; the tensor of group index i goes to group index i + 1, the last to the
///                  first
/// dim = -1: the flattened tensor, padded to n * ceil(numel / n); segments = {{1, ceil(numel/n),
/// 1}} and numElements = numel without the padding.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::vector<AxisRef> axes;
  ReduceKind reduce = ReduceKind::Sum;
  int dim = -1;
  std::vector<SegmentShape> segments;
  int splitDim = -1;
  std::vector<SegmentShape> splitSegments;
  int64_t numElements = 0;
  /// Bytes of the buffer on the side where the tensor is full along `axes` (all_reduce: the tensor;
  /// all_gather: the result; reduce_scatter: the input, padding included; all_to_all, send and
  /// permute: the local tensor). The NCCL convention for message sizes.
  int64_t bytes = 0;
  /// For a group along the pipeline axis (tied weights): the stages that take part; for a send: its
  /// two ends. Empty otherwise.
  std::vector<int> stages;
};

/// Seconds that a collective takes; 0 for ShardSlice is usual.
using CollectiveCost = std::function<double(const Collective &)>;

/// How many ranks take part: the group along `axes`, or `stages` if there are any.
int64_t numParticipants(const Collective &collective);

/// The bytes each rank sends in a ring or pairwise exchange: all_reduce 2(n-1)/n, all_gather,
/// reduce_scatter and all_to_all (n-1)/n of `bytes`, send and permute all of it,
/// ShardSlice 0.
double bytesOnWire(const Collective &collective);

/// The cheapest sequence of collectives that takes a tensor from sharding `from` to sharding `to`,
/// by Dijkstra over intermediate shardings under `cost`; on a tie the one with fewer steps, then by
/// the order of kinds, axes and places, so the answer does not depend on anything else. Empty if
/// the two are equal.
///
/// 1. `to` may keep pending axes that `from` has (they are left alone) but may not add one. Every
///    intermediate sharding is valid. A call that breaks this ends the program with a message.
/// 2. Of several axes on one factor only the last ones can be gathered or moved away, and axes are
/// added
///    at the end: anything else would be a permutation of the data.
/// 3. Where only pending axes differ the answer is one all_reduce over all of them.
/// 4. Neighbouring steps of one kind at one place are one collective over all their axes.
/// 5. A sum over all the axes over which `to` is flat is reduce_scattered, however small the tensor
///    and large the padding: gradients are reduced in one way whatever their size.
/// 6. Axes that neither sharding names are not brought in. Axes that are already where `to` wants
/// them stay there.
std::vector<Collective> reshard(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
                                const Sharding &to, const CollectiveCost &cost = bytesOnWire);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_COLLECTIVE_H
