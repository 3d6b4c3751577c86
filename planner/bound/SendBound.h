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
#include <vector>

namespace tbc::planner {

/// Bytes as a linear function of the samples in a micro-batch.
struct SampledBytes {
  double perSample = 0, fixed = 0;
  double at(double samples) const { return perSample * samples + fixed; }
};

/// Returns, by position of the forward order where a stage may begin (equal ones once), a lower
/// bound on the bytes that the first chunk sends in forward if it ends there. `others`: the number
/// of chunks after the first before its stage has one again (chunksElsewhere), at least 1.
///
/// Counts the values made before position p whose next reader r >= p has fewer than `others`
/// positions after p up to r. Proof: each chunk after the second begins at such a position, so r
/// lies on one of the `others` chunks. The value is sent to its stage.
///
/// Example: a residual stream of 8 MB per sample crosses every layer boundary, and the next layer
/// reads it. With one chunk per stage every value counts that is read after p. With stages 0, 1, 0,
/// 1, `others` is 1: those count that are read before the next position.
std::vector<SampledBytes> firstSends(const reshard::Graph &graph, int64_t others);

/// Returns the number of chunks after the first before its stage has one again; without such a
/// chunk, the number of chunks. `stageOf`: by chunk. Example: 2 for 0, 1, 2, 0, 1, 2 and for 0, 1,
/// 1, 0; 3 for 0, 1, 2.
int64_t chunksElsewhere(const std::vector<int> &stageOf);

/// Returns a lower bound on the bytes of every send of a micro-batch, forward and backward, over
/// all cuts: the least of firstSends(). The first two chunks must be on different stages. No other
/// send is priced lower than the first chunk's in forward (chunkTimes).
///
/// Example: positions with 3, 2 and 4 MiB give at least 2 MiB.
double leastSendBytes(const std::vector<SampledBytes> &sends, double samples);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_SENDBOUND_H
