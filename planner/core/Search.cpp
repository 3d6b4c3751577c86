//===- Search.cpp - The best plan for a job, with reasons and a bound ------===//

#include "planner/core/Search.h"
#include "planner/core/Evaluate.h"
#include "planner/core/Explore.h"
#include "planner/core/Summary.h"
#include "planner/reshard/SequenceOrder.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

std::string zeroName(int zero, bool keepGathered) {
  if (zero == 0)
    return "no ZeRO";
  return keepGathered ? "SHARD_GRAD_OP" : "ZeRO-" + std::to_string(zero);
}

std::string splitAxesName(const MeshShape &mesh) {
  std::string names;
  for (auto [name, size] : {std::pair("tp", mesh.tp), {"cp", mesh.cp}, {"ep", mesh.ep}})
    if (size > 1)
      names += (names.empty() ? "" : " and ") + std::string(name);
  return names.empty() ? "tp" : names;
}

std::string describe(const Plan &plan) {
  std::string text = toString(plan.mesh);
  if (plan.mesh.cp > 1)
    text += std::string(", ") + name(plan.context) + (plan.zigzag ? " zigzag" : "");
  if (plan.mesh.tokenRanks() > 1)
    text += ", " + zeroName(plan.parameterDefault.zero, plan.parameterDefault.keepGathered);
  text += ", micro-batch " + std::to_string(plan.microBatch) + " x " +
          std::to_string(plan.accumulation);
  if (plan.mesh.pp > 1)
    text += ", " + scheduleText(plan);
  text += ", recompute " + plan.recompute;
  if (!plan.offload.isNone())
    text += ", offload " + offloadText(plan.offload);
  return text;
}

/// Candidates that differ in no more than micro-batch and schedule compete for one place.
static auto groupOf(const Candidate &c) {
  return std::make_tuple(c.mesh.sizes(), c.context, c.zero.zero, c.zero.keepGathered, c.recompute);
}

