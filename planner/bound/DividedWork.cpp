//===- DividedWork.cpp - Work of a micro-batch, divided evenly ------------===//

#include "planner/bound/DividedWork.h"
#include "planner/bound/KeepBound.h"
#include "planner/graph/Stages.h"
#include "planner/reshard/SplitBackward.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

/// Adds the possible changes by recomputation. `anchors`: by op, its forward op; `canWait`: by op,
/// whether it belongs to wgrad.
static void addRecomputation(const std::vector<AgainSeconds> &changes,
                             const std::vector<int> &anchors, const std::vector<bool> &canWait,
                             std::vector<WorkShare> &byOp) {
  for (size_t op = 0; op < changes.size(); ++op) {
    const AgainSeconds &of = changes[op];
    byOp[op].lessForward += of.lessForward;
    byOp[op].moreBackward += of.moreBackward;
    if (of.forwardReader >= 0)
      byOp[size_t(of.forwardReader)].foundForward += of.foundForward;
    if (int reader = of.backwardReader; reader >= 0) {
      WorkShare &share = byOp[size_t(anchors[size_t(reader)])];
      (canWait[size_t(reader)] ? share.foundWeight : share.foundBackward) += of.foundBackward;
    }
  }
}

DividedWork divideWork(const Graph &graph, const WholeWork &whole,
                       const std::vector<KernelShare> &shares, const Cluster &cluster,
                       int64_t devices) {
  DividedWork work;
  const std::vector<double> seconds = whole.dividedSeconds(cluster, devices);
  const std::vector<int> anchors = forwardAnchors(graph);
  const std::vector<bool> canWait = weightOps(graph), mayBegin = stageMayBegin(graph);
  work.byOp.resize(size_t(numForwardOps(graph)));
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    WorkShare &share = work.byOp[anchors[size_t(op)]];
    (graph.ops[op].phase == Phase::Forward ? share.forward
     : canWait[size_t(op)]                 ? share.weight
                                           : share.backward) += seconds[size_t(op)];
  }
  addRecomputation(secondsOfRunningAgain(graph, cluster, double(devices), &shares), anchors,
                   canWait, work.byOp);
  for (const WorkShare &share : work.byOp) {
    work.leastByOp.push_back(share.least());
    work.least.add(work.leastByOp.back(), 1);
    work.largest = std::max(work.largest, work.leastByOp.back().seconds());
  }
  work.inOrder = WorkInOrder(work.byOp, mayBegin);
  work.total = work.inOrder.total;
  work.cuts.emplace(work.leastByOp, mayBegin);
  return work;
}

} // namespace tbc::planner
