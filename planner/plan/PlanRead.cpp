//===- PlanRead.cpp - Reading and checking plan.json ----------------------===//

#include "planner/devices/StageDevices.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/plan/ChunkFile.h"
#include "planner/plan/ExecutorFile.h"
#include "planner/plan/JobKeys.h"
#include "planner/plan/LayoutFile.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanFile.h"
#include "planner/plan/PlanNames.h"
#include "planner/support/Format.h"
#include "planner/support/JsonObject.h"
#include "runtime/abi/ClosestWord.h"
#include "runtime/dtype/DType.h"
#include "runtime/schedule/Schedule.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace tbc::planner {

using Json = nlohmann::json;

namespace {

constexpr int64_t maxCount = int64_t(1) << 40;
constexpr int64_t maxBytes = int64_t(1) << 60;

/// Reads one plan from its parsed text.
class Reader {
public:
  Plan read(const Json &json) {
    JsonObject root(json, "", problem);
    root.word("format", {"tbc-plan"});
    root.integer("version", planVersion, planVersion);
    readJob(root, problem, plan.job);
    readCluster(root);
    plan.mesh = mesh(root, "mesh");
    plan.idleDevices = root.integer("idle_devices", 0, 1 << 20);
    plan.memoryLimitBytes = root.integer("memory_limit_bytes", 0, maxBytes);
    plan.microBatch = root.integer("micro_batch", 1, maxCount);
    plan.accumulation = root.integer("accumulation", 1, maxCount);
    plan.schedule = schedule::parseScheduleKind(root.word("schedule", scheduleWords()));
    plan.chunkStage = placement(root);
    plan.context = context(root, plan.mesh);
    if (plan.mesh.cp > 1 || root.has("sequence_order"))
      plan.zigzag = root.word("sequence_order", {"contiguous", "zigzag"}) == "zigzag";
    plan.stages = root.texts("stages");
    plan.stageNames = root.texts("stage_names");
    readStrategies(root);
    readParameters(root);
    {
      JsonObject object(root.get("recompute"), "recompute", problem);
      plan.recompute = recompute(object, "mode");
      plan.recomputeOps = object.ids("ops");
    }
    readOffload(root);
    // Plans from older versions lack these keys.
    if (root.has("bucket_bytes"))
      plan.overlap.bucketBytes = root.integer("bucket_bytes", 0, maxBytes);
    if (root.has("prefetch"))
      plan.overlap.prefetch = root.integer("prefetch", 0, maxPrefetch);
    if (root.has("gather_bytes"))
      plan.overlap.gatherBytes = root.integer("gather_bytes", 0, maxBytes);
    plan.prediction.stepSeconds = root.number("step_seconds");
    plan.prediction.peakBytes = root.integer("peak_bytes", 0, maxBytes);
    readPrediction(root);
    plan.prediction.memory =
        verdict(root, plan.prediction.highBytes > plan.prediction.limitBytes ? MemoryVerdict::Tight
                                                                             : MemoryVerdict::Fits);
    if (root.has("search_end"))
      plan.searchEnd =
          root.word("search_end", {name(SearchEnd::Budget), name(SearchEnd::TimeLimit)}) ==
                  name(SearchEnd::Budget)
              ? SearchEnd::Budget
              : SearchEnd::TimeLimit;
    plan.lowerBoundSeconds = root.number("lower_bound_seconds");
    plan.bindingConstraint = root.text("binding_constraint");
    readTables(root);
    if (root.has("search"))
      plan.search = readSearch(root.get("search"), problem);
    if (root.has("layout"))
      plan.layout = readLayout(root.get("layout"), problem);
    if (root.has("warnings"))
      plan.warnings = root.texts("warnings");
    plan.assumptions = root.texts("assumptions");
    checkWhole(root);
    return std::move(plan);
  }

