//===- Layout.h - Where everything of a plan lies -------------------------===//
//
// Plain C++. The key "layout" of plan.json: the consequences of the plan's decisions, complete and
// in the terms of any framework, so that an exporter needs neither the model nor this program.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_LAYOUT_H
#define TBC_PLANNER_PLAN_LAYOUT_H

#include "planner/plan/OpPlacement.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

struct Plan;

/// One mesh axis. rank = sum over the axes of coordinate * stride.
struct LayoutAxis {
  std::string axis;
  int64_t size = 1, stride = 1;
  /// How the ranks of one group lie; of the worst group, where groups differ.
  int64_t nodes = 1, perNode = 1;
  bool operator==(const LayoutAxis &o) const {
    return axis == o.axis && size == o.size && stride == o.stride && nodes == o.nodes &&
           perNode == o.perNode;
  }
};

/// A part of a dim: `size` consecutive blocks, split over `axes`.
struct SplitFactor {
  int64_t size = 1;
  AxisNames axes;
  bool operator==(const SplitFactor &o) const { return size == o.size && axes == o.axes; }
};

/// How a dim is split.
///
/// Example: 2304 columns = q, k and v of 12 heads of 64, heads over tp=4, are three segments
/// {12 over tp, 64}. Rank 1 keeps columns 192 to 383 (heads 3 to 5 of q), 960 to 1151 and 1728 to
/// 1919.
struct DimSplit {
  /// The dim is cut into equal contiguous parts over these axes; empty: whole on every rank.
  AxisNames axes;
  /// For every other split, instead of `axes`: the dim is the concatenation of segments, each an
  /// ordered product of factors, the slowest first. A rank keeps its equal part of each factor.
  std::vector<std::vector<SplitFactor>> segments;
  bool operator==(const DimSplit &o) const { return axes == o.axes && segments == o.segments; }
};

/// Where the elements of a tensor lie. Axes that are not named hold replicas.
struct TensorPlacement {
  std::vector<DimSplit> dims;
  /// Every rank has a partial sum (or maximum) along these axes.
  AxisNames partial;
  bool isMaximum = false;
  /// The local part after `dims` is flattened, padded by `padding` elements at its end, and cut
  /// into equal chunks over these axes.
  AxisNames flat;
  int64_t padding = 0;

  bool operator==(const TensorPlacement &o) const {
    return dims == o.dims && partial == o.partial && isMaximum == o.isMaximum && flat == o.flat &&
           padding == o.padding;
  }
};

/// How long a gathered parameter stays.
enum class GatherLifetime {
  Always,             ///< it is stored as it is used
  Step,               ///< gathered after the update, kept for the whole next step
  ForwardAndBackward, ///< gathered in forward, kept to the end of the micro-batch's backward
  Use                 ///< gathered before its first use in each block, dropped after its last
};

/// Returns the word of plan.json: "always", "step", "forward and backward", "use".
const char *name(GatherLifetime lifetime);

/// Parameters with equal shapes and placements.
struct LayoutParameters {
  std::vector<std::string> names; // module paths, or initializers where there is no path
  std::vector<int64_t> shape;
  std::string dtype;
  bool isTrained = true;
  TensorPlacement stored, used;
  /// Empty for a parameter that is not trained: the gradient as summed over the micro-batches of a
  /// step, and the optimizer's states with the master weights. The optimizer reads the reduced
  /// gradient in the placement of its states.
  TensorPlacement gradient, state;
  /// Bytes of optimizer state per element, where they differ from those of most parameters
  /// (Job::stateBytesPerElement).
  std::optional<int64_t> stateBytes;
  GatherLifetime lifetime = GatherLifetime::Always;
  /// The dims that the first op with such dims sums over, or looks up. Example: [0] of a matmul's
  /// weight [in, out], and of a table of embeddings [tokens, width].
  std::vector<int64_t> summed;
};

/// A tensor of the step.
struct LayoutTensor {
  std::vector<int64_t> shape; // of one micro-batch over all data ranks
  std::string dtype;
  TensorPlacement placement;
  bool operator==(const LayoutTensor &o) const {
    return shape == o.shape && dtype == o.dtype && placement == o.placement;
  }
};

/// Tensors with equal shapes and placements.
struct LayoutTensors {
  std::vector<std::string> names;
  LayoutTensor tensor;
};

/// The activations that enter and leave graph blocks, equal in repeats `first` to `last` of them.
struct LayoutBoundary {
  std::string block; // as in the table of layers
  int64_t first = 0, last = 0;
  std::vector<LayoutTensor> inputs, outputs;
};

/// The activations that enter and leave modules; a module has the ops of the modules inside it.
struct LayoutModules {
  std::vector<std::string> names;            // module paths
  std::vector<LayoutTensor> inputs, outputs; // as the first reader inside has it; as produced
};

/// One chunk of the model.
struct LayoutChunk {
  int chunk = 0, stage = 0;
  std::string firstOp;
  std::vector<std::string> modules;
  std::vector<std::string> parameters; // that its stage holds for it
};

/// Forward ops of a module whose results are recomputed, or kept on the host.
struct LayoutMarks {
  std::vector<std::string> modules;
  int64_t ops = 0, of = 0; // marked, of all with results
};

/// Collectives with one cause. Those of equal repeats are one line.
struct LayoutCollective {
  std::string kind, purpose, cause;
  AxisNames axes;
  std::vector<int> stages;
  int64_t bytes = 0; // of one execution on one rank
  int64_t count = 0; // per step, on each rank of each of the stages
};

struct Layout {
  /// Of the decisions that it follows from (decisionsFingerprint).
  std::string decisions;
  std::vector<LayoutAxis> axes; // in rank order, the slowest first
  std::vector<LayoutTensors> inputs;
  std::vector<LayoutParameters> parameters;
  std::vector<LayoutTensors> states; // of the model, such as running statistics
  /// The initializer of each parameter with another name than its module path.
  std::map<std::string, std::string> initializers;
  std::vector<LayoutBoundary> boundaries;
  std::vector<LayoutModules> modules;
  std::vector<LayoutChunk> chunks;
  std::vector<LayoutMarks> recompute, offload;
  std::vector<LayoutCollective> collectives;

  bool isEmpty() const { return decisions.empty(); }
};

/// Returns a fingerprint of the keys of plan.json that are decisions (FNV-1a, 64 bits, in
/// hexadecimal). It finds edits, and is no protection against forgery.
std::string decisionsFingerprint(const Plan &plan);

/// Returns why the layout of `plan` does not belong to its decisions, with what to do, or "".
/// Readers that have no model ask this before they trust the layout.
std::string whyLayoutIsStale(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_LAYOUT_H
