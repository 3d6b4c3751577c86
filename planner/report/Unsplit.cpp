//===- Unsplit.cpp - Work not split over tp -------------------------------===//

#include "planner/report/Unsplit.h"
#include "planner/graph/Recompute.h"
#include "runtime/mesh/AxisIndex.h"

#include <cstdio>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the sizes of splittable loops of `op` that `n` does not divide. Example: "25" or "25 and
/// 3".
static std::string undivided(const Graph &graph, const GraphOp &op, int64_t n) {
  std::string text;
  for (const Loop &loop : op.loops)
    if (loop.kind != LoopKind::Fixed && loop.factor != graph.batchFactor && loop.size > 1 &&
        loop.size % n != 0)
      text += (text.empty() ? "" : " and ") + std::to_string(loop.size);
  return text;
}

std::vector<std::string> unsplitWork(const PlannedStep &step) {
  const Mesh &mesh = step.assignment.mesh;
  int axis = axisIndex(mesh, Axis::Tensor);
  if (axis < 0)
    return {};
  struct Unsplit {
    double flops = 0;
    int count = 0, first = -1;
  };
  std::map<std::string, Unsplit> kinds;
  double total = 0;
  for (int op = 0; op < numForwardOps(step.graph); ++op) {
    const GraphOp &graphOp = step.graph.ops[op];
    total += graphOp.flops;
    bool isSplit = false;
    for (const auto &[loop, axes] : step.assignment.strategies[op].loopAxes)
      for (const AxisRef &ref : axes)
        isSplit |= ref.axis == axis;
    if (isSplit || graphOp.flops == 0)
      continue;
    Unsplit &kind = kinds[graphOp.kind];
    kind.flops += graphOp.flops;
    kind.first = kind.count++ ? kind.first : op;
  }
  std::vector<std::string> lines;
  for (const auto &[name, kind] : kinds) {
    constexpr double leastShare = 0.05;
    if (kind.flops < leastShare * total)
      continue;
    std::string why = undivided(step.graph, step.graph.ops[kind.first], mesh.axes[axis].size);
    char share[16];
    std::snprintf(share, sizeof share, "%.0f %%", 100 * kind.flops / total);
    lines.push_back("every device of a tp group does all of " + std::to_string(kind.count) + " " +
                    name + " ops, " + share + " of the forward FLOPs" +
                    (why.empty() ? ""
                                 : ": " + why + " does not divide by tp=" +
                                       std::to_string(mesh.axes[axis].size)));
  }
  return lines;
}

} // namespace tbc::planner