  KeyProblem problem;

private:
  MeshShape mesh(JsonObject &parent, const std::string &key) {
    JsonObject object(parent.get(key), parent.at(key), problem);
    MeshShape shape;
    for (Axis axis : mesh::allAxes())
      shape.of(axis) = object.integer(mesh::row(axis).name, 1, 1 << 20);
    double ranks = 1;
    for (int64_t size : shape.sizes())
      ranks *= double(size);
    if (ranks > (1 << 20)) {
      problem.report(parent.at(key), "has more than 1048576 ranks");
      return MeshShape();
    }
    return shape;
  }

  static std::vector<std::string> scheduleWords() {
    std::vector<std::string> words = schedule::scheduleNames();
    words.insert(words.begin(), scheduleWord(std::nullopt));
    return words;
  }

  /// Returns the memory verdict of `object`. Older plans have only "fits"; true then means
  /// `otherwise`.
  MemoryVerdict verdict(JsonObject &object, MemoryVerdict otherwise) {
    const bool fits = object.flag("fits");
    if (!object.has("memory"))
      return fits ? otherwise : MemoryVerdict::DoesNotFit;
    const std::string word =
        object.word("memory", {name(MemoryVerdict::Fits), name(MemoryVerdict::Tight),
                               name(MemoryVerdict::DoesNotFit)});
    MemoryVerdict verdict = MemoryVerdict::DoesNotFit;
    for (MemoryVerdict known : {MemoryVerdict::Fits, MemoryVerdict::Tight})
      if (name(known) == word)
        verdict = known;
    if (fits != (verdict != MemoryVerdict::DoesNotFit))
      problem.report(object.at("memory"), "contradicts \"fits\"");
    return verdict;
  }

  void readOffload(JsonObject &root) {
    JsonObject object(root.get("offload"), "offload", problem);
    plan.offload.optimizer = object.flag("optimizer");
    const std::string residuals = object.text("residuals");
    plan.offload.ops = object.ids("ops");
    if (!parseResiduals(residuals, plan.offload.residuals))
      problem.report("offload.residuals", "is \"" + residuals +
                                              "\", but must be none, all or numbers of blocks "
                                              "such as \"3/12\"");
    if (plan.offload.residuals.has_value() == plan.offload.ops.empty())
      problem.report("offload.ops",
                     "must name ops where \"residuals\" is not none, and none where it is");
  }

  Recompute recompute(JsonObject &object, const std::string &key) {
    const std::string text = object.text(key);
    const std::optional<Recompute> recompute = parseRecompute(text);
    if (!recompute)
      problem.report(object.at(key), "is \"" + text +
                                         "\", but must be none, selective or full, the latter two "
                                         "perhaps with numbers of blocks such as \"full 3/12\"");
    return recompute.value_or(Recompute());
  }

  Offload offload(JsonObject &object, const std::string &key) {
    const std::string text = object.text(key);
    const std::optional<Offload> offload = parseOffload(text);
    if (!offload)
      problem.report(object.at(key), "is \"" + text +
                                         "\", but must be none, optimizer, residuals or optimizer "
                                         "and residuals, the latter two perhaps with numbers of "
                                         "blocks such as \"residuals 3/12\"");
    return offload.value_or(Offload());
  }

  /// Reads the form of context parallelism, present only with cp.
  reshard::ContextForm context(JsonObject &object, const MeshShape &shape) {
    if (shape.cp == 1 && !object.has("context"))
      return Plan().context;
    return reshard::parseContextForm(object.word("context", contextWords()))
        .value_or(Plan().context);
  }

  /// Reads the stage of each chunk; empty means one chunk per stage.
  std::vector<int> placement(JsonObject &object) {
    std::vector<int> chunkStage;
    if (object.has("placement"))
      object.forEach("placement", [&](const Json &item, const std::string &path) {
        if (item.is_number_integer() && item >= 0 && item < (1 << 20))
          chunkStage.push_back(item.get<int>());
        else
          problem.report(path, "must be the number of a stage");
      });
    return chunkStage;
  }

  std::vector<std::string> axes(JsonObject &object, const std::string &key) {
    std::vector<std::string> names = object.texts(key);
    for (const std::string &name : names)
      if (std::count(tokenAxisNames().begin(), tokenAxisNames().end(), name) == 0)
        problem.report(object.at(key), "may only name " + joined(tokenAxisNames()));
    return names;
  }

