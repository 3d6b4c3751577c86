//===- Sensitivities.cpp - Planning again after one change ------------------===//

#include "planner/explain/Sensitivities.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/Describe.h"
#include "planner/search/Search.h"

#include <algorithm>

namespace tbc::planner {

/// Changes a cluster, and each kind of nodes of a mixed one.
static Cluster changed(const Cluster &cluster, const std::function<void(Cluster &)> &change) {
  Cluster result = cluster;
  change(result);
  if (cluster.groups.empty())
    return result;
  std::vector<Cluster> groups = cluster.groups;
  for (Cluster &group : groups)
    change(group);
  // A cluster that was read has valid groups, and no change makes them invalid.
  return *clusterOfGroups(cluster.name, cluster.description, std::move(groups),
                          result.betweenGroups);
}

static void scale(NetworkLevel &level, double factor) {
  level.bytesPerSecond *= factor;
  level.switchBytesPerSecond *= factor;
  for (auto &[devices, bytesPerSecond] : level.groupBytesPerSecond)
    bytesPerSecond *= factor;
}

namespace {

/// Collects the changes of one plan.
class Changes {
public:
  explicit Changes(const Plan &plan) : plan(plan) {}

  std::vector<ChangedJob> run() {
    ChangedJob &memory = add("memory", "+1 GiB", [](Cluster &c) { c.memoryBytes += gib; });
    if (memory.memoryLimitBytes > 0)
      memory.memoryLimitBytes += gib;
    addTenths("memory bandwidth", [](Cluster &c, double f) { c.memoryBytesPerSecond *= f; });
    int64_t perNode = plan.cluster.devicesPerNode;
    if (!plan.cluster.groups.empty()) // its own number is that of no node
      perNode = plan.cluster.groups.front().devicesPerNode;
    if (perNode > 1 && plan.job.gpus > 1)
      addTenths("network in a node", [](Cluster &c, double f) { scale(c.intraNode, f); });
    if (plan.job.gpus > perNode)
      addTenths("network between nodes", [](Cluster &c, double f) {
        scale(c.interNode, f);
        if (c.betweenGroups)
          scale(*c.betweenGroups, f);
      });
    if (!plan.offload.isNone())
      addTenths("link to the host", [](Cluster &c, double f) { c.hostBytesPerSecond *= f; });
    addTenths("matmul efficiency", [](Cluster &c, double f) {
      // Of a cluster that was measured to be faster, kernels may exceed the peaks.
      const double most = std::max(1.0, 1 / c.timeFactor);
      // Both first: a class without numbers has those of the other.
      KernelEfficiency own = c.kernel(KernelClass::Matmul),
                       inFp8 = c.kernel(KernelClass::Fp8Matmul);
      own.flopsFraction = std::min(most, own.flopsFraction * f);
      inFp8.flopsFraction = std::min(most, inFp8.flopsFraction * f);
      c.kernels[KernelClass::Matmul] = own;
      c.kernels[KernelClass::Fp8Matmul] = inFp8;
    });
    const int64_t node = std::min(perNode, plan.job.gpus);
    const std::string subject = plan.job.gpus > perNode ? "nodes" : "devices";
    const std::string count = plan.job.gpus > perNode ? "1" : std::to_string(node);
    addJob(subject, "+" + count, [&](Job &job) { job.gpus += node; });
    if (plan.job.gpus > node)
      addJob(subject, "-" + count, [&](Job &job) { job.gpus -= node; });
    addJob("batch", "x 2", [](Job &job) {
      job.globalBatch *= 2;
      job.batchIsDefault = false;
    });
    return std::move(changes);
  }

private:
  static constexpr int64_t gib = int64_t(1) << 30;

  ChangedJob &add(const std::string &subject, const std::string &change,
                  const std::function<void(Cluster &)> &edit) {
    changes.push_back(
        {subject, change, plan.job, changed(plan.cluster, edit), plan.memoryLimitBytes});
    return changes.back();
  }

  void addTenths(const std::string &subject,
                 const std::function<void(Cluster &, double factor)> &edit) {
    add(subject, "+10 %", [&](Cluster &c) { edit(c, 1.1); });
    add(subject, "-10 %", [&](Cluster &c) { edit(c, 0.9); });
  }

  void addJob(const std::string &subject, const std::string &change,
              const std::function<void(Job &)> &edit) {
    edit(add(subject, change, [](Cluster &) {}).job);
  }

