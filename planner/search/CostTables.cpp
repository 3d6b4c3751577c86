//===- CostTables.cpp - Results shared by candidates ----------------------===//

#include "planner/search/CostTables.h"
#include "planner/search/ParameterTotals.h"

using namespace tbc::reshard;

namespace tbc::planner {

bool isZeroAxis(const Candidate &candidate, const std::string &name) {
  return candidate.zero.zero > 0 &&
         (mesh::parseAxis(name) != Axis::Data || candidate.mesh.fsdp == 1);
}

int64_t gatherUnit(const SearchProblem &problem, const MeshShape &mesh) {
  if (!executorOf(problem.cluster).isOwn())
    return 0;
  double bytes = 0;
  for (bool isExpert : {false, true})
    bytes += problem.parameterBytes[isExpert] / parameterParts(mesh, isExpert);
  return gatherUnitBytes(bytes, problem.numBlocks());
}

bool reducesInLastBackward(const Cluster &cluster, const Candidate &candidate) {
  return executorOf(cluster).isOwn() && candidate.accumulation > 1 &&
         candidate.schedule.chunksPerStage == 1 &&
         !schedule::splitsBackward(candidate.schedule.kind());
}

DataMode dataMode(const CostTables &costs, const Candidate &candidate, const NetworkCost &network) {
  Mesh mesh = candidate.mesh.mesh();
  DataMode mode;
  mode.zero = candidate.zero.zero;
  mode.keepGathered = candidate.zero.keepGathered;
  bool isAtOnce = candidate.accumulation == 1 && candidate.mesh.pp == 1;
  mode.reducesAtOnce = isAtOnce;
  mode.keepsGradientShards = mode.zero >= (isAtOnce ? 1 : 2);
  mode.offloadsStates = candidate.offloadsStates;
  const Executor &executor = executorOf(costs.problem.cluster);
  mode.storesWeights = executor.storesWeights;
  mode.gradientFactor = executor.gradientFactor();
  const OverlapPins &overlap = costs.problem.space.overlap();
  mode.bucketBytes = overlap.bucketBytes;
  mode.gatherBytes = overlap.gatherBytes.value_or(gatherUnit(costs.problem, candidate.mesh));
  for (bool isSplitOverExperts : {false, true}) {
    std::vector<AxisRef> zero, others;
    for (const std::string &name : tokenAxisNames())
      if (int axis = mesh.axisIndex(name);
          axis >= 0 && !(isSplitOverExperts && mesh::parseAxis(name) == Axis::Expert))
        (isZeroAxis(candidate, name) ? zero : others).push_back(wholeAxis(mesh, axis));
    mode.groups[isSplitOverExperts] = {network.groupShape(zero), network.groupShape(others)};
  }
  return mode;
}

DataMode boundMode(const CostTables &costs, const Candidate &candidate) {
  return dataMode(costs, candidate, costs.meshes.networkFor(candidate.mesh));
}

DataMode firstMode(const CostTables &costs, const Candidate &candidate) {
  DataMode mode =
      dataMode(costs, candidate, costs.meshes.stagesFor(candidate.mesh).networks->of(0));
  mode.reducesLast = reducesInLastBackward(costs.problem.cluster, candidate);
  return mode;
}

DataMode modeOn(const CostTables &costs, const Candidate &candidate, const DataMode &mode,
                int stage) {
  const MeshStages &of = costs.meshes.stagesFor(candidate.mesh);
  const bool isLikeFirst =
      !costs.problem.isMixed || of.devices.kindOf(stage) == of.devices.kindOf(0);
  DataMode result = isLikeFirst ? mode : dataMode(costs, candidate, of.networks->of(stage));
  result.reducesLast = stage == 0 && reducesInLastBackward(costs.problem.cluster, candidate);
  return result;
}

} // namespace tbc::planner