  ParameterDecision parameters(JsonObject &object) {
    ParameterDecision decision;
    decision.zero = int(object.integer("zero", 0, 3));
    decision.keepGathered = object.flag("keep_gathered");
    decision.zeroAxes = axes(object, "zero_axes");
    decision.reduceAxes = axes(object, "reduce_axes");
    std::set<std::string> both(decision.zeroAxes.begin(), decision.zeroAxes.end());
    both.insert(decision.reduceAxes.begin(), decision.reduceAxes.end());
    if (both.size() != decision.zeroAxes.size() + decision.reduceAxes.size())
      problem.report(object.at("zero_axes"), "and reduce_axes name an axis twice");
    return decision;
  }

  NetworkLevel network(JsonObject &parent, const std::string &key, bool isInNode) {
    JsonObject object(parent.get(key), parent.at(key), problem);
    NetworkLevel level;
    level.bytesPerSecond = object.positive("bytes_per_second");
    level.latencySeconds = object.number("latency_seconds");
    level.startSeconds = object.number("start_seconds");
    level.ringStepSeconds = object.numberOr("ring_step_seconds", 0);
    level.smallFraction = object.has("small_fraction") ? object.positive("small_fraction", 1) : 1;
    if (isInNode) {
      level.switchBytesPerSecond = object.numberOr("switch_bytes_per_second", 0);
      groups(object, level);
    }
    return level;
  }

