//===- Facts.cpp - The numbers behind a plan, as text ----------------------===//

#include "planner/view/Facts.h"
#include "planner/support/Format.h"

#include <map>

namespace tbc::planner {

std::string rateText(double amount, const char *unit) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int prefix = 0;
  for (; amount >= 1000 && prefix < 6; ++prefix)
    amount /= 1000;
  return format("%.4g %s%s/s", amount, prefixes[prefix], unit);
}

static std::string percent(double share) { return format("%.4g %%", 100 * share); }

/// Example: "8 bytes of state per element, 4 of 48 matrices".
static std::string stateText(const Plan &plan) {
  std::map<int64_t, size_t> others; // numbers of parameters, by their bytes
  for (const LayoutParameters &group : plan.layout.parameters)
    if (group.stateBytes)
      others[*group.stateBytes] += group.names.size();
  std::string text =
      std::to_string(plan.job.stateBytesPerElement()) + " bytes of state per element";
  for (const auto &[bytes, count] : others)
    text += ", " + std::to_string(bytes) + " of " + std::to_string(count) + " matrices";
  return text;
}

std::vector<FactGroup> jobFacts(const Plan &plan) {
  const Job &job = plan.job;
  FactGroup facts{"The job", {}};
  auto add = [&](const std::string &name, const std::string &value, const std::string &note = "") {
    facts.facts.push_back({name, value, note});
  };
  add("model", job.modelPath, "relative to the plan");
  add("hash of the model", job.modelHash, "SHA-256");
  add("hash of the step", job.stepHash, "SHA-256 of the step functions");
  add("devices", std::to_string(job.gpus),
      plan.idleDevices > 0 ? std::to_string(plan.idleDevices) + " stay idle" : "");
  add("global batch", std::to_string(job.globalBatch) + " samples",
      job.batchIsDefault ? "by default" : "as given");
  if (job.sequence > 0)
    add("sequence", std::to_string(job.sequence) + " tokens");
  add("loss", job.loss);
  add("optimizer", name(job.optimizer), stateText(plan));
  add("precision", name(job.precision),
      job.matmulPrecision == MatmulPrecision::Fp8 ? "matmuls in fp8" : "");
  if (plan.memoryLimitBytes > 0)
    add("memory limit", formatBytes(double(plan.memoryLimitBytes)), "--memory-limit");
  FactGroup given{"Bindings and settings", {}};
  for (const auto &[name, value] : job.bindings)
    given.facts.push_back({name, std::to_string(value), "binding"});
  for (const auto &[name, value] : job.settings)
    given.facts.push_back({name, format("%g", value), "setting"});
  std::vector<FactGroup> groups = {std::move(facts)};
  if (!given.facts.empty())
    groups.push_back(std::move(given));
  return groups;
}

static FactGroup networkFacts(const std::string &title, const NetworkLevel &level) {
  FactGroup group{title, {}};
  auto add = [&](const std::string &name, const std::string &value, const std::string &note = "") {
    group.facts.push_back({name, value, note});
  };
  add("bandwidth", rateText(level.bytesPerSecond, "B"), "of one device, one direction");
  for (const auto &[devices, bandwidth] : level.groupBytesPerSecond)
    add("bandwidth of " + std::to_string(devices) + " devices", rateText(bandwidth, "B"));
  add("latency", formatSeconds(level.latencySeconds), "of one step of an algorithm");
  add("start", formatSeconds(level.startSeconds), "of each collective");
  if (level.ringStepSeconds > 0)
    add("step around a ring", formatSeconds(level.ringStepSeconds));
  if (level.smallFraction < 1)
    add("bandwidth of small messages", percent(level.smallFraction), "of the bandwidth");
  if (level.switchBytesPerSecond > 0)
    add("reduction in the switch", rateText(level.switchBytesPerSecond, "B"));
  return group;
}

