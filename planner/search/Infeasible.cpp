//===- Infeasible.cpp - Reasons why no plan fits, and remedies ------------===//

#include "planner/search/Infeasible.h"
#include "planner/devices/StageDevices.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanDevices.h"
#include "planner/report/Summary.h"
#include "planner/search/LeastMemory.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// A change of the request, tested before it is suggested.
struct Change {
  std::string text;
  Job job;
  Pins pins;
};

} // namespace

/// Whether some plan with `change` has the verdict `goal`; `how` describes it. `mostScored`: the
/// remaining number of candidates to score; it is reduced.
static bool helps(const Graph &graph, const Cluster &cluster, const Change &change,
                  MemoryVerdict goal, int64_t &mostScored, std::string &how) {
  Pins pins = change.pins;
  pins.memoryGoal = goal;
  pins.budget.candidates = std::min<int64_t>(pins.budget.candidates, 1 << 16);
  pins.budget.scored = std::min(pins.budget.scored, mostScored);
  Result<Exploration> exploration =
      explore(graph, change.job, cluster, pins, 1, Purpose::Suggestion);
  if (!exploration || exploration->provesNothingFits)
    return false;
  mostScored -= exploration->numScored;
  if (!exploration->hasFit(goal))
    return false;
  const Plan &plan = exploration->exact.front().plan;
  how = "then " + describe(plan) + (plan.prediction.fits() ? " fits in " : " is tight in ") +
        formatBytes(double(plan.prediction.peakBytes)) + " and takes " +
        formatSeconds(plan.prediction.stepSeconds);
  return true;
}

/// Returns possible changes by increasing cost: released pins, then more devices.
static std::vector<Change> changesFor(const Graph &graph, const Job &job, const Cluster &cluster,
                                      const Pins &pins, double limitBytes) {
  std::vector<Change> changes;
  auto addPins = [&](const std::string &text, auto edit) {
    Change change{text, job, pins};
    edit(change.pins);
    changes.push_back(std::move(change));
  };
  if (!pins.recomputeIsOpen() && pins.recompute != name(RecomputeMode::Full))
    addPins("leave --recompute open", [](Pins &p) { p.recompute = "auto"; });
  if (pins.microBatch)
    addPins("leave --micro-batch open", [](Pins &p) { p.microBatch.reset(); });
  if (pins.zero || pins.strategy != "auto")
    addPins("leave --zero and --strategy open", [](Pins &p) {
      p.zero.reset();
      p.strategy = "auto";
    });
  if (!pins.mesh.empty())
    addPins("leave --mesh open", [](Pins &p) { p.mesh.clear(); });
  if (pins.offload == "none")
    for (const char *choice : {"optimizer", "residuals", "all"})
      addPins(std::string("add --offload ") + choice, [choice](Pins &p) { p.offload = choice; });
  if (pins.memoryLimitBytes)
    addPins("leave out --memory-limit", [](Pins &p) { p.memoryLimitBytes.reset(); });
  if (!pins.conditions.empty() || !pins.ops.empty())
    addPins("leave out --pin and --forbid", [](Pins &p) {
      p.conditions.clear();
      p.ops.clear();
    });
  auto numPinned = std::count_if(changes.begin(), changes.end(), [](const Change &change) {
    return change.text.rfind("leave", 0) == 0;
  });
  if (numPinned > 1)
    addPins("leave everything open but the memory", [](Pins &p) {
      Pins open;
      open.memoryLimitBytes = p.memoryLimitBytes;
      open.memoryGoal = p.memoryGoal;
      open.budget = p.budget;
      open.deadline = p.deadline;
      open.top = p.top;
      p = open;
    });
  if (pins.mesh.empty())
    for (int64_t gpus = 2 * job.gpus; gpus <= mostDevices; gpus *= 2) {
      Change change{"use --gpus " + std::to_string(gpus), job, pins};
      change.job.gpus = gpus;
      const bool isOffloaded = pins.offload == "optimizer" || pins.offload == "all";
      if (leastBytesAnywhere(graph, change.job, cluster, isOffloaded) <= limitBytes)
        changes.push_back(std::move(change));
    }
  return changes;
}

/// Returns the largest parameters by name.
static std::string largestTensors(const Graph &graph) {
  std::vector<std::pair<double, std::string>> sizes;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    sizes.push_back({-double(value.layout.numElements() * value.layout.elementBytes), value.name});
  }
  std::sort(sizes.begin(), sizes.end());
  std::string text;
  for (size_t i = 0; i < sizes.size() && i < 3; ++i)
    text += (i ? ", " : "") + sizes[i].second + " (" + formatBytes(-sizes[i].first) + ")";
  return text;
}

