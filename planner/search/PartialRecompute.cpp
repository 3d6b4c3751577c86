//===- PartialRecompute.cpp - Recomputation of the fewest blocks ----------===//

#include "planner/search/PartialRecompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/search/ChunkBlocks.h"
#include "planner/search/StageBytes.h"

#include <algorithm>

namespace tbc::planner {

bool allows(const Space &space, RecomputeMode mode) {
  const std::vector<RecomputeMode> modes = space.recomputeModes();
  return std::find(modes.begin(), modes.end(), mode) != modes.end();
}

/// Recomputes the first `blocks` blocks of the stage.
static void setRecomputed(const CostTables &costs, Candidate &candidate, int stage,
                          int64_t blocks) {
  candidate.recomputeEnds.resize(candidate.firstOps.size());
  candidate.recomputedBlocks.resize(candidate.mesh.pp);
  candidate.recomputedBlocks[stage] = blocks;
  for (auto [chunk, end] : endsOf(costs, candidate, stage, blocks))
    candidate.recomputeEnds[chunk] = end;
}

/// For an executor that recomputes as many blocks on each stage: gives all stages, and so their
/// chunks, the number of the stage with the most.
static void makeEven(const CostTables &costs, Candidate &candidate) {
  const RecomputeShare share = executorOf(costs.problem.cluster).plans.recompute;
  if (share != RecomputeShare::Even || costs.problem.space.recompute().blocks)
    return;
  const int64_t chunks = candidate.schedule.chunksPerStage;
  int64_t most = 0;
  for (int64_t blocks : candidate.recomputedBlocks)
    most = std::max(most, (blocks + chunks - 1) / chunks * chunks);
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage)
    setRecomputed(costs, candidate, stage, std::min(most, blocksOn(costs, candidate, stage)));
}

bool chooseRecomputed(const CostTables &costs, Candidate &candidate, const Mix &mix,
                      const DataMode &mode) {
  bool any = false;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage) {
    int64_t low = 0, high = blocksOn(costs, candidate, stage);
    if (std::optional<int64_t> pinned = costs.problem.space.recompute().blocks) {
      low = shareOf(costs, candidate, stage, *pinned);
    } else {
      while (low < high) { // the fewest that fit; all of them if it never fits
        int64_t middle = (low + high) / 2;
        setRecomputed(costs, candidate, stage, middle);
        bool isEnough = fits(costs, candidate, mix, mode, stage);
        (isEnough ? high : low) = isEnough ? middle : middle + 1;
      }
    }
    setRecomputed(costs, candidate, stage, low);
    any |= low > 0;
  }
  makeEven(costs, candidate);
  return any;
}

bool recomputeStronger(const CostTables &costs, Candidate &candidate) {
  const Space &space = costs.problem.space;
  if (candidate.recompute == recomputeModes().back() || !space.recompute().isOpen() ||
      !space.mayBePartial())
    return false;
  const RecomputeMode stronger = RecomputeMode(int(candidate.recompute) + 1);
  if (!allows(space, stronger))
    return false;
  candidate.recompute = stronger;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage)
    setRecomputed(costs, candidate, stage, 0);
  return true;
}

bool recomputeMore(const CostTables &costs, Candidate &candidate,
                   const std::vector<double> &headroomBytes) {
  if (candidate.recomputedBlocks.empty() || costs.problem.space.recompute().blocks)
    return false; // the number is pinned
  Mix mix = costs.models.mixOf(candidate);
  DataMode mode = firstMode(costs, candidate);
  bool any = false;
  for (int stage = 0; stage < int(candidate.recomputedBlocks.size()); ++stage) {
    int64_t now = candidate.recomputedBlocks[stage], most = blocksOn(costs, candidate, stage);
    if (headroomBytes[stage] >= 0 || now >= most)
      continue;
    double bytes = heldBytes(costs, candidate, mix, mode, stage);
    int64_t more = now;
    do
      setRecomputed(costs, candidate, stage, ++more);
    while (more < most &&
           bytes - heldBytes(costs, candidate, mix, mode, stage) < -headroomBytes[stage]);
    any = true;
  }
  makeEven(costs, candidate);
  return any;
}

bool recomputeLess(const CostTables &costs, Candidate &candidate,
                   const std::vector<double> &headroomBytes) {
  if (candidate.recomputedBlocks.empty() || costs.problem.space.recompute().blocks)
    return false;
  // Error of a score, as a fraction of a block's kept bytes; a smaller excess is worth a
  // derivation.
  constexpr double tolerance = 0.05;
  Mix mix = costs.models.mixOf(candidate);
  DataMode mode = firstMode(costs, candidate);
  const std::vector<int64_t> before = candidate.recomputedBlocks;
  // Without a block the plan has the weaker mode.
  const int64_t least = allows(costs.problem.space, weakerMode(candidate.recompute)) ? 0 : 1;
  for (int stage = 0; stage < int(candidate.recomputedBlocks.size()); ++stage) {
    const int64_t now = candidate.recomputedBlocks[stage];
    double bytes = heldBytes(costs, candidate, mix, mode, stage);
    for (int64_t fewer = now; fewer > least; --fewer) {
      double with = heldBytes(costs, candidate, mix, mode, stage);
      setRecomputed(costs, candidate, stage, fewer - 1);
      double without = heldBytes(costs, candidate, mix, mode, stage);
      if (without - bytes > headroomBytes[stage] + tolerance * (without - with)) {
        setRecomputed(costs, candidate, stage, fewer);
        break;
      }
    }
  }
  makeEven(costs, candidate);
  return candidate.recomputedBlocks != before;
}

std::vector<bool> recomputedOps(const CostTables &costs, const Candidate &candidate) {
  std::vector<bool> flags =
      costs.models.flagsFor(candidate.recompute, candidate.microBatch * candidate.mesh.ep);
  if (candidate.recomputeEnds.empty())
    return flags;
  const std::vector<bool> &weaker = costs.models.flagsFor(weakerMode(candidate.recompute),
                                                          candidate.microBatch * candidate.mesh.ep);
  for (int chunk = 0; chunk < int(candidate.firstOps.size()); ++chunk)
    for (int op = candidate.recomputeEnds[chunk]; op < endOf(costs.problem, candidate, chunk); ++op)
      flags[op] = weaker[op];
  return flags;
}

Recompute recomputeOf(const SearchProblem &problem, const Candidate &candidate) {
  if (candidate.recomputeEnds.empty())
    return {candidate.recompute};
  int64_t blocks = 0;
  for (int64_t onStage : candidate.recomputedBlocks)
    blocks += onStage;
  if (blocks == 0)
    return {weakerMode(candidate.recompute)};
  return {candidate.recompute, BlockShare::share(blocks, problem.numBlocks())};
}

} // namespace tbc::planner
