//===- Pooling.cpp - Pooling over spatial windows --------------------------===//

#include "ir/Window.h"

#include "ir/PoolWorkspace.h"
#include "ir/Pooling.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// Checks that every window reads an element of the input. Windows overlap the input by now, so a
/// window misses it only by stepping over all of it. Example: a kernel of 2 with a dilation of 3
/// and a pad of 1 reads positions -1 and 2 of an input of 2 elements, with positions 0 and 1.
static LogicalResult checkTaps(std::optional<Location> loc, const Window &window,
                               ArrayRef<int64_t> sizes, ArrayRef<int64_t> positions) {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    int64_t dilation = window.dilations[dim], size = sizes[dim];
    if (dilation <= size)
      continue;
    for (int64_t position = 0; position < positions[dim]; ++position) {
      int64_t begin = position * window.strides[dim] - window.pads[dim];
      int64_t tap = begin < 0 ? (-begin + dilation - 1) / dilation : 0; // the first not before 0
      if (tap >= window.kernel[dim] || begin + tap * dilation >= size)
        return emitOptionalError(
            loc, "window ", position, " of spatial dim ", dim,
            " lies in padding alone: its dilation of ", dilation, " steps over all ", size,
            " elements, so it has no maximum; reduce the dilation or the pads");
    }
  }
  return success();
}

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
  if (failed(checkTaps(loc, window, input.getShape().drop_front(2), *positions)))
    return failure();
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

WorkspaceFn maxPoolWorkspace(ArrayRef<int64_t> kernel) {
  int64_t taps = 1;
  for (int64_t size : kernel)
    taps *= size;
  return [taps](const std::vector<std::vector<int64_t>> &shapes) { // of input and cotangent
    int64_t windows = 1;
    for (int64_t size : shapes[1])
      windows *= size;
    return argmaxBytes(windows, taps);
  };
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
