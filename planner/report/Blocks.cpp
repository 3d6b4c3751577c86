//===- Blocks.cpp - The layer table ----------------------------------------===//

#include "planner/report/Blocks.h"
#include "planner/graph/Fold.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Evaluate.h"
#include "planner/report/BlockNames.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

/// Describes the tp splits of one repeat: the number of ops split by a loop in the result (column),
/// by a summed loop (row), and by experts.
static std::string splitText(const PlannedStep &step, const Block &block) {
  int axis = axisIndex(step.assignment.mesh, Axis::Tensor),
      experts = axisIndex(step.assignment.mesh, Axis::Expert);
  int column = 0, row = 0, byExperts = 0;
  for (int op = block.first; op < block.first + block.length; ++op) {
    bool summed = false, split = false;
    for (const auto &[loop, axes] : step.assignment.strategies[op].loopAxes)
      for (const AxisRef &ref : axes)
        if (ref.axis == axis) {
          split = true;
          summed |= step.graph.ops[op].loops[loop].kind != LoopKind::Parallel;
        } else if (ref.axis == experts && loop == step.graph.ops[op].expertLoop) {
          ++byExperts;
        }
    column += split && !summed;
    row += summed;
  }
  std::string text;
  if (column + row > 0)
    text = "tp: " + std::to_string(column) + " column, " + std::to_string(row) + " row";
  if (byExperts > 0)
    text += (text.empty() ? "" : "; ") + ("ep: " + std::to_string(byExperts));
  return text.empty() ? "batch" : text + " of " + std::to_string(block.length) + " ops";
}

/// Returns every repeat as a block of its own.
static std::vector<Block> unfolded(const std::vector<Block> &blocks) {
  std::vector<Block> result;
  for (const Block &block : blocks)
    for (int repeat = 0; repeat < block.count; ++repeat)
      result.push_back({block.first + repeat * block.length, block.length, 1});
  return result;
}

std::vector<BlockRow> blockRows(const Graph &graph, const PlannedStep &step, const Plan &plan,
                                bool folded) {
  Derivation derivation = derive(step.graph, step.assignment);
  OpSeconds seconds =
      opSeconds(step.graph, step.assignment, derivation, stageDevices(plan), !plan.zigzag);
  std::vector<int> anchors = forwardAnchors(step.graph);
  int numForward = numForwardOps(step.graph);
  std::vector<double> secondsAt(numForward, 0), residualAt(numForward, 0);
  std::vector<int64_t> parametersAt(numForward, 0);
  for (size_t op = 0; op < step.graph.ops.size(); ++op)
    secondsAt[anchors[op]] += seconds.kernel[op] + seconds.operands[op];
  std::set<int> counted; // a residual may be kept on several stages
  for (const Residual &residual : derivation.residuals) {
    const GraphValue &value = step.graph.values[residual.value];
    if (value.producer >= 0 && counted.insert(residual.value).second)
      residualAt[anchors[value.producer]] +=
          double(derivation.bytesOf(step.graph, residual.value, residual.sharding));
  }
  for (const KeptRows &kept : derivation.keptRows)
    residualAt[anchors[kept.op]] += double(kept.bytes);
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    if (!value.users.empty())
      parametersAt[anchors[value.users.front()]] += value.layout.numElements();
  }

  std::vector<BlockRow> rows;
  const BlockNames names(graph, plan.job), shownNames(graph, plan.job, shownModuleOf);
  for (const Block &block : folded ? foldBlocks(graph) : unfolded(foldBlocks(graph))) {
    BlockRow row;
    int named = block.first; // constant-derived ops have no name of their own
    while (named + 1 < block.first + block.length && graph.ops[named].generator)
      ++named;
    row.name = names.modulesOf(block);
    row.firstOp = BlockNames::common(graph.ops[named].id,
                                     graph.ops[named + (block.count - 1) * block.length].id);
    if (row.name.empty())
      row.name = shownNames.modulesOf(block);
    if (row.name.empty())
      row.name = row.firstOp;
    row.count = block.count;
    row.ops = block.length;
    row.split = splitText(step, block);
    double residuals = 0;
    for (int op = block.first; op < block.first + block.length; ++op) {
      row.seconds += secondsAt[op];
      residuals += residualAt[op];
      row.parameters += parametersAt[op];
    }
    row.residualBytes = int64_t(residuals);
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace tbc::planner
