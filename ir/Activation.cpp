//===- Activation.cpp - Activations and rotary positions -------------------===//

#include "ir/Activation.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tbc {

//===- gelu ----------------------------------------------------------------===//

static LogicalResult verifyApproximate(Operation *op, StringRef approximate) {
  if (approximate != "none" && approximate != "tanh") // gelu_c1, gelu_grad_c1
    return op->emitOpError() << "has unknown approximation \"" << approximate
                             << "\"; expected none or tanh";
  return success();
}
LogicalResult GeluOp::verify() { return verifyApproximate(*this, getApproximate()); }
LogicalResult GeluGradOp::verify() { return verifyApproximate(*this, getApproximate()); }

LogicalResult GeluOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                               ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<GeluGradOp>(getLoc(), getType(), getInput(),
                                                      cotangents[0], getApproximate());
  return success();
}

/// The argument of erf or tanh in gelu.
static Value geluArgument(Formula &f, Value x, StringRef approximate) {
  if (approximate == "none")
    return f.mul(x, f.number(x, std::sqrt(0.5)));
  Value cube = f.mul(f.mul(x, x), x);
  Value inner = f.add(x, f.mul(f.number(x, 0.044715), cube));
  return f.mul(f.number(x, std::sqrt(2 / M_PI)), inner);
}

LogicalResult GeluOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  Value argument = geluArgument(f, x, getApproximate());
  Value t = getApproximate() == "none" ? f.erf(argument) : f.tanh(argument);
  Value y = f.mul(f.mul(f.number(x, 0.5), x), f.add(f.number(x, 1), t));
  results.assign({f.cast(y, getType().getElementType())});
  return success();
}

LogicalResult GeluGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  Value argument = geluArgument(f, x, getApproximate());
  Value one = f.number(x, 1);
  Value t, derivative, slope; // of erf or tanh at the argument, and of the argument
  if (getApproximate() == "none") {
    t = f.erf(argument);
    derivative = f.mul(f.number(x, 2 / std::sqrt(M_PI)), f.exp(f.neg(f.mul(argument, argument))));
    slope = f.number(x, std::sqrt(0.5));
  } else {
    t = f.tanh(argument);
    derivative = f.sub(one, f.mul(t, t));
    Value cubic = f.mul(f.mul(f.number(x, 3), f.number(x, 0.044715)), f.mul(x, x));
    slope = f.mul(f.number(x, std::sqrt(2 / M_PI)), f.add(one, cubic));
  }
  Value half = f.number(x, 0.5);
  Value direct = f.mul(half, f.add(one, t));
  Value inner = f.mul(f.mul(half, x), f.mul(derivative, slope));
  results.assign({f.cast(f.mul(dy, f.add(direct, inner)), getType().getElementType())});
  return success();
}

//===- silu ----------------------------------------------------------------===//

LogicalResult SiluOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                               ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<SiluGradOp>(getLoc(), getType(), getInput(), cotangents[0]);
  return success();
}

LogicalResult SiluOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  results.assign({f.cast(f.mul(x, f.sigmoid(x)), getType().getElementType())});
  return success();
}

LogicalResult SiluGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  Value s = f.sigmoid(x);
  Value slope = f.add(s, f.mul(x, f.mul(s, f.sub(f.number(s, 1), s))));
  results.assign({f.cast(f.mul(dy, slope), getType().getElementType())});
  return success();
}

//===- swiglu --------------------------------------------------------------===//

LogicalResult SwigluOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0] || !llvm::is_contained(needed, true))
    return success();
  Type type = getType();
  auto grad = builder.create<SwigluGradOp>(getLoc(), TypeRange{type, type}, getGate(), getUp(),
                                           cotangents[0]);
  for (auto [i, result] : llvm::enumerate(grad.getResults()))
    if (needed[i])
      operandCotangents[i] = result;
  return success();
}

LogicalResult SwigluOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getGate());
  Value y = f.mul(f.mul(x, f.sigmoid(x)), f.wide(getUp()));
  results.assign({f.cast(y, getType().getElementType())});
  return success();
}

