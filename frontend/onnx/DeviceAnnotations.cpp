//===- DeviceAnnotations.cpp - ONNX's multi-device annotations -------------===//

#include "frontend/onnx/DeviceAnnotations.h"

#include "frontend/onnx/Model.h"
#include "frontend/onnx/Value.h"

#include <algorithm>
#include <set>

namespace tbc::frontend {

int64_t TensorShards::numShards() const {
  int64_t count = 1;
  for (const auto &[axis, parts] : dims)
    for (const ShardedPart &part : parts)
      count *= part.shards;
  return count;
}

static const onnx::NodeProto *producerOf(const Model &model, const std::string &tensor) {
  for (const GraphNode &node : model.nodes)
    if (std::find(node.proto->output().begin(), node.proto->output().end(), tensor) !=
        node.proto->output().end())
      return node.proto;
  return nullptr;
}

/// Returns the permutation of a transpose; without the attribute it reverses `rank` dims.
static std::vector<int64_t> permutationOf(const onnx::NodeProto &transpose, int64_t rank) {
  for (const onnx::AttributeProto &attribute : transpose.attribute())
    if (attribute.name() == "perm")
      return {attribute.ints().begin(), attribute.ints().end()};
  std::vector<int64_t> reversed;
  for (int64_t dim = rank - 1; dim >= 0; --dim)
    reversed.push_back(dim);
  return reversed;
}

std::optional<ParameterView> parameterViewOf(const Model &model, const std::string &tensor) {
  if (model.initializers.count(tensor))
    return ParameterView{tensor, {}};
  const onnx::NodeProto *node = producerOf(model, tensor);
  if (!node || node->input_size() != 1)
    return std::nullopt;
  const bool isTranspose = node->op_type() == "Transpose";
  if (!isTranspose && node->op_type() != "Identity" && node->op_type() != "Cast")
    return std::nullopt;
  std::optional<ParameterView> source = parameterViewOf(model, node->input(0));
  if (!source || !isTranspose)
    return source;
  ParameterView view{source->initializer, {}};
  const int64_t rank = model.initializers.at(view.initializer)->dims_size();
  for (int64_t dim : permutationOf(*node, rank)) {
    if (dim < 0 || dim >= rank)
      return std::nullopt; // the import of the node refuses it
    view.dims.push_back(source->dims.empty() ? dim : source->dims[size_t(dim)]);
  }
  return view;
}

namespace {

/// Reads the annotations of one model.
class Reader {
public:
  explicit Reader(const Model &model) : model(model) {}

  DeviceAnnotations run() {
    refuseInner();
    if (model.proto->configuration_size() == 0)
      return refuseUnnamed();
    if (model.proto->configuration_size() > 1)
      throw ImportError("the model has " + std::to_string(model.proto->configuration_size()) +
                        " device configurations; keep one, or plan with --ignore-annotations");
    const onnx::DeviceConfigurationProto &configuration = model.proto->configuration(0);
    result.configuration = configuration.name();
    result.numDevices = configuration.num_devices();
    if (result.numDevices <= 0)
      throw ImportError("device configuration '" + result.configuration + "' has " +
                        std::to_string(result.numDevices) + " devices");
    for (const onnx::StringStringEntryProto &entry : model.proto->metadata_props())
      if (entry.key() == kPlanFlagsKey)
        result.flags = entry.value();
    for (const GraphNode &node : model.nodes)
      if (node.proto->device_configurations_size() > 0)
        readNode(node);
    return std::move(result);
  }

private:
  [[noreturn]] void fail(const std::string &what) {
    throw ImportError("node '" + current + "': its device configuration " + what);
  }

  /// Nodes of functions and of bodies have no stage or sharding of their own in a plan.
  void refuseInner() {
    std::set<const onnx::NodeProto *> outer;
    for (const GraphNode &node : model.nodes) {
      outer.insert(node.proto);
      for (const Body &body : node.bodies)
        forEachNode(body.nodes, [&](const GraphNode &inner) {
          if (inner.proto->device_configurations_size() > 0)
            refuse(inner.name, "is inside of a loop or branch");
        });
    }
    for (const onnx::NodeProto &node : model.graph().node())
      if (node.device_configurations_size() > 0 && !outer.count(&node))
        refuse(node.name(), "is that of a call; inline the model's functions (onnx.inliner)");
    for (const onnx::FunctionProto &function : model.proto->functions())
      for (const onnx::NodeProto &node : function.node())
        if (node.device_configurations_size() > 0)
          refuse(node.name(), "is in a function; inline the model's functions (onnx.inliner)");
  }
  [[noreturn]] void refuse(const std::string &node, const std::string &what) {
    current = node;
    fail(what);
  }

