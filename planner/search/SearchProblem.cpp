//===- SearchProblem.cpp - The inputs of a search -------------------------===//

#include "planner/search/SearchProblem.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/graph/Stages.h"
#include "planner/reshard/SequenceOrder.h"
#include "planner/search/LayerBegins.h"
#include "planner/search/ParameterTotals.h"

#include <algorithm>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the pinned beginnings of stages, or those that the executor is bound to.
static std::vector<int> stageBeginsOf(const Graph &graph, const Job &job, const Cluster &cluster,
                                      const PinnedOps &pinned) {
  const bool keepsLayers = !executorOf(cluster).plans.cutsLayers;
  return !pinned.begins.empty() ? pinned.begins
         : keepsLayers          ? layerBegins(graph, job)
                                : std::vector<int>();
}

static std::array<double, 2> bytesByKind(const Graph &graph, const Job &job) {
  const TotalsByKind totals =
      parameterTotals(graph, job, [](const GraphParameter &) { return true; });
  return {totals[0].bytes, totals[1].bytes};
}

SearchProblem::SearchProblem(const Graph &graph, const Job &job, const Cluster &cluster,
                             const Space &space, int64_t limitBytes, PinnedOps pinnedOps)
    : graph(graph), job(job), cluster(cluster), space(space), limitBytes(limitBytes),
      pinned(std::move(pinnedOps)), isMixed(cluster.isMixed()), repeat(largestRepeat(graph)),
      measures(graph), numForward(numForwardOps(graph)),
      stageBegins(stageBeginsOf(graph, job, cluster, pinned)), blockBegins(blockStarts(graph)),
      parameterBytes(bytesByKind(graph, job)) {}

bool SearchProblem::takesZigzag(int64_t cp) const {
  if (!space.orderIsOpen())
    return space.isZigzag();
  bool helps = std::any_of(graph.ops.begin(), graph.ops.end(), [&](const GraphOp &op) {
    return isMatrixClass(op.kernelClass) && cluster.kernel(op.kernelClass).executedFraction < 1;
  });
  return helps && whyNoZigzag(graph, cp).empty();
}

} // namespace tbc::planner