  const Plan &plan;
  std::vector<ChangedJob> changes;
};

} // namespace

std::vector<ChangedJob> changesOf(const Plan &plan) { return Changes(plan).run(); }

static SizedPlan sizedPlan(const Plan &plan) {
  const Prediction &p = plan.prediction;
  SizedPlan sized;
  sized.gpus = plan.job.gpus;
  sized.batch = plan.job.globalBatch;
  sized.sequence = plan.job.sequence;
  sized.stepSeconds = p.stepSeconds;
  sized.lowSeconds = p.lowSeconds;
  sized.highSeconds = p.highSeconds;
  sized.peakBytes = p.peakBytes;
  sized.decisions = describe(plan);
  return sized;
}

/// Returns the flag value of an offload. Example: "residuals:3".
static std::string offloadFlag(const Offload &offload) {
  if (!offload.residuals)
    return offload.optimizer ? "optimizer" : "none";
  const std::string word = offload.optimizer ? "all" : "residuals";
  return offload.residuals->isAll() ? word : word + ":" + std::to_string(offload.residuals->blocks);
}

/// Returns the pins with which `plan` was made, as far as plan.json has them: --strategy and
/// --virtual-stages are not there. Errors: those of pinsOf().
static Result<Pins> pinsAgain(const Plan &plan) {
  Result<Pins> pins = pinsOf(plan);
  if (!pins)
    return pins;
  for (const Reason &reason : plan.reasons) {
    const std::string &decision = reason.decision;
    const bool isCondition =
        std::any_of(pins->conditions.begin(), pins->conditions.end(),
                    [&](const Condition &c) { return c.decision == decision; });
    if (reason.origin != Origin::Pinned || isCondition)
      continue;
    if (decision == "mesh") {
      for (auto [axis, size] : plan.mesh.axes())
        pins->mesh.push_back({axis, size});
    } else if (decision == "zero" && plan.parameterDefault.keepGathered) {
      pins->conditions.push_back({"zero", zeroWord({plan.parameterDefault.zero, true})});
    } else if (decision == "zero") {
      pins->zero = plan.parameterDefault.zero;
    } else if (decision == "micro-batch") {
      pins->microBatch = plan.microBatch;
    } else if (decision == "recompute") {
      pins->recompute = name(plan.recompute.mode);
    } else if (decision == "schedule") {
      pins->schedule = scheduleWord(plan.schedule);
    } else if (decision == "context") {
      pins->context = reshard::name(plan.context);
    } else if (decision == "offload") {
      pins->offload = offloadFlag(plan.offload);
    } else if (decision == "bucket-size") {
      pins->bucketSize = std::to_string(plan.overlap.bucketBytes);
    } else if (decision == "gather-size") {
      pins->gatherSize = std::to_string(plan.overlap.gatherBytes);
    } else if (decision == "prefetch") {
      pins->prefetch = std::to_string(plan.overlap.prefetch);
    }
  }
  return pins;
}

/// Whether the plans differ in more than the number of micro-batches and recomputed blocks.
static bool isOtherPlan(const Plan &a, const Plan &b) {
  return !(a.mesh == b.mesh) || !(a.parameterDefault == b.parameterDefault) ||
         a.microBatch != b.microBatch || scheduleText(a) != scheduleText(b) ||
         a.recompute.mode != b.recompute.mode || a.context != b.context ||
         offloadText(a.offload) != offloadText(b.offload);
}

Result<Sensitivity> sensitivityOf(const SensitivityQuestion &question) {
  const Plan &plan = question.plan;
  constexpr double defaultTie = 0.02; // of tbc plan
  Result<Pins> kept = pinsAgain(plan);
  if (!kept)
    return kept.error();
  kept->tie = defaultTie;
  auto planAgain = [&](const reshard::Graph &graph, const ChangedJob &changed) -> Result<Plan> {
    Pins pins = *kept;
    if (changed.memoryLimitBytes > 0)
      pins.memoryLimitBytes = changed.memoryLimitBytes;
    Result<SearchAnswer> answer = search(graph, changed.job, changed.cluster, pins);
    if (!answer)
      return answer.error();
    return std::move(answer->plan);
  };

  std::vector<ChangedJob> changes = changesOf(plan);
  const int count = int(changes.size()) + 2;
  int index = 0;
  auto tell = [&](const std::string &text) {
    ++index;
    if (question.tell)
      question.tell(text, index, count);
  };
  Sensitivity answer;
  answer.model = plan.job.modelPath.substr(plan.job.modelPath.rfind('/') + 1);
  answer.cluster = plan.cluster.name;
  answer.fingerprint = plan.layout.decisions;
  answer.plan = sizedPlan(plan);
  tell("no change");
  Result<Plan> base =
      planAgain(question.graph, {"", "", plan.job, plan.cluster, plan.memoryLimitBytes});
  if (!base)
    return base.error();
  answer.base = sizedPlan(*base);

  auto addRow = [&](const ChangedJob &changed, const Result<Plan> &found) {
    SensitivityRow row;
    row.subject = changed.subject;
    row.change = changed.change;
    if (found) {
      row.plan = sizedPlan(*found);
      row.ratio = row.plan.perSecond() / answer.base.perSecond();
      row.worth = worthOf(answer.base, row.plan);
      row.planChanges = isOtherPlan(*base, *found);
    } else {
      row.reason = found.error().message;
    }
    answer.rows.push_back(std::move(row));
  };
  for (const ChangedJob &changed : changes) {
    tell(changed.subject + " " + changed.change);
    addRow(changed, planAgain(question.graph, changed));
  }
  if (plan.job.sequence > 1 && question.graphOfSequence) {
    ChangedJob half{"sequence", "x 1/2", plan.job, plan.cluster, plan.memoryLimitBytes};
    half.job.sequence /= 2;
    half.job.bindings["seq"] = half.job.sequence;
    half.job.batchIsDefault = false;
    tell(half.subject + " " + half.change);
    Result<reshard::Graph> graph = question.graphOfSequence(half.job.sequence);
    addRow(half, graph ? planAgain(*graph, half) : Result<Plan>(graph.error()));
  }
  sortByEffect(answer.rows);
  return answer;
}

} // namespace tbc::planner
