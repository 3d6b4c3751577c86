//===- PlanOf.cpp - The plan of a candidate -------------------------------===//

#include "planner/search/PlanOf.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/reshard/Rebatch.h"
#include "planner/search/OffloadBlocks.h"
#include "planner/search/PartialRecompute.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

Plan planOf(const CostTables &costs, const Candidate &candidate) {
  const SearchProblem &problem = costs.problem;
  const Graph &graph = problem.graph;
  const Job &job = problem.job;
  Plan plan;
  plan.job = job;
  plan.job.globalBatch = candidate.batch;
  plan.cluster = problem.cluster;
  plan.mesh = candidate.mesh;
  plan.context = candidate.context;
  plan.zigzag = candidate.mesh.cp > 1 && problem.takesZigzag(candidate.mesh.cp);
  plan.idleDevices = job.gpus - candidate.mesh.numRanks();
  plan.microBatch = candidate.microBatch;
  plan.accumulation = candidate.accumulation;
  plan.schedule = candidate.schedule.schedule;
  plan.chunkStage = candidate.schedule.chunkStage(candidate.mesh.pp);
  plan.recompute = recomputeOf(problem, candidate);
  plan.offload = offloadOf(costs, candidate);

  // Decisions for ops with axes beyond the batch and the experts; ops with the same axes share one.
  const ModelSplit split = splitOf(candidate).withoutContext();
  const Graph &batched = costs.models.graphFor(candidate.microBatch * split.ep);
  const std::vector<OpStrategy> &strategies =
      *costs.models.strategiesFor(split, candidate.microBatch);
  const int tensorAxis = axisIndex(split.mesh(), Axis::Tensor);
  const Graph whole = withBatch(graph, candidate.microBatch * candidate.mesh.dataRanks());
  const AxisRef data{0, 1, candidate.mesh.dp * candidate.mesh.fsdp}, experts{1, 1, split.ep};
  // Ops of equal structure and axes have equal placements.
  const std::vector<uint64_t> &structure = costs.models.hashes();
  std::map<std::pair<std::map<int, AxisNames>, uint64_t>, size_t> known;
  auto decisionFor = [&](OpPlacement placement) {
    auto equal = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const OpDecision &decision) {
      return decision.placement == placement;
    });
    const size_t index = size_t(equal - plan.ops.begin());
    if (equal == plan.ops.end())
      plan.ops.push_back({std::move(placement), {}});
    return index;
  };
  for (int op = 0; op < int(batched.ops.size()); ++op) {
    if (!choosesForItself(batched, op))
      continue;
    std::map<int, std::vector<std::string>> loopAxes;
    for (const auto &[loop, axes] : strategies[op].loopAxes)
      if (tensorAxis >= 0 && overlap(axes, {tensorAxis, 1, split.tp}))
        loopAxes[loop] = {mesh::row(Axis::Tensor).name};
    if (loopAxes.empty())
      continue;
    // The batch stays split over data ranks, and experts over ep; tp comes after them on the same
    // loop.
    for (const auto &[loop, axes] : batchStrategy(whole, op, {data}, {experts}).loopAxes) {
      std::vector<std::string> names;
      for (const AxisRef &axis : axes)
        if (axis == experts)
          names.push_back(mesh::row(Axis::Expert).name);
        else
          names = mesh::axisNames(Divides::Samples);
      loopAxes[loop].insert(loopAxes[loop].begin(), names.begin(), names.end());
    }
    size_t index;
    if (op >= int(structure.size())) {
      index = decisionFor(placementOf(batched, op, loopAxes));
    } else {
      auto [found, isNew] = known.try_emplace({loopAxes, structure[op]});
      if (isNew)
        found->second = decisionFor(placementOf(batched, op, loopAxes));
      index = found->second;
    }
    plan.ops[index].ops.push_back(batched.ops[op].id);
  }

  plan.parameterDefault.zero = candidate.zero.zero;
  plan.parameterDefault.keepGathered = candidate.zero.keepGathered;
  for (const std::string &name : tokenAxisNames())
    if (*plan.mesh.find(name) > 1)
      (isZeroAxis(candidate, name) ? plan.parameterDefault.zeroAxes
                                   : plan.parameterDefault.reduceAxes)
          .push_back(name);
  for (int op : candidate.firstOps)
    plan.stages.push_back(graph.ops[op].id);
  if (std::vector<bool> flags = recomputedOps(costs, candidate);
      std::find(flags.begin(), flags.end(), true) != flags.end()) {
    Graph staged = batched;
    setChunks(staged, candidate.firstOps);
    for (int op : reexecutedOps(staged, flags))
      plan.recomputeOps.push_back(graph.ops[op].id);
  }
  return plan;
}

} // namespace tbc::planner
