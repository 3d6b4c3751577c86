//===- AnnotatedPins.cpp - A model's device annotations as pins --------------===//

#include "tools/tbc/AnnotatedPins.h"

#include "planner/pins/OpPins.h"
#include "planner/pins/PlanFlags.h"
#include "planner/reshard/Rebatch.h"
#include "runtime/abi/Problem.h"
#include "runtime/mesh/AxisIndex.h"
#include "runtime/schedule/Schedule.h"
#include "tools/driver/DeviceSpecs.h"
#include "tools/tbc/PlanOptions.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace tbc::reshard;

namespace tbc::cli {

using frontend::DeviceAnnotations;
using frontend::NodeDevices;
using frontend::TensorShards;
using planner::MeshShape;
using planner::OpPin;
using planner::Pins;

constexpr const char *planFreely = "; --ignore-annotations plans without them";

static Error nodeError(const std::string &node, const std::string &what) {
  return problem(Problem::BadPins, "node '" + node + "': its device configuration " + what);
}

/// Reads flags of tbc plan. Errors: Usage.
static Result<Pins> pinsOfFlags(const std::string &text) {
  auto fail = [](const std::string &why) -> Result<Pins> {
    return Error{ErrorCode::Usage,
                 std::string("the model's metadata \"") + frontend::kPlanFlagsKey + "\": " + why};
  };
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() ||
      !std::all_of(list.begin(), list.end(), [](const auto &word) { return word.is_string(); }))
    return fail("not a JSON list of texts");
  std::vector<std::string> words = list.get<std::vector<std::string>>();
  std::reverse(words.begin(), words.end()); // CLI11 takes arguments last first
  CLI::App app;
  PlanOptions options;
  addPlanOptions(app, options);
  try {
    app.parse(words);
  } catch (const CLI::ParseError &error) {
    return fail(error.what());
  }
  auto pins = toPins(options);
  return pins ? std::move(pins) : fail(pins.error().message);
}

namespace {

/// Reads annotations of one model.
class AnnotationReader {
public:
  AnnotationReader(const driver::TrainingStep &step, const planner::Job &job)
      : given(step.model.annotations), job(job), graph(step.step.graph) {
    std::vector<std::string> names;
    for (const NodeDevices &node : given.nodes)
      names.push_back(node.node);
    ops = driver::opsByNode(graph, names);
  }

  Result<Pins> run(std::vector<std::string> &notes) {
    if (Status status = given.flags.empty() ? inferDecisions() : readFlags(); !status)
      return status.error();
    if (Status status = checkDevices(); !status)
      return status.error();
    graph = withBatch(graph, shape.dataRanks());
    mesh = shape.mesh();
    for (const NodeDevices &node : given.nodes)
      if (Status status = readNode(node); !status)
        return status.error();
    notes.push_back("pinned by the model's device configuration \"" + given.configuration + "\"" +
                    planFreely);
    if (!unused.empty())
      notes.push_back(std::to_string(unused.size()) +
                      " nodes with shardings are part of other ops, such as \"" + unused.front() +
                      "\": their neighbours decide");
    return std::move(pins);
  }

private:
  //===- mesh and stages ---------------------------------------------------===//

  /// Takes the decisions of an exported plan, and checks stages against them.
  Status readFlags() {
    auto read = pinsOfFlags(given.flags);
    if (!read)
      return read.error();
    pins = std::move(*read);
    for (const auto &[axis, size] : pins.mesh)
      if (int64_t *member = shape.find(axis))
        *member = size;
    std::vector<int> begins;
    for (const OpPin &pin : pins.ops) {
      std::vector<int> matched = planner::matchingOps(graph, job, pin.glob);
      if (pin.spec == "begin" && !matched.empty())
        begins.push_back(matched.front());
    }
    std::sort(begins.begin(), begins.end());
    const int each = int(pins.virtualStages.value_or(1));
    const auto pipeline = pins.placement == "v" ? schedule::Pipeline::vee(int(shape.pp), each)
                                                : schedule::Pipeline::loop(int(shape.pp), each);
    for (const NodeDevices &node : given.nodes) {
      auto found = ops.find(node.node);
      if (!node.stage || found == ops.end())
        continue;
      const size_t chunk = size_t(
          std::upper_bound(begins.begin(), begins.end(), found->second.front()) - begins.begin());
      if (chunk >= pipeline.chunkStage.size() || pipeline.chunkStage[chunk] != int(*node.stage))
        return nodeError(node.node, "has pipeline stage " + std::to_string(*node.stage) +
                                        ", and the flags in the model's metadata \"" +
                                        frontend::kPlanFlagsKey + "\" another; remove that entry");
    }
    return Status::ok();
  }

