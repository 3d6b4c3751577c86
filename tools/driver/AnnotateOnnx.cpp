//===- AnnotateOnnx.cpp - A plan as multi-device annotations of its model ---===//

#include "tools/driver/AnnotateOnnx.h"

#include "frontend/onnx/Model.h"
#include "planner/pins/PlanFlags.h"
#include "planner/plan/PlanApply.h"
#include "runtime/data/MappedFile.h"
#include "tools/driver/DeviceSpecs.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace tbc::reshard;

namespace tbc::driver {

/// The first version of the IR with device configurations (onnx.proto).
constexpr int64_t oldestIrVersion = 11;

namespace {

using Dims = google::protobuf::RepeatedPtrField<onnx::TensorShapeProto_Dimension>;

/// Writes annotations into one ModelProto.
class Annotator {
public:
  Annotator(const frontend::Model &model, const planner::Plan &plan,
            const planner::PlannedStep &planned, onnx::ModelProto &proto)
      : model(model), plan(plan), planned(planned), proto(proto) {
    for (const auto *list : {&proto.graph().value_info(), &proto.graph().output()})
      for (const onnx::ValueInfoProto &info : *list)
        shapes[info.name()] = &info.type().tensor_type().shape();
  }

  void run() {
    proto.set_ir_version(std::max(proto.ir_version(), oldestIrVersion));
    onnx::DeviceConfigurationProto &configuration = *proto.add_configuration();
    configuration.set_name(name);
    configuration.set_num_devices(int32_t(mesh().numRanks()));
    for (int64_t rank = 0; rank < mesh().numRanks(); ++rank)
      configuration.add_device(deviceName(rank));
    onnx::StringStringEntryProto &flags = *proto.add_metadata_props();
    flags.set_key(frontend::kPlanFlagsKey);
    flags.set_value(nlohmann::json(planner::flagsOf(plan)).dump());

    std::map<const onnx::NodeProto *, int> places;
    for (int node = 0; node < model.graph().node_size(); ++node)
      places[&model.graph().node(node)] = node;
    std::vector<std::string> names;
    for (const frontend::GraphNode &node : model.nodes)
      names.push_back(node.name);
    const auto ops = opsByNode(planned.graph, names);
    for (const frontend::GraphNode &node : model.nodes) {
      auto found = ops.find(node.name);
      if (found != ops.end())
        annotate(*proto.mutable_graph()->mutable_node(places.at(node.proto)), found->second);
    }
  }

private:
  static constexpr const char *name = "tbc";

  const Mesh &mesh() const { return planned.assignment.mesh; }

  /// Example: "pp=0 tp=3".
  std::string deviceName(int64_t rank) const {
    const std::vector<int64_t> coordinates = mesh().coordinates(rank);
    std::string text;
    for (size_t axis = 0; axis < coordinates.size(); ++axis)
      text += (axis ? " " : "") + mesh().axes[axis].name + "=" + std::to_string(coordinates[axis]);
    return text.empty() ? "device" : text;
  }

  /// Annotates a node, which `ops` come from. A stage may begin inside of them, for example between
  /// a matmul and its bias; the node is then on the stage of its first op, and "tbc.flags" has the
  /// place.
  void annotate(onnx::NodeProto &node, const std::vector<int> &ops) {
    onnx::NodeDeviceConfigurationProto &given = *node.add_device_configurations();
    given.set_configuration_id(name);
    const int stage = planned.assignment.stageOf(planned.graph.ops[ops.front()].chunk);
    if (plan.mesh.pp > 1)
      given.set_pipeline_stage(stage);
    std::set<std::string> written;
    for (int op : ops)
      for (const std::string &input : node.input())
        if (!written.count(input) && addParameter(given, op, input, stage))
          written.insert(input);
    if (node.output_size() == 1)
      addOutput(given, ops.back(), node.output(0), stage);
  }

  DeviceSpec specOf(int value, const Sharding &sharding, int stage) const {
    return deviceSpecOf(planned.graph.values[value].layout, sharding, mesh(),
                        planned.assignment.pipelineAxis, stage);
  }