  void groups(JsonObject &network, NetworkLevel &level) {
    const std::string key = "group_bytes_per_second";
    const Json &json = network.get(key);
    JsonObject object(json, network.at(key), problem);
    if (!json.is_object())
      return;
    for (const auto &[devices, value] : json.items()) {
      bool isCount =
          !devices.empty() && devices.size() < 8 && devices[0] != '0' &&
          std::all_of(devices.begin(), devices.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (isCount)
        level.groupBytesPerSecond[std::stoi(devices)] = object.positive(devices);
      else
        problem.report(object.at(devices), "must be a number of devices");
    }
  }

  void readCluster(JsonObject &root) {
    JsonObject object(root.get("cluster"), "cluster", problem);
    plan.cluster.name = object.text("name");
    plan.cluster.description = object.text("description");
    if (!object.has("groups"))
      return readConstants(object, plan.cluster);
    if (const Json &groups = object.get("groups");
        groups.is_array() && int64_t(groups.size()) > mostGroups)
      return problem.report("cluster.groups",
                            "must have at most " + std::to_string(mostGroups) + " entries");
    std::vector<Cluster> groups;
    object.forEach("groups", [&](const Json &item, const std::string &path) {
      JsonObject entry(item, path, problem);
      Cluster group;
      group.numNodes = entry.integer("nodes", 1, 1 << 20);
      JsonObject constants(entry.get("cluster"), entry.at("cluster"), problem);
      group.name = constants.text("name");
      group.description = constants.text("description");
      readConstants(constants, group);
      groups.push_back(std::move(group));
    });
    std::optional<NetworkLevel> between;
    if (object.has("between_groups"))
      between = network(object, "between_groups", false);
    if (!problem.text.empty())
      return;
    if (Result<Cluster> cluster = clusterOfGroups(plan.cluster.name, plan.cluster.description,
                                                  std::move(groups), std::move(between)))
      plan.cluster = std::move(*cluster);
    else
      problem.report("cluster.groups", cluster.error().message);
  }

  /// Reads a cluster with equal devices and nodes.
  void readConstants(JsonObject &object, Cluster &cluster) {
    cluster.devicesPerNode = object.integer("devices_per_node", 1, 1 << 20);
    cluster.memoryBytes = object.integer("memory_bytes", 1, maxBytes);
    cluster.memoryBytesPerSecond = object.positive("memory_bytes_per_second");
    {
      JsonObject peaks(object.get("peak_flops_per_second"), object.at("peak_flops_per_second"),
                       problem);
      for (const Rate &rate : rates())
        if (rate.isRequired || peaks.has(rate.key))
          cluster.peakFlopsPerSecond[rate.key] = peaks.positive(rate.key);
    }
    if (object.has("time_factor"))
      cluster.timeFactor = object.positive("time_factor");
    // Kernels that were measured to be faster may exceed the peaks of the data sheet.
    const double mostFraction = std::max(1.0, 1 / cluster.timeFactor);
    cluster.vectorFlopsPerSecond = object.positive("vector_flops_per_second");
    cluster.launchSeconds = object.number("launch_seconds");
    cluster.floorSeconds = object.numberOr("floor_seconds", 0);
    const Json &kernels = object.get("kernels");
    if (kernels.is_object()) {
      JsonObject all(kernels, object.at("kernels"), problem);
      for (const auto &[name, value] : kernels.items()) {
        JsonObject one(all.get(name), all.at(name), problem);
        KernelKey key;
        if (!parseKernelKey(name, key)) {
          std::string closest = closestWord(name, kernelWords());
          problem.report(all.at(name),
                         "is no kernel class" +
                             (closest.empty() ? "" : "; did you mean " + closest + "?"));
        }
        KernelEfficiency &kernel = cluster.kernels[key];
        kernel.flopsFraction = one.positive("flops_fraction", mostFraction);
        kernel.memoryFraction = one.positive("memory_fraction", mostFraction);
        kernel.rampSeconds = one.number("ramp_seconds");
        kernel.halfDepth = one.numberOr("half_depth", 0);
        kernel.executedFraction =
            one.has("executed_fraction") ? one.positive("executed_fraction", 1) : 1;
        kernel.bytesPerFlop = one.numberOr("bytes_per_flop", 0);
      }
      if (!cluster.kernels.count(std::nullopt))
        problem.report(object.at("kernels.default"), "is missing");
    } else {
      problem.report(object.at("kernels"), "must be an object");
    }
    cluster.intraNode = network(object, "intra_node", true);
    cluster.interNode = network(object, "inter_node", false);
    {
      JsonObject host(object.get("host"), object.at("host"), problem);
      cluster.hostMemoryBytes = host.integer("memory_bytes", 0, maxBytes);
      cluster.hostBytesPerSecond = host.positive("bytes_per_second");
    }
    cluster.overlapFraction = object.number("overlap_fraction", 1);
    cluster.overlapSlowdown = object.numberOr("overlap_slowdown", 0, 1);
    cluster.timeUncertainty = object.number("time_uncertainty", 1);
    if (object.has("context_uncertainty_bytes"))
      cluster.contextUncertaintyBytes = object.integer("context_uncertainty_bytes", 0, maxBytes);
    cluster.allocatorUncertainty = object.numberOr("allocator_uncertainty", 0, 1);
    cluster.contextBytes = object.integer("context_bytes", 0, maxBytes);
    cluster.allocatorFraction = object.number("allocator_fraction", 1);
    cluster.reservedFraction = object.number("reserved_fraction", 1);
    if (object.has("kernel_workspace"))
      cluster.hasKernelWorkspace = object.flag("kernel_workspace");
    if (object.has("executor"))
      cluster.executor = readExecutor(object, problem);
  }

  void readStrategies(JsonObject &root) {
    root.forEach("strategies", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      OpDecision decision;
      decision.ops = object.ids("ops");
      decision.placement = readPlacement(object, problem);
      plan.ops.push_back(std::move(decision));
    });
  }

  void readParameters(JsonObject &root) {
    JsonObject object(root.get("parameters"), "parameters", problem);
    {
      JsonObject standard(object.get("default"), "parameters.default", problem);
      plan.parameterDefault = parameters(standard);
    }
    object.forEach("overrides", [&](const Json &item, const std::string &path) {
      JsonObject entry(item, path, problem);
      ParameterOverride result;
      result.decision = parameters(entry);
      result.parameters = entry.ids("names");
      plan.parameterOverrides.push_back(std::move(result));
    });
  }