static FactGroup kernelFacts(const std::string &title, const Cluster &cluster) {
  FactGroup group{title, {}};
  for (const auto &[kernelClass, kernel] : cluster.kernels) {
    std::string note = "memory bandwidth " + percent(kernel.memoryFraction);
    if (kernel.rampSeconds > 0)
      note += ", ramp " + formatSeconds(kernel.rampSeconds);
    if (kernel.halfDepth > 0)
      note += format(", half depth %g elements", kernel.halfDepth);
    if (kernel.executedFraction < 1)
      note += ", executes " + percent(kernel.executedFraction) + " of the FLOPs";
    if (kernel.bytesPerFlop > 0)
      note += format(", %g bytes per FLOP", kernel.bytesPerFlop);
    group.facts.push_back(
        {kernelWord(kernelClass), percent(kernel.flopsFraction) + " of peak FLOP/s", note});
  }
  return group;
}

static FactGroup deviceFacts(const Cluster &cluster) {
  FactGroup device{cluster.name, {}};
  auto add = [&](const std::string &name, const std::string &value, const std::string &note = "") {
    device.facts.push_back({name, value, note});
  };
  add("description", cluster.description);
  if (cluster.numNodes > 0)
    add("nodes", std::to_string(cluster.numNodes));
  add("devices of a node", std::to_string(cluster.devicesPerNode));
  add("memory", formatBytes(double(cluster.memoryBytes)), "of one device");
  add("left unplanned", percent(cluster.reservedFraction), "of that memory");
  add("device context", formatBytes(double(cluster.contextBytes)),
      "\u00b1 " + formatBytes(double(cluster.contextUncertaintyBytes)));
  add("allocator margin", percent(cluster.allocatorFraction),
      "\u00b1 " + percent(cluster.allocatorUncertainty) + " of the program's memory");
  add("memory bandwidth", rateText(cluster.memoryBytesPerSecond, "B"));
  for (const auto &[precision, flops] : cluster.peakFlopsPerSecond)
    add("peak, " + precision, rateText(flops, "FLOP"), "dense");
  add("peak, vector units", rateText(cluster.vectorFlopsPerSecond, "FLOP"));
  add("gap before a kernel", formatSeconds(cluster.launchSeconds));
  add("least time of a kernel", formatSeconds(cluster.floorSeconds));
  add("host memory", formatBytes(double(cluster.hostMemoryBytes)), "share of one device");
  add("host link", rateText(cluster.hostBytesPerSecond, "B"), "one direction");
  add("overlap", percent(cluster.overlapFraction),
      "of kernel time can hide communication of parameters and gradients");
  add("slowdown by overlap", percent(cluster.overlapSlowdown), "of the hidden time");
  if (cluster.timeFactor != 1)
    add("time factor", format("%.3g", cluster.timeFactor),
        "measured on runs; all other times and speeds here contain it");
  add("uncertainty of time", "\u00b1 " + percent(cluster.timeUncertainty));
  return device;
}

std::vector<FactGroup> clusterFacts(const Cluster &cluster) {
  std::vector<FactGroup> groups;
  const bool isMixed = !cluster.groups.empty();
  if (isMixed)
    groups.push_back({cluster.name,
                      {{"description", cluster.description, ""},
                       {"nodes", cluster.groupsText(), "ranks fill them in this order"}}});
  std::vector<Cluster> kinds = cluster.groups;
  if (!isMixed)
    kinds.push_back(cluster);
  for (const Cluster &kind : kinds) {
    const std::string of = isMixed ? " of " + kind.name : "";
    groups.push_back(deviceFacts(kind));
    groups.push_back(networkFacts("Network inside a node" + of, kind.intraNode));
    groups.push_back(networkFacts("Network between nodes" + of, kind.interNode));
    groups.push_back(kernelFacts("Kernel efficiency" + of, kind));
  }
  if (cluster.betweenGroups)
    groups.push_back(networkFacts("Network between kinds of nodes", *cluster.betweenGroups));
  return groups;
}

} // namespace tbc::planner