static bool isBetter(const Candidate &a, const Candidate &b) {
  if (a.feasible != b.feasible)
    return a.feasible;
  // What does not fit is ordered by how far it is from fitting.
  double keyA = a.feasible ? a.seconds : a.peakBytes, keyB = b.feasible ? b.seconds : b.peakBytes;
  return std::tie(keyA, a.order) < std::tie(keyB, b.order);
}

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
static void addContexts(Searcher &searcher, bool refine, Exploration &exploration,
                        std::vector<Candidate> &winners) {
  constexpr size_t mostMeshes = 4;
  constexpr double worthwhile = 1.05;
  if (!winners.empty() && winners[0].feasible &&
      winners[0].seconds <= worthwhile * exploration.lowerBoundSeconds)
    return;
  std::vector<Candidate> found;
  for (size_t i = 0; i < winners.size() && i < mostMeshes; ++i)
    for (Candidate &candidate : searcher.withContext(winners[i])) {
      bool isKnown = std::any_of(found.begin(), found.end(), [&](const Candidate &other) {
        return groupOf(other) == groupOf(candidate);
      });
      if (isKnown || !searcher.score(candidate, refine))
        continue;
      candidate.order = int(exploration.evaluations++);
      exploration.scored.push_back(candidate);
      found.push_back(candidate);
    }
  winners.insert(winners.end(), found.begin(), found.end());
  std::sort(winners.begin(), winners.end(), isBetter);
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

static Result<ExactCandidate> deriveOnce(Searcher &searcher, const Graph &graph,
                                         const Candidate &candidate, const Plan &limits) {
  ExactCandidate exact{candidate, searcher.planOf(candidate)};
  exact.plan.memoryLimitBytes = limits.memoryLimitBytes;
  Result<PlannedStep> step = applyPlan(graph, exact.plan);
  if (!step)
    return step.error();
  exact.plan.prediction = predictStep(*step, exact.plan);
  return exact;
}

/// `candidate` op by op. One that recomputes as few blocks as fit by its score, which is off by
/// little, recomputes more where it must, and fewer where it can.
static Result<ExactCandidate> deriveExactly(Searcher &searcher, const Graph &graph,
                                            Candidate candidate, const Plan &limits) {
  constexpr int mostTries = 8;
  Result<ExactCandidate> exact = deriveOnce(searcher, graph, candidate, limits);
  auto roomOf = [](const Prediction &prediction) {
    std::vector<double> room; // by stage
    for (const StageMemory &stage : prediction.stages)
      room.push_back(double(prediction.limitBytes - stage.totalBytes()));
    return room;
  };
  for (int tries = 0; exact && !exact->plan.prediction.fits && tries < mostTries; ++tries) {
    std::vector<bool> tooFull;
    for (double room : roomOf(exact->plan.prediction))
      tooFull.push_back(room < 0);
    if (!searcher.recomputeMore(candidate, tooFull) && !searcher.offloadMore(candidate, tooFull))
      break;
    exact = deriveOnce(searcher, graph, candidate, limits);
  }
  for (int tries = 0; exact && exact->plan.prediction.fits && tries < mostTries; ++tries) {
    if (!searcher.recomputeLess(candidate, roomOf(exact->plan.prediction)))
      break;
    Result<ExactCandidate> fewer = deriveOnce(searcher, graph, candidate, limits);
    if (!fewer || !fewer->plan.prediction.fits)
      break;
    exact = std::move(fewer);
  }
  return exact;
}

static double leastBound(const std::vector<Candidate> &candidates) {
  double least = INFINITY;
  for (const Candidate &candidate : candidates)
    least = std::min(least, candidate.provenBound);
  return least;
}

/// The least of all bounds, those that are below `seconds` made as tight as they can be, the least
/// first. It is no more than `seconds`, which some plan takes.
static double refineBounds(Searcher &searcher, const std::vector<Candidate> &candidates,
                           double seconds) {
  struct Bound {
    double seconds;
    size_t candidate;
    bool isRefined;
    bool operator<(const Bound &o) const {
      return std::tie(o.seconds, o.candidate) < std::tie(seconds, candidate); // the least on top
    }
  };
  std::priority_queue<Bound> bounds;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].provenBound < seconds)
      bounds.push({candidates[i].provenBound, i, false});
  while (!bounds.empty() && !bounds.top().isRefined) {
    size_t i = bounds.top().candidate;
    bounds.pop();
    double refined = searcher.refinedBound(candidates[i]);
    if (refined < seconds)
      bounds.push({refined, i, true});
  }
  return bounds.empty() ? seconds : bounds.top().seconds;
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
  Plan limits;
  limits.cluster = cluster;
  limits.memoryLimitBytes = pins.memoryLimitBytes.value_or(0);
  if (Status status = checkContext(graph, *space, pins); !status)
    return status.error();
  Searcher searcher(graph, job, cluster, *space, limits.limitBytes(), *pinned);
  std::vector<Candidate> candidates = searcher.enumerate();
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
  bool isSmall = graph.ops.size() < 200;
  Exploration exploration;
  exploration.lowerBoundSeconds = leastBound(candidates);
  exploration.evaluations = int64_t(candidates.size());
  std::map<decltype(groupOf(candidates[0])), size_t> best; // of each group, into scored
  std::vector<double> fastest; // of the groups that have something that fits, ascending
  int64_t done = 0;
  for (Candidate &candidate : candidates) {
    if (progress)
      progress(done++, int64_t(candidates.size()));
    if (int(fastest.size()) >= top && candidate.lowerBound > fastest[top - 1])
      break; // and so are all after it
    if (!searcher.score(candidate, isSmall))
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
  std::sort(winners.begin(), winners.end(), isBetter);
  if (winners.empty() && !searcher.refusedContext().empty())
    return Error{ErrorCode::Usage, searcher.refusedContext()};
  if (winners.empty() && pinned->splitter)
    return Error{ErrorCode::Usage,
                 toString(*pinned->splitter) +
                     ": no mesh has an axis tp that divides all that is pinned to be split; "
                     "choose another tp, or pin less"};
  addContexts(searcher, isSmall, exploration, winners);

  // Scores are off by little; what is within that of the best is looked at exactly.
  constexpr double scoreError = 0.02;
  size_t mostExact = isSmall ? 64 : 16;
  double exactBest = INFINITY;
  for (size_t i = 0; i < winners.size() && i < std::max(mostExact, size_t(top)); ++i) {
    bool mayWin = !std::isfinite(exactBest) || winners[i].seconds < exactBest * (1 + scoreError);
    if (int(i) >= top && (!winners[i].feasible || !mayWin))
      break;
    if (!isSmall)
      searcher.score(winners[i], /*refine=*/true);
    Result<ExactCandidate> exact = deriveExactly(searcher, graph, winners[i], limits);
    if (!exact)
      return exact.error();
    if (exact->plan.prediction.fits)
      exactBest = std::min(exactBest, exact->plan.prediction.stepSeconds);
    exploration.exact.push_back(std::move(*exact));
  }
  std::sort(exploration.exact.begin(), exploration.exact.end(),
            [](const ExactCandidate &a, const ExactCandidate &b) {
              const Prediction &p = a.plan.prediction, &q = b.plan.prediction;
              if (p.fits != q.fits)
                return p.fits;
              return std::tie(p.stepSeconds, a.candidate.order) <
                     std::tie(q.stepSeconds, b.candidate.order);
            });
  if (!exploration.exact.empty() && exploration.exact.front().plan.prediction.fits)
    exploration.lowerBoundSeconds =
        refineBounds(searcher, candidates, exploration.exact.front().plan.prediction.stepSeconds);
  preferSimple(exploration.exact);
  return exploration;
}