  void readPrediction(JsonObject &root) {
    JsonObject object(root.get("prediction"), "prediction", problem);
    Prediction &prediction = plan.prediction;
    prediction.lowSeconds = object.number("low_seconds");
    prediction.highSeconds = object.number("high_seconds");
    prediction.lowBytes = object.integer("low_bytes", 0, maxBytes);
    prediction.highBytes = object.integer("high_bytes", 0, maxBytes);
    prediction.limitBytes = object.integer("limit_bytes", 0, maxBytes);
    prediction.hostBytes = object.integer("host_bytes", 0, maxBytes);
    prediction.hostLimitBytes = object.integer("host_limit_bytes", 0, maxBytes);
    prediction.modelFlops = object.number("model_flops");
    prediction.mfu = object.number("mfu");
    prediction.slowestStage = int(object.integer("slowest_stage", 0, 1 << 20));
    object.forEach("stage_seconds", [&](const Json &item, const std::string &path) {
      if (!item.is_number())
        return problem.report(path, "must be a number");
      prediction.stageSeconds.push_back(item.get<double>());
    });
    object.forEach("stages", [&](const Json &item, const std::string &path) {
      JsonObject stage(item, path, problem);
      StageMemory memory;
      for (auto [key, lines] :
           {std::pair("memory", &memory.lines), std::pair("host", &memory.host)})
        stage.forEach(key, [&, into = lines](const Json &line, const std::string &where) {
          JsonObject entry(line, where, problem);
          into->push_back({entry.text("name"), entry.integer("bytes", 0, maxBytes)});
        });
      prediction.stages.push_back(std::move(memory));
    });
    object.forEach("collectives", [&](const Json &item, const std::string &path) {
      prediction.collectives.push_back(collective(item, path));
    });
    JsonObject time(object.get("time"), "prediction.time", problem);
    for (const TimeRow &row : timeRows())
      prediction.time.*row.seconds = row.seconds == &TimeSplit::launches // absent in older plans
                                         ? time.numberOr(row.key, 0)
                                         : time.number(row.key);
    prediction.time.hiddenData = time.number("hidden_data");
    if (object.has("chunks"))
      prediction.chunks = readChunks(object, int64_t(prediction.stageSeconds.size()), problem);
  }

  CollectiveLine collective(const Json &item, const std::string &path) {
    using reshard::CollectiveKind;
    static const std::vector<CollectiveKind> kinds = {
        CollectiveKind::AllReduce, CollectiveKind::AllGather,  CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,  CollectiveKind::ShardSlice, CollectiveKind::Send,
        CollectiveKind::Permute};
    std::vector<std::string> words;
    for (CollectiveKind kind : kinds)
      words.push_back(reshard::name(kind));
    JsonObject object(item, path, problem);
    CollectiveLine line;
    std::string word = object.word("kind", words);
    for (size_t i = 0; i < kinds.size(); ++i)
      if (words[i] == word)
        line.count.kind = kinds[i];
    line.count.axes = object.text("axes");
    line.count.stage = int(object.integer("stage", 0, 1 << 20));
    line.count.bytes = object.integer("bytes", 0, maxBytes);
    line.count.count = object.integer("count", 0, maxBytes);
    line.seconds = object.number("seconds");
    return line;
  }

