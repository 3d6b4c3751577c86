//===- OffloadBlocks.cpp - Offloading of the fewest blocks ----------------===//

#include "planner/search/OffloadBlocks.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/search/ChunkBlocks.h"
#include "planner/search/StageBytes.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

void setOffloaded(const CostTables &costs, Candidate &candidate, int stage, int64_t blocks) {
  candidate.offloadEnds.resize(candidate.firstOps.size());
  candidate.offloadedBlocks.resize(candidate.mesh.pp);
  candidate.offloadedBlocks[stage] = blocks;
  for (auto [chunk, end] : endsOf(costs, candidate, stage, blocks))
    candidate.offloadEnds[chunk] =
        blocks == 0 && blocksOn(costs, candidate, stage) > 0 ? candidate.firstOps[chunk] : end;
}

void chooseOffloaded(const CostTables &costs, Candidate &candidate, const Mix &mix,
                     const DataMode &mode) {
  const Space &space = costs.problem.space;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage) {
    int64_t low = 0, high = blocksOn(costs, candidate, stage);
    if (space.offload().blocks)
      low = shareOf(costs, candidate, stage, *space.offload().blocks);
    else if (!space.offload().isAsNeeded)
      low = high;
    while (space.offload().isAsNeeded && low < high) {
      int64_t middle = (low + high) / 2;
      setOffloaded(costs, candidate, stage, middle);
      bool isEnough = fits(costs, candidate, mix, mode, stage);
      (isEnough ? high : low) = isEnough ? middle : middle + 1;
    }
    setOffloaded(costs, candidate, stage, low);
  }
}

bool offloadMore(const CostTables &costs, Candidate &candidate,
                 const std::vector<double> &headroomBytes) {
  bool any = false;
  for (int stage = 0;
       costs.problem.space.offload().isAsNeeded && stage < int(candidate.offloadedBlocks.size());
       ++stage) {
    if (headroomBytes[stage] >= 0 ||
        candidate.offloadedBlocks[stage] >= blocksOn(costs, candidate, stage))
      continue;
    setOffloaded(costs, candidate, stage, candidate.offloadedBlocks[stage] + 1);
    any = true;
  }
  return any;
}

Offload offloadOf(const CostTables &costs, const Candidate &candidate) {
  Offload offload;
  offload.optimizer = candidate.offloadsStates;
  if (!candidate.offloadsResiduals)
    return offload;
  const Graph &batched = costs.models.graphFor(candidate.microBatch * candidate.mesh.ep);
  std::vector<bool> flags = offloadFlags(batched);
  int64_t blocks = 0;
  for (int64_t onStage : candidate.offloadedBlocks)
    blocks += onStage;
  for (int chunk = 0; chunk < int(candidate.firstOps.size()); ++chunk)
    for (int op = candidate.firstOps[chunk]; op < candidate.offloadEnds[chunk]; ++op)
      if (flags[op])
        offload.ops.push_back(batched.ops[op].id);
  if (!offload.ops.empty())
    offload.residuals = BlockShare::share(blocks, costs.problem.numBlocks());
  return offload;
}

void addHostCopies(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                   const DataMode &mode, int index, int last, StageSeconds &chunk) {
  int first = candidate.firstOps[index];
  ChunkRange ops{first, candidate.recomputeEnds.empty() ? last : candidate.recomputeEnds[index],
                 last};
  const Cluster &cluster = costs.meshes.clusterOf(
      candidate.mesh, costs.schedules.chunksFor(candidate).stageOf[size_t(index)]);
  if (!candidate.offloadEnds.empty()) {
    RangeSums offloaded =
        ops.sums(mix, first, std::clamp(candidate.offloadEnds[index], first, last));
    bool parts = schedule::splitsBackward(candidate.schedule.kind());
    chunk.hostForward = chunk.hostBackward = offloaded.residualBytes / cluster.hostBytesPerSecond;
    chunk.hostWeight = parts ? offloaded.weightResidualBytes / cluster.hostBytesPerSecond : 0;
  }
  if (!mode.offloadsStates)
    return;
  RangeSums all = ops.sums(mix, first, last);
  for (size_t kind = 0; kind < all.parameters.size(); ++kind) {
    const ParameterSums &of = all.parameters[kind];
    double bytes = of.masterBytes + of.stateBytes;
    chunk.hostStep += 2 * bytes / double(mode.groups[kind].zero.size) / cluster.hostBytesPerSecond;
  }
}

} // namespace tbc::planner