  DeviceAnnotations refuseUnnamed() {
    for (const GraphNode &node : model.nodes)
      if (node.proto->device_configurations_size() > 0)
        refuse(node.name, "names one that the model does not have");
    return {};
  }

  void readNode(const GraphNode &node) {
    current = node.name;
    if (node.proto->device_configurations_size() > 1)
      fail("is there twice");
    const onnx::NodeDeviceConfigurationProto &given = node.proto->device_configurations(0);
    if (given.configuration_id() != result.configuration)
      fail("'" + given.configuration_id() + "' is not that of the model, '" + result.configuration +
           "'");
    NodeDevices &devices = result.nodes.emplace_back();
    devices.node = node.name;
    if (given.has_pipeline_stage())
      devices.stage = given.pipeline_stage();
    if (devices.stage.value_or(0) < 0)
      fail("has pipeline stage " + std::to_string(*devices.stage));
    for (const onnx::ShardingSpecProto &spec : given.sharding_spec())
      devices.tensors.push_back(readTensor(*node.proto, spec));
  }

  TensorShards readTensor(const onnx::NodeProto &node, const onnx::ShardingSpecProto &spec) {
    TensorShards tensor;
    tensor.tensor = spec.tensor_name();
    auto isIn = [&](const auto &names) {
      return std::find(names.begin(), names.end(), spec.tensor_name()) != names.end();
    };
    tensor.isOutput = isIn(node.output());
    if (!tensor.isOutput && !isIn(node.input()))
      fail("shards '" + tensor.tensor + "', which is none of its inputs and outputs");
    std::optional<ParameterView> view;
    if (!tensor.isOutput)
      view = parameterViewOf(model, tensor.tensor);
    if (view)
      tensor.parameter = view->initializer;
    for (const onnx::ShardedDimProto &dim : spec.sharded_dim())
      readDim(dim, view, tensor);
    readGroups(spec, tensor);
    return tensor;
  }

  void readDim(const onnx::ShardedDimProto &dim, const std::optional<ParameterView> &view,
               TensorShards &tensor) {
    int64_t axis = dim.axis();
    if (view) {
      const int64_t rank = model.initializers.at(view->initializer)->dims_size();
      if (axis < -rank || axis >= rank)
        fail("shards axis " + std::to_string(axis) + " of '" + tensor.tensor + "', which has " +
             std::to_string(rank) + " dims");
      axis = axis < 0 ? axis + rank : axis;
      axis = view->dims.empty() ? axis : view->dims[size_t(axis)];
    }
    auto [entry, isNew] = tensor.dims.emplace(axis, std::vector<ShardedPart>());
    if (!isNew)
      fail("shards axis " + std::to_string(dim.axis()) + " of '" + tensor.tensor + "' twice");
    for (const onnx::SimpleShardedDimProto &part : dim.simple_sharding()) {
      if (part.num_shards() < 1)
        fail("has " + std::to_string(part.num_shards()) + " shards of '" + tensor.tensor + "'");
      entry->second.push_back({part.has_dim_value() ? part.dim_value() : 0, part.num_shards()});
    }
  }

  void readGroups(const onnx::ShardingSpecProto &spec, TensorShards &tensor) {
    if (spec.device_size() == 0)
      return;
    std::map<int64_t, std::vector<int64_t>> groups;
    for (const onnx::IntIntListEntryProto &entry : spec.index_to_device_group_map())
      groups[entry.key()].assign(entry.value().begin(), entry.value().end());
    for (int64_t device : spec.device()) {
      auto group = groups.find(device);
      tensor.groups.push_back(group == groups.end() ? std::vector<int64_t>{device} : group->second);
      for (int64_t member : tensor.groups.back())
        if (member < 0 || member >= result.numDevices)
          fail("puts '" + tensor.tensor + "' on device " + std::to_string(member) + " of " +
               std::to_string(result.numDevices));
    }
    // Without sharded dims every listed device has a copy.
    if (tensor.numShards() == 1) {
      std::vector<int64_t> all;
      for (const std::vector<int64_t> &group : tensor.groups)
        all.insert(all.end(), group.begin(), group.end());
      tensor.groups = {all};
    }
    if (int64_t(tensor.groups.size()) != tensor.numShards())
      fail("has " + std::to_string(tensor.numShards()) + " shards of '" + tensor.tensor +
           "' and names " + std::to_string(tensor.groups.size()) + " devices or groups for them");
    for (std::vector<int64_t> &group : tensor.groups)
      std::sort(group.begin(), group.end());
  }

  const Model &model;
  DeviceAnnotations result;
  std::string current;
};

} // namespace

DeviceAnnotations readDeviceAnnotations(const Model &model) { return Reader(model).run(); }

} // namespace tbc::frontend
