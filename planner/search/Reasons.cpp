//===- Reasons.cpp - Reasons for the decisions of a plan ------------------===//

#include "planner/search/Reasons.h"
#include "planner/cost/Buckets.h"
#include "planner/pins/Runnable.h"
#include "planner/plan/Describe.h"
#include "planner/plan/ScheduleText.h"
#include "planner/report/Summary.h"
#include "planner/search/Families.h"
#include "planner/search/SampleOf.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

std::string signedPercent(double ratio) {
  constexpr double leastShown = 0.05;
  double value = 100 * (ratio - 1);
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", value < 0 && value > -leastShown ? 0.0 : value);
  return text;
}

/// Returns the words behind "takes" for a time of `ratio` times the plan's. `isBound`: plans that
/// the search has not derived may be faster. Example: 0.988 gives "1.2 % less time".
static std::string timeAgainst(double ratio, bool isBound = false) {
  const std::string percent = signedPercent(ratio);
  if (percent == signedPercent(1))
    return "as long";
  if (percent[0] == '-')
    return percent.substr(1) + " less time";
  return (isBound ? "at most " : "") + percent.substr(1) + " more time";
}

/// Returns the disadvantage of `other` against the answer, in a few words.
static std::string lossOf(const Prediction &answer, const Prediction &other,
                          const MeshShape &mesh) {
  if (other.memory == MemoryVerdict::DoesNotFit)
    return "does not fit: needs " + formatBytes(double(other.peakBytes));
  std::vector<std::pair<double, std::string>> losses = {
      {other.time.compute - answer.time.compute, "kernels"},
      {other.time.recompute - answer.time.recompute, "recomputation"},
      {other.time.operands - answer.time.operands, "exposed " + betweenOpsName(mesh)},
      {other.time.data - answer.time.data, "exposed data communication"},
      {other.time.pipeline - answer.time.pipeline, "pipeline bubble"},
      {other.time.update - answer.time.update, "update"},
      {other.time.host - answer.time.host, "copies to and from the host"}};
  auto worst = std::max_element(losses.begin(), losses.end());
  std::string text = signedPercent(other.stepSeconds / answer.stepSeconds);
  if (other.memory > answer.memory)
    return text + ", but tight: up to " + formatBytes(double(other.highBytes)) + " of " +
           formatBytes(double(other.limitBytes));
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
  other.offload = exact.plan.offload;
  other.offload.ops.clear();
  other.stepSeconds = exact.plan.prediction.stepSeconds;
  other.peakBytes = exact.plan.prediction.peakBytes;
  other.memory = exact.plan.prediction.memory;
  other.note = lossOf(answer, exact.plan.prediction, exact.plan.mesh);
  return other;
}

namespace {

/// Gives the reason of one decision, from the scored candidates that differ only in this decision.
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
      addZero();
    if (plan.mesh.cp > 1)
      add("context", name(chosen.context), !pins.context.empty(), [&](const Candidate &c) {
        return c.mesh == chosen.mesh && c.zero == chosen.zero && c.context != chosen.context;
      });
    add("micro-batch", std::to_string(plan.microBatch),
        pins.microBatch.has_value() || isAsked("micro-batch"), [&](const Candidate &c) {
          return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                 c.microBatch != chosen.microBatch;
        });
    add("recompute", toString(plan.recompute), !pins.recomputeIsOpen() || isAsked("recompute"),
        [&](const Candidate &c) {
          return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                 c.microBatch == chosen.microBatch && c.recompute != chosen.recompute;
        });
    if (pins.offload != "none")
      plan.reasons.push_back({"offload", offloadText(plan.offload),
                              !pins.offloadIsOpen()   ? Origin::Pinned
                              : plan.offload.isNone() ? Origin::Solved
                                                      : Origin::Forced,
                              !pins.offloadIsOpen()   ? "pinned"
                              : plan.offload.isNone() ? "everything fits on the device"
                                                      : "nothing fits without"});
    if (plan.mesh.pp > 1)
      add("schedule", scheduleText(plan), !pins.schedule.empty() || isAsked("schedule"),
          [&](const Candidate &c) {
            return c.mesh == chosen.mesh && c.zero == chosen.zero &&
                   c.microBatch == chosen.microBatch && c.recompute == chosen.recompute &&
                   !(c.schedule == chosen.schedule);
          });
    addOverlap();
    plan.reasons.push_back({"strategies", std::to_string(plan.ops.size()) + " kinds of split",
                            Origin::Solved, strategyText()});
  }