static std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100 * (ratio - 1));
  return text;
}

/// What `other` loses against the answer, in a few words.
static std::string lossOf(const Prediction &answer, const Prediction &other,
                          const MeshShape &mesh) {
  if (!other.fits)
    return "does not fit: needs " + formatBytes(double(other.peakBytes));
  std::vector<std::pair<double, std::string>> losses = {
      {other.time.compute - answer.time.compute, "kernels"},
      {other.time.recompute - answer.time.recompute, "recomputation"},
      {other.time.operands - answer.time.operands,
       "exposed " + splitAxesName(mesh) + " communication"},
      {other.time.data - answer.time.data, "exposed data communication"},
      {other.time.pipeline - answer.time.pipeline, "pipeline bubble"},
      {other.time.update - answer.time.update, "update"},
      {other.time.host - answer.time.host, "copies to and from the host"}};
  auto worst = std::max_element(losses.begin(), losses.end());
  std::string text = percent(other.stepSeconds / answer.stepSeconds);
  if (other.lowSeconds <= answer.highSeconds && other.stepSeconds < 1.02 * answer.stepSeconds)
    return text + ": a tie";
  return worst->first > 0 ? text + ": " + formatSeconds(worst->first) + " more " + worst->second
                          : text;
}

static Alternative alternativeOf(const ExactCandidate &exact, const Prediction &answer) {
  Alternative other;
  other.mesh = exact.plan.mesh;
  other.context = exact.plan.context;
  other.data = exact.plan.parameterDefault;
  other.microBatch = exact.plan.microBatch;
  other.accumulation = exact.plan.accumulation;
  other.schedule = exact.plan.schedule;
  other.chunkStage = exact.plan.chunkStage;
  other.recompute = exact.plan.recompute;
  other.offload = offloadText(exact.plan.offload);
  other.stepSeconds = exact.plan.prediction.stepSeconds;
  other.peakBytes = exact.plan.prediction.peakBytes;
  other.fits = exact.plan.prediction.fits;
  other.note = lossOf(answer, exact.plan.prediction, exact.plan.mesh);
  return other;
}

