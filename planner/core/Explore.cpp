//===- Explore.cpp - One pass over the space --------------------------------===//

#include "planner/core/Explore.h"
#include "planner/core/CandidateOrder.h"
#include "planner/core/DeriveBest.h"
#include "planner/core/Evaluate.h"
#include "planner/core/LookAhead.h"
#include "planner/reshard/SequenceOrder.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <tuple>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

/// Of plans that take the same time, to a thousandth, the simplest comes first: fewest axes, least
/// ZeRO, no recomputation.
static void preferSimple(std::vector<ExactCandidate> &exact) {
  if (exact.empty() || !exact.front().plan.prediction.fits)
    return;
  auto complexity = [](const ExactCandidate &e) {
    return std::make_tuple(e.plan.mesh.numAxes(), e.candidate.zero.zero, e.plan.recompute != "none",
                           e.candidate.zero.keepGathered);
  };
  double limit = exact.front().plan.prediction.stepSeconds * 1.001;
  size_t best = 0;
  for (size_t i = 1; i < exact.size(); ++i)
    if (exact[i].plan.prediction.fits && exact[i].plan.prediction.stepSeconds <= limit &&
        complexity(exact[i]) < complexity(exact[best]))
      best = i;
  std::rotate(exact.begin(), exact.begin() + best, exact.begin() + best + 1);
}

/// Looks at context parallelism beside the best of what has none, where that is not near its bound
/// anyhow: the bounds hold for these too, as nothing else about their meshes is new.
static void addContexts(Searcher &searcher, Workers &workers, bool refine, int nextOrder,
                        Exploration &exploration, std::vector<Candidate> &winners) {
  constexpr size_t mostMeshes = 4;
  constexpr double worthwhile = 1.05;
  if (!winners.empty() && winners[0].feasible &&
      winners[0].seconds <= worthwhile * exploration.lowerBoundSeconds)
    return;
  std::vector<Candidate> asked, found;
  for (size_t i = 0; i < winners.size() && i < mostMeshes; ++i)
    for (Candidate &candidate : searcher.withContext(winners[i]))
      asked.push_back(candidate);
  LookAhead ahead(searcher, workers, asked, refine);
  ahead.scoreAll();
  for (size_t i = 0; i < asked.size(); ++i) {
    bool isKnown = std::any_of(found.begin(), found.end(), [&](const Candidate &other) {
      return groupOf(other) == groupOf(asked[i]);
    });
    if (isKnown || !ahead.score(i))
      continue;
    asked[i].order = nextOrder++;
    exploration.scored.push_back(asked[i]);
    found.push_back(asked[i]);
  }
  winners.insert(winners.end(), found.begin(), found.end());
  std::sort(winners.begin(), winners.end(),
            [](const Candidate &a, const Candidate &b) { return isBetter(a, b); });
}

/// Whether the model can be split as a pinned cp axis asks.
static Status checkContext(const Graph &graph, const Space &space, const Pins &pins) {
  int64_t cp = space.pinnedMesh().cp;
  if (cp == 1)
    return Status::ok();
  if (space.isZigzag())
    if (std::string why = whyNoZigzag(graph, cp); !why.empty())
      return Error{ErrorCode::Usage, "--sequence-order zigzag: " + why + "; use contiguous"};
  std::string why;
  for (ContextForm form : space.contexts(space.pinnedMesh())) {
    why = whyNoContext(graph, cp, form);
    if (why.empty())
      return Status::ok();
  }
  return Error{ErrorCode::Usage, "--mesh cp=" + std::to_string(cp) +
                                     (pins.context.empty() ? "" : " --context " + pins.context) +
                                     ": " + why};
}

static double leastBound(const std::vector<Candidate> &candidates) {
  double least = INFINITY;
  for (const Candidate &candidate : candidates)
    least = std::min(least, candidate.provenBound);
  return least;
}