LogicalResult SwigluGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getGate()), up = f.wide(getUp()), dy = f.wide(getCotangent());
  Value s = f.sigmoid(x);
  Value slope = f.add(s, f.mul(x, f.mul(s, f.sub(f.number(s, 1), s))));
  Type element = tensorType(getGate()).getElementType();
  results.assign(
      {f.cast(f.mul(f.mul(dy, up), slope), element), f.cast(f.mul(dy, f.mul(x, s)), element)});
  return success();
}

//===- rotary --------------------------------------------------------------===//

LogicalResult RotaryOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto input = tensorType(adaptor.getInput());
  if (input.getRank() < 2 || input.getShape().back() % 2 != 0) // rotary_c1
    return emitOptionalError(loc, "rotates ", input, ", which has no two halves by position");
  int64_t positions = input.getRank() - 2, half = input.getShape().back() / 2;
  if (adaptor.getTokenMajor()) {
    ArrayRef<int64_t> table = tensorType(adaptor.getCos()).getShape();
    if (input.getRank() == 3 && !table.empty() && table.back() > 0 && half % table.back() == 0)
      half = table.back();
    else if (input.getRank() != 4) // rotary_c3
      return emitOptionalError(loc, "rotates ", input,
                               ", which has no dims [b, s, h, d] or [b, s, h * d]");
    positions = 1;
  }
  SmallVector<int64_t> shape{input.getDimSize(positions), half};
  if (tensorType(adaptor.getCos()).getRank() == 3 && input.getRank() >= 3)
    shape.insert(shape.begin(), input.getDimSize(0));
  auto table = RankedTensorType::get(shape, input.getElementType());
  for (Value operand : {adaptor.getCos(), adaptor.getSin()})
    if (operand.getType() != table) // rotary_c2
      return emitOptionalError(loc, "has a table of type ", operand.getType(), ", expected ",
                               table);
  types.push_back(input);
  return success();
}

/// Returns the shape of x with heads and columns apart.
static SmallVector<int64_t> rotatedShape(RotaryOp op) {
  SmallVector<int64_t> shape(op.getType().getShape());
  if (op.getTokenMajor() && shape.size() == 3) {
    const int64_t width = 2 * tensorType(op.getCos()).getShape().back();
    shape = {shape[0], shape[1], shape[2] / width, width};
  }
  return shape;
}

FactorRule RotaryOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (int64_t size : rotatedShape(*this))
    loops.push_back(rule.addLoop(size));
  rule.loops.back().kind = LoopKind::Fixed;
  unsigned half = rule.addLoop(tensorType(getCos()).getShape().back(), LoopKind::Fixed);
  SmallVector<unsigned, 4> tableLoops{loops[getTokenMajor() ? 1 : loops.size() - 2], half};
  if (tensorType(getCos()).getRank() == 3)
    tableLoops.insert(tableLoops.begin(), loops.front());
  SmallVector<FactorRule::Dim, 4> table = FactorRule::dims(tableLoops);
  SmallVector<FactorRule::Dim, 4> dims = FactorRule::dims(loops);
  if (dims.size() != getType().getShape().size()) // [b, s, h * d]
    dims = {FactorRule::dim(loops[0]), FactorRule::dim(loops[1]),
            FactorRule::dim({loops[2], loops[3]})};
  rule.operands = {dims, table, table};
  rule.results.push_back(dims);
  return rule;
}
void RotaryOp::resizeLoops(ArrayRef<int64_t>) {}
double RotaryOp::getFlops() { return elementwiseFlops(*this, 3); }
KernelClass RotaryOp::getKernelClass() { return KernelClass::Elementwise; }

LogicalResult RotaryOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0])
    return success();
  if (needed[1] || needed[2])
    return emitOpError("is not differentiable with respect to its cos and sin tables; do not train "
                       "what they are computed from");
  if (needed[0])
    operandCotangents[0] =
        builder.create<RotaryOp>(getLoc(), cotangents[0], getCos(), getSin(), !getInverse(),
                                 getTokenMajor(), getInterleaved());
  return success();
}

