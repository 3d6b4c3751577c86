//===- Rebatch.cpp - The same function at another batch size ----------------===//

#include "ir/Rebatch.h"

#include "ir/FactorAnalysis.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// The size of `layout` with factor `batch` at size `size`.
static int64_t resized(const reshard::DimLayout &layout, reshard::FactorId batch, int64_t size) {
  int64_t total = 0;
  for (const reshard::Segment &segment : layout.segments) {
    int64_t product = 1;
    for (const reshard::Factor &factor : segment.factors)
      product *= factor.id == batch ? size : factor.size;
    total += product;
  }
  return total;
}

LogicalResult rebatch(func::FuncOp func, int64_t batch) {
  FactorAnalysis analysis(func);
  if (!analysis.batchFactor())
    return func.emitError("cannot change the batch size: the batch dims of the inputs are not one "
                          "factor of their own");
  reshard::FactorId factor = *analysis.batchFactor();

  auto newType = [&](Value value) {
    SmallVector<int64_t> shape;
    for (unsigned dim = 0; dim < tensorType(value).getRank(); ++dim)
      shape.push_back(resized(analysis.dimLayout(value, dim), factor, batch));
    return RankedTensorType::get(shape, tensorType(value).getElementType());
  };
  Block &body = func.getBody().front();
  // All sizes are read before any is changed: rules follow from types.
  SmallVector<std::pair<Value, Type>> types;
  SmallVector<std::pair<ShardableOpInterface, SmallVector<int64_t>>> loops;
  for (BlockArgument arg : body.getArguments())
    types.push_back({arg, newType(arg)});
  for (Operation &op : body.without_terminator()) {
    for (Value result : op.getResults())
      types.push_back({result, newType(result)});
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable)
      continue;
    SmallVector<int64_t> sizes;
    for (unsigned i = 0, e = shardable.getFactorRule().loops.size(); i < e; ++i)
      sizes.push_back(resized(analysis.loopLayout(&op, i), factor, batch));
    loops.push_back({shardable, sizes});
    auto constant = dyn_cast<ConstantOp>(op);
    if (constant && !constant.getValue().isSplat() && newType(constant) != constant.getType())
      return constant.emitError("this constant has a batch dim, so the model cannot be rebatched; "
                                "export it with a symbolic batch dim");
  }
  for (auto &[value, type] : types)
    value.setType(type);
  for (auto &[op, sizes] : loops)
    op.resizeLoops(sizes);
  SmallVector<Type> argTypes(body.getArgumentTypes());
  SmallVector<Type> resultTypes(body.getTerminator()->getOperandTypes());
  func.setFunctionType(FunctionType::get(func.getContext(), argTypes, resultTypes));
  return success();
}

} // namespace tbc