private:
  /// Adds the distribution of parameters. A pinned mesh decides it by its axis fsdp, and leaves it
  /// open over dp alone.
  void addZero() {
    const std::string value = zeroName(chosen.zero.zero, chosen.zero.keepGathered);
    const bool isNamed = pins.zero || zeroOfStrategy(pins.strategy) || isAsked("zero");
    if (!isNamed && !pins.mesh.empty() && plan.mesh.fsdp > 1)
      return plan.reasons.push_back(
          {"zero", value, Origin::Pinned, "the axis fsdp of --mesh asks for it"});
    add("zero", value, isNamed,
        [&](const Candidate &c) { return c.mesh == chosen.mesh && !(c.zero == chosen.zero); });
  }

  /// Adds the sizes of joined collectives, and the prefetch.
  void addOverlap() {
    auto add = [&](const char *decision, const std::string &value, const std::string &asked,
                   const std::string &text) {
      bool isPinned = asked != "auto";
      plan.reasons.push_back({decision, value, isPinned ? Origin::Pinned : Origin::Solved,
                              isPinned ? "pinned" : text});
    };
    if (plan.overlap.bucketBytes > 0)
      add("bucket-size", bucketText(plan.overlap.bucketBytes), pins.bucketSize,
          "gradients reduced together, as far as memory allows");
    if (plan.overlap.gatherBytes > 0)
      add("gather-size", bucketText(plan.overlap.gatherBytes), pins.gatherSize,
          "parameters gathered together, up to those of a graph block, as far as memory allows");
    if (plan.overlap.prefetch > 0)
      add("prefetch", std::to_string(plan.overlap.prefetch), pins.prefetch,
          "parameters gathered ahead of their use, as far as memory allows");
  }

  bool isAsked(const std::string &decision) const {
    return std::any_of(pins.conditions.begin(), pins.conditions.end(), [&](const Condition &c) {
      return c.decision == decision && !c.isForbidden;
    });
  }

  /// Adds the --pin and --forbid arguments in a form that can be given again.
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

  /// Adds the reason of `decision`, from the best candidates accepted by `differs`: the fastest
  /// fitting one, and the fastest one without enough memory. The latter makes the decision forced.
  template <typename Differs>
  void add(const char *decision, const std::string &value, bool pinned, Differs differs) {
    if (pinned) {
      plan.reasons.push_back({decision, value, Origin::Pinned, "pinned"});
      return;
    }
    const Candidate *faster = nullptr;
    for (const Candidate &c : exploration.scored)
      if (differs(c) && !c.feasible && c.seconds < chosen.seconds &&
          (!faster || c.seconds < faster->seconds))
        faster = &c;
    const Rival fits = bestThatFits(decision, differs);
    std::string text;
    if (faster)
      text = nameOf(*faster, decision) + " would take " +
             timeAgainst(faster->seconds / chosen.seconds) + " but needs " +
             formatBytes(faster->peakBytes);
    if (!fits.name.empty())
      text += (text.empty() ? "" : "; ") + fits.name + " takes " +
              timeAgainst(fits.ratio, /*isBound=*/fits.isDerived);
    if (text.empty())
      text = decision == std::string("mesh") ? "no other is as fast"
                                             : "on this mesh no other is as fast";
    plan.reasons.push_back({decision, value, faster ? Origin::Forced : Origin::Solved, text});
  }

  /// Another value of a decision, and its time relative to the plan.
  struct Rival {
    std::string name;
    double ratio = INFINITY;
    bool isDerived = false; // its fastest derived plan; others of this value may be faster
  };

  /// Returns the fastest other value among the candidates that fit and that `differs` accepts. The
  /// name is empty if no value is left.
  ///
  /// A value has the time of its fastest plan that was derived op by op, as the table of runners-up
  /// shows it. Only a value without such a plan has the ratio of both scores, at least 1, because
  /// the plan is the best among similar scores. Example: fsdp=16 was derived and takes +11 %; its
  /// scores of other micro-batches, equal to the plan's, do not count.
  template <typename Differs> Rival bestThatFits(const char *decision, Differs differs) const {
    Rival best;
    std::set<std::string> derived;
    for (const ExactCandidate &other : exploration.exact) {
      const Prediction &prediction = other.plan.prediction;
      if (prediction.memory == MemoryVerdict::DoesNotFit || !differs(other.candidate))
        continue;
      const std::string name = nameOf(other.candidate, decision);
      derived.insert(name);
      const double ratio = prediction.stepSeconds / plan.prediction.stepSeconds;
      if (ratio < best.ratio)
        best = {name, ratio, /*isDerived=*/true};
    }
    for (const Candidate &c : exploration.scored) {
      const double ratio = std::max(1.0, c.seconds / chosen.seconds);
      if (c.feasible && ratio < best.ratio && differs(c))
        if (const std::string name = nameOf(c, decision); !derived.count(name))
          best = {name, ratio};
    }
    return best;
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
    if (decision == "schedule")
      return withChunks(scheduleWord(c.schedule.schedule), c.schedule.chunkStage(c.mesh.pp),
                        c.mesh.pp);
    return name(c.recompute);
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

std::string longestPart(const Plan &plan) {
  const TimeSplit &time = plan.prediction.time;
  std::vector<std::pair<double, std::string>> parts = {
      {time.compute + time.recompute, "kernels"},
      {time.operands, "exposed " + betweenOpsName(plan.mesh)},
      {time.data, "exposed data communication"},
      {time.pipeline, "pipeline bubble"},
      {time.update, "update"},
      {time.host, "copies to and from the host"}};
  auto largest = std::max_element(parts.begin(), parts.end());
  char share[16];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * largest->first / time.total());
  return largest->second + ": " + share + " of the step";
}

