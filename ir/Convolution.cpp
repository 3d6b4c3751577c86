//===- Convolution.cpp - Convolution and its gradients ---------------------===//

#include "ir/Window.h"

#include "ir/Convolution.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

//===- windows -------------------------------------------------------------===//

LogicalResult checkWindow(std::optional<Location> loc, const Window &window, int64_t numSpatial) {
  auto matches = [&](ArrayRef<int64_t> list, int64_t count, int64_t least) {
    return int64_t(list.size()) == count &&
           llvm::all_of(list, [&](int64_t n) { return n >= least; });
  };
  if (!matches(window.kernel, numSpatial, 1))
    return emitOptionalError(loc, "kernel needs a positive size for each of ", numSpatial,
                             " spatial dims");
  if (!matches(window.strides, numSpatial, 1))
    return emitOptionalError(loc, "strides needs a positive number for each of ", numSpatial,
                             " spatial dims");
  if (!matches(window.dilations, numSpatial, 1))
    return emitOptionalError(loc, "dilations needs a positive number for each of ", numSpatial,
                             " spatial dims");
  if (!matches(window.pads, 2 * numSpatial, 0))
    return emitOptionalError(loc, "pads needs two numbers, not negative, for each of ", numSpatial,
                             " spatial dims");
  return success();
}

FailureOr<SmallVector<int64_t>> windowPositions(std::optional<Location> loc, const Window &window,
                                                ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> positions;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    int64_t padded = size + window.pads[i] + window.pads[sizes.size() + i];
    int64_t extent = window.dilations[i] * (window.kernel[i] - 1) + 1;
    if (extent > padded)
      return emitOptionalError(loc, "window of extent ", extent, " does not fit into ", padded,
                               " elements of spatial dim ", i);
    positions.push_back((padded - extent) / window.strides[i] + 1);
  }
  return positions;
}

//===- shapes --------------------------------------------------------------===//

/// The type of conv(input, weight).
static FailureOr<RankedTensorType> inferConv(std::optional<Location> loc, RankedTensorType input,
                                             RankedTensorType weight, ArrayRef<int64_t> strides,
                                             ArrayRef<int64_t> pads, ArrayRef<int64_t> dilations,
                                             int64_t groups) {
  if (input.getRank() < 3 || input.getRank() != weight.getRank() ||
      input.getElementType() != weight.getElementType()) // conv_c1
    return emitOptionalError(loc, "convolves ", input, " with ", weight);
  int64_t channels = input.getDimSize(1), outputs = weight.getDimSize(0);
  ArrayRef<int64_t> kernel = weight.getShape().drop_front(2);
  Window window{kernel, strides, pads, dilations};
  if (failed(checkWindow(loc, window, kernel.size()))) // conv_c2
    return failure();
  if (groups < 1 || channels % groups != 0 || outputs % groups != 0 ||
      weight.getDimSize(1) != channels / groups) // conv_c3
    return emitOptionalError(loc, groups, " groups do not split ", input, " and ", weight);
  auto positions = windowPositions(loc, window, input.getShape().drop_front(2));
  if (failed(positions)) // conv_c4
    return failure();
  SmallVector<int64_t> shape{input.getDimSize(0), outputs};
  shape.append(*positions);
  return RankedTensorType::get(shape, input.getElementType());
}

LogicalResult ConvOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  auto type = inferConv(loc, tensorType(adaptor.getInput()), tensorType(adaptor.getWeight()),
                        adaptor.getStrides(), adaptor.getPads(), adaptor.getDilations(),
                        adaptor.getGroups());
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

/// Checks that a gradient op belongs to the conv of `input` with `weight` that gave `cotangent`.
template <typename Op>
static LogicalResult verifyGradient(Op op, RankedTensorType input, RankedTensorType weight,
                                    RankedTensorType cotangent) {
  auto type = inferConv(op.getLoc(), input, weight, op.getStrides(), op.getPads(),
                        op.getDilations(), op.getGroups());
  if (failed(type))
    return failure();
  if (*type != cotangent)
    return op.emitOpError() << "has a cotangent of type " << cotangent
                            << " for a convolution of type " << *type;
  return success();
}

LogicalResult ConvGradInputOp::verify() { // conv_grad_input_c1
  return verifyGradient(*this, getType(), tensorType(getWeight()), tensorType(getCotangent()));
}
LogicalResult ConvGradWeightOp::verify() { // conv_grad_weight_c1
  return verifyGradient(*this, tensorType(getInput()), getType(), tensorType(getCotangent()));
}

//===- factors -------------------------------------------------------------===//

/// The dims of input, weight and output over common loops: n, groups, inputs and outputs per group,
/// then the spatial dims of input, weight and output.
struct ConvolutionDims {
  SmallVector<FactorRule::Dim, 4> input, weight, output;
};

