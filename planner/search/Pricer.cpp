//===- Pricer.cpp - Scoring of candidates ---------------------------------===//

#include "planner/search/Pricer.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/search/CandidateOrder.h"
#include "planner/search/ChunkBlocks.h"
#include "planner/search/OffloadBlocks.h"
#include "planner/search/PartialRecompute.h"
#include "planner/search/StageBytes.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

bool Pricer::score(Candidate &candidate, bool refine) const {
  if (!costs.models.mayPlace(candidate))
    return false;
  const Profile &profile = costs.models.profileOf(candidate, candidate.recompute);
  DataMode mode = firstMode(costs, candidate);
  candidate.recomputeEnds.clear();
  candidate.recomputedBlocks.clear();
  candidate.offloadEnds.clear();
  candidate.offloadedBlocks.clear();
  std::optional<std::vector<int>> firstOps = cuts.cut(candidate, profile, mode);
  if (!firstOps)
    return false;
  candidate.firstOps = *firstOps;
  Mix mix = profile;
  if (candidate.offloadsResiduals)
    for (int stage = 0; stage < int(candidate.mesh.pp); ++stage)
      setOffloaded(costs, candidate, stage, blocksOn(costs, candidate, stage));
  if (costs.models.isPartial(candidate)) {
    mix = Mix(profile, costs.models.profileOf(candidate, weakerMode(candidate.recompute)));
    if (!chooseRecomputed(costs, candidate, mix, mode)) {
      if (!refine && allows(costs.problem.space, weakerMode(candidate.recompute)))
        return false; // the weaker mode is a candidate of its own
      // Recompute all: the weaker mode is forbidden, or a small graph may be faster so.
      candidate.recomputeEnds.clear();
      candidate.recomputedBlocks.clear();
      mix = profile;
    }
  }
  if (candidate.offloadsResiduals)
    chooseOffloaded(costs, candidate, mix, mode);
  price(candidate, mix, mode);
  if (refine && candidate.mesh.pp > 1)
    refineCuts(candidate, mix, mode);
  return true;
}

void Pricer::moveCut(Candidate &candidate, size_t chunk, int first) const {
  const Mix mix = candidate.recomputeEnds.empty()
                      ? Mix(costs.models.profileOf(candidate, candidate.recompute))
                      : costs.models.mixOf(candidate);
  const DataMode mode = firstMode(costs, candidate);
  candidate.firstOps[chunk] = first;
  if (!candidate.recomputeEnds.empty())
    chooseRecomputed(costs, candidate, mix, mode);
  if (!candidate.offloadEnds.empty())
    chooseOffloaded(costs, candidate, mix, mode);
  price(candidate, mix, mode);
}

/// Moves one cut at a time, to any position, as long as this helps: towards fitting, then towards
/// speed. The cut with the shortest longest stage is not the fastest if the schedule is short,
/// reductions are long or sends differ.
void Pricer::refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode) const {
  const Profile &profile = *mix.kept;
  std::vector<int> positions = cuts.positions(profile, int64_t(candidate.firstOps.size()));
  constexpr int mostRounds = 3;
  bool improved = true;
  for (int round = 0; improved && round < mostRounds; ++round) {
    improved = false;
    for (size_t s = 1; s < candidate.firstOps.size(); ++s) {
      int low = candidate.firstOps[s - 1];
      int high =
          s + 1 < candidate.firstOps.size() ? candidate.firstOps[s + 1] : profile.numForward();
      for (int position : positions) {
        if (position <= low || position >= high || position == candidate.firstOps[s])
          continue;
        Candidate moved = candidate;
        moved.firstOps[s] = position;
        if (!moved.recomputeEnds.empty())
          chooseRecomputed(costs, moved, mix, mode);
        if (!moved.offloadEnds.empty())
          chooseOffloaded(costs, moved, mix, mode);
        price(moved, mix, mode);
        if (!isBetter(moved, candidate))
          continue;
        candidate = std::move(moved);
        improved = true;
      }
    }
  }
}

/// Whether the ranks along `axis` have parts of the loss.
static bool hasPartOfLoss(Axis axis, const Profile &profile) {
  switch (mesh::row(axis).divides) {
  case Divides::Layers:
    return false;
  case Divides::Samples:
  case Divides::Experts:
  case Divides::Sequence:
    return true;
  case Divides::Tensors:
    return profile.lossIsSplit;
  }
  __builtin_unreachable();
}

/// Returns the seconds to sum the scalar loss over the ranks with parts of it, or the step's
/// scalars over all ranks.
double Pricer::lossSeconds(const Candidate &candidate, const Profile &profile) const {
  Mesh mesh = candidate.mesh.mesh();
  bool isTotal = profile.stepTotalBytes > 0;
  std::vector<AxisRef> axes;
  for (Axis axis : mesh::allAxes()) {
    const int index = axisIndex(mesh, axis);
    if (index >= 0 && (isTotal || hasPartOfLoss(axis, profile)))
      axes.push_back(wholeAxis(mesh, index));
  }
  return costs.meshes.stagesFor(candidate.mesh)
      .networks->seconds(CollectiveKind::AllReduce, axes,
                         costs.schedules.chunksFor(candidate).stageOf.back(),
                         isTotal ? double(profile.stepTotalBytes) : 4);
}