bool RotaryOp::canPassTranspose(unsigned operand, ArrayRef<int64_t> permutation) {
  return operand == 0 && permutation == ArrayRef<int64_t>{0, 2, 1, 3};
}

void RotaryOp::passTranspose(unsigned, ArrayRef<int64_t>) { setTokenMajor(!getTokenMajor()); }

bool RotaryOp::canReadMerged(unsigned operand) {
  return operand == 0 && getTokenMajor() && getType().getRank() == 4;
}

void RotaryOp::readMerged(unsigned) {} // the rank of the operand says it
void RotaryOp::makeMerged(unsigned) {} // it has no result of that kind

LogicalResult RotaryOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  const SmallVector<int64_t> shape = rotatedShape(*this);
  const bool isMerged = shape.size() != getType().getShape().size();
  if (isMerged)
    x = f.make<ReshapeOp>(x, shape, ArrayRef<int64_t>{1, 1, 2}, ArrayRef<int64_t>{1, 1, 1, 1});
  int64_t last = int64_t(shape.size()) - 1, half = shape.back() / 2;
  // [.., d] as [.., d / 2, 2] and back; one element of each pair.
  SmallVector<int64_t> halfShape(shape), pairShape(shape);
  halfShape.back() = pairShape.back() = half;
  pairShape.push_back(2);
  SmallVector<int64_t> ones(shape.size(), 1), onesOfPairs(pairShape.size(), 1), lastTwo(ones);
  lastTwo.back() = 2;
  auto elementOfPair = [&](Value pairs, int64_t element) -> Value {
    SmallVector<int64_t> in(onesOfPairs);
    in.back() = 0;
    return f.make<ReshapeOp>(f.make<SliceOp>(pairs, last + 1, element, 1), halfShape, in, ones);
  };
  Value x1, x2;
  if (getInterleaved()) {
    Value pairs = f.make<ReshapeOp>(x, pairShape, lastTwo, onesOfPairs);
    x1 = elementOfPair(pairs, 0), x2 = elementOfPair(pairs, 1);
  } else {
    x1 = f.make<SliceOp>(x, last, 0, half), x2 = f.make<SliceOp>(x, last, half, half);
  }
  auto spread = [&](Value table) {
    SmallVector<int64_t> dims{getTokenMajor() ? 1 : last - 1, last};
    if (tensorType(table).getRank() == 3)
      dims.insert(dims.begin(), 0);
    return broadcastTo(builder, getLoc(), f.wide(table), tensorType(x1).getShape(), dims);
  };
  Value cos = spread(getCos()), sin = spread(getSin());
  Value y1, y2;
  if (getInverse()) {
    y1 = f.add(f.mul(x1, cos), f.mul(x2, sin));
    y2 = f.sub(f.mul(x2, cos), f.mul(x1, sin));
  } else {
    y1 = f.sub(f.mul(x1, cos), f.mul(x2, sin));
    y2 = f.add(f.mul(x2, cos), f.mul(x1, sin));
  }
  Value y;
  if (getInterleaved()) {
    SmallVector<int64_t> dims(shape.size()), single(halfShape);
    std::iota(dims.begin(), dims.end(), 0);
    single.push_back(1);
    auto asElement = [&](Value v) { return broadcastTo(builder, getLoc(), v, single, dims); };
    y = f.make<ConcatOp>(ValueRange{asElement(y1), asElement(y2)}, last + 1);
    y = f.make<ReshapeOp>(y, pairShape, onesOfPairs, lastTwo);
  } else {
    y = f.make<ConcatOp>(ValueRange{y1, y2}, last);
  }
  if (isMerged)
    y = f.make<ReshapeOp>(y, shape, ArrayRef<int64_t>{1, 1, 1, 1}, ArrayRef<int64_t>{1, 1, 2});
  results.assign({f.cast(y, getType().getElementType())});
  return success();
}

} // namespace tbc
