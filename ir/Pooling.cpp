//===- Pooling.cpp - Pooling over spatial windows --------------------------===//

#include "ir/Window.h"

#include "ir/Pooling.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

static FailureOr<RankedTensorType> inferPooling(std::optional<Location> loc, RankedTensorType input,
                                                const Window &window) {
  if (input.getRank() < 3) // max_pool_c1, avg_pool_c1
    return emitOptionalError(loc, "pools ", input, ", which has no spatial dims");
  if (failed(checkWindow(loc, window, input.getRank() - 2))) // max_pool_c1, avg_pool_c1
    return failure();
  auto positions = windowPositions(loc, window, input.getShape().drop_front(2));
  if (failed(positions)) // max_pool_c2, avg_pool_c2
    return failure();
  for (auto [i, pad] : llvm::enumerate(window.pads)) {
    size_t dim = i % window.kernel.size();
    int64_t extent = window.dilations[dim] * (window.kernel[dim] - 1) + 1;
    if (pad >= extent) // max_pool_c2, avg_pool_c2
      return emitOptionalError(loc, "pad of ", pad, " leaves a window of extent ", extent,
                               " outside the input");
  }
  SmallVector<int64_t> shape(input.getShape().take_front(2));
  shape.append(*positions);
  return RankedTensorType::get(shape, input.getElementType());
}

/// Windows of avg_pool are not dilated.
static SmallVector<int64_t> undilated(ArrayRef<int64_t> kernel) {
  return SmallVector<int64_t>(kernel.size(), 1);
}

LogicalResult MaxPoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto type = inferPooling(
      loc, tensorType(adaptor.getInput()),
      {adaptor.getKernel(), adaptor.getStrides(), adaptor.getPads(), adaptor.getDilations()});
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

LogicalResult AvgPoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto dilations = undilated(adaptor.getKernel());
  auto type =
      inferPooling(loc, tensorType(adaptor.getInput()),
                   {adaptor.getKernel(), adaptor.getStrides(), adaptor.getPads(), dilations});
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

static LogicalResult verifyGradient(Operation *op, RankedTensorType input, const Window &window,
                                    Type cotangent) {
  auto type = inferPooling(op->getLoc(), input, window);
  if (failed(type))
    return failure();
  if (*type != cotangent)
    return op->emitOpError() << "has a cotangent of type " << cotangent << " for a pooling of type "
                             << *type;
  return success();
}

LogicalResult MaxPoolGradOp::verify() { // max_pool_grad_c1
  return verifyGradient(*this, tensorType(getInput()),
                        {getKernel(), getStrides(), getPads(), getDilations()},
                        getCotangent().getType());
}
LogicalResult AvgPoolGradOp::verify() { // avg_pool_grad_c1
  auto dilations = undilated(getKernel());
  return verifyGradient(*this, getType(), {getKernel(), getStrides(), getPads(), dilations},
                        getCotangent().getType());
}

FactorRule poolingRule(Operation *op) {
  FactorRule rule;
  auto first = cast<RankedTensorType>(op->getOperand(0).getType());
  unsigned n = rule.addLoop(first.getDimSize(0)), c = rule.addLoop(first.getDimSize(1));
  // Spatial dims of the pooled and of the unpooled tensor differ: loops of their own, told apart by
  // shape.
  auto dimsOf = [&](Type type) {
    SmallVector<unsigned, 4> loops{n, c};
    for (int64_t size : cast<RankedTensorType>(type).getShape().drop_front(2))
      loops.push_back(rule.addLoop(size, LoopKind::Fixed));
    return FactorRule::dims(loops);
  };
  for (Type type : op->getOperandTypes())
    rule.operands.push_back(dimsOf(type));
  Type result = op->getResult(0).getType();
  // The gradient of a pooling has the input's dims.
  rule.results.push_back(op->getNumOperands() == 2 ? rule.operands[0] : dimsOf(result));
  return rule;
}

double poolingFlops(Operation *op, ArrayRef<int64_t> kernel) {
  // The pooled tensor is the smaller one.
  double positions = double(cast<RankedTensorType>(op->getResult(0).getType()).getNumElements());
  for (Type type : op->getOperandTypes())
    positions = std::min(positions, double(cast<RankedTensorType>(type).getNumElements()));
  for (int64_t size : kernel)
    positions *= double(size);
  return positions;
}

LogicalResult MaxPoolOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<MaxPoolGradOp>(getLoc(), getInput().getType(), getInput(), cotangents[0],
                                      getKernel(), getStrides(), getPads(), getDilations());
  return success();
}

LogicalResult AvgPoolOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<AvgPoolGradOp>(getLoc(), getInput().getType(), cotangents[0], getKernel(),
                                      getStrides(), getPads(), getCountIncludePad());
  return success();
}

} // namespace tbc