/// Returns the seconds of each chunk of a candidate with known cuts, from its profile.
std::vector<StageSeconds> Pricer::chunkSeconds(const Candidate &candidate, const Mix &mix,
                                               const DataMode &mode) const {
  const Profile &profile = *mix.kept; // for the fields equal in both
  const MeshStages &known = costs.meshes.stagesFor(candidate.mesh);
  const std::vector<int> &stageOf = costs.schedules.chunksFor(candidate).stageOf;
  auto send = [&](size_t a, size_t b, double bytes) {
    if (stageOf[a] == stageOf[b])
      return 0.0;
    return known.networks->sendSeconds(std::min(stageOf[a], stageOf[b]),
                                       std::max(stageOf[a], stageOf[b]), bytes);
  };
  const bool splitsBackward = schedule::splitsBackward(candidate.schedule.kind());
  std::vector<StageSeconds> chunks;
  for (size_t c = 0; c < candidate.firstOps.size(); ++c) {
    int first = candidate.firstOps[c], stage = stageOf[c];
    bool isLast = c + 1 == candidate.firstOps.size();
    int last = isLast ? profile.numForward() : candidate.firstOps[c + 1];
    const Mix here = costs.models.mixOn(candidate, mix, stage);
    const DataMode modeHere = modeOn(costs, candidate, mode, stage);
    RangeSums range =
        here.sums(first, candidate.recomputeEnds.empty() ? last : candidate.recomputeEnds[c], last);
    StageSeconds chunk = profiledSeconds(range, modeHere, known.networks->of(stage),
                                         known.devices.of(stage), splitsBackward);
    const BatchSumSeconds &sums = costs.meshes.batchSumSeconds(candidate.mesh, stage);
    chunk.operandsForward += sums.forward[last] - sums.forward[first];
    chunk.operandsBackward += sums.backward[last] - sums.backward[first];
    addHostCopies(costs, candidate, here, modeHere, int(c), last, chunk);
    chunk.messageForward = chunk.messageBackward =
        messageSeconds(known.devices.of(stage), c > 0 && stageOf[c - 1] != stage,
                       !isLast && stageOf[c + 1] != stage);
    if (!isLast)
      chunk.sendForward = send(c, c + 1, profile.crossingBytes(last - 1));
    if (c > 0)
      chunk.sendBackward = send(c - 1, c, profile.crossingBytes(first - 1));
    chunks.push_back(chunk);
  }
  chunks.back().parameterStep += lossSeconds(candidate, profile);
  return chunks;
}

/// Simulates the schedule, or uses the closed form for more than 512 chunk executions. The
/// simulation is exact, and cheap if the schedule is short.
double Pricer::stepSeconds(const Candidate &candidate,
                           const std::vector<StageSeconds> &chunks) const {
  const StageDevices &devices = costs.meshes.stagesFor(candidate.mesh).devices;
  constexpr int64_t mostSimulated = 512;
  if (int64_t(chunks.size()) * candidate.accumulation <= mostSimulated)
    return simulatedStepTime(devices, chunks, costs.schedules.scheduleFor(candidate)).seconds;
  PipelineSchedule outline; // the input of the closed form
  outline.kind = candidate.schedule.kind();
  outline.pipeline.numStages = int(candidate.mesh.pp);
  outline.pipeline.chunkStage = costs.schedules.chunksFor(candidate).stageOf;
  outline.accumulation = candidate.accumulation;
  return stepTime(devices, chunks, outline).seconds;
}

/// Sets the peak bytes and the fullest stage of a candidate with known cuts.
void Pricer::priceBytes(Candidate &candidate, const Mix &mix, const DataMode &mode) const {
  candidate.peakBytes = 0;
  for (int stage = 0; stage < int(candidate.mesh.pp); ++stage) {
    double bytes = stageBytes(costs, candidate, mix, mode, stage);
    if (bytes > candidate.peakBytes) {
      candidate.peakBytes = bytes;
      candidate.fullestStage = stage;
    }
  }
  candidate.feasible = candidate.peakBytes <= double(problem.limitBytes);
}

/// Sets the seconds and the peak bytes of a candidate with known cuts.
void Pricer::price(Candidate &candidate, const Mix &mix, const DataMode &mode) const {
  ++counts.priced;
  priceBytes(candidate, mix, mode);
  candidate.seconds = stepSeconds(candidate, chunkSeconds(candidate, mix, mode));
}

} // namespace tbc::planner
