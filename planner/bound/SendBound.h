//===- SendBound.h - Bound on the sends of a pipeline ---------------------===//
//
// Plain C++. A lower bound on the bytes of every send between pipeline stages, over all cuts of the
// model.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_SENDBOUND_H
#define TBC_PLANNER_BOUND_SENDBOUND_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Bytes as a linear function of the samples in a micro-batch.
struct SampledBytes {
  double perSample = 0, fixed = 0;
  double at(double samples) const { return perSample * samples + fixed; }
};

/// The bytes that cross the positions of the forward order where a stage may begin.
struct CutCrossings {
  /// By position, equal ones once: the bytes of all values made before it and read after it.
  std::vector<SampledBytes> live;
  /// By position, equal ones once: the bytes of the largest value made since the previous position
  /// and read before the next one.
  std::vector<SampledBytes> adjacent;
};

/// Measures the forward values of `graph`. Example: a residual stream of 8 MB per sample crosses
/// every layer boundary.
CutCrossings cutCrossings(const reshard::Graph &graph);

/// Returns a lower bound on the bytes of every send of a micro-batch, forward and backward, over
/// all cuts: the larger of two bounds. The first two chunks must be on different stages.
/// `hasOneChunk`: each stage has one chunk.
///
/// Theorem: the first chunk's forward sends
/// - (1) with one chunk per stage, at least min over positions p of live(p);
/// - (2) at least min over positions p of adjacent(p).
/// Every other send is priced no lower (chunkTimes).
///
/// Proof sketch:
/// - (1) Stages are runs of consecutive ops. So all values made before the first cut and read
///   after it leave the first stage, in one send.
/// - (2) At the first cut p, the chunk before it has at least the ops since the previous position,
///   and the chunk after it those before the next one. So the value of adjacent(p) is made on one
///   stage and read on the other.
///
/// Example: adjacent values of 1, 2 and 4 MiB give at least 1 MiB by (2). If all values live at the
/// cheapest position have 3 MiB, and each stage has one chunk, (1) gives 3 MiB.
double leastSendBytes(const CutCrossings &crossings, double samples, bool hasOneChunk);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_SENDBOUND_H
