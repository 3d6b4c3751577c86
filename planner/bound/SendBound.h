//===- SendBound.h - Bound on the sends of a pipeline ---------------------===//
//
// Plain C++. A lower bound on the bytes of the longest send between pipeline stages, over all cuts
// of the model.
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
  /// By position, equal ones with their number: the bytes of the largest value made since the
  /// previous position and read before the next one.
  std::vector<std::pair<SampledBytes, int64_t>> adjacent;
};

/// Measures the forward values of `graph`. Example: a residual stream of 8 MB per sample crosses
/// every layer boundary.
CutCrossings cutCrossings(const reshard::Graph &graph);

/// Returns a lower bound on the bytes of the longest send of a micro-batch's forward, over all
/// cuts: the larger of two bounds. `hops` is the number of moves of a micro-batch from one stage to
/// another; `hasOneChunk`: each stage has one chunk.
///
/// Theorem:
/// - (1) With one chunk per stage, the first stage sends at least min over positions p of live(p).
/// - (2) The longest send has at least the bytes of the `hops`-th smallest adjacent(p).
///
/// Proof sketch:
/// - (1) Stages are runs of consecutive ops. So all values made before the first cut and read
///   after it leave the first stage, in one send.
/// - (2) The hops are at distinct positions. The chunk before position p has at least the ops since
///   the previous position, and the chunk after it those before the next one. So the value of
///   adjacent(p) is made on one stage and read on the other. The largest of `hops` distinct entries
///   is at least the `hops`-th smallest of all.
///
/// Example: adjacent values of 1, 2 and 4 MiB and 2 hops give at least 2 MiB by (2). If all values
/// live at the cheapest position have 3 MiB, and each stage has one chunk, (1) gives 3 MiB.
double leastSendBytes(const CutCrossings &crossings, double samples, int64_t hops,
                      bool hasOneChunk);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_SENDBOUND_H
