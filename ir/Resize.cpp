//===- Resize.cpp - The same function with factors of other sizes ----------===//

#include "ir/Resize.h"

#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::DimLayout;
using reshard::Factor;
using reshard::Segment;

/// Calls `visit` with every factor of `layout`.
static void forEachFactor(const DimLayout &layout, function_ref<void(const Factor &)> visit) {
  for (const Segment &segment : layout.segments)
    for (const Factor &factor : segment.factors)
      visit(factor);
}

FactorSizes resizableFactors(func::FuncOp func, const FactorAnalysis &analysis) {
  FactorSizes found;
  auto add = [&](const Factor &factor) {
    if (analysis.isShardable(factor.id))
      found[factor.id] = factor.size;
  };
  auto addValue = [&](Value value) {
    for (const DimLayout &dim : analysis.tensorLayout(value).dims)
      forEachFactor(dim, add);
  };
  Block &body = func.getBody().front();
  llvm::for_each(body.getArguments(), addValue);
  for (Operation &op : body)
    llvm::for_each(op.getResults(), addValue);
  for (Operation &op : body) {
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable)
      continue;
    for (unsigned i = 0, e = shardable.getFactorRule().loops.size(); i < e; ++i)
      if (!shardable.isResizable(i))
        forEachFactor(analysis.loopLayout(&op, i),
                      [&](const Factor &factor) { found.erase(factor.id); });
  }
  if (analysis.batchFactor())
    found.erase(*analysis.batchFactor());
  return found;
}

static int64_t newSize(const Factor &factor, const FactorSizes &sizes) {
  auto it = sizes.find(factor.id);
  return it == sizes.end() ? factor.size : it->second;
}

int64_t resized(const DimLayout &layout, const FactorSizes &sizes) {
  int64_t total = 0;
  for (const Segment &segment : layout.segments) {
    int64_t product = 1;
    for (const Factor &factor : segment.factors)
      product *= newSize(factor, sizes);
    total += product;
  }
  return total;
}

/// For every index of the resized dim, the index before.
static SmallVector<int64_t> oldIndices(const DimLayout &layout, const FactorSizes &sizes) {
  SmallVector<int64_t> result;
  int64_t offset = 0;
  for (const Segment &segment : layout.segments) {
    SmallVector<int64_t> indices{0};
    int64_t oldTotal = 1;
    for (const Factor &factor : segment.factors) {
      SmallVector<int64_t> finer;
      for (int64_t index : indices)
        for (int64_t i = 0, e = newSize(factor, sizes); i < e; ++i)
          finer.push_back(index * factor.size + i);
      indices = std::move(finer);
      oldTotal *= factor.size;
    }
    for (int64_t index : indices)
      result.push_back(offset + index);
    offset += oldTotal;
  }
  return result;
}

/// Returns the remaining elements of `constant`.
static FailureOr<DenseElementsAttr> sliced(ConstantOp constant, const FactorAnalysis &analysis,
                                           const FactorSizes &sizes, RankedTensorType type) {
  SmallVector<SmallVector<int64_t>> indices;
  for (const DimLayout &dim : analysis.tensorLayout(constant).dims) {
    bool grows = false;
    forEachFactor(dim, [&](const Factor &f) { grows |= newSize(f, sizes) > f.size; });
    if (grows)
      return constant.emitError("this constant would have to grow");
    indices.push_back(oldIndices(dim, sizes));
  }
  auto dense = cast<DenseElementsAttr>(constant.getValue());
  SmallVector<int64_t> linear{0};
  for (auto [dim, kept] : llvm::enumerate(indices)) {
    SmallVector<int64_t> finer;
    for (int64_t index : linear)
      for (int64_t i : kept)
        finer.push_back(index * constant.getType().getDimSize(dim) + i);
    linear = std::move(finer);
  }
  auto values = dense.getValues<Attribute>();
  SmallVector<Attribute> kept;
  for (int64_t index : linear)
    kept.push_back(values[index]);
  return DenseElementsAttr::get(type, kept);
}

LogicalResult resizeFactors(func::FuncOp func, const FactorAnalysis &analysis,
                            const FactorSizes &sizes) {
  auto newType = [&](Value value) {
    SmallVector<int64_t> shape;
    for (unsigned dim = 0; dim < tensorType(value).getRank(); ++dim)
      shape.push_back(resized(analysis.dimLayout(value, dim), sizes));
    return RankedTensorType::get(shape, tensorType(value).getElementType());
  };
  Block &body = func.getBody().front();
  // All sizes are read before any is changed: rules follow from types.
  SmallVector<std::pair<Value, Type>> types;
  SmallVector<std::pair<ShardableOpInterface, SmallVector<int64_t>>> loops;
  SmallVector<std::pair<ConstantOp, DenseElementsAttr>> constants;
  for (BlockArgument arg : body.getArguments())
    types.push_back({arg, newType(arg)});
  for (Operation &op : body.without_terminator()) {
    for (Value result : op.getResults())
      types.push_back({result, newType(result)});
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable)
      continue;
    SmallVector<int64_t> loopSizes;
    for (unsigned i = 0, e = shardable.getFactorRule().loops.size(); i < e; ++i)
      loopSizes.push_back(resized(analysis.loopLayout(&op, i), sizes));
    loops.push_back({shardable, loopSizes});
    auto constant = dyn_cast<ConstantOp>(op);
    if (constant && !constant.getValue().isSplat() && newType(constant) != constant.getType()) {
      auto value = sliced(constant, analysis, sizes, newType(constant));
      if (failed(value))
        return failure();
      constants.push_back({constant, *value});
    }
  }
  for (auto &[value, type] : types)
    value.setType(cast<RankedTensorType>(type));
  for (auto &[op, loopSizes] : loops)
    op.resizeLoops(loopSizes);
  for (auto &[constant, value] : constants)
    constant.setValueAttr(value);
  SmallVector<Type> argTypes(body.getArgumentTypes());
  SmallVector<Type> resultTypes(body.getTerminator()->getOperandTypes());
  func.setFunctionType(FunctionType::get(func.getContext(), argTypes, resultTypes));
  return success();
}

} // namespace tbc