  /// Adds the sharding of an input that is a view of a parameter that `op` reads.
  bool addParameter(onnx::NodeDeviceConfigurationProto &given, int op, const std::string &input,
                    int stage) {
    const auto view = frontend::parameterViewOf(model, input);
    if (!view)
      return false;
    const GraphOp &graphOp = planned.graph.ops[op];
    for (size_t operand = 0; operand < graphOp.operands.size(); ++operand) {
      const GraphValue &value = planned.graph.values[graphOp.operands[operand]];
      if (value.role != ValueRole::Parameter || value.name != view->initializer)
        continue;
      const DeviceSpec spec = specOf(
          graphOp.operands[operand],
          operandSharding(planned.graph, op, planned.assignment.strategies[op], int(operand)),
          stage);
      std::map<int64_t, int64_t> axisOf; // of the view, by dim of the initializer
      for (size_t axis = 0; axis < view->dims.size(); ++axis)
        axisOf[view->dims[axis]] = int64_t(axis);
      onnx::ShardingSpecProto &added = *given.add_sharding_spec();
      added.set_tensor_name(input);
      addDevices(added, spec);
      for (const auto &[dim, parts] : spec.dims)
        addDim(added, axisOf.empty() ? dim : axisOf.at(dim), parts, nullptr);
      return true;
    }
    return false;
  }

  /// Adds the sharding of a result, if its dims are those of the op's, or the first two are one dim
  /// there (a matrix of the tokens of all samples).
  void addOutput(onnx::NodeDeviceConfigurationProto &given, int op, const std::string &output,
                 int stage) {
    auto shape = shapes.find(output);
    const GraphOp &graphOp = planned.graph.ops[op];
    if (shape == shapes.end() || graphOp.results.empty())
      return;
    const TensorLayout &layout = planned.graph.values[graphOp.results[0]].layout;
    const Dims &dims = shape->second->dim();
    const int merged = int(layout.dims.size()) - dims.size();
    if (merged < 0 || merged > 1 || dims.empty() || !areEqual(dims, layout, merged))
      return;
    const DeviceSpec spec =
        specOf(graphOp.results[0],
               resultSharding(planned.graph, op, planned.assignment.strategies[op], 0), stage);
    onnx::ShardingSpecProto &added = *given.add_sharding_spec();
    added.set_tensor_name(output);
    addDevices(added, spec);
    std::map<int64_t, std::vector<frontend::ShardedPart>> byAxis;
    for (const auto &[dim, parts] : spec.dims) {
      auto &list = byAxis[std::max<int64_t>(0, dim - merged)];
      if (merged && dim == 1 && list.empty()) // the samples, whole
        list.push_back({0, 1});
      list.insert(list.end(), parts.begin(), parts.end());
    }
    for (const auto &[axis, parts] : byAxis)
      addDim(added, axis, parts, &dims[int(axis)]);
  }

  /// Whether the sizes that the model gives are the layout's, whose first `merged` + 1 dims are
  /// one.
  static bool areEqual(const Dims &dims, const TensorLayout &layout, int merged) {
    const std::vector<int64_t> sizes = layout.shape();
    for (int axis = merged ? 1 : 0; axis < dims.size(); ++axis)
      if (dims[axis].has_dim_value() && dims[axis].dim_value() != sizes[size_t(axis + merged)])
        return false;
    return true;
  }

  /// `dim`: the model's, whose symbol is written instead of a size that depends on the job.
  static void addDim(onnx::ShardingSpecProto &spec, int64_t axis,
                     const std::vector<frontend::ShardedPart> &parts,
                     const onnx::TensorShapeProto_Dimension *dim) {
    onnx::ShardedDimProto &added = *spec.add_sharded_dim();
    added.set_axis(axis);
    const bool isSymbolic = dim && !dim->has_dim_value();
    for (const frontend::ShardedPart &part : parts) {
      onnx::SimpleShardedDimProto &simple = *added.add_simple_sharding();
      if (!isSymbolic && part.size > 0)
        simple.set_dim_value(part.size);
      else if (parts.size() == 1 && dim && dim->has_dim_param())
        simple.set_dim_param(dim->dim_param());
      simple.set_num_shards(part.shards);
    }
  }