static ConvolutionDims convolutionDims(FactorRule &rule, RankedTensorType input,
                                       RankedTensorType weight, RankedTensorType output,
                                       int64_t groups, LoopKind n, LoopKind inputs,
                                       LoopKind outputs) {
  unsigned nLoop = rule.addLoop(input.getDimSize(0), n);
  unsigned groupLoop = rule.addLoop(groups);
  unsigned inLoop = rule.addLoop(weight.getDimSize(1), inputs);
  unsigned outLoop = rule.addLoop(weight.getDimSize(0) / groups, outputs);
  auto grouped = [&](unsigned loop) {
    return groups == 1 ? FactorRule::dim(loop) : FactorRule::dim({groupLoop, loop});
  };
  auto withSpatial = [&](FactorRule::Dim first, FactorRule::Dim second, RankedTensorType type) {
    SmallVector<FactorRule::Dim, 4> dims{first, second};
    for (int64_t size : type.getShape().drop_front(2))
      dims.push_back(FactorRule::dim(rule.addLoop(size, LoopKind::Fixed)));
    return dims;
  };
  ConvolutionDims dims;
  dims.input = withSpatial(FactorRule::dim(nLoop), grouped(inLoop), input);
  dims.weight = withSpatial(grouped(outLoop), FactorRule::dim(inLoop), weight);
  dims.output = withSpatial(FactorRule::dim(nLoop), grouped(outLoop), output);
  return dims;
}

FactorRule ConvOp::getFactorRule() {
  FactorRule rule;
  auto dims =
      convolutionDims(rule, tensorType(getInput()), tensorType(getWeight()), getType(), getGroups(),
                      LoopKind::Parallel, LoopKind::Reduction, LoopKind::Parallel);
  rule.operands = {dims.input, dims.weight};
  rule.results.push_back(dims.output);
  return rule;
}
FactorRule ConvGradInputOp::getFactorRule() {
  FactorRule rule;
  auto dims =
      convolutionDims(rule, getType(), tensorType(getWeight()), tensorType(getCotangent()),
                      getGroups(), LoopKind::Parallel, LoopKind::Parallel, LoopKind::Reduction);
  rule.operands = {dims.output, dims.weight};
  rule.results.push_back(dims.input);
  return rule;
}
FactorRule ConvGradWeightOp::getFactorRule() {
  FactorRule rule;
  auto dims =
      convolutionDims(rule, tensorType(getInput()), getType(), tensorType(getCotangent()),
                      getGroups(), LoopKind::Reduction, LoopKind::Parallel, LoopKind::Parallel);
  rule.operands = {dims.input, dims.output};
  rule.results.push_back(dims.weight);
  return rule;
}

void ConvOp::resizeLoops(ArrayRef<int64_t> sizes) { setGroups(sizes[1]); }
void ConvGradInputOp::resizeLoops(ArrayRef<int64_t> sizes) { setGroups(sizes[1]); }
void ConvGradWeightOp::resizeLoops(ArrayRef<int64_t> sizes) { setGroups(sizes[1]); }

double convolutionFlops(const FactorRule &rule) {
  // The input's spatial loops stand before those of the weight and the output. They are not loops
  // of the computation: each is a position plus an offset in the window.
  size_t numSpatial = (rule.loops.size() - 4) / 3;
  double product = 2;
  for (auto [i, loop] : llvm::enumerate(rule.loops))
    if (i < 4 || i >= 4 + numSpatial)
      product *= double(loop.size);
  return product;
}

//===- gradient ------------------------------------------------------------===//

LogicalResult ConvOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                               ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  Value dy = cotangents[0];
  if (!dy)
    return success();
  if (needed[0])
    operandCotangents[0] =
        builder.create<ConvGradInputOp>(getLoc(), getInput().getType(), dy, getWeight(),
                                        getStrides(), getPads(), getDilations(), getGroups());
  if (needed[1])
    operandCotangents[1] =
        builder.create<ConvGradWeightOp>(getLoc(), getWeight().getType(), getInput(), dy,
                                         getStrides(), getPads(), getDilations(), getGroups());
  return success();
}

/// It is linear in either operand, and the transpose of a conv in the first.
LogicalResult ConvGradInputOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                        ArrayRef<bool> needed,
                                        SmallVectorImpl<Value> &operandCotangents) {
  Value dx = cotangents[0];
  if (!dx)
    return success();
  if (needed[0])
    operandCotangents[0] = builder.create<ConvOp>(getLoc(), dx, getWeight(), getStrides(),
                                                  getPads(), getDilations(), getGroups());
  if (needed[1])
    operandCotangents[1] =
        builder.create<ConvGradWeightOp>(getLoc(), getWeight().getType(), dx, getCotangent(),
                                         getStrides(), getPads(), getDilations(), getGroups());
  return success();
}

} // namespace tbc
