//===- Axes.h - The axes of a plan's mesh ----------------------------------===//
//
// Part of tbc. Plain C++. One row per axis; the planner and the runtime ask it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MESH_AXES_H
#define TBC_RUNTIME_MESH_AXES_H

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::mesh {

/// The axes in the order of ranks: pp slowest, tp fastest.
enum class Axis { Pipeline, Data, ShardedData, Expert, Context, Tensor };

/// What differs between ranks along an axis.
enum class Divides {
  Layers,   // each rank has a pipeline stage
  Samples,  // each rank has its own samples, and all ops
  Experts,  // each rank has its own samples, and some of the experts
  Sequence, // each rank has some of the tokens of the same samples
  Tensors,  // each rank has a part of ops on the same tokens
};

/// The facts of an axis. No field has a default, so that a new row answers every question.
struct AxisRow {
  const char *name;
  Divides divides;
  /// Whether ranks along it compute some values in common, whose bits must be equal on all of them.
  /// Example: tp, where every rank normalizes the same tokens.
  bool needsEqualBits;
};

/// Returns all axes, in the order of ranks.
const std::vector<Axis> &allAxes();
AxisRow row(Axis axis);
/// Returns the axis of a name: "fsdp" is ShardedData. nullopt for any other text.
std::optional<Axis> parseAxis(std::string_view name);

/// Names in the order of ranks: of all axes; of axes with samples of their own (dp, fsdp, ep); of
/// axes with tokens of their own (dp, fsdp, ep, cp); of axes that divide one thing.
const std::vector<std::string> &axisNames();
const std::vector<std::string> &dataAxisNames();
const std::vector<std::string> &tokenAxisNames();
std::vector<std::string> axisNames(Divides divides);

} // namespace tbc::mesh

#endif // TBC_RUNTIME_MESH_AXES_H