  /// Finds mesh and stages from annotations alone.
  Status inferDecisions() {
    if (Status status = inferStages(); !status)
      return status;
    if (Status status = inferSizes(); !status)
      return status;
    if (shape.dp == 1 && shape.pp * shape.tp < given.numDevices && dataShards == 0)
      shape.dp = given.numDevices / (shape.pp * shape.tp);
    auto pin = [&](const char *axis, int64_t size) {
      pins.conditions.push_back({axis, std::to_string(size), false, "the device configuration"});
    };
    pin("pp", shape.pp);
    pin("tp", shape.tp);
    pin("cp", 1);
    pin("ep", 1);
    return Status::ok();
  }

  Status inferStages() {
    std::map<int, const NodeDevices *> staged; // by first op
    for (const NodeDevices &node : given.nodes)
      if (auto found = ops.find(node.node); node.stage && found != ops.end())
        staged[found->second.front()] = &node;
    std::vector<int> chunkStage;
    std::vector<const NodeDevices *> firsts;
    for (const auto &[op, node] : staged) {
      if (!chunkStage.empty() && chunkStage.back() == int(*node->stage))
        continue;
      chunkStage.push_back(int(*node->stage));
      firsts.push_back(node);
      if (chunkStage.size() > 1)
        pins.ops.push_back({planner::literalGlob(graph.ops[op].id), "begin", false});
    }
    if (chunkStage.empty())
      return Status::ok();
    shape.pp = 1 + *std::max_element(chunkStage.begin(), chunkStage.end());
    const int stages = int(shape.pp), each = int(chunkStage.size()) / stages;
    if (each >= 1 && chunkStage == schedule::Pipeline::loop(stages, each).chunkStage)
      pins.placement = each > 1 ? "loop" : "";
    else if (each >= 1 && chunkStage == schedule::Pipeline::vee(stages, each).chunkStage)
      pins.placement = "v";
    else
      return refuseStages(chunkStage, firsts);
    if (each > 1)
      pins.virtualStages = each;
    return Status::ok();
  }

  Status refuseStages(const std::vector<int> &chunkStage,
                      const std::vector<const NodeDevices *> &firsts) {
    size_t wrong = 0;
    while (wrong + 1 < chunkStage.size() && chunkStage[wrong] == int(wrong))
      ++wrong;
    return nodeError(firsts[wrong]->node,
                     "has pipeline stage " + std::to_string(chunkStage[wrong]) +
                         (wrong ? " after stage " + std::to_string(chunkStage[wrong - 1]) : "") +
                         "; stages follow each other from 0 on, in loops or in V shapes, in the "
                         "order of the nodes" +
                         planFreely);
  }

  /// Takes tp from shards of parameters, and data ranks from shards of activations along samples.
  Status inferSizes() {
    for (const NodeDevices &node : given.nodes)
      for (const TensorShards &tensor : node.tensors) {
        int64_t shards = tensor.numShards(), &size = tensor.parameter.empty() ? shape.dp : shape.tp;
        if (tensor.parameter.empty()) {
          auto samples = tensor.dims.find(0);
          shards = 1;
          if (samples != tensor.dims.end() && !samples->second.empty())
            shards = samples->second.front().shards;
          dataShards = std::max(dataShards, shards);
        }
        if (shards > 1 && size > 1 && shards != size)
          return nodeError(node.node, "has " + std::to_string(shards) + " shards of '" +
                                          tensor.tensor + "', and others have " +
                                          std::to_string(size) +
                                          "; a plan splits all over the same axis" + planFreely);
        size = std::max(size, shards);
      }
    return Status::ok();
  }