/// The least of all bounds, those that are below `seconds` made as tight as they can be, the least
/// first. It is no more than `seconds`, which some plan takes.
static double refineBounds(Searcher &searcher, Workers &workers,
                           const std::vector<Candidate> &candidates, double seconds) {
  std::vector<const Candidate *> loose;
  for (const Candidate &candidate : candidates)
    if (candidate.provenBound < seconds)
      loose.push_back(&candidate);
  std::sort(loose.begin(), loose.end(), [](const Candidate *a, const Candidate *b) {
    return std::tie(a->provenBound, a) < std::tie(b->provenBound, b); // of one list
  });
  double least = seconds;
  size_t ahead = 0;
  for (size_t i = 0; i < loose.size() && loose[i]->provenBound < least; ++i) {
    if (i >= ahead && workers.count() > 1) {
      ahead = std::min(loose.size(), i + size_t(workers.count()));
      workers.run(ahead - i, [&](size_t k) { searcher.boundAhead(*loose[i + k], seconds); });
    }
    least = std::min(least, searcher.refinedBound(*loose[i], seconds));
  }
  return least;
}

namespace {

/// CPU seconds of the process.
class Stopwatch {
public:
  /// Since it was made or asked last.
  double lap() {
    std::clock_t now = std::clock();
    return double(now - std::exchange(begin, now)) / CLOCKS_PER_SEC;
  }

private:
  std::clock_t begin = std::clock();
};

} // namespace

/// Drops the candidates that have another number of chunks than are pinned to begin.
static Status keepBegun(std::vector<Candidate> &candidates, const PinnedOps &pinned) {
  auto wanted = int64_t(pinned.begins.size()) + 1;
  if (wanted == 1 || candidates.empty())
    return Status::ok();
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate &candidate) {
                                    return candidate.mesh.pp * candidate.schedule.chunksPerStage !=
                                           wanted;
                                  }),
                   candidates.end());
  if (!candidates.empty())
    return Status::ok();
  return Error{ErrorCode::Usage,
               toString(*pinned.beginner) + ": the pins begin " + std::to_string(wanted) +
                   " stages, the first included, and no configuration that is left has as many: "
                   "its pp times its virtual stages; pin where each of them begins"};
}