namespace {

/// Says why one decision was taken, from what the scored candidates that differ in nothing else
/// would have given.
class Reasons {
public:
  Reasons(const Exploration &exploration, const Graph &graph, const Pins &pins, Plan &plan)
      : exploration(exploration), chosen(exploration.exact.front().candidate), graph(graph),
        pins(pins), plan(plan) {}

  void run() {
    addPins();
    add("mesh", toString(plan.mesh), !pins.mesh.empty(),
        [&](const Candidate &c) { return !(c.mesh == chosen.mesh); });
    if (plan.mesh.tokenRanks() > 1)
      add("zero", zeroName(chosen.zero.zero, chosen.zero.keepGathered),
          pins.zero.has_value() || pins.strategy != "auto" || !pins.mesh.empty() || isAsked("zero"),
          [&](const Candidate &c) { return c.mesh == chosen.mesh && !(c.zero == chosen.zero); });
    if (plan.mesh.cp > 1)
      add("context", name(chosen.context), !pins.context.empty(), [&](const Candidate &c) {
        return c.mesh == chosen.mesh && c.zero == chosen.zero && c.context != chosen.context;
      });
    add("micro-batch", std::to_string(plan.microBatch),
        pins.microBatch.has_value() || isAsked("micro-batch"), [&](const Candidate &c) {
          return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                 c.microBatch != chosen.microBatch;
        });
    add("recompute", plan.recompute, pins.recompute != "auto" || isAsked("recompute"),
        [&](const Candidate &c) {
          return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                 c.microBatch == chosen.microBatch && c.recompute != chosen.recompute;
        });
    if (pins.offload != "none")
      plan.reasons.push_back({"offload", offloadText(plan.offload),
                              pins.offload != "auto"  ? Origin::Pinned
                              : plan.offload.isNone() ? Origin::Solved
                                                      : Origin::Forced,
                              pins.offload != "auto"  ? "pinned"
                              : plan.offload.isNone() ? "everything fits on the device"
                                                      : "nothing fits without"});
    if (plan.mesh.pp > 1)
      add("schedule", scheduleText(plan), !pins.schedule.empty() || isAsked("schedule"),
          [&](const Candidate &c) {
            return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                   c.microBatch == chosen.microBatch && c.recompute == chosen.recompute &&
                   !(c.schedule == chosen.schedule);
          });
    plan.reasons.push_back({"strategies", std::to_string(plan.ops.size()) + " kinds of split",
                            Origin::Solved, strategyText()});
  }

private:
  bool isAsked(const std::string &decision) const {
    return std::any_of(pins.conditions.begin(), pins.conditions.end(), [&](const Condition &c) {
      return c.decision == decision && !c.isForbidden;
    });
  }

  /// What --pin and --forbid said, as they can be said again.
  void addPins() {
    auto pinned = [&](const std::string &flag, const std::string &text) {
      size_t space = flag.find(' ');
      plan.reasons.push_back(
          {flag.substr(2, space - 2), flag.substr(space + 1), Origin::Pinned, text});
    };
    for (const Condition &condition : pins.conditions)
      if (!condition.flag.empty())
        pinned(condition.flag, "pinned");
    for (const OpPin &pin : pins.ops)
      pinned(toString(pin),
             std::to_string(matchingOps(graph, plan.job, pin.glob).size()) + " ops match");
  }

  template <typename Differs>
  void add(const char *decision, const std::string &value, bool pinned, Differs differs) {
    if (pinned) {
      plan.reasons.push_back({decision, value, Origin::Pinned, "pinned"});
      return;
    }
    const Candidate *fits = nullptr, *faster = nullptr;
    for (const Candidate &c : exploration.scored) {
      if (!differs(c))
        continue;
      if (c.feasible && (!fits || c.seconds < fits->seconds))
        fits = &c;
      if (!c.feasible && c.seconds < chosen.seconds && (!faster || c.seconds < faster->seconds))
        faster = &c;
    }
    std::string text;
    if (faster)
      text = nameOf(*faster, decision) + " would be " + percent(faster->seconds / chosen.seconds) +
             " in time but needs " + formatBytes(faster->peakBytes);
    if (fits)
      text += (text.empty() ? "" : "; ") + nameOf(*fits, decision) + " is " +
              percent(fits->seconds / chosen.seconds);
    if (text.empty())
      text = "nothing else can be as fast";
    plan.reasons.push_back({decision, value, faster ? Origin::Forced : Origin::Solved, text});
  }

