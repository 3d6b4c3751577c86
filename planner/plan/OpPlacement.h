//===- OpPlacement.h - The split of an op, in terms of its tensors --------===//
//
// Plain C++. plan.json says how an op is split by the dims of its operands and results, as a
// PartitionSpec does, and not by loops, which only this program numbers.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_OPPLACEMENT_H
#define TBC_PLANNER_PLAN_OPPLACEMENT_H

#include "planner/reshard/Graph.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tbc::planner {

/// Names of mesh axes, the slowest first.
using AxisNames = std::vector<std::string>;

/// The axes that split one dim.
struct DimAxes {
  /// The dim is cut into equal contiguous parts over these axes; empty: whole on every rank.
  AxisNames axes;
  /// For every other split, instead of `axes`: the dim is the concatenation of `segments`
  /// segments, and each segment a product of factors, the slowest first. Per factor its axes.
  /// Example: a fused q, k and v projection of 12 heads of width 64, split by heads over tp, is 3
  /// segments with {{"tp"}, {}}: each rank holds its heads of q, of k and of v.
  std::vector<AxisNames> factors;
  int segments = 1;

  bool isWhole() const { return axes.empty() && factors.empty(); }
  bool operator==(const DimAxes &o) const {
    return axes == o.axes && factors == o.factors && segments == o.segments;
  }
};

/// The placement of all tensors of one op while it runs.
///
/// Example: a matmul of [rows, k] and [k, columns], its rows over dp and its sum over tp, is
/// operands {{{"dp"}}, {{"tp"}}}, {{{"tp"}}, {}}, results {{{"dp"}}, {}}, partial {{"tp"}}.
struct OpPlacement {
  std::vector<std::vector<DimAxes>> operands, results; // by tensor and dim
  /// By result: the axes along which each rank has a partial sum, or a partial maximum.
  std::vector<AxisNames> partial;
  bool isMaximum = false;

  bool operator==(const OpPlacement &o) const {
    return operands == o.operands && results == o.results && partial == o.partial &&
           isMaximum == o.isMaximum;
  }
};

/// Returns the placement that axes on loops of op `op` give. `loopAxes`: by loop, names of
/// axisNames().
OpPlacement placementOf(const reshard::Graph &graph, int op,
                        const std::map<int, AxisNames> &loopAxes);

/// Sets `strategy` to the axes on loops that give `placement` to op `op`, the inverse of
/// placementOf(). `axesOf` maps names to axes of the mesh and leaves out those of size 1. Returns
/// "", or why there are none: another number of tensors, dims or factors, a dim without a loop, or
/// one loop split in one tensor and not in another.
std::string
strategyFrom(const reshard::Graph &graph, int op, const OpPlacement &placement,
             const std::function<std::vector<reshard::AxisRef>(const AxisNames &)> &axesOf,
             reshard::OpStrategy &strategy);

/// Returns a placement in one line, for tables. Example: "(dp, tp) (tp, -) -> (dp, -) partial tp".
std::string toString(const OpPlacement &placement);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_OPPLACEMENT_H
