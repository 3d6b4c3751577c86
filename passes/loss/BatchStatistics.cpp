//===- BatchStatistics.cpp - Numbers of the batch inside a loss ------------===//

#include "passes/loss/BatchStatistics.h"

#include "ir/FactorAnalysis.h"

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

Operation *statisticInSamples(func::FuncOp function, Value output) {
  FactorAnalysis analysis(function);
  if (!analysis.batchFactor())
    return nullptr;
  auto hasBatch = [&](Value value) {
    for (const reshard::DimLayout &dim : analysis.tensorLayout(value).dims)
      for (const reshard::Segment &segment : dim.segments)
        for (const reshard::Factor &factor : segment.factors)
          if (factor.id == *analysis.batchFactor())
            return true;
    return false;
  };
  const SetVector<Value> sources = sourcesOf(output);
  llvm::DenseSet<Value> ofSamples;
  llvm::DenseMap<Value, Operation *> statistics; // with the op that left the samples behind
  for (BlockArgument argument : function.getArguments())
    if (hasBatch(argument))
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
      if (hasBatch(result)) {
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
