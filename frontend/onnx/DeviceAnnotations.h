//===- DeviceAnnotations.h - ONNX's multi-device annotations ---------------===//
//
// Since IR version 11 a model may say on which devices its nodes run: ModelProto.configuration and
// NodeProto.device_configurations, with a pipeline stage and shardings of inputs and outputs
// (onnx.proto, NodeDeviceConfigurationProto).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_DEVICEANNOTATIONS_H
#define TBC_FRONTEND_ONNX_DEVICEANNOTATIONS_H

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::frontend {

struct Model;

/// Metadata key of a model that tbc export annotated: the plan's decisions without a form in ONNX,
/// as flags of tbc plan, in a JSON list.
inline constexpr const char *kPlanFlagsKey = "tbc.flags";

/// A factor of a dim, the slowest first: `size` blocks in `shards` shards.
struct ShardedPart {
  int64_t size = 0; // 0: symbolic or not given
  int64_t shards = 1;
};

/// The sharding of an input or output of a node.
///
/// Example: columns of q, k and v of 12 heads of 64, heads over 4 devices, are the parts {3, 1},
/// {12, 4} and {64, 1} of axis 1.
struct TensorShards {
  std::string tensor;
  bool isOutput = false;
  /// The initializer that it is, or a transpose of; else empty.
  std::string parameter;
  /// By axis; axes of a `parameter` are the initializer's. Axes that are not named are whole.
  std::map<int64_t, std::vector<ShardedPart>> dims;
  /// The devices of each shard, shards in row-major order of axes and parts; empty: not given.
  std::vector<std::vector<int64_t>> groups;

  int64_t numShards() const;
};

/// The annotation of a node.
struct NodeDevices {
  std::string node;
  std::optional<int64_t> stage;
  std::vector<TensorShards> tensors;
};

/// The annotations of a model. Without a configuration there are none.
struct DeviceAnnotations {
  std::string configuration;
  int64_t numDevices = 0; // 0: no annotations
  std::vector<NodeDevices> nodes;
  /// Decisions of an exported plan without a form in ONNX, of kPlanFlagsKey; else empty.
  std::string flags;

  bool isEmpty() const { return numDevices == 0; }
};

/// An initializer seen through transposes and copies.
struct ParameterView {
  std::string initializer;
  /// Dim i of the view is dim `dims[i]` of the initializer; empty: the dims are equal.
  std::vector<int64_t> dims;
};

/// Returns the initializer that `tensor` is a view of, if any.
std::optional<ParameterView> parameterViewOf(const Model &model, const std::string &tensor);

/// Reads the annotations. Throws ImportError, with the node's name, for those that tbc cannot read:
/// several configurations, nodes inside of functions or loops, axes, devices or groups that
/// contradict each other.
DeviceAnnotations readDeviceAnnotations(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_DEVICEANNOTATIONS_H
