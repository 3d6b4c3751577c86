//===- BatchSums.h - Sums over the samples of a micro-batch ---------------===//

#ifndef TBC_PLANNER_SEARCH_BATCHSUMS_H
#define TBC_PLANNER_SEARCH_BATCHSUMS_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// A sum or maximum over the samples of a micro-batch, read by ops: the statistics of a
/// synchronised batch norm and of its backward. If the samples are split over ranks, every plan
/// completes it over all of them before it is read. Gradients of parameters are excluded, because
/// no op of a block reads them.
///
/// Example: 8 samples on dp=4; each rank sums 2 samples, and an all-reduce over dp completes the
/// sum.
struct BatchSum {
  int anchor = 0; // the forward op of its op (see forwardAnchors)
  bool isForward = true;
  double bytes = 0;
};

/// Returns all batch sums of `graph`, in the order of its ops. Partial sums with no reader but an
/// addition are completed once, after the addition, as in reshard::derive.
std::vector<BatchSum> batchSums(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_BATCHSUMS_H
