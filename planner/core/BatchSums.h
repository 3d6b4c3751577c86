//===- BatchSums.h - What all samples have to say within a micro-batch -----===//

#ifndef TBC_PLANNER_CORE_BATCHSUMS_H
#define TBC_PLANNER_CORE_BATCHSUMS_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// A value that is a sum, or a maximum, over the samples of a micro-batch and that ops read: the
/// statistics of a synchronised batch norm, and of its backward. Where the samples are split over
/// ranks it is completed over all of them before it is read, in any plan. Gradients of parameters
/// are none: no op of a block reads them.
struct BatchSum {
  int anchor = 0; // the forward op that its op goes with, as forwardAnchors
  bool isForward = true;
  double bytes = 0;
};

/// All of `graph`, in the order of its ops. Partial sums that ops add up before anything else reads
/// them are completed once, as reshard::derive does.
std::vector<BatchSum> batchSums(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BATCHSUMS_H
