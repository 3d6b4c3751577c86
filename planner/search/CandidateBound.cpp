//===- CandidateBound.cpp - Cheap lower bound on the step time ------------===//

#include "planner/search/CandidateBound.h"
#include "planner/search/KernelBound.h"
#include "planner/search/ParameterBound.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

TimeBounds candidateBounds(const BoundTables &tables, const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  const CostTables &costs = tables.costs;
  // A variant with cp has fewer data ranks, so its batch sums may be shorter.
  const double seconds = leastRecomputedSeconds(tables, mesh, candidate.microBatch) +
                         costs.meshes.batchSumSeconds(mesh).total();
  const double proven = mayBeContext(costs.problem, candidate)
                            ? idealRecomputedSeconds(tables, mesh, candidate.microBatch)
                            : seconds;
  const ScheduleChoice &choice = candidate.schedule;
  auto makespan = [&](double work, schedule::Chunking chunking) {
    return schedule::leastMakespan(
        choice.kind(), work, {mesh.pp, choice.chunksPerStage, candidate.accumulation}, chunking);
  };
  const DataMode mode = boundMode(costs, candidate);
  const double update = leastUpdateSeconds(tables, candidate, mode);
  const double whole = idealRecomputedSeconds(tables, mesh, candidate.microBatch) +
                       tables.expertSeconds(mesh, candidate.microBatch) +
                       exposedDataSeconds(tables, candidate, mode,
                                          tables.idealSeconds(mesh.tp * mesh.cp * mesh.ep,
                                                              candidate.microBatch * mesh.ep));
  const double slowest = std::max(0.0, tables.heterogeneousSeconds(mesh, candidate.microBatch)) *
                         double(candidate.accumulation);
  TimeBounds bounds;
  bounds.proven = std::max(makespan(proven, schedule::Chunking::Any), slowest) + update;
  bounds.lower = std::max(bounds.proven,
                          makespan(std::max(seconds, whole), schedule::Chunking::Equal) + update);
  return bounds;
}

bool mayBeContext(const SearchProblem &problem, const Candidate &candidate) {
  return !problem.space.meshIsPinned() && problem.graph.sequenceFactor >= 0 &&
         candidate.microBatch == 1 && (candidate.mesh.tp > 1 || !problem.space.tensorAxisIsOpen());
}

double peakRateSeconds(const SearchProblem &problem) {
  const Graph &graph = problem.graph;
  const std::vector<double> once = flopsOnce(graph);
  double flops = 0, batch = 1;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp &op = graph.ops[i];
    flops += isMatrixClass(op.kernelClass) ? once[i] : 0;
    for (const Loop &loop : op.loops)
      if (loop.factor == graph.batchFactor)
        batch = double(loop.size);
  }
  double peak = 0, executed = 1;
  for (const auto &[precision, rate] : problem.cluster.peakFlopsPerSecond)
    peak = std::max(peak, rate);
  for (const auto &[name, kernel] : problem.cluster.kernels)
    executed = std::min(executed, kernel.executedFraction);
  return flops * executed / batch * double(problem.job.globalBatch) /
         (peak * double(problem.job.gpus));
}

} // namespace tbc::planner
