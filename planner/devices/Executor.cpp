//===- Executor.cpp - Reading executors ------------------------------------===//

#include "planner/devices/Executor.h"
#include "planner/devices/Cluster.h"
#include "planner/devices/ClusterPresets.h"
#include "planner/devices/TomlReader.h"
#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <cctype>

namespace tbc::planner {

const char *toString(TensorParallel layout) {
  return layout == TensorParallel::Any        ? "any"
         : layout == TensorParallel::Megatron ? "megatron"
                                              : "megatron-sp";
}

std::optional<TensorParallel> parseTensorParallel(const std::string &name) {
  for (TensorParallel layout :
       {TensorParallel::Any, TensorParallel::Megatron, TensorParallel::MegatronTokens})
    if (name == toString(layout))
      return layout;
  return std::nullopt;
}

const char *toString(RecomputeShare share) {
  return share == RecomputeShare::Any ? "any" : share == RecomputeShare::Even ? "even" : "all";
}

std::optional<RecomputeShare> parseRecomputeShare(const std::string &name) {
  for (RecomputeShare share : {RecomputeShare::Any, RecomputeShare::Even, RecomputeShare::All})
    if (name == toString(share))
      return share;
  return std::nullopt;
}

bool RunnablePlans::has(const std::vector<std::string> &list, const std::string &word) {
  return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
}

const Executor &executorOf(const Cluster &cluster) {
  return cluster.groups.empty() ? cluster.executor : cluster.groups[0].executor;
}

std::vector<std::string> executorNames() {
  std::vector<std::string> names{ownExecutor};
  for (const auto &[name, text] : executorTexts())
    names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns the entry of table `kernels.NAME` with the longest key that begins the cluster's name,
/// else `otherwise`. Example: `rates.h100 = 0.86` holds for h100-sxm and h100-pcie.
static double rateOf(TomlReader &reader, const toml::table &kernels, const char *name,
                     const Cluster &cluster, double otherwise) {
  const toml::table &rates = reader.section(kernels, "kernels", name, false);
  const std::string section = std::string("kernels.") + name;
  size_t longest = 0;
  double rate = otherwise;
  for (auto &&[key, node] : rates) {
    const std::string prefix(key.str());
    const double here = reader.number(rates, section, prefix, Range::Fraction);
    if (prefix.size() > longest && cluster.name.compare(0, prefix.size(), prefix) == 0) {
      longest = prefix.size();
      rate = here;
    }
  }
  return rate;
}

/// Sets the speed of an executor's kernels relative to those of `cluster`: of all, and beside that
/// of attention.
static void applyRates(TomlReader &reader, const toml::table &kernels, Cluster &cluster) {
  const double all = rateOf(reader, kernels, "rates", cluster,
                            reader.number(kernels, "kernels", "rate", Range::Fraction, false, 1));
  const double attention = rateOf(reader, kernels, "attention_rates", cluster, 1);
  for (auto &[key, kernel] : cluster.kernels) {
    const bool isAttention =
        key && (*key == KernelClass::Attention || *key == KernelClass::CausalAttention);
    kernel.flopsFraction *= all * (isAttention ? attention : 1);
    kernel.memoryFraction *= all;
  }
}

/// Reads section `plans`, which may be absent. Executors are built in, so a test checks the words
/// of their lists (ExecutorPlans.RunnablePlansAreNamedByWordsOfPins).
static RunnablePlans readPlans(TomlReader &reader, const toml::table &root) {
  RunnablePlans plans;
  const toml::table &table = reader.section(root, "", "plans", false);
  auto words = [&](const char *key) {
    return table.contains(key) ? reader.texts(table, "plans", key) : std::vector<std::string>();
  };
  auto flag = [&](const char *key) {
    return !table.contains(key) || reader.flag(table, "plans", key);
  };
  plans.axes = words("axes");
  plans.zero = words("zero");
  plans.schedules = words("schedules");
  plans.contexts = words("contexts");
  plans.shardsInGroups = flag("hybrid_sharding");
  plans.placesInV = flag("chunks_in_v");
  plans.cutsLayers = flag("stages_cut_layers");
  if (const toml::node *node = table.get("recompute")) {
    const std::string word = reader.text(table, "plans", "recompute");
    if (std::optional<RecomputeShare> share = parseRecomputeShare(word))
      plans.recompute = *share;
    else
      reader.fail(*node, "plans.recompute must be any, even or all");
  }
  reader.closeTable(table, "plans");
  return plans;
}

/// Reads section `fp8`; an executor without one has no matmuls in 8 bits.
static Fp8Rule readFp8(TomlReader &reader, const toml::table &root) {
  Fp8Rule rule;
  rule.exists = root.contains("fp8");
  if (!rule.exists)
    return rule;
  const toml::table &table = reader.section(root, "", "fp8");
  rule.linearOnly = reader.flag(table, "fp8", "linear_only");
  rule.roundsOnce = reader.flag(table, "fp8", "rounds_once");
  rule.reads = reader.number(table, "fp8", "reads", Range::NotNegative);
  rule.writtenBytes = reader.number(table, "fp8", "written_bytes", Range::NotNegative);
  rule.launches = reader.number(table, "fp8", "launches", Range::NotNegative);
  rule.weightBytes = reader.number(table, "fp8", "weight_bytes", Range::NotNegative, false);
  reader.closeTable(table, "fp8");
  return rule;
}

/// Sets the constants of `cluster`, without groups, that the file in `reader` names.
static void apply(TomlReader &reader, const toml::table &root, Cluster &cluster) {
  Executor &executor = cluster.executor;
  executor.name = reader.text(root, "", "name");
  reader.text(root, "", "description");

  const toml::table &kernels = reader.section(root, "", "kernels");
  cluster.launchSeconds =
      std::max(cluster.launchSeconds,
               reader.number(kernels, "kernels", "launch_seconds", Range::NotNegative, false));
  executor.hostSeconds =
      reader.number(kernels, "kernels", "host_seconds", Range::NotNegative, false);
  executor.groupWait = reader.number(kernels, "kernels", "group_wait", Range::NotNegative, false);
  applyRates(reader, kernels, cluster);
  reader.closeTable(kernels, "kernels");

  const toml::table &overlap = reader.section(root, "", "overlap");
  cluster.overlapFraction = reader.number(overlap, "overlap", "fraction", Range::Fraction);
  cluster.overlapSlowdown = reader.number(overlap, "overlap", "slowdown", Range::Fraction, false,
                                          cluster.overlapSlowdown);
  executor.joinedGathers = reader.integer(overlap, "overlap", "joined_gathers", 1, 1 << 20);
  executor.joinsUpdates =
      overlap.contains("joined_updates") && reader.flag(overlap, "overlap", "joined_updates");
  executor.gatherRankSeconds =
      reader.number(overlap, "overlap", "gather_rank_seconds", Range::NotNegative, false);
  executor.gatherMoved =
      reader.number(overlap, "overlap", "gather_moved", Range::NotNegative, false);
  executor.scatterMoved =
      reader.number(overlap, "overlap", "scatter_moved", Range::NotNegative, false);
  executor.lastBackward =
      reader.number(overlap, "overlap", "last_backward", Range::Fraction, false);
  if (overlap.contains("last_backward_zero"))
    executor.lastBackwardZero = reader.integer(overlap, "overlap", "last_backward_zero", 0, 1);
  executor.hiddenOperands =
      reader.number(overlap, "overlap", "tensor_parallel", Range::Fraction, false);
  reader.closeTable(overlap, "overlap");

  const toml::table &pipeline = reader.section(root, "", "pipeline", false);
  executor.messageSeconds =
      reader.number(pipeline, "pipeline", "message_seconds", Range::NotNegative, false);
  reader.closeTable(pipeline, "pipeline");

  const toml::table &tensor = reader.section(root, "", "tensor_parallel");
  const std::string layout = reader.text(tensor, "tensor_parallel", "layout");
  if (std::optional<TensorParallel> known = parseTensorParallel(layout))
    executor.tensorParallel = *known;
  else if (const toml::node *node = tensor.get("layout"))
    reader.fail(*node, "tensor_parallel.layout must be any, megatron or megatron-sp");
  reader.closeTable(tensor, "tensor_parallel");

  const toml::table &logits = reader.section(root, "", "logits");
  executor.logitBytes = reader.number(logits, "logits", "bytes", Range::NotNegative);
  executor.logitMovedBytes =
      reader.number(logits, "logits", "moved_bytes", Range::NotNegative, false);
  reader.closeTable(logits, "logits");

  const toml::table &recompute = reader.section(root, "", "recompute");
  executor.recomputesBlocks = reader.flag(recompute, "recompute", "whole_blocks");
  executor.gathersAgain =
      recompute.contains("gathers_again") && reader.flag(recompute, "recompute", "gathers_again");
  reader.closeTable(recompute, "recompute");

  const toml::table &memory = reader.section(root, "", "memory");
  auto bytes = [&](const char *key, double otherwise) {
    return reader.number(memory, "memory", key, Range::NotNegative, false, otherwise);
  };
  executor.residualFactor = bytes("residual_factor", 1);
  if (const toml::node *node = memory.get("residual_factor"); node && executor.residualFactor < 1)
    reader.fail(*node, "memory.residual_factor must be at least 1");
  executor.splitResidualFactor = bytes("split_residual_factor", 0);
  if (memory.contains("queued_scatters"))
    executor.queuedScatters = reader.integer(memory, "memory", "queued_scatters", 0, 1 << 20);
  executor.gradientWidth = bytes("gradient_width", 0);
  executor.storesWeights =
      !memory.contains("stored_weights") || reader.flag(memory, "memory", "stored_weights");
  executor.gradientBytes = bytes("gradient_bytes", 0);
  executor.parameterBytes = bytes("parameter_bytes", 0);
  executor.dataParallelBytes = bytes("data_parallel_bytes", 0);
  cluster.allocatorFraction = bytes("allocator_fraction", cluster.allocatorFraction);
  reader.closeTable(memory, "memory");

  executor.fp8 = readFp8(reader, root);
  executor.plans = readPlans(reader, root);

  const toml::table &uncertainty = reader.section(root, "", "uncertainty");
  cluster.timeUncertainty = reader.number(uncertainty, "uncertainty", "time", Range::Fraction);
  cluster.allocatorUncertainty =
      reader.number(uncertainty, "uncertainty", "memory", Range::Fraction);
  reader.closeTable(uncertainty, "uncertainty");
  reader.closeTable(root, "");
}

/// Sets the constants of executor `name`, which is not tbc, on all devices.
static Status applyExecutor(const std::string &name, Cluster &cluster) {
  const auto &texts = executorTexts();
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [&](const auto &entry) { return entry.first == name; });
  if (found == texts.end()) {
    const std::vector<std::string> names = executorNames();
    std::string all, lower = name;
    for (const std::string &one : names)
      all += (all.empty() ? "" : ", ") + one;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return std::tolower(letter); });
    const std::string closest = closestWord(lower, names);
    return Error{ErrorCode::Usage, "executor \"" + name + "\" is not one of " + all +
                                       (closest.empty() ? "" : "; did you mean " + closest + "?")};
  }
  Result<toml::table> root = parseToml(found->second, name + ".toml");
  if (!root)
    return root.error();
  TomlReader reader(name + ".toml");
  for (Cluster &group : cluster.groups)
    apply(reader, *root, group);
  if (cluster.groups.empty())
    apply(reader, *root, cluster);
  if (const std::string &error = reader.error.empty() ? reader.missing : reader.error;
      !error.empty())
    return Error{ErrorCode::Usage, error};
  return Status::ok();
}

/// Applies the measured times of executor `name`, if the file has some.
static void applyMeasuredOf(const std::string &name, Cluster &cluster) {
  if (auto found = cluster.measured.find(name); found != cluster.measured.end())
    applyMeasured(cluster, found->second);
  cluster.measured.clear();
}

Result<Cluster> runBy(const Cluster &cluster, const std::string &name) {
  Cluster changed = cluster;
  if (name != ownExecutor)
    if (Status status = applyExecutor(name, changed); !status)
      return status.error();
  if (changed.groups.empty()) {
    applyMeasuredOf(name, changed);
    return changed;
  }
  for (Cluster &group : changed.groups)
    applyMeasuredOf(name, group);
  return clusterOfGroups(cluster.name, cluster.description, std::move(changed.groups),
                         std::move(changed.betweenGroups));
}

} // namespace tbc::planner
