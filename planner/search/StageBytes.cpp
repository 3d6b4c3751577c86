//===- StageBytes.cpp - Memory of the stages of a candidate ---------------===//

#include "planner/search/StageBytes.h"
#include "planner/search/ChunkBlocks.h"

#include <algorithm>

namespace tbc::planner {

double heldBytes(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                 const DataMode &mode, int stage) {
  const std::vector<int> &onStage = costs.schedules.chunksOf(candidate, stage);
  std::vector<ChunkRange> chunks;
  chunks.reserve(onStage.size());
  for (int chunk : onStage) {
    int last = endOf(costs.problem, candidate, chunk);
    chunks.push_back({candidate.firstOps[chunk],
                      candidate.recomputeEnds.empty() ? last : candidate.recomputeEnds[chunk], last,
                      candidate.offloadEnds.empty() ? 0 : candidate.offloadEnds[chunk]});
  }
  return profiledBytes(mix, chunks, costs.schedules.momentsOf(candidate)[stage], mode,
                       costs.problem.job, costs.meshes.clusterOf(candidate.mesh, stage));
}

double scaledBytes(const CostTables &costs, const Candidate &candidate, int stage, double bytes) {
  const SearchProblem &problem = costs.problem;
  if (!problem.isMixed)
    return bytes;
  int64_t limit =
      std::min(problem.limitBytes, costs.meshes.clusterOf(candidate.mesh, stage).usableBytes());
  const double scaled = bytes * (double(problem.limitBytes) / double(limit));
  // Exactly at its own limit stays within the common limit, despite rounding.
  return bytes <= double(limit) ? std::min(scaled, double(problem.limitBytes))
                                : std::max(scaled, double(problem.limitBytes) + 1);
}

double stageBytes(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                  const DataMode &mode, int stage) {
  return scaledBytes(costs, candidate, stage, heldBytes(costs, candidate, mix, mode, stage));
}

bool fits(const CostTables &costs, const Candidate &candidate, const Mix &mix, const DataMode &mode,
          int stage) {
  return stageBytes(costs, candidate, mix, mode, stage) <= double(costs.problem.limitBytes);
}

} // namespace tbc::planner