/// Returns the first line: that no plan exists (proven), or that no plan was found.
static std::string headline(const Job &job, const Cluster &cluster, const Pins &pins,
                            const Exploration &exploration, int64_t limitBytes) {
  const std::string devices =
      std::to_string(job.gpus) + (job.gpus == 1 ? " device of " : " devices of ") + cluster.name;
  if (exploration.provesNothingFits)
    return "no plan exists: each of " + devices + " holds at least " +
           formatBytes(exploration.leastBytes) + " of " + formatBytes(double(limitBytes)) +
           (pins.mesh.empty() ? ", however the model is divided\n"
                              : " on the mesh that is pinned\n");
  std::string text = "no plan found: " + devices + " are short of memory";
  const std::string looked = std::to_string(exploration.numScored) + " of " +
                             std::to_string(exploration.numCandidates) + " configurations";
  if (exploration.end == SearchEnd::Budget)
    text += " in what the search looked at within its budget, " + looked;
  if (exploration.end == SearchEnd::TimeLimit)
    text += " in what the search looked at within --time-limit, " + looked;
  return text + "\n";
}

Error explainInfeasible(const Graph &graph, const Job &job, const Cluster &cluster,
                        const Pins &pins, const Exploration &exploration) {
  Plan limits;
  limits.cluster = cluster;
  limits.memoryLimitBytes = pins.memoryLimitBytes.value_or(0);
  if (exploration.exact.empty() && exploration.end != SearchEnd::Complete)
    return Error{ErrorCode::NoFeasiblePlan,
                 headline(job, cluster, pins, exploration, limits.limitBytes()) +
                     "  pin --mesh to search less" +
                     (exploration.end == SearchEnd::TimeLimit ? ", or give more time" : "")};
  if (exploration.exact.empty())
    return Error{ErrorCode::NoFeasiblePlan,
                 "no plan exists: the model has too few ops for the pipeline stages asked for, or "
                 "none that tp could split; use a smaller pp axis, or dp or fsdp instead of tp"};
  const ExactCandidate *closest = nullptr;
  for (const ExactCandidate &exact : exploration.exact)
    if (const Prediction &p = exact.plan.prediction;
        !closest || p.peakBytes - p.limitBytes <
                        closest->plan.prediction.peakBytes - closest->plan.prediction.limitBytes)
      closest = &exact;
  const Prediction &prediction = closest->plan.prediction;
  const size_t fullest = fullestStage(closest->plan);
  const StageDevices allDevices = stageDevices(closest->plan);
  const Cluster &devices = allDevices.of(int(fullest));
  std::vector<MemoryLine> lines = prediction.stages[fullest].lines;
  std::sort(lines.begin(), lines.end(), [](const MemoryLine &a, const MemoryLine &b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
  });

  std::string text = headline(job, cluster, pins, exploration, limits.limitBytes());
  if (!exploration.leftOut.empty())
    text += "  " + exploration.leftOut + "\n";
  text += "  closest: " + describe(closest->plan) + "\n";
  text += "  stage " + std::to_string(fullest) +
          (cluster.isMixed() ? ", on " + devices.name + "," : "") + " needs " +
          formatBytes(double(prediction.peakBytes)) + " of " +
          formatBytes(double(prediction.limitBytes)) + ": short by " +
          formatBytes(double(prediction.peakBytes - prediction.limitBytes)) + "\n";
  if (prediction.hostBytes > prediction.hostLimitBytes)
    text += "  of the host's memory it needs " + formatBytes(double(prediction.hostBytes)) +
            " of " + formatBytes(double(prediction.hostLimitBytes)) + " per device\n";
  text += "  largest there:";
  for (size_t i = 0; i < lines.size() && i < 4; ++i)
    text += (i ? ", " : " ") + lines[i].name + " " + formatBytes(double(lines[i].bytes));
  text += "\n  largest tensors: " + largestTensors(graph) + "\n";

  int found = 0;
  constexpr int mostFound = 3;
  int64_t mostScored = 96; // some seconds in total, for any model
  std::string how;
  std::set<std::string> known;
  bool hasMoreDevices = false; // a larger number would only be more expensive
  for (MemoryVerdict goal : {MemoryVerdict::Fits, MemoryVerdict::Tight})
    for (const Change &change :
         changesFor(graph, job, cluster, pins, double(limits.limitBytes()))) {
      if (found == mostFound || mostScored <= 0 || pins.deadline.isOver())
        break;
      const bool isForMore = change.job.gpus != job.gpus;
      if (goal < pins.memoryGoal || known.count(change.text) || (isForMore && hasMoreDevices) ||
          !helps(graph, cluster, change, goal, mostScored, how))
        continue;
      text += std::string(found++ ? "  or " : "  what would make it fit: ") + change.text + ": " +
              how + "\n";
      known.insert(change.text);
      hasMoreDevices |= isForMore;
    }
  double needed = double(prediction.highBytes) / (1 - devices.reservedFraction);
  if (pins.memoryLimitBytes && prediction.highBytes <= devices.usableBytes())
    text += std::string(found ? "  or " : "  what would make it fit: ") + "--memory-limit " +
            std::to_string(int64_t(std::ceil(double(prediction.highBytes) / 1048576))) +
            "MiB, for the closest plan above\n";
  else
    text += std::string(found ? "  or " : "  what would make it fit: ") +
            (cluster.isMixed() ? devices.name + " " : "") + "devices with " + formatBytes(needed) +
            " of memory, for the closest plan above\n";
  text.pop_back();
  return Error{ErrorCode::NoFeasiblePlan, text};
}

} // namespace tbc::planner