/// Returns the main limit of the step time.
static std::string bindingConstraint(const Exploration &exploration, const Plan &plan) {
  const Candidate *faster = nullptr;
  for (const Candidate &c : exploration.scored)
    if (!c.feasible && c.seconds < 0.98 * exploration.exact.front().candidate.seconds &&
        (!faster || c.seconds < faster->seconds))
      faster = &c;
  if (faster)
    return "memory: " + toString(faster->mesh) + " with micro-batch " +
           std::to_string(faster->microBatch) + ", recompute " + name(faster->recompute) +
           " would take " + formatSeconds(faster->seconds) + " but needs " +
           formatBytes(faster->peakBytes);
  return longestPart(plan);
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
  const std::vector<std::string> &recomputed = plan.recomputeOps;
  auto isFree = [&](const GraphOp &op) {
    return op.kernelClass != KernelClass::None &&
           std::find(recomputed.begin(), recomputed.end(), op.id) != recomputed.end();
  };
  if (auto count = std::count_if(graph.ops.begin(), graph.ops.end(), isFree);
      count > 0 && plan.recompute.mode == RecomputeMode::None)
    lines.push_back(std::to_string(count) +
                    " ops run again inside of the kernels of backward that read them: what they "
                    "make need not go through memory");
  const Cluster &cluster = plan.cluster;
  if (const std::vector<std::string> parts = notRunnable(plan); !parts.empty())
    lines.push_back(joined(parts) + ": pinned, but " + executorOf(cluster).name +
                    " has no such plans by itself");
  char overlap[32], slower[64] = "";
  std::snprintf(overlap, sizeof overlap, "%.0f %%", 100 * cluster.overlapFraction);
  if (cluster.overlapSlowdown > 0)
    std::snprintf(slower, sizeof slower, ", which take %.0f %% of it longer",
                  100 * cluster.overlapSlowdown);
  if (plan.mesh.tokenRanks() > 1)
    lines.push_back(std::string("data-parallel communication hides behind up to ") + overlap +
                    " of the kernels around it" + slower);
  for (Axis axis : {Axis::Tensor, Axis::Expert})
    if (plan.mesh.of(axis) > 1)
      lines.push_back(std::string(mesh::row(axis).name) + " communication is not hidden");
  if (plan.mesh.cp > 1)
    lines.push_back(plan.context == ContextForm::Ring
                        ? "cp communication hides behind all but the last block of attention"
                        : "cp communication between ops is not hidden");
  return lines;
}

/// Returns the fastest plan if the answer is a simpler one and takes longer in the numbers that are
/// shown, else null.
static const ExactCandidate *fasterThanAnswer(const Exploration &exploration) {
  const std::vector<ExactCandidate> &exact = exploration.exact;
  if (exact.size() < 2)
    return nullptr;
  const double ratio = exact[1].plan.prediction.stepSeconds / exact[0].plan.prediction.stepSeconds;
  const bool isFaster = ratio < 1 && signedPercent(ratio) != signedPercent(1);
  return isFaster ? &exact[1] : nullptr;
}

/// Format of a fraction. Example: 0.02 gives "2 %".
static std::string percentText(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%g %%", 100 * fraction);
  return text;
}

void explainChoice(const Exploration &exploration, const Graph &graph, const Job &job,
                   const Pins &pins, Plan &plan) {
  const std::vector<const ExactCandidate *> others =
      runnersUp(exploration.exact, size_t(pins.top) - 1);
  for (const ExactCandidate *other : others)
    plan.alternatives.push_back(alternativeOf(*other, plan.prediction));
  plan.search = sampleOf(exploration, others, pins.memoryGoal);
  if (exploration.tight)
    plan.alternatives.push_back(alternativeOf(*exploration.tight, plan.prediction));
  plan.bindingConstraint = bindingConstraint(exploration, plan);
  Reasons(exploration, graph, pins, plan).run();
  plan.assumptions = assumptionsOf(graph, job, plan);
  if (const ExactCandidate *fastest = fasterThanAnswer(exploration)) {
    const Plan &other = fastest->plan;
    plan.assumptions.push_back(
        "the simplest plan within " + percentText(pins.tie) +
        " of the fastest: --tie-percent 0 takes " +
        (other.mesh == plan.mesh ? describe(alternativeOf(*fastest, plan.prediction))
                                 : toString(other.mesh)) +
        ", with " + timeAgainst(other.prediction.stepSeconds / plan.prediction.stepSeconds));
  }
}

} // namespace tbc::planner
