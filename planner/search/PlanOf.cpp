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
#include <optional>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// Fills the decisions of ops: of those with axes beyond the batch and the experts.
class OpDecisions {
public:
  OpDecisions(const CostTables &costs, const Candidate &candidate,
              std::vector<OpDecision> &decisions)
      : costs(costs), candidate(candidate), decisions(decisions),
        split(splitOf(candidate).withoutContext()),
        batched(costs.models.graphFor(candidate.microBatch * split.ep)),
        structure(costs.models.hashes()) {}

  void fill() {
    const std::vector<OpStrategy> &strategies =
        *costs.models.strategiesFor(split, candidate.microBatch);
    const int tensorAxis = axisIndex(split.mesh(), Axis::Tensor);
    if (tensorAxis < 0)
      return;
    for (int op = 0; op < int(batched.ops.size()); ++op) {
      if (!choosesForItself(batched, op))
        continue;
      LoopAxes loopAxes;
      for (const auto &[loop, axes] : strategies[size_t(op)].loopAxes)
        if (overlap(axes, {tensorAxis, 1, split.tp}))
          loopAxes[loop] = {mesh::row(Axis::Tensor).name};
      if (!loopAxes.empty())
        add(op, std::move(loopAxes));
    }
  }

private:
  using LoopAxes = std::map<int, AxisNames>;

  /// `loopAxes`: of tp.
  void add(int op, LoopAxes loopAxes) {
    // The batch stays split over data ranks, and experts over ep; tp comes after them on the same
    // loop.
    const AxisRef data{0, 1, candidate.mesh.dp * candidate.mesh.fsdp}, experts{1, 1, split.ep};
    for (const auto &[loop, axes] : batchStrategy(whole(), op, {data}, {experts}).loopAxes) {
      AxisNames names;
      for (const AxisRef &axis : axes)
        if (axis == experts)
          names.push_back(mesh::row(Axis::Expert).name);
        else
          names = mesh::axisNames(Divides::Samples);
      loopAxes[loop].insert(loopAxes[loop].begin(), names.begin(), names.end());
    }
    decisions[indexFor(op, loopAxes)].ops.push_back(batched.ops[size_t(op)].id);
  }

  /// Returns the index of the decision for an op. Ops of equal structure and axes have equal
  /// placements.
  size_t indexFor(int op, const LoopAxes &loopAxes) {
    if (op >= int(structure.size()))
      return indexFor(placementOf(batched, op, loopAxes));
    auto [found, isNew] = known.try_emplace({loopAxes, structure[size_t(op)]});
    if (isNew)
      found->second = indexFor(placementOf(batched, op, loopAxes));
    return found->second;
  }

  /// Ops with equal placements share a decision.
  size_t indexFor(OpPlacement placement) {
    const auto equal =
        std::find_if(decisions.begin(), decisions.end(),
                     [&](const OpDecision &decision) { return decision.placement == placement; });
    const auto index = size_t(equal - decisions.begin());
    if (equal == decisions.end())
      decisions.push_back({std::move(placement), {}});
    return index;
  }

  /// The graph with the samples of all data ranks. A copy, so it is made for ops with tp alone.
  const Graph &whole() {
    if (!ofAllRanks)
      ofAllRanks =
          withBatch(costs.problem.graph, candidate.microBatch * candidate.mesh.dataRanks());
    return *ofAllRanks;
  }

  const CostTables &costs;
  const Candidate &candidate;
  std::vector<OpDecision> &decisions;
  const ModelSplit split;
  const Graph &batched;
  const std::vector<uint64_t> &structure; // by op
  std::optional<Graph> ofAllRanks;
  std::map<std::pair<LoopAxes, uint64_t>, size_t> known;
};

} // namespace

Plan planOf(const CostTables &costs, const Candidate &candidate) {
  const SearchProblem &problem = costs.problem;
  const Graph &graph = problem.graph;
  Plan plan;
  plan.job = problem.job;
  plan.job.globalBatch = candidate.batch;
  plan.cluster = problem.cluster;
  plan.mesh = candidate.mesh;
  plan.context = candidate.context;
  plan.zigzag = candidate.mesh.cp > 1 && problem.takesZigzag(candidate.mesh.cp);
  plan.idleDevices = problem.job.gpus - candidate.mesh.numRanks();
  plan.microBatch = candidate.microBatch;
  plan.accumulation = candidate.accumulation;
  plan.schedule = candidate.schedule.schedule;
  plan.chunkStage = candidate.schedule.chunkStage(candidate.mesh.pp);
  plan.recompute = recomputeOf(problem, candidate);
  plan.offload = offloadOf(costs, candidate);
  OpDecisions(costs, candidate, plan.ops).fill();

  plan.parameterDefault.zero = candidate.zero.zero;
  plan.parameterDefault.keepGathered = candidate.zero.keepGathered;
  for (const std::string &name : tokenAxisNames())
    if (*plan.mesh.find(name) > 1)
      (isZeroAxis(candidate, name) ? plan.parameterDefault.zeroAxes
                                   : plan.parameterDefault.reduceAxes)
          .push_back(name);
  for (int op : candidate.firstOps)
    plan.stages.push_back(graph.ops[size_t(op)].id);
  if (std::vector<bool> flags = recomputedOps(costs, candidate);
      std::find(flags.begin(), flags.end(), true) != flags.end()) {
    const int64_t samples = candidate.microBatch * candidate.mesh.ep;
    Graph staged = costs.models.graphFor(samples);
    setChunks(staged, candidate.firstOps);
    for (int op : reexecutedOps(staged, flags))
      plan.recomputeOps.push_back(graph.ops[size_t(op)].id);
  }
  return plan;
}

} // namespace tbc::planner