  Status checkDevices() {
    if (given.flags.empty() && shape.numRanks() != given.numDevices)
      return Error{ErrorCode::Usage, "device configuration '" + given.configuration + "' has " +
                                         std::to_string(given.numDevices) +
                                         " devices, and its nodes use " + toString(shape) +
                                         planFreely};
    if (job.gpus < given.numDevices)
      return Error{ErrorCode::Usage, "device configuration '" + given.configuration + "' is for " +
                                         std::to_string(given.numDevices) +
                                         " devices, not --gpus " + std::to_string(job.gpus) +
                                         planFreely};
    return Status::ok();
  }

  //===- shardings ---------------------------------------------------------===//

  Status readNode(const NodeDevices &node) {
    auto found = ops.find(node.node);
    if (found == ops.end()) {
      for (const TensorShards &tensor : node.tensors)
        if (tensor.numShards() > 1 && (unused.empty() || unused.back() != node.node))
          unused.push_back(node.node);
      return Status::ok();
    }
    std::set<const TensorShards *> met;
    for (int op : found->second)
      if (Status status = readOp(node, found->second, op, met); !status)
        return status;
    for (const TensorShards &tensor : node.tensors)
      if (!met.count(&tensor))
        return nodeError(node.node, "shards '" + tensor.tensor +
                                        "', which is constant or no tensor of an op of tbc" +
                                        planFreely);
    return Status::ok();
  }

  /// Pins the splits of `op` that give the annotated shardings.
  Status readOp(const NodeDevices &node, const std::vector<int> &all, int op,
                std::set<const TensorShards *> &met) {
    const int stage = int(node.stage.value_or(0));
    std::vector<OpStrategy> left = candidates(op);
    unsigned offered = 0, allowed = 0;
    const int axis = axisIndex(mesh, mesh::Axis::Tensor);
    for (const OpStrategy &strategy : left)
      offered |= planner::splitKind(graph, op, strategy, axis);
    for (const TensorShards &tensor : node.tensors) {
      if (!concerns(tensor, all, op))
        continue;
      met.insert(&tensor);
      left.erase(std::remove_if(left.begin(), left.end(),
                                [&](const OpStrategy &strategy) {
                                  return !isMet(tensor, op, strategy, stage);
                                }),
                 left.end());
      if (left.empty())
        return refuseTensor(node, tensor);
    }
    for (const OpStrategy &strategy : left)
      allowed |= planner::splitKind(graph, op, strategy, axis);
    if (shape.tp > 1 && allowed != offered)
      addPin(op, allowed);
    return Status::ok();
  }

  Status refuseTensor(const NodeDevices &node, const TensorShards &tensor) {
    std::string text;
    for (const auto &[dim, parts] : tensor.dims)
      for (const frontend::ShardedPart &part : parts)
        if (part.shards > 1)
          text += (text.empty() ? "" : " and ") + std::string("axis ") + std::to_string(dim) +
                  " in " + std::to_string(part.shards) + " shards";
    return nodeError(node.node, "has '" + tensor.tensor + "' " +
                                    (text.empty() ? "whole" : "with " + text) +
                                    (tensor.groups.empty() ? "" : " on the devices it names") +
                                    ", which no split over " + toString(shape) +
                                    " gives this op beside its other shardings; ranks are numbered "
                                    "with pp slowest and tp fastest" +
                                    planFreely);
  }

  void addPin(int op, unsigned allowed) {
    using namespace planner;
    const std::string spec = allowed == ColumnSplit ? "column"
                             : allowed == RowSplit  ? "row"
                             : allowed == WholeOp   ? "whole"
                             : (allowed & WholeOp)  ? ""
                                                    : "tp";
    if (!spec.empty())
      pins.ops.push_back({literalGlob(graph.ops[op].id), spec, false});
  }

