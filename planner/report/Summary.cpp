//===- Summary.cpp - A plan as text for a terminal -------------------------===//

#include "planner/report/Summary.h"
#include "planner/cost/Buckets.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanDevices.h"
#include "planner/support/Format.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

size_t fullestStage(const Plan &plan) {
  const std::vector<StageMemory> &stages = plan.prediction.stages;
  const StageDevices devices = stageDevices(plan);
  auto excess = [&](size_t stage) {
    return stages[stage].totalBytes() - plan.limitBytes(devices.of(int(stage)));
  };
  size_t fullest = 0;
  for (size_t s = 1; s < stages.size() && int64_t(s) < plan.mesh.pp; ++s)
    if (excess(s) > excess(fullest))
      fullest = s;
  return fullest;
}

/// Returns `text` in at most `width` columns, its end cut off.
static std::string clipped(const std::string &text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

namespace {

class Summary {
public:
  explicit Summary(const Plan &plan) : plan(plan), prediction(plan.prediction) {}

  std::string run() {
    verdict();
    mesh();
    stages();
    blocks();
    memory();
    time();
    communication();
    reasons();
    alternatives();
    assumptions();
    return text;
  }

private:
  void line(const std::string &content) { text += content + "\n"; }

  /// `content` in lines of at most 110 columns, broken at blanks, all but the first indented.
  void wrapped(const std::string &content) {
    constexpr size_t width = 110;
    std::string rest = content;
    while (rest.size() > width) {
      size_t end = rest.rfind(' ', width);
      if (end == std::string::npos || end < 8)
        break;
      line(rest.substr(0, end));
      rest = "  " + rest.substr(end + 1);
    }
    line(rest);
  }

  void verdict() {
    const Prediction &p = prediction;
    std::string interval;
    if (p.lowBytes < p.highBytes)
      interval =
          " (" + formatBytes(double(p.lowBytes)) + " to " + formatBytes(double(p.highBytes)) + ")";
    line(format("%s: %s%s of %s per device",
                p.memory == MemoryVerdict::DoesNotFit ? "DOES NOT FIT" : name(p.memory),
                formatBytes(double(p.peakBytes)).c_str(), interval.c_str(),
                formatBytes(double(p.limitBytes)).c_str()));
    double samples = double(plan.job.globalBatch) / p.stepSeconds;
    std::string rate = formatCount(samples) + " samples/s";
    if (plan.job.sequence > 0)
      rate += ", " + formatCount(samples * double(plan.job.sequence)) + " tokens/s";
    line(format("step %s (%s to %s), %s, MFU %.1f %%", formatSeconds(p.stepSeconds).c_str(),
                formatSeconds(p.lowSeconds).c_str(), formatSeconds(p.highSeconds).c_str(),
                rate.c_str(), 100 * p.mfu));
    if (plan.lowerBoundSeconds > 0)
      line(format("no plan that %s is faster than %s in this cost model (gap %.0f %%)",
                  p.fits() ? "fits" : "may fit", formatSeconds(plan.lowerBoundSeconds).c_str(),
                  100 * (p.stepSeconds / plan.lowerBoundSeconds - 1)));
    if (plan.searchEnd == SearchEnd::Budget)
      line("the search ended at its budget: pin --mesh or other decisions to look closer there");
    if (plan.searchEnd == SearchEnd::TimeLimit)
      line("the search ended at --time-limit: this is the best until then");
    for (const std::string &warning : plan.warnings)
      wrapped(warning);
    line("");
  }

  void mesh() {
    line(format("plan: %s on %lld x %s", describe(plan).c_str(), (long long)plan.mesh.numRanks(),
                plan.cluster.name.c_str()));
    Mesh axes = plan.mesh.mesh();
    unlikeDevices();
    const StageDevices devices = stageDevices(plan);
    StageNetworks networks(devices, axes, axisIndex(axes, Axis::Pipeline));
    for (size_t axis = 0; axis < axes.axes.size(); ++axis) {
      GroupShape group =
          worstGroup(devices, networks, axes, axisIndex(axes, Axis::Pipeline), int(axis));
      const bool isEven = group.nodes * group.perNode == group.size;
      std::string where =
          group.nodes == 1
              ? "inside a node"
              : format("across %lld nodes, %s%lld of a group on each", (long long)group.nodes,
                       isEven ? "" : "at least ", (long long)group.perNode);
      line(format("  %-4s %4lld  %s", axes.axes[axis].name.c_str(), (long long)axes.axes[axis].size,
                  where.c_str()));
    }
    line(format("  batch %lld = micro-batch %lld x accumulation %lld x %lld data ranks",
                (long long)plan.job.globalBatch, (long long)plan.microBatch,
                (long long)plan.accumulation, (long long)plan.mesh.dataRanks()));
    const bool isFp8 = plan.job.matmulPrecision == MatmulPrecision::Fp8;
    line("  precision " + std::string(name(plan.job.precision)) +
         (isFp8 ? ", matmuls in fp8" : "") + lossScale());
  }

  /// Lists the devices of the stages of a mixed cluster.
  void unlikeDevices() {
    const StageDevices devices = stageDevices(plan);
    const int64_t stages = plan.mesh.pp, ranks = plan.mesh.numRanks() / stages;
    if (devices.isUniform())
      return;
    for (int64_t first = 0, end = 0; first < stages; first = end) {
      const std::string &name = devices.of(int(first)).name;
      for (end = first; end < stages && devices.of(int(end)).name == name;)
        ++end;
      std::string which = "stage " + std::to_string(first) + " on ";
      if (stages == 1)
        which = "all ";
      else if (end - first > 1)
        which = "stages " + std::to_string(first) + " to " + std::to_string(end - 1) + " on ";
      line(format("  %s%lld x %s%s", which.c_str(), (long long)ranks, name.c_str(),
                  end - first > 1 ? " each" : ""));
    }
  }

  /// Returns ", loss scale .." if the step has one.
  std::string lossScale() const {
    auto setting = [&](const char *name) {
      auto found = plan.job.settings.find(name);
      return found == plan.job.settings.end() ? 0 : found->second;
    };
    double scale = setting("loss_scale"), interval = setting("loss_scale_interval");
    if (scale == 0)
      return "";
    if (interval == 0)
      return format(", loss scale %g; a step that overflows is skipped", scale);
    return format(", loss scale from %g: x %g after %.0f steps without overflow, x %g and the step "
                  "skipped on one",
                  scale, setting("loss_scale_growth"), interval, setting("loss_scale_backoff"));
  }

  void stages() {
    if (plan.mesh.pp == 1)
      return;
    constexpr size_t most = 6;
    size_t count = plan.stages.size();
    for (size_t s = 0; s < count; ++s) {
      if (count > most && s == most - 1 && s + 1 < count) {
        line(format("  ... %zu more %s", count - most,
                    plan.chunkStage.empty() ? "stages" : "chunks"));
        s = count - 1;
      }
      std::string seconds = s < prediction.stageSeconds.size()
                                ? formatSeconds(prediction.stageSeconds[s])
                                : std::string("?");
      const std::string &begin = plan.stageNames.empty() ? plan.stages[s] : plan.stageNames[s];
      size_t stage = plan.chunkStage.empty() ? s : size_t(plan.chunkStage[s]);
      std::string bytes = stage < prediction.stages.size()
                              ? formatBytes(double(prediction.stages[stage].totalBytes()))
                              : std::string("?");
      if (plan.chunkStage.empty())
        line(format("  stage %zu from %s: %s a micro-batch, %s", s, clipped(begin, 40).c_str(),
                    seconds.c_str(), bytes.c_str()));
      else
        line(format("  chunk %zu on stage %zu from %s: %s a micro-batch, %s on the stage", s, stage,
                    clipped(begin, 40).c_str(), seconds.c_str(), bytes.c_str()));
    }
  }

  void blocks() {
    if (plan.blocks.empty())
      return;
    line("");
    line("  layers                              count  parameters   fwd+bwd     kept  split");
    // The most expensive rows, in their order.
    constexpr size_t most = 8;
    std::vector<size_t> order;
    for (size_t i = 0; i < plan.blocks.size(); ++i)
      order.push_back(i);
    auto cost = [&](size_t i) { return plan.blocks[i].seconds * double(plan.blocks[i].count); };
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return cost(a) != cost(b) ? cost(a) > cost(b) : a < b; });
    size_t hidden = order.size() > most ? order.size() - most : 0;
    order.resize(order.size() - hidden);
    std::sort(order.begin(), order.end());
    for (size_t i : order) {
      const BlockRow &row = plan.blocks[i];
      line(format("  %-34s %6lld %11s %9s %8s  %s", clipped(row.name, 34).c_str(),
                  (long long)row.count, formatCount(double(row.parameters)).c_str(),
                  formatSeconds(row.seconds).c_str(),
                  formatBytes(double(row.residualBytes)).c_str(), row.split.c_str()));
    }
    if (hidden > 0)
      line(format("  ... %zu cheaper rows", hidden));
  }

  void memory() {
    if (prediction.stages.empty())
      return;
    const size_t fullest = fullestStage(plan);
    line("");
    line(plan.mesh.pp == 1 ? "memory of a device"
                           : format("memory of a device of stage %zu, the fullest", fullest));
    for (const MemoryLine &entry : prediction.stages[fullest].lines)
      if (entry.bytes > 0)
        line(format(
            "  %-22s %10s  %4.1f %%", entry.name.c_str(), formatBytes(double(entry.bytes)).c_str(),
            100 * double(entry.bytes) / double(std::max<int64_t>(1, prediction.limitBytes))));
    for (const MemoryLine &entry : prediction.stages[fullest].host)
      line(format("  host: %-16s %10s  %4.1f %% of its share of the host's memory",
                  entry.name.c_str(), formatBytes(double(entry.bytes)).c_str(),
                  100 * double(entry.bytes) /
                      double(std::max<int64_t>(1, prediction.hostLimitBytes))));
  }

  void time() {
    const TimeSplit &t = prediction.time;
    std::string parts;
    for (const TimeRow &row : timeRows()) {
      const double seconds = t.*row.seconds;
      const bool isPipeline = row.seconds == &TimeSplit::pipeline;
      const std::string name =
          row.seconds == &TimeSplit::operands ? betweenOpsName(plan.mesh) : row.name;
      if (seconds > 0 && (!isPipeline || plan.mesh.pp > 1))
        parts += (parts.empty() ? "" : ", ") + name + " " + formatSeconds(seconds) +
                 format(" (%.0f %%)", 100 * seconds / std::max(t.total(), 1e-30));
    }
    line("");
    line("time: " + parts);
  }

  void communication() {
    // By kind and axes, on the stage with the largest share.
    struct Sum {
      double bytes = 0, count = 0, seconds = 0;
    };
    std::map<std::pair<std::string, std::string>, std::map<int, Sum>> sums;
    for (const CollectiveLine &entry : prediction.collectives) {
      Sum &sum = sums[{name(entry.count.kind), entry.count.axes}][entry.count.stage];
      sum.bytes += double(entry.count.bytes) * double(entry.count.count);
      sum.count += double(entry.count.count);
      sum.seconds += entry.seconds * double(entry.count.count);
    }
    if (sums.empty())
      return;
    const TimeSplit &t = prediction.time;
    line(format("communication per step and device%s: %s exposed, %s hidden",
                plan.mesh.pp > 1 ? ", without sends between stages" : "",
                formatSeconds(t.operands + t.data).c_str(), formatSeconds(t.hiddenData).c_str()));
    if (plan.overlap.bucketBytes > 0)
      line("  gradients are reduced in buckets of up to " + bucketText(plan.overlap.bucketBytes));
    if (plan.overlap.gatherBytes > 0)
      line("  parameters are gathered together, up to " + bucketText(plan.overlap.gatherBytes));
    const Executor &executor = plan.cluster.executor;
    if (executor.joinedGathers > 1 && plan.parameterDefault.zero == 3)
      line(format("  %s runs up to %lld of these gathers as one, which share its time",
                  executor.name.c_str(), (long long)executor.joinedGathers));
    if (const int64_t ahead = plan.overlap.prefetch; ahead > 0)
      line("  a gather begins " +
           (ahead == 1 ? std::string("one gather") : std::to_string(ahead) + " gathers") +
           " ahead of its use");
    size_t shown = 0;
    for (const auto &[key, byStage] : sums) {
      if (shown++ == 8) {
        line(format("  ... %zu more kinds", sums.size() - 8));
        break;
      }
      Sum most;
      for (const auto &[stage, sum] : byStage)
        if (sum.seconds > most.seconds)
          most = sum;
      line(format("  %-14s over %-8s %8.0f x, %10s, %s", key.first.c_str(), key.second.c_str(),
                  most.count, formatBytes(most.bytes).c_str(),
                  formatSeconds(most.seconds).c_str()));
    }
  }

  void reasons() {
    line("");
    if (!plan.bindingConstraint.empty())
      line("bound by " + plan.bindingConstraint);
    constexpr size_t maxPins = 12; // a model with device annotations has one for each op
    size_t pins = 0;
    for (const Reason &reason : plan.reasons) {
      const bool isPin = reason.decision == "pin";
      if (isPin && ++pins > maxPins)
        continue;
      line(format("  %-11s %s: %s", reason.decision.c_str(), reason.value.c_str(),
                  clipped(reason.text, 110).c_str()));
    }
    if (pins > maxPins)
      line(format("  %-11s and %zu more, which plan.json lists", "pin", pins - maxPins));
  }

  void alternatives() {
    if (plan.alternatives.empty())
      return;
    line("runners-up");
    size_t shown = 0;
    for (const Alternative &other : plan.alternatives) {
      if (shown++ == 5)
        break;
      line(format("  %s: %s, %s (%s)", describe(other).c_str(),
                  formatSeconds(other.stepSeconds).c_str(),
                  formatBytes(double(other.peakBytes)).c_str(), other.note.c_str()));
    }
  }

  void assumptions() {
    if (plan.assumptions.empty())
      return;
    line("assumptions");
    size_t shown = 0;
    for (const std::string &assumption : plan.assumptions)
      if (shown++ < 6)
        line("  " + clipped(assumption, 110));
  }

  const Plan &plan;
  const Prediction &prediction;
  std::string text;
};

} // namespace

std::string summarize(const Plan &plan) { return Summary(plan).run(); }

} // namespace tbc::planner
