//===- Infeasible.cpp - What is short, and what would make it fit ----------===//

#include "planner/core/Explore.h"
#include "planner/core/StageDevices.h"
#include "planner/core/Summary.h"

#include <algorithm>
#include <cmath>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// A change of the question, tried before it is proposed.
struct Change {
  std::string text;
  Job job;
  Pins pins;
};

} // namespace

static bool helps(const Graph &graph, const Cluster &cluster, const Change &change,
                  std::string &how) {
  Result<Exploration> exploration = explore(graph, change.job, cluster, change.pins, 1);
  if (!exploration || exploration->exact.empty())
    return false;
  const Plan &plan = exploration->exact.front().plan;
  if (!plan.prediction.fits)
    return false;
  how = "then " + describe(plan) + " fits in " + formatBytes(double(plan.prediction.peakBytes)) +
        " and takes " + formatSeconds(plan.prediction.stepSeconds);
  return true;
}

/// Pins let go one by one, then more devices: in the order of what they cost.
static std::vector<Change> changesFor(const Job &job, const Pins &pins) {
  std::vector<Change> changes;
  auto addPins = [&](const std::string &text, auto edit) {
    Change change{text, job, pins};
    edit(change.pins);
    changes.push_back(std::move(change));
  };
  if (pins.recompute != "auto" && pins.recompute != "full")
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
  bool pinned = std::any_of(changes.begin(), changes.end(), [](const Change &change) {
    return change.text.rfind("leave", 0) == 0;
  });
  if (pinned)
    addPins("leave everything open but the memory", [](Pins &p) {
      Pins open;
      open.memoryLimitBytes = p.memoryLimitBytes;
      open.top = p.top;
      p = open;
    });
  if (pins.mesh.empty())
    for (int64_t factor : {2, 4, 8}) {
      Change change{"use --gpus " + std::to_string(job.gpus * factor), job, pins};
      change.job.gpus = job.gpus * factor;
      changes.push_back(std::move(change));
    }
  return changes;
}

/// The largest parameters by name.
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

Error explainInfeasible(const Graph &graph, const Job &job, const Cluster &cluster,
                        const Pins &pins, const Exploration &exploration) {
  if (exploration.exact.empty())
    return Error{
        ErrorCode::NoFeasiblePlan,
        "no feasible plan: the model has too few ops for the pipeline stages asked for, or "
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

  std::string text = "no feasible plan: " + std::to_string(job.gpus) + " devices of " +
                     cluster.name + " are short of memory\n";
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
  std::string how;
  for (const Change &change : changesFor(job, pins)) {
    if (found == 3)
      break;
    if (!helps(graph, cluster, change, how))
      continue;
    text += std::string(found++ ? "  or " : "  what would make it fit: ") + change.text + ": " +
            how + "\n";
    if (change.job.gpus != job.gpus)
      break; // more of the same would only be dearer
  }
  double needed = double(prediction.peakBytes) / (1 - devices.reservedFraction);
  if (pins.memoryLimitBytes && prediction.peakBytes <= devices.usableBytes())
    text += std::string(found ? "  or " : "  what would make it fit: ") + "--memory-limit " +
            std::to_string(int64_t(std::ceil(double(prediction.peakBytes) / 1048576))) +
            "MiB, for the closest plan above\n";
  else
    text += std::string(found ? "  or " : "  what would make it fit: ") +
            (cluster.isMixed() ? devices.name + " " : "") + "devices with " + formatBytes(needed) +
            " of memory, for the closest plan above\n";
  text.pop_back();
  return Error{ErrorCode::NoFeasiblePlan, text};
}

} // namespace tbc::planner