  /// Returns the splits of an op over tp, beside those over the other axes.
  std::vector<OpStrategy> candidates(int op) const {
    std::vector<AxisRef> data, experts, context, tensor;
    for (int axis = 0; axis < int(mesh.axes.size()); ++axis) {
      const std::string &name = mesh.axes[size_t(axis)].name;
      (name == "tp"   ? tensor
       : name == "cp" ? context
       : name == "ep" ? experts
                      : data)
          .push_back(wholeAxis(mesh, axis));
    }
    data.erase(std::remove_if(
                   data.begin(), data.end(),
                   [&](const AxisRef &ref) { return mesh.axes[size_t(ref.axis)].name == "pp"; }),
               data.end());
    OpStrategy base = batchStrategy(graph, op, data, experts);
    std::vector<OpStrategy> list = {base};
    if (!tensor.empty())
      list = enumerateStrategies(graph, op, base, tensor.front());
    if (!context.empty())
      for (OpStrategy &strategy : list)
        strategy = contextStrategy(graph, op, strategy, context,
                                   parseContextForm(pins.context).value_or(ContextForm::AllGather));
    return list;
  }

  static constexpr int noOperand = -1;
  int operandOf(const TensorShards &tensor, int op) const {
    const std::vector<int> &operands = graph.ops[op].operands;
    for (size_t operand = 0; operand < operands.size(); ++operand)
      if (graph.values[operands[operand]].role == ValueRole::Parameter &&
          graph.values[operands[operand]].name == tensor.parameter)
        return int(operand);
    return noOperand;
  }

  /// Parameters concern the ops that read them, results a node's last op, other inputs its first.
  bool concerns(const TensorShards &tensor, const std::vector<int> &all, int op) const {
    if (!tensor.parameter.empty())
      return operandOf(tensor, op) != noOperand;
    return op == (tensor.isOutput ? all.back() : all.front());
  }

  bool isMet(const TensorShards &tensor, int op, const OpStrategy &strategy, int stage) const {
    const GraphOp &graphOp = graph.ops[op];
    auto isEqual = [&](int value, const Sharding &sharding, bool isParameter) {
      const TensorLayout &layout = graph.values[value].layout;
      const driver::DeviceSpec spec = driver::deviceSpecOf(
          layout, sharding, mesh, axisIndex(mesh, mesh::Axis::Pipeline), stage);
      if (!tensor.groups.empty() && tensor.groups != spec.groups)
        return false;
      return isParameter ? hasTiling(tensor, spec, layout)
                         : hasShards(tensor, spec, layout, 0) || hasShards(tensor, spec, layout, 1);
    };
    if (tensor.isOutput)
      return !graphOp.results.empty() &&
             isEqual(graphOp.results[0], resultSharding(graph, op, strategy, 0), false);
    if (int operand = operandOf(tensor, op); operand != noOperand)
      return isEqual(graphOp.operands[size_t(operand)],
                     operandSharding(graph, op, strategy, operand), true);
    for (size_t operand = 0; operand < graphOp.operands.size(); ++operand)
      if (graph.values[graphOp.operands[operand]].role != ValueRole::Parameter &&
          isEqual(graphOp.operands[operand], operandSharding(graph, op, strategy, int(operand)),
                  false))
        return true;
    return false;
  }

  static bool hasTiling(const TensorShards &tensor, const driver::DeviceSpec &spec,
                        const TensorLayout &layout) {
    for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
      auto tiling = [&](const auto &dims) {
        auto found = dims.find(int64_t(dim));
        return found == dims.end()
                   ? driver::DimTiling()
                   : driver::tilingOf(found->second, layout.dims[dim].numElements());
      };
      if (tiling(tensor.dims) != tiling(spec.dims))
        return false;
    }
    return true;
  }

