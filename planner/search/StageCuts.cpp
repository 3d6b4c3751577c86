//===- StageCuts.cpp - Stage cuts of candidates ---------------------------===//

#include "planner/search/StageCuts.h"
#include "planner/search/OffloadBlocks.h"
#include "planner/search/StageBytes.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

std::vector<int> StageCuts::positions(const Profile &profile, int64_t chunks) const {
  // Enough buckets for each chunk to end near its ideal position.
  const int buckets = int(std::clamp<int64_t>(chunks * 6, 48, 256));
  if (problem.stageBegins.empty())
    return cutPositions(profile, buckets);
  std::vector<int> allowed{0};
  allowed.insert(allowed.end(), problem.stageBegins.begin(), problem.stageBegins.end());
  allowed.push_back(profile.numForward());
  return allowed;
}

const StageCutter &StageCuts::cutterFor(const Candidate &candidate, const Profile &profile) const {
  const int64_t pp = candidate.mesh.pp, numChunks = pp * candidate.schedule.chunksPerStage;
  const MeshStages &of = costs.meshes.stagesFor(candidate.mesh);
  if (of.devices.isUniform()) {
    const NetworkCost &network = of.networks->of(0);
    GroupShape ends = network.stageGroupShape({0, 1});
    return *cutters.get({&profile, numChunks, ends.nodes > 1, {}}, [&] {
      auto send = [&](double bytes) { return network.seconds(CollectiveKind::Send, ends, bytes); };
      return std::make_unique<StageCutter>(profile, positions(profile, numChunks), send,
                                           &counts.cuts);
    });
  }
  const std::array<int64_t, 3> arrangement = {candidate.mesh.numRanks() / pp,
                                              candidate.schedule.chunksPerStage,
                                              candidate.schedule.thereAndBack};
  return *cutters.get({&profile, numChunks, true, arrangement},
                      [&] { return makeHeterogeneous(candidate, profile); });
}

std::unique_ptr<StageCutter> StageCuts::makeHeterogeneous(const Candidate &candidate,
                                                          const Profile &profile) const {
  const int64_t pp = candidate.mesh.pp, numChunks = pp * candidate.schedule.chunksPerStage;
  const MeshStages &of = costs.meshes.stagesFor(candidate.mesh);
  std::map<StageKind, int> numbers;
  std::vector<const Profile *> ofKinds;
  std::vector<int> kindOf;
  for (int stage : costs.schedules.chunksFor(candidate).stageOf) {
    auto [found, isNew] = numbers.try_emplace(of.devices.kindOf(stage), int(ofKinds.size()));
    if (isNew)
      ofKinds.push_back(costs.models.mixOn(candidate, profile, stage).kept);
    kindOf.push_back(found->second);
  }
  auto send = [&](double bytes) { // of neighbours, the slowest
    double slowest = 0;
    for (int stage = 1; stage < int(pp); ++stage)
      slowest = std::max(slowest, of.networks->sendSeconds(stage - 1, stage, bytes));
    return slowest;
  };
  return std::make_unique<StageCutter>(ofKinds, kindOf, positions(profile, numChunks), send,
                                       &counts.cuts);
}

/// Returns a lower bound on the bytes of all stages together: of one stage with the whole model and
/// the smallest number of micro-batches in flight.
static double leastTogether(const CostTables &costs, const Candidate &candidate,
                            const Profile &profile, const DataMode &mode) {
  const std::vector<schedule::Moments> &kept = costs.schedules.momentsOf(candidate);
  schedule::InFlight least = kept[0][0][0];
  for (const schedule::Moments &stage : kept)
    for (const schedule::InFlight &chunk : stage[0]) {
      least.forward = std::min(least.forward, chunk.forward);
      least.untilWeight = std::min(least.untilWeight, chunk.untilWeight);
      least.weight = std::min(least.weight, chunk.weight);
    }
  const int all = profile.numForward();
  const double one = profiledBytes(profile, {{0, all, all, candidate.offloadsResiduals ? all : 0}},
                                   {{least}}, mode, costs.problem.job, costs.problem.cluster);
  return one + double(candidate.mesh.pp - 1) * double(costs.problem.cluster.contextBytes);
}

std::optional<std::vector<int>> StageCuts::cutWithin(const Candidate &candidate,
                                                     const Profile &profile, const DataMode &mode,
                                                     const StageCutter &cutter) const {
  const std::vector<schedule::Moments> &kept = costs.schedules.momentsOf(candidate);
  const double limit = double(problem.limitBytes);
  // Assumes the largest offload; a stage may offload less.
  auto offloadedEnd = [&](int last) { return candidate.offloadsResiduals ? last : 0; };
  auto bytesOf = [&](const std::vector<ChunkRange> &ranges, int stage) {
    return scaledBytes(costs, candidate, stage,
                       profiledBytes(profile, ranges, kept[stage], mode, problem.job,
                                     costs.meshes.clusterOf(candidate.mesh, stage)));
  };
  std::vector<ChunkRange> chunks; // reused by all calls
  if (candidate.schedule.chunksPerStage == 1)
    return cutter.cutWithin(kept, limit, [&](int first, int last, int stage) {
      chunks.assign(1, {first, last, last, offloadedEnd(last)});
      return bytesOf(chunks, stage);
    });
  const std::vector<int> &chunkStage = costs.schedules.chunksFor(candidate).stageOf;
  auto bytes = [&](const std::vector<StageCutter::Span> &spans) {
    chunks.clear();
    for (const StageCutter::Span &span : spans)
      chunks.push_back({span.first, span.last, span.last, offloadedEnd(span.last)});
    return bytesOf(chunks, chunkStage[spans[0].chunk]);
  };
  constexpr int maxTries = 2000; // some milliseconds
  return cutter.cutTogether(chunkStage, limit, bytes, maxTries);
}

std::optional<std::vector<int>> StageCuts::cut(const Candidate &candidate, const Profile &profile,
                                               const DataMode &mode) const {
  const int64_t pp = candidate.mesh.pp;
  if (pp == 1)
    return std::vector<int>{0};
  const StageCutter &cutter = cutterFor(candidate, profile);
  std::optional<std::vector<int>> balanced =
      cutter.cut(int(pp * candidate.schedule.chunksPerStage));
  if (!balanced)
    return std::nullopt;
  Candidate even = candidate;
  even.firstOps = *balanced;
  if (candidate.offloadsResiduals)
    chooseOffloaded(costs, even, profile, mode);
  bool isEnough = true;
  for (int64_t s = 0; s < pp; ++s)
    isEnough &= fits(costs, even, profile, mode, int(s));
  if (isEnough ||
      leastTogether(costs, candidate, profile, mode) > double(pp) * double(problem.limitBytes))
    return balanced;
  std::optional<std::vector<int>> within = cutWithin(candidate, profile, mode, cutter);
  return within ? within : balanced;
}

} // namespace tbc::planner
