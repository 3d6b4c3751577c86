//===- Collective.h - Collectives between two shardings -------------------===//
//
// Plain C++. The planner prices these collectives, and the passes emit them.
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

/// What an AllToAll does with tokens (TokenExchange.h): sends them to the ranks of their experts,
/// or the results back.
enum class TokenWay { None, Out, Back };

using mesh::SegmentShape;

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
  /// The participating stages: for a group along the pipeline axis (tied weights), or the two ends
  /// of a send. Empty otherwise.
  std::vector<int> stages;
  /// For an AllToAll that stands for a gather or a sum of tokens; it has no dim.
  TokenWay tokens = TokenWay::None;
  double share = 1; // RoutedRows::share
};

/// Returns the seconds of a collective; usually 0 for ShardSlice.
using CollectiveCost = std::function<double(const Collective &)>;

/// Returns the number of participating ranks: the group along `axes`, or `stages` if not empty.
int64_t numParticipants(const Collective &collective);

/// Returns the bytes sent by each rank in a ring or pairwise exchange, as a share of `bytes`:
/// - all_reduce: 2(n-1)/n;
/// - all_gather, reduce_scatter, all_to_all: (n-1)/n;
/// - send, permute: 1; ShardSlice: 0.
///
/// Example: an all_reduce of 8 MB over 4 ranks sends 12 MB.
double bytesOnWire(const Collective &collective);

/// Returns the cheapest sequence of collectives from sharding `from` to sharding `to`, by Dijkstra
/// over intermediate shardings under `cost`. Ties go to fewer steps, then to the order of kinds,
/// axes and positions, so the answer is deterministic. Empty if the two are equal. Example: partial
/// over tp to replicated is one all_reduce over tp.
///
/// 1. `to` may keep partial axes of `from` (they stay untouched) but not add one. Every
///    intermediate sharding is valid. A call against this rule ends the program with a message.
/// 2. Only the last of several axes on one factor can be gathered or moved away, and axes are added
///    at the end. Anything else would permute the data.
/// 3. If only partial axes differ, the answer is one all_reduce over all of them.
/// 4. Neighbouring steps of one kind at one position become one collective over all their axes.
/// 5. A sum over all flat axes of `to` is reduce_scattered, for any size and padding. So
///    all gradients are reduced in the same way.
/// 6. Only axes named by one of the shardings are used. Axes already at their final position stay.
std::vector<Collective> reshard(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
                                const Sharding &to, const CollectiveCost &cost = bytesOnWire);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_COLLECTIVE_H