  /// Compares numbers of shards by axis, where the first `merged` + 1 dims of the op are one axis.
  /// Sizes of activations depend on the job.
  static bool hasShards(const TensorShards &tensor, const driver::DeviceSpec &spec,
                        const TensorLayout &layout, int64_t merged) {
    const int64_t rank = int64_t(layout.dims.size()) - merged;
    std::map<int64_t, std::vector<int64_t>> given, own;
    auto add = [](std::vector<int64_t> &list, const std::vector<frontend::ShardedPart> &parts) {
      for (const frontend::ShardedPart &part : parts)
        if (part.shards > 1)
          list.push_back(part.shards);
    };
    for (const auto &[axis, parts] : tensor.dims)
      add(given[axis < 0 ? axis + rank : axis], parts);
    for (const auto &[dim, parts] : spec.dims)
      add(own[std::max<int64_t>(0, dim - merged)], parts);
    for (auto *map : {&given, &own})
      for (auto entry = map->begin(); entry != map->end();)
        entry = entry->second.empty() ? map->erase(entry) : std::next(entry);
    return given == own;
  }

  const DeviceAnnotations &given;
  const planner::Job &job;
  Graph graph;
  Mesh mesh;
  MeshShape shape;
  Pins pins;
  std::map<std::string, std::vector<int>> ops;
  std::vector<std::string> unused;
  int64_t dataShards = 0;
};

} // namespace

/// Sets `field` from the annotations, if no flag did. Errors: Usage if they contradict.
template <typename Field>
static Status merge(const char *flag, Field &field, const Field &annotated) {
  if (annotated == Field() || field == annotated)
    return Status::ok();
  if (!(field == Field()))
    return problem(Problem::BadPins, std::string(flag) +
                                         " contradicts the model's device "
                                         "annotations" +
                                         planFreely);
  field = annotated;
  return Status::ok();
}

/// The same for a word that is `open` where no flag is given.
static Status mergeWord(const char *flag, std::string &field, const std::string &annotated,
                        const std::string &open) {
  std::string given = field == open ? "" : field;
  if (Status status = merge(flag, given, annotated == open ? std::string() : annotated); !status)
    return status;
  field = given.empty() ? open : given;
  return Status::ok();
}

static Status mergePins(Pins &pins, const Pins &annotated) {
  for (Status status :
       {merge("--mesh", pins.mesh, annotated.mesh), merge("--zero", pins.zero, annotated.zero),
        merge("--micro-batch", pins.microBatch, annotated.microBatch),
        merge("--schedule", pins.schedule, annotated.schedule),
        merge("--virtual-stages", pins.virtualStages, annotated.virtualStages),
        merge("--placement", pins.placement, annotated.placement),
        merge("--context", pins.context, annotated.context),
        merge("--sequence-order", pins.sequenceOrder, annotated.sequenceOrder),
        mergeWord("--strategy", pins.strategy, annotated.strategy, Pins().strategy),
        mergeWord("--recompute", pins.recompute, annotated.recompute, Pins().recompute),
        mergeWord("--offload", pins.offload, annotated.offload, Pins().offload),
        mergeWord("--bucket-size", pins.bucketSize, annotated.bucketSize, Pins().bucketSize),
        mergeWord("--gather-size", pins.gatherSize, annotated.gatherSize, Pins().gatherSize),
        mergeWord("--prefetch", pins.prefetch, annotated.prefetch, Pins().prefetch)})
    if (!status)
      return status;
  pins.conditions.insert(pins.conditions.end(), annotated.conditions.begin(),
                         annotated.conditions.end());
  pins.ops.insert(pins.ops.end(), annotated.ops.begin(), annotated.ops.end());
  return Status::ok();
}

Result<std::vector<std::string>> addAnnotatedPins(const driver::TrainingStep &step,
                                                  const planner::Job &job, Pins &pins) {
  std::vector<std::string> notes;
  if (step.model.annotations.isEmpty())
    return notes;
  auto annotated = AnnotationReader(step, job).run(notes);
  if (!annotated)
    return annotated.error();
  if (Status status = mergePins(pins, *annotated); !status)
    return status.error();
  return notes;
}

} // namespace tbc::cli
