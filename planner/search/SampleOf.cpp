//===- SampleOf.cpp - A sample of an exploration ----------------------------===//

#include "planner/search/SampleOf.h"
#include "planner/plan/Describe.h"
#include "planner/plan/ScheduleText.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace tbc::planner {

static std::string scheduleOf(const Candidate &candidate) {
  const int64_t stages = candidate.mesh.pp;
  return withChunks(scheduleWord(candidate.schedule.schedule),
                    candidate.schedule.chunkStage(stages), stages);
}

static std::string recomputeText(const Candidate &candidate) {
  std::string text = name(candidate.recompute);
  if (!candidate.recomputedBlocks.empty()) {
    const std::vector<int64_t> &blocks = candidate.recomputedBlocks;
    text += " in " + std::to_string(std::accumulate(blocks.begin(), blocks.end(), int64_t(0))) +
            " blocks";
  }
  if (candidate.offloadsStates || candidate.offloadsResiduals)
    text += std::string(", offload ") + (!candidate.offloadsResiduals ? "optimizer"
                                         : candidate.offloadsStates   ? "all"
                                                                      : "residuals");
  return text;
}

/// Returns the candidate with its score.
static ScoredCandidate wordsOf(const Candidate &candidate) {
  ScoredCandidate scored;
  scored.mesh = toString(candidate.mesh);
  if (candidate.mesh.cp > 1)
    scored.mesh += std::string(", ") + reshard::name(candidate.context);
  scored.zero = candidate.mesh.tokenRanks() > 1
                    ? zeroName(candidate.zero.zero, candidate.zero.keepGathered)
                    : "-";
  scored.microBatch = candidate.microBatch;
  scored.schedule = scheduleOf(candidate);
  scored.recompute = recomputeText(candidate);
  scored.stepSeconds = candidate.seconds;
  scored.bytes = std::llround(candidate.peakBytes);
  scored.fits = candidate.feasible;
  scored.boundSeconds = candidate.lowerBound;
  return scored;
}

/// Returns the candidate with its exact numbers.
static ScoredCandidate exactOf(const ExactCandidate &exact, MemoryVerdict goal) {
  ScoredCandidate scored = wordsOf(exact.candidate);
  const Prediction &p = exact.plan.prediction;
  scored.stepSeconds = p.stepSeconds;
  scored.bytes = goal == MemoryVerdict::Fits ? p.highBytes : p.peakBytes;
  scored.fits = p.meets(goal);
  return scored;
}

/// Returns every candidate once, by time and then by memory.
static std::vector<ScoredCandidate> allOf(const Exploration &exploration,
                                          const std::vector<const ExactCandidate *> &runnersUp,
                                          MemoryVerdict goal) {
  std::map<int, ScoredCandidate> byOrder; // a candidate may have been scored twice
  for (const Candidate &candidate : exploration.scored)
    if (std::isfinite(candidate.seconds) && std::isfinite(candidate.peakBytes))
      byOrder.insert_or_assign(candidate.order, wordsOf(candidate));
  for (const ExactCandidate &exact : exploration.exact)
    byOrder.insert_or_assign(exact.candidate.order, exactOf(exact, goal));
  auto setRank = [&](const ExactCandidate &exact, int64_t rank) {
    byOrder.at(exact.candidate.order).rank = rank;
  };
  setRank(exploration.exact.front(), 0);
  for (size_t i = 0; i < runnersUp.size(); ++i)
    setRank(*runnersUp[i], int64_t(i) + 1);
  std::vector<std::pair<int, ScoredCandidate>> ordered(byOrder.begin(), byOrder.end());
  std::sort(ordered.begin(), ordered.end(), [](const auto &a, const auto &b) {
    return std::tie(a.second.stepSeconds, a.second.bytes, a.first) <
           std::tie(b.second.stepSeconds, b.second.bytes, b.first);
  });
  std::vector<ScoredCandidate> all;
  for (auto &[order, candidate] : ordered)
    all.push_back(std::move(candidate));
  return all;
}

SearchSample sampleOf(const Exploration &exploration,
                      const std::vector<const ExactCandidate *> &runnersUp, MemoryVerdict goal) {
  const std::vector<ScoredCandidate> all = allOf(exploration, runnersUp, goal);
  const std::vector<bool> isFront = paretoFront(all);
  std::vector<bool> isTaken(all.size());
  size_t room = SearchSample::mostCandidates;
  auto take = [&](size_t i) {
    if (room > 0 && !isTaken[i]) {
      isTaken[i] = true;
      --room;
    }
  };
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].rank)
      take(i);
  for (size_t i = 0; i < all.size(); ++i)
    if (isFront[i])
      take(i);
  std::vector<size_t> fitting, others;
  for (size_t i = 0; i < all.size(); ++i)
    if (!isTaken[i])
      (all[i].fits ? fitting : others).push_back(i);
  auto takeEvenly = [&](const std::vector<size_t> &list, size_t most) {
    const size_t wanted = std::min(most, list.size());
    for (size_t k = 0; k < wanted; ++k)
      take(list[k * list.size() / wanted]);
  };
  const size_t rest = room, forOthers = std::min(others.size(), rest / 3);
  takeEvenly(fitting, rest - forOthers);
  takeEvenly(others, room);

  SearchSample sample;
  sample.scored = int64_t(all.size());
  sample.listed = std::max(exploration.numCandidates, sample.scored);
  for (size_t i = 0; i < all.size(); ++i)
    if (isTaken[i])
      sample.candidates.push_back(all[i]);
  return sample;
}

} // namespace tbc::planner
