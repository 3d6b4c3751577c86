//===- BatchStatistics.cpp - Numbers of the batch inside a loss ------------===//

#include "passes/loss/BatchStatistics.h"

#include "ir/FactorAnalysis.h"
#include "ir/Normalization.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tbc {

/// Returns `output` and all values that it is computed from.
static SetVector<Value> sourcesOf(Value output) {
  SetVector<Value> values;
  values.insert(output);
  for (size_t i = 0; i < values.size(); ++i)
    if (Operation *op = values[i].getDefiningOp())
      values.insert(op->operand_begin(), op->operand_end());
  return values;
}

/// Whether the batch is a factor of `layout`.
static bool hasBatch(const FactorAnalysis &analysis, const reshard::DimLayout &layout) {
  return llvm::any_of(layout.segments, [&](const reshard::Segment &segment) {
    return llvm::any_of(segment.factors, [&](const reshard::Factor &factor) {
      return factor.id == *analysis.batchFactor();
    });
  });
}

static bool hasBatch(const FactorAnalysis &analysis, Value value) {
  return llvm::any_of(analysis.tensorLayout(value).dims,
                      [&](const reshard::DimLayout &layout) { return hasBatch(analysis, layout); });
}

Operation *runAlongSamples(func::FuncOp function, Value output) {
  FactorAnalysis analysis(function);
  if (!analysis.batchFactor())
    return nullptr;
  const SetVector<Value> sources = sourcesOf(output);
  auto runsAlong = [&](Operation &op) {
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable || op.getNumOperands() == 0 || isa<BatchNormTrainOp>(op))
      return false;
    const FactorRule rule = shardable.getFactorRule();
    auto overSamples = [&](unsigned loop) {
      return hasBatch(analysis, analysis.loopLayout(&op, loop));
    };
    // With two loops over the batch, a step has one micro-batch (firstMeeting of planner/reshard).
    auto loops = llvm::make_filter_range(llvm::seq<unsigned>(0, rule.loops.size()), overSamples);
    return llvm::range_size(loops) == 1 && rule.loops[*loops.begin()].kind == LoopKind::Fixed;
  };
  auto found = llvm::find_if(function.getBody().front().without_terminator(), [&](Operation &op) {
    return llvm::any_of(op.getResults(),
                        [&](Value result) {
                          return sources.contains(result) && hasBatch(analysis, result);
                        }) &&
           runsAlong(op);
  });
  return found == function.getBody().front().without_terminator().end() ? nullptr : &*found;
}

Operation *statisticInSamples(func::FuncOp function, Value output) {
  FactorAnalysis analysis(function);
  if (!analysis.batchFactor())
    return nullptr;
  const SetVector<Value> sources = sourcesOf(output);
  llvm::DenseSet<Value> ofSamples;
  llvm::DenseMap<Value, Operation *> statistics; // with the op that left the samples behind
  for (BlockArgument argument : function.getArguments())
    if (hasBatch(analysis, argument))
      ofSamples.insert(argument);
  for (Operation &op : function.getBody().front().without_terminator()) {
    Operation *statistic = nullptr;
    bool isOfSamples = false;
    for (Value operand : op.getOperands()) {
      statistic = statistic ? statistic : statistics.lookup(operand);
      isOfSamples = isOfSamples || ofSamples.contains(operand);
    }
    for (Value result : op.getResults()) {
      if (!sources.contains(result))
        continue;
      if (hasBatch(analysis, result)) {
        if (statistic)
          return statistic;
        ofSamples.insert(result);
      } else if (statistic || isOfSamples) {
        statistics[result] = statistic ? statistic : &op;
      }
    }
  }
  return nullptr;
}

} // namespace tbc
