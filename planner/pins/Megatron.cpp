//===- Megatron.cpp - Tensor parallelism as Megatron-LM lays it out -------===//

#include "planner/pins/Megatron.h"
#include "planner/graph/Recompute.h"
#include "planner/pins/OpPins.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// What a value holds on a rank of tp.
enum class Held {
  NoData, // from parameters and constants alone
  Whole,
  Part // of the features or the heads
};

/// Whether `op` has a loop over the tokens that may be split.
bool hasTokens(const Graph &graph, const GraphOp &op) {
  return std::any_of(op.loops.begin(), op.loops.end(), [&](const Loop &loop) {
    return loop.factor == graph.sequenceFactor && loop.kind == LoopKind::Parallel && loop.size > 1;
  });
}

} // namespace

std::vector<unsigned> megatronSplits(const Graph &graph, bool splitsTokens,
                                     std::vector<bool> &isMatrix) {
  std::vector<Held> held(graph.values.size(), Held::NoData);
  for (size_t value = 0; value < graph.values.size(); ++value)
    if (graph.values[value].producer < 0 && graph.values[value].role != ValueRole::Parameter)
      held[value] = Held::Whole;
  std::vector<unsigned> splits(graph.ops.size(), AnySplit);
  isMatrix.assign(graph.ops.size(), false);
  bool hasTable = false;
  for (int index = 0; index < numForwardOps(graph); ++index) {
    const GraphOp &op = graph.ops[size_t(index)];
    if (op.generator)
      continue;
    Held result = Held::NoData;
    bool readsMatrix = false;
    for (int value : op.operands) {
      result = std::max(result, held[size_t(value)]);
      readsMatrix |= isParameterMatrix(graph, value);
    }
    unsigned &allowed = splits[size_t(index)];
    if (readsMatrix && result != Held::NoData && op.kernelClass == KernelClass::Gather) {
      allowed = hasTable ? WholeOp | TokenSplit : unsigned(RowSplit);
      isMatrix[size_t(index)] = !hasTable;
      hasTable = true;
      result = Held::Whole;
    } else if (readsMatrix && op.flops > 0 && isMatrixClass(op.kernelClass) &&
               result != Held::NoData) {
      isMatrix[size_t(index)] = true;
      allowed = result == Held::Whole ? ColumnSplit : RowSplit;
      result = result == Held::Whole ? Held::Part : Held::Whole;
    } else if (result == Held::Whole && splitsTokens && hasTokens(graph, op)) {
      allowed = TokenSplit;
    } else if (result == Held::Whole) {
      allowed = WholeOp;
    }
    for (int value : op.results)
      held[size_t(value)] = result;
  }
  return splits;
}

} // namespace tbc::planner