Result<Exploration> explore(const Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &asked, int top, const Progress &progress) {
  Result<PinnedOps> pinned = PinnedOps::make(graph, job, asked.ops);
  if (!pinned)
    return pinned.error();
  Pins pins = asked;
  if (pinned->splitter) // the others are ruled out before they are looked at
    pins.conditions.push_back({"tp", "1", true, toString(*pinned->splitter)});
  Result<Space> space = Space::make(job, pins, commonExperts(graph));
  if (!space)
    return space.error();
  if (Status status =
          checkDevices(cluster, job, space->meshIsPinned() ? &space->pinnedMesh() : nullptr);
      !status)
    return status.error();
  Plan limits;
  limits.cluster = cluster;
  limits.memoryLimitBytes = pins.memoryLimitBytes.value_or(0);
  if (Status status = checkContext(graph, *space, pins); !status)
    return status.error();
  Workers workers(pins.threads);
  Stopwatch watch;
  Searcher searcher(graph, job, cluster, *space, limits.limitBytes(), *pinned, workers);
  std::vector<Candidate> candidates = searcher.enumerate();
  double boundSeconds = watch.lap();
  if (Status status = keepBegun(candidates, *pinned); !status)
    return status.error();
  if (space->blocksAgain().value_or(0) > searcher.numBlocks())
    return Error{ErrorCode::Usage, "--recompute " + pins.recompute + ": the model has " +
                                       std::to_string(searcher.numBlocks()) +
                                       " blocks that may be recomputed"};
  if (space->blocksAway().value_or(0) > searcher.numBlocks())
    return Error{ErrorCode::Usage, "--offload " + pins.offload + ": the model has " +
                                       std::to_string(searcher.numBlocks()) +
                                       " blocks whose residuals may be on the host"};
  if (candidates.empty() && !searcher.refusedSchedule().empty())
    return Error{ErrorCode::Usage,
                 searcher.refusedSchedule() + "; choose --batch and --micro-batch accordingly"};
  if (candidates.empty())
    if (Status status = searcher.checkTypes(); !status)
      return status.error();
  if (candidates.empty() && !pins.conditions.empty())
    return Error{ErrorCode::Usage,
                 "no configuration of " + std::to_string(job.gpus) + " devices and --batch " +
                     std::to_string(job.globalBatch) +
                     (pins.strategy == "auto" ? "" : " under --strategy " + pins.strategy) +
                     " is " + toString(pins.conditions)};
  if (candidates.empty())
    return Error{
        ErrorCode::Usage,
        "no mesh of " + std::to_string(job.gpus) + " devices divides --batch " +
            std::to_string(job.globalBatch) +
            (pins.microBatch ? " with --micro-batch " + std::to_string(*pins.microBatch) : "") +
            (pins.strategy != "auto" ? " under --strategy " + pins.strategy : "") +
            "; choose a batch that is a multiple of the data-parallel size"};

  // Small graphs are cheap enough to look at closely everywhere.
  bool isSmall = isSmallGraph(graph);
  Exploration exploration;
  exploration.lowerBoundSeconds = leastBound(candidates);
  std::map<decltype(groupOf(candidates[0])), size_t> best; // of each group, into scored
  std::vector<double> fastest; // of the groups that have something that fits, ascending
  LookAhead ahead(searcher, workers, candidates, isSmall);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (progress)
      progress(int64_t(i), int64_t(candidates.size()));
    const Candidate &candidate = candidates[i];
    double limit = int(fastest.size()) >= top ? fastest[size_t(top) - 1] : INFINITY;
    if (candidate.lowerBound > limit)
      break; // and so are all after it
    if (ahead.isRuledOut(i, limit) || !ahead.score(i))
      continue;
    exploration.scored.push_back(candidate);
    auto [found, isNew] = best.emplace(groupOf(candidate), exploration.scored.size() - 1);
    if (!isNew && !isBetter(candidate, exploration.scored[found->second]))
      continue;
    found->second = exploration.scored.size() - 1;
    fastest.clear();
    for (const auto &[group, index] : best)
      if (exploration.scored[index].feasible)
        fastest.push_back(exploration.scored[index].seconds);
    std::sort(fastest.begin(), fastest.end());
  }
  std::vector<Candidate> winners;
  for (const auto &[group, index] : best)
    winners.push_back(exploration.scored[index]);
  std::sort(winners.begin(), winners.end(),
            [](const Candidate &a, const Candidate &b) { return isBetter(a, b); });
  for (size_t i = 0; winners.empty() && i < candidates.size(); ++i)
    if (const std::string &why = searcher.refusedContext(candidates[i]); !why.empty())
      return Error{ErrorCode::Usage, why};
  if (winners.empty() && pinned->splitter)
    return Error{ErrorCode::Usage,
                 toString(*pinned->splitter) +
                     ": no mesh has an axis tp that divides all that is pinned to be split; "
                     "choose another tp, or pin less"};
  addContexts(searcher, workers, isSmall, int(candidates.size()), exploration, winners);
  if (isSmall)
    winners = exploration.scored;
  double scoreSeconds = watch.lap();
  Result<std::vector<ExactCandidate>> exact = deriveBest(
      searcher, workers, graph, std::move(winners), size_t(top), limits, space->overlap());
  if (!exact)
    return exact.error();
  double deriveSeconds = watch.lap();
  exploration.exact = std::move(*exact);
  if (!exploration.exact.empty() && exploration.exact.front().plan.prediction.fits)
    exploration.lowerBoundSeconds = refineBounds(
        searcher, workers, candidates, exploration.exact.front().plan.prediction.stepSeconds);
  preferSimple(exploration.exact);
  exploration.counts = searcher.counts().now();
  exploration.counts.boundSeconds = boundSeconds;
  exploration.counts.scoreSeconds = scoreSeconds;
  exploration.counts.deriveSeconds = deriveSeconds;
  exploration.counts.proofSeconds = watch.lap();
  return exploration;
}

} // namespace tbc::planner
