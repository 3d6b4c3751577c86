//===- Elementwise.cpp - Ops that act on each element ----------------------===//

#include "ir/Elementwise.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

#include <cmath>

using namespace mlir;

namespace tbc {

/// The VJP of a unary op: the cotangent times DERIVATIVE, an expression in x, y (the result), f and
/// builder.
#define TBC_UNARY_VJP(OP, DERIVATIVE)                                                              \
  LogicalResult OP::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,                       \
                             ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {   \
    Formula f{builder, getLoc()};                                                                  \
    Value x = getInput(), y = getResult(), dy = cotangents[0];                                     \
    (void)f, (void)x, (void)y;                                                                     \
    if (needed[0] && dy)                                                                           \
      operandCotangents[0] = DERIVATIVE;                                                           \
    return success();                                                                              \
  }

TBC_UNARY_VJP(NegOp, f.neg(dy))
// 0 at 0, between both slopes.
TBC_UNARY_VJP(AbsOp, f.select(f.compare(x, f.number(x, 0), "lt"), f.neg(dy),
                              f.select(f.compare(x, f.number(x, 0), "gt"), dy, f.number(dy, 0))))
TBC_UNARY_VJP(ExpOp, f.mul(dy, y))
TBC_UNARY_VJP(LogOp, f.div(dy, x))
// At 0 it is 0, as PyTorch has it for norms and distances, which exporters write as roots of sums.
TBC_UNARY_VJP(SqrtOp,
              f.select(f.compare(y, f.number(y, 0), "eq"), f.number(y, 0), f.div(dy, f.add(y, y))))
TBC_UNARY_VJP(RsqrtOp, f.mul(dy, f.mul(f.number(y, -0.5), f.mul(y, f.mul(y, y)))))
TBC_UNARY_VJP(ReciprocalOp, f.neg(f.mul(dy, f.mul(y, y))))
TBC_UNARY_VJP(TanhOp, f.mul(dy, f.sub(f.number(y, 1), f.mul(y, y))))
// d erf(x) / dx = 2 / sqrt(pi) * exp(-x^2)
TBC_UNARY_VJP(ErfOp, f.mul(dy, f.mul(f.number(x, 2 / std::sqrt(M_PI)),
                                     builder.create<ExpOp>(getLoc(), f.neg(f.mul(x, x))))))
TBC_UNARY_VJP(SigmoidOp, f.mul(dy, f.mul(y, f.sub(f.number(y, 1), y))))
TBC_UNARY_VJP(ReluOp, builder.create<ReluGradOp>(getLoc(), x.getType(), x, dy))
TBC_UNARY_VJP(SinOp, f.mul(dy, builder.create<CosOp>(getLoc(), x)))
TBC_UNARY_VJP(CosOp, f.neg(f.mul(dy, builder.create<SinOp>(getLoc(), x))))
TBC_UNARY_VJP(AtanOp, f.div(dy, f.add(f.number(x, 1), f.mul(x, x))))
TBC_UNARY_VJP(FloorOp, Value())
TBC_UNARY_VJP(CeilOp, Value())
TBC_UNARY_VJP(RoundOp, Value())
TBC_UNARY_VJP(CastOp, builder.create<CastOp>(getLoc(), x.getType(), dy))

/// The VJP of a binary op; LEFT and RIGHT may use x, y, z (the result), dz, f, builder.
#define TBC_BINARY_VJP(OP, LEFT, RIGHT)                                                            \
  LogicalResult OP::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,                       \
                             ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {   \
    Formula f{builder, getLoc()};                                                                  \
    Value x = getLhs(), y = getRhs(), z = getResult(), dz = cotangents[0];                         \
    (void)f, (void)x, (void)y, (void)z;                                                            \
    if (!dz)                                                                                       \
      return success();                                                                            \
    if (needed[0])                                                                                 \
      operandCotangents[0] = LEFT;                                                                 \
    if (needed[1])                                                                                 \
      operandCotangents[1] = RIGHT;                                                                \
    return success();                                                                              \
  }

TBC_BINARY_VJP(AddOp, dz, dz)
TBC_BINARY_VJP(SubOp, dz, f.neg(dz))
TBC_BINARY_VJP(MulOp, f.mul(dz, y), f.mul(dz, x))
TBC_BINARY_VJP(DivOp, f.div(dz, y), f.neg(f.div(f.mul(dz, z), y)))

/// The number that `value` is everywhere, or null: a constant, or one repeated.
static SplatElementsAttr numberOf(Value value) {
  while (isa_and_nonnull<BroadcastOp, ReshapeOp, CastOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
}

static bool isZero(SplatElementsAttr number) {
  return isa<FloatType>(number.getElementType()) ? number.getSplatValue<APFloat>().isZero()
                                                 : number.getSplatValue<APInt>().isZero();
}

/// y x^(y - 1), but 0 for the exponent 0: x^0 is 1 at x = 0 too.
static Value slopeOfPower(Formula &f, Value x, Value y) {
  const SplatElementsAttr exponent = numberOf(y);
  if (exponent && isZero(exponent))
    return f.number(x, 0);
  Value slope = f.mul(y, f.make<PowOp>(x, f.sub(y, f.number(y, 1))));
  return exponent ? slope : f.select(f.compare(y, f.number(y, 0), "eq"), f.number(slope, 0), slope);
}

// An exponent of the base 0 has the gradient 0, the limit of x^y log(x).
TBC_BINARY_VJP(PowOp, f.mul(dz, slopeOfPower(f, x, y)),
               f.select(f.compare(x, f.number(x, 0), "eq"), f.number(dz, 0),
                        f.mul(dz, f.mul(z, f.make<LogOp>(x)))))

/// The part of `dz` for `x` of the greater (`wins` is "gt") or lesser of x and y: half of it where
/// both are equal, as in ReduceMax. A number beside it is a bound, as in Clip, which x may reach.
static Value shareOf(Formula &f, Value x, Value y, Value dz, StringRef wins) {
  Value atTie = numberOf(y) ? dz : f.mul(dz, f.number(dz, 0.5));
  return f.select(f.compare(x, y, wins), dz,
                  f.select(f.compare(x, y, "eq"), atTie, f.number(dz, 0)));
}

TBC_BINARY_VJP(MaximumOp, shareOf(f, x, y, dz, "gt"), shareOf(f, y, x, dz, "gt"))
TBC_BINARY_VJP(MinimumOp, shareOf(f, x, y, dz, "lt"), shareOf(f, y, x, dz, "lt"))

LogicalResult SelectOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                 ArrayRef<bool> needed, SmallVectorImpl<Value> &operandCotangents) {
  Formula f{builder, getLoc()};
  Value dy = cotangents[0];
  if (!dy)
    return success();
  if (needed[1])
    operandCotangents[1] = f.select(getPred(), dy, f.number(dy, 0));
  if (needed[2])
    operandCotangents[2] = f.select(getPred(), f.number(dy, 0), dy);
  return success();
}

LogicalResult CompareOp::verify() {
  if (!llvm::is_contained({"eq", "ne", "lt", "le", "gt", "ge"}, getPredicate())) // compare_c1
    return emitOpError() << "has unknown predicate \"" << getPredicate()
                         << "\"; expected eq, ne, lt, le, gt or ge";
  if (tensorType(getLhs()).getElementType() != tensorType(getRhs()).getElementType()) // compare_c2
    return emitOpError() << "compares " << getLhs().getType() << " with " << getRhs().getType();
  return success();
}

} // namespace tbc