  /// Shards of one rank are its device; others are groups with negative numbers, which no device
  /// has.
  static void addDevices(onnx::ShardingSpecProto &spec, const DeviceSpec &form) {
    for (size_t shard = 0; shard < form.groups.size(); ++shard) {
      const std::vector<int64_t> &group = form.groups[shard];
      if (group.size() == 1) {
        spec.add_device(group.front());
        continue;
      }
      const int64_t key = -1 - int64_t(shard);
      spec.add_device(key);
      onnx::IntIntListEntryProto &entry = *spec.add_index_to_device_group_map();
      entry.set_key(key);
      for (int64_t rank : group)
        entry.add_value(rank);
    }
  }

  const frontend::Model &model;
  const planner::Plan &plan;
  const planner::PlannedStep &planned;
  onnx::ModelProto &proto;
  std::map<std::string, const onnx::TensorShapeProto *> shapes;
};

} // namespace

/// Errors: Usage for models whose nodes cannot be annotated one by one.
static Status checkModel(const frontend::Model &model, const onnx::ModelProto &proto) {
  const std::string &path = model.path();
  if (proto.functions_size() > 0)
    return Error{ErrorCode::Usage, path +
                                       " has local functions, whose nodes cannot be annotated "
                                       "call by call; inline them (onnx.inliner) and plan again"};
  if (proto.configuration_size() > 0)
    return Error{ErrorCode::Usage, path + " has device configurations already; plan and export the "
                                          "model without them"};
  return Status::ok();
}

/// Returns the first file that an initializer's data is in, outside of the model.
static std::string externalDataOf(const onnx::ModelProto &proto) {
  for (const onnx::TensorProto &tensor : proto.graph().initializer())
    if (frontend::isExternal(tensor))
      for (const onnx::StringStringEntryProto &entry : tensor.external_data())
        if (entry.key() == "location")
          return entry.value();
  return "";
}

/// Returns decisions op by op, which no flag and no annotation has.
static std::vector<std::string> unpinnedOf(const planner::Plan &plan) {
  std::vector<std::string> warnings;
  if (!plan.parameterOverrides.empty())
    warnings.push_back("ParameterOverrides: the plan distributes " +
                       std::to_string(plan.parameterOverrides.size()) +
                       " groups of parameters otherwise than the rest");
  if (!plan.offload.residuals && !plan.offload.ops.empty())
    warnings.push_back("OffloadByOp: the plan offloads results of " +
                       std::to_string(plan.offload.ops.size()) + " ops");
  return warnings;
}

Result<AnnotatedModel> annotateOnnx(const LoadedPlan &loaded, const std::string &modelPath) {
  auto planned = planner::applyPlan(loaded.step->step.graph, loaded.plan);
  if (!planned)
    return planned.error();
  auto model = frontend::loadModel(modelPath);
  if (!model)
    return model.error();
  auto file = data::MappedFile::open(modelPath, ErrorCode::Usage);
  if (!file)
    return file.error();
  onnx::ModelProto proto;
  if (!proto.ParseFromArray(file->data(), int(file->size())))
    return Error{ErrorCode::ModelRejected, modelPath + ": not an ONNX model"};
  if (Status status = checkModel(**model, proto); !status)
    return status.error();
  AnnotatedModel annotated;
  annotated.externalData = externalDataOf(proto);
  annotated.warnings = unpinnedOf(loaded.plan);
  Annotator(**model, loaded.plan, *planned, proto).run();
  if (!proto.SerializeToString(&annotated.bytes))
    return Error{ErrorCode::Usage, modelPath + ": with annotations it is over the 2 GiB of a "
                                               "ModelProto; store its weights as external data"};
  return annotated;
}

} // namespace tbc::driver