  static std::string nameOf(const Candidate &c, const std::string &decision) {
    if (decision == "mesh")
      return toString(c.mesh);
    if (decision == "zero")
      return zeroName(c.zero.zero, c.zero.keepGathered);
    if (decision == "context")
      return name(c.context);
    if (decision == "micro-batch")
      return "micro-batch " + std::to_string(c.microBatch);
    if (decision == "schedule") {
      Plan of; // as far as scheduleText() reads it
      of.mesh = c.mesh;
      of.schedule = c.schedule.schedule;
      of.chunkStage = c.schedule.chunkStage(c.mesh.pp);
      return scheduleText(of);
    }
    return c.recompute;
  }

  std::string strategyText() const {
    size_t ops = 0;
    for (const OpDecision &decision : plan.ops)
      ops += decision.ops.size();
    std::string experts = plan.mesh.ep > 1 ? "experts split over ep, " : "";
    std::string sequence = plan.mesh.cp > 1 ? "and the sequence " : "";
    if (ops == 0)
      return experts + (experts.empty() ? "every op splits the batch " + sequence + "alone"
                                        : "every other op the batch " + sequence + "alone");
    return std::to_string(ops) + " ops split over tp, " + experts + "the others follow the batch";
  }

  const Exploration &exploration;
  const Candidate &chosen;
  const Graph &graph;
  const Pins &pins;
  Plan &plan;
};

} // namespace

/// The one thing that keeps the step from being faster.
static std::string bindingConstraint(const Exploration &exploration, const Plan &plan) {
  const Candidate *faster = nullptr;
  for (const Candidate &c : exploration.scored)
    if (!c.feasible && c.seconds < 0.98 * exploration.exact.front().candidate.seconds &&
        (!faster || c.seconds < faster->seconds))
      faster = &c;
  if (faster)
    return "memory: " + toString(faster->mesh) + " with micro-batch " +
           std::to_string(faster->microBatch) + ", recompute " + faster->recompute +
           " would take " + formatSeconds(faster->seconds) + " but needs " +
           formatBytes(faster->peakBytes);
  const TimeSplit &time = plan.prediction.time;
  std::vector<std::pair<double, std::string>> parts = {
      {time.compute + time.recompute, "kernels"},
      {time.operands, "exposed " + splitAxesName(plan.mesh) + " communication"},
      {time.data, "exposed data communication"},
      {time.pipeline, "pipeline bubble"},
      {time.update, "update"},
      {time.host, "copies to and from the host"}};
  auto largest = std::max_element(parts.begin(), parts.end());
  char share[16];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * largest->first / time.total());
  return largest->second + ": " + share + " of the step";
}

static std::vector<std::string> assumptionsOf(const Graph &graph, const Job &job,
                                              const Plan &plan) {
  std::vector<std::string> lines;
  if (plan.idleDevices > 0)
    lines.push_back(std::to_string(plan.idleDevices) + " of " + std::to_string(job.gpus) +
                    " devices stay idle: using them all would not be faster");
  if (plan.job.globalBatch != job.globalBatch)
    lines.push_back("batch " + std::to_string(job.globalBatch) + " rounded up to " +
                    std::to_string(plan.job.globalBatch) + ", which divides over the mesh");
  const std::vector<std::string> &again = plan.recomputeOps;
  auto isFree = [&](const GraphOp &op) {
    return op.kernelClass != "none" && std::find(again.begin(), again.end(), op.id) != again.end();
  };
  if (auto count = std::count_if(graph.ops.begin(), graph.ops.end(), isFree);
      count > 0 && plan.recompute == "none")
    lines.push_back(std::to_string(count) +
                    " ops run again inside of the kernels of backward that read them: what they "
                    "make need not go through memory");
  const Cluster &cluster = plan.cluster;
  char overlap[16];
  std::snprintf(overlap, sizeof overlap, "%.0f %%", 100 * cluster.overlapFraction);
  if (plan.mesh.tokenRanks() > 1)
    lines.push_back(std::string("data-parallel communication hides behind up to ") + overlap +
                    " of the kernels around it");
  for (auto [name, size] :
       {std::pair<const char *, int64_t>{"tp", plan.mesh.tp}, {"ep", plan.mesh.ep}})
    if (size > 1)
      lines.push_back(std::string(name) + " communication is not hidden");
  if (plan.mesh.cp > 1)
    lines.push_back(plan.context == ContextForm::Ring
                        ? "cp communication hides behind all but the last block of attention"
                        : "cp communication between ops is not hidden");
  return lines;
}

