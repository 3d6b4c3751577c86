//===- Rebatch.h - The same graph for another batch ------------------------===//

#ifndef TBC_PLANNER_RESHARD_REBATCH_H
#define TBC_PLANNER_RESHARD_REBATCH_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// `graph` with its batch factor resized to `batch`: layouts, loops and FLOPs. Identity if the
/// graph has no batch factor. Example: 97 samples become 8; a matmul of 97 * 2mnk FLOPs then has
/// 8 * 2mnk.
Graph withBatch(const Graph &graph, int64_t batch);

/// Returns the op that joins the samples of the batch, or -1. A step of such a graph has one
/// micro-batch, because the samples of several would not meet. It is
/// - the first op with several loops over the batch: it reads other samples for the result of one.
///   Example: the scores u v^T of u, v[batch, 8];
/// - else the op that makes the loss, if that is no sum over samples, whose shares would add up.
///   Example: the product of two sums over the batch.
int firstMeeting(const Graph &graph);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_REBATCH_H
