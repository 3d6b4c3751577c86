//===- LastBackward.cpp - Gradients completed in the last backward ---------===//
//
// In its last backward of a step a chunk adds the gradients of that micro-batch to the accumulated
// ones itself, and reduces the totals over the data ranks: beside the rest of the backward.
//
//===----------------------------------------------------------------------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Formula.h"

using namespace mlir;

namespace tbc {

using reshard::Where;

void LocalBlock::findLastReductions() {
  std::map<int, int> parameterOf; // by gradient
  for (auto [p, parameter] : llvm::enumerate(in.graph.parameters))
    if (in.derivation.isReducedLast[p])
      parameterOf[parameter.gradient] = int(p);
  for (const reshard::Reshard &reshard : in.derivation.reshards)
    if (reshard.where == Where::GradientLast && reshard.chunk == chunk)
      lastReductions[parameterOf.at(reshard.value)] = &reshard;
}

/// Adds `part`, the gradient of the last micro-batch, to those of the others, and reduces the
/// total, or all totals of its bucket once these are at hand.
void LocalBlock::completeGradient(Value part, int parameter) {
  const reshard::Reshard *reshard = lastReductions.at(parameter);
  Value total = addToTotal(part, parameter);
  if (int bucket = in.overlap.bucket(in.derivation, *reshard); bucket >= 0) {
    totals[bucket][reshard] = {parameter, total};
    if (totals[bucket].size() == in.overlap.buckets[bucket].reshards.size())
      reduceTotals(bucket);
    return;
  }
  storeTotal(parameter, total,
             emitReshard(function.builder(), part.getLoc(), total, *reshard,
                         in.graph.values[reshard->value].layout, in.assignment.mesh));
}

/// Both ops are one kernel.
Value LocalBlock::addToTotal(Value part, int parameter) {
  const reshard::GraphValue &value = in.graph.values[in.graph.parameters[parameter].value];
  Type elementType = in.accumulatorTypes.lookup(value.name);
  auto type = RankedTensorType::get(
      reshard::localShape(value.layout, in.derivation.gradient[parameter]), elementType);
  Value others = function.addArgument(type, TensorRole::GradientAccumulator, value.name);
  Formula f{function.builder(), part.getLoc()};
  Value wide = f.cast(part, elementType);
  Value total = f.add(others, wide);
  auto kernel = f.builder.getI64IntegerAttr(numKernels++);
  for (auto [made, suffix] : {std::pair(wide, ".wide"), std::pair(total, ".total")})
    if (made != part) {
      made.getDefiningOp()->setAttr(kIdAttr, f.builder.getStringAttr(value.name + suffix));
      made.getDefiningOp()->setAttr(kKernelAttr, kernel);
    }
  return total;
}

void LocalBlock::reduceTotals(int bucket) {
  SmallVector<BucketMember> members;
  SmallVector<std::pair<int, Value>> completed;
  for (int index : in.overlap.buckets[bucket].reshards) {
    const reshard::Reshard &reshard = in.derivation.reshards[index];
    completed.push_back(totals[bucket].at(&reshard));
    members.push_back({locOf(reshard.value), completed.back().second, &reshard,
                       &in.graph.values[reshard.value].layout});
  }
  emitBucket(function.builder(), members, bucket, in.assignment.mesh);
  for (auto [total, member] : llvm::zip_equal(completed, members))
    storeTotal(total.first, total.second, member.value);
}

/// Keeps a reduced gradient for the update: in place of the accumulated one where it has the same
/// shape, else beside it.
void LocalBlock::storeTotal(int parameter, Value total, Value reduced) {
  StringRef name = in.graph.values[in.graph.parameters[parameter].value].name;
  if (in.derivation.isReducedInPlace(parameter)) {
    function.addResult(reduced, TensorRole::TotalGradient, name);
    return;
  }
  function.addResult(total, TensorRole::TotalGradient, name);
  function.addResult(reduced, TensorRole::ReducedGradient, name);
}

} // namespace tbc