  void readTables(JsonObject &root) {
    root.forEach("blocks", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      BlockRow row;
      row.name = object.text("name");
      row.firstOp = object.text("first_op");
      row.count = object.integer("count", 1, maxCount);
      row.ops = object.integer("ops", 0, maxCount);
      row.parameters = object.integer("parameters", 0, maxBytes);
      row.split = object.text("split");
      row.seconds = object.number("seconds");
      row.residualBytes = object.integer("residual_bytes", 0, maxBytes);
      plan.blocks.push_back(std::move(row));
    });
    root.forEach("alternatives", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      Alternative other;
      other.mesh = mesh(object, "mesh");
      {
        JsonObject data(object.get("parameters"), object.at("parameters"), problem);
        other.data = parameters(data);
      }
      other.microBatch = object.integer("micro_batch", 1, maxCount);
      other.accumulation = object.integer("accumulation", 1, maxCount);
      other.schedule = schedule::parseScheduleKind(object.word("schedule", scheduleWords()));
      other.chunkStage = placement(object);
      other.context = context(object, other.mesh);
      other.recompute = recompute(object, "recompute");
      other.offload = offload(object, "offload");
      other.stepSeconds = object.number("step_seconds");
      other.peakBytes = object.integer("peak_bytes", 0, maxBytes);
      other.memory = verdict(object, MemoryVerdict::Fits);
      other.note = object.text("note");
      plan.alternatives.push_back(std::move(other));
    });
    root.forEach("reasons", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      Reason reason;
      reason.decision = object.text("decision");
      reason.value = object.text("value");
      std::string origin = object.word("origin", {"pinned", "solved", "propagated", "forced"});
      for (Origin o : {Origin::Pinned, Origin::Solved, Origin::Propagated, Origin::Forced})
        if (name(o) == origin)
          reason.origin = o;
      reason.text = object.text("text");
      plan.reasons.push_back(std::move(reason));
    });
  }

  /// Checks relations between keys.
  void checkWhole(JsonObject &root) {
    if (!problem.text.empty())
      return;
    const Job &job = plan.job;
    int64_t ranks = plan.mesh.numRanks();
    if (ranks + plan.idleDevices != job.gpus)
      problem.report("mesh", "has " + std::to_string(ranks) + " ranks and " +
                                 std::to_string(plan.idleDevices) +
                                 " devices are idle, but job.gpus is " + std::to_string(job.gpus));
    double batch =
        double(plan.microBatch) * double(plan.accumulation) * double(plan.mesh.dataRanks());
    if (batch != double(job.globalBatch))
      problem.report("job.batch", "is " + std::to_string(job.globalBatch) + ", but micro_batch " +
                                      std::to_string(plan.microBatch) + " x accumulation " +
                                      std::to_string(plan.accumulation) + " x " +
                                      std::to_string(plan.mesh.dataRanks()) +
                                      " data ranks (dp x fsdp x ep) is " + format("%.0f", batch) +
                                      "; change one of them");
    if (std::string why = whyInvalidSchedule(plan); !why.empty())
      problem.report(plan.chunkStage.empty() || plan.mesh.pp == 1 ? "schedule" : "placement", why);
    if (auto devices = StageDevices::make(plan.cluster, plan.mesh.pp, ranks / plan.mesh.pp);
        !devices)
      problem.report("mesh", devices.error().message);
    if (int64_t(plan.stages.size()) != plan.numChunks())
      problem.report("stages", plan.chunkStage.empty() ? "must have one entry per pipeline stage"
                                                       : "must have one entry per chunk");
    if (!plan.stageNames.empty() && plan.stageNames.size() != plan.stages.size())
      problem.report("stage_names", "must have as many entries as \"stages\", or none");
  }

  Plan plan;
};

} // namespace

Result<Plan> readPlan(const std::string &text, const std::string &source) {
  constexpr size_t maxBytes = size_t(1) << 28;
  if (text.size() > maxBytes)
    return Error{ErrorCode::Usage, source + ": not a plan: larger than 256 MiB"};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return Error{
        ErrorCode::Usage,
        source + ": not a plan: the text is not JSON, or is cut off; write it again with tbc plan"};
  if (!json.is_object() || !json.contains("format") || json["format"] != "tbc-plan")
    return Error{ErrorCode::Usage, source + ": not a plan: key \"format\" must be \"tbc-plan\""};
  // Prints only a number: another value may be as long or as deep as the file.
  const Json version =
      json.contains("version") && json["version"].is_number() ? json["version"] : Json();
  if (version != planVersion)
    return Error{ErrorCode::Usage, source + ": key \"version\" is " +
                                       (version.is_null() ? "not a number" : version.dump()) +
                                       ", but this tbc reads version " +
                                       std::to_string(planVersion) + "; plan again"};
  Reader reader;
  Plan plan = reader.read(json);
  if (!reader.problem.text.empty())
    return Error{ErrorCode::Usage, source + ": " + reader.problem.text};
  if (std::string why = whyInconsistent(plan); !why.empty())
    return Error{ErrorCode::Usage,
                 source + ": " + why + ": predictions were edited; put them back, or plan again"};
  return plan;
}

} // namespace tbc::planner