static bool hasFit(const Result<Exploration> &exploration) {
  return exploration && !exploration->exact.empty() &&
         exploration->exact.front().plan.prediction.fits;
}

/// As explore; where --offload is auto and nothing fits otherwise, with what may lie on the host
/// there, whichever is fastest.
static Result<Exploration> exploreOffload(const Graph &graph, const Job &job,
                                          const Cluster &cluster, const Pins &pins, int top,
                                          const Progress &progress = {}) {
  Result<Exploration> exploration = explore(graph, job, cluster, pins, top, progress);
  if (pins.offload != "auto" || !exploration || hasFit(exploration))
    return exploration;
  Pins away = pins;
  away.offloadsAsNeeded = true;
  for (const char *choice : {"optimizer", "residuals", "all"}) {
    away.offload = choice;
    Result<Exploration> tried = explore(graph, job, cluster, away, top);
    bool isFaster = hasFit(tried) && (!hasFit(exploration) ||
                                      tried->exact.front().plan.prediction.stepSeconds <
                                          exploration->exact.front().plan.prediction.stepSeconds);
    if (isFaster)
      exploration = std::move(tried);
  }
  return exploration;
}

Result<SearchAnswer> search(const Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, const Progress &progress) {
  Result<Exploration> exploration = exploreOffload(graph, job, cluster, pins, pins.top, progress);
  if (!exploration)
    return exploration.error();
  if (exploration->exact.empty() || !exploration->exact.front().plan.prediction.fits)
    return explainInfeasible(graph, job, cluster, pins, *exploration);

  SearchAnswer answer;
  answer.plan = exploration->exact.front().plan;
  answer.evaluations = exploration->evaluations;
  answer.exact = int64_t(exploration->exact.size());
  Plan &plan = answer.plan;
  plan.lowerBoundSeconds = std::min(exploration->lowerBoundSeconds, plan.prediction.stepSeconds);
  for (size_t i = 1; i < exploration->exact.size() && i < size_t(pins.top); ++i)
    plan.alternatives.push_back(alternativeOf(exploration->exact[i], plan.prediction));
  plan.bindingConstraint = bindingConstraint(*exploration, plan);
  Reasons(*exploration, graph, pins, plan).run();
  plan.assumptions = assumptionsOf(graph, job, plan);
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  for (std::string &line : unsplitWork(*step))
    plan.assumptions.push_back(std::move(line));
  plan.blocks = blockRows(graph, *step, plan);
  plan.stageNames = stageNames(graph, plan.job, plan.stages);
  return answer;
}

Result<Plan> costOf(const Graph &graph, const Job &job, const Cluster &cluster, const Pins &pins) {
  Result<Exploration> exploration = exploreOffload(graph, job, cluster, pins, 1);
  if (!exploration)
    return exploration.error();
  if (exploration->exact.empty())
    return explainInfeasible(graph, job, cluster, pins, *exploration);
  return std::move(exploration->exact.front().plan);
}

Result<Prediction> predict(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  return predictStep(*step, plan);
}

} // namespace tbc::planner
