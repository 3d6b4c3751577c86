//===- Elementwise.cpp - Elementwise ops in compiled kernels ----------------===//

#include "ir/Elementwise.h"
#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace tbc::region {
namespace {

/// Kernels compute integers in 64 bits. Returns the number that an element of the result of `op`
/// keeps of `x`: its low bits. Later ops of the kernel read it, too. Example: 300 as i8 is 44.
Value wrapped(Operation *op, const Elements &e, Value x) {
  auto stored = dyn_cast<IntegerType>(getElementTypeOrSelf(op->getResult(0)));
  constexpr unsigned ofKernels = 64;
  if (!stored || stored.getWidth() == 1 || stored.getWidth() == ofKernels)
    return x;
  Type narrow = Elements::typeLike(x, e.builder.getIntegerType(stored.getWidth()));
  Value low = e.make<arith::TruncIOp>(narrow, x);
  return stored.isUnsigned() ? e.make<arith::ExtUIOp>(x.getType(), low)
                             : e.make<arith::ExtSIOp>(x.getType(), low);
}

/// Returns atan(x), within 2 ulps, where MLIR's polynomial is within 40. Source: atanf of Moshier's
/// Cephes. With t = |x|, (|x| - 1) / (|x| + 1) or -1 / |x|, and b = 0, pi / 4 or pi / 2, it is b +
/// atan(t), and t is at most tan(pi / 8).
Value arcTangent(const Elements &e, Value x) {
  constexpr double tanOfEighth = 0.4142135623730950, tanOfThreeEighths = 2.414213562373095;
  constexpr double pi = 3.141592653589793;
  Value size = e.make<math::AbsFOp>(x), one = e.number(x, 1);
  Value isLarge = e.less(e.number(x, tanOfThreeEighths), size);
  Value isMiddle = e.less(e.number(x, tanOfEighth), size);
  auto choose = [&](Value large, Value middle, Value small) {
    return e.select(isLarge, large, e.select(isMiddle, middle, small));
  };
  Value t =
      e.div(choose(e.number(x, -1), e.sub(size, one), size), choose(size, e.add(size, one), one));
  Value base = choose(e.number(x, pi / 2), e.number(x, pi / 4), e.number(x, 0));
  Value square = e.mul(t, t), sum = e.number(x, 8.05374449538e-2);
  for (double coefficient : {-1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1})
    sum = e.make<math::FmaOp>(sum, square, e.number(x, coefficient));
  Value rest = e.make<math::FmaOp>(sum, Value(e.mul(t, square)), t);
  return e.make<math::CopySignOp>(Value(e.add(base, rest)), x);
}

/// Builds an element of OP's result as EXPRESSION of x[0], x[1] ..., e and op.
#define TBC_ELEMENT(OP, EXPRESSION)                                                                \
  Value build##OP(OP op, const Elements &e, ValueRange x) {                                        \
    (void)op;                                                                                      \
    return EXPRESSION;                                                                             \
  }

TBC_ELEMENT(NegOp, wrapped(op, e, e.neg(x[0])))
TBC_ELEMENT(AbsOp, e.isFloat(x[0]) ? e.make<math::AbsFOp>(x[0])
                                   : wrapped(op, e, e.make<math::AbsIOp>(x[0])))
TBC_ELEMENT(ExpOp, e.exp(x[0]))
TBC_ELEMENT(LogOp, e.make<math::LogOp>(x[0]))
TBC_ELEMENT(SqrtOp, e.sqrt(x[0]))
TBC_ELEMENT(RsqrtOp, e.div(e.number(x[0], 1), e.sqrt(x[0])))
TBC_ELEMENT(ReciprocalOp, e.div(e.number(x[0], 1), x[0]))
TBC_ELEMENT(TanhOp, e.make<math::TanhOp>(x[0]))
TBC_ELEMENT(ErfOp, e.make<math::ErfOp>(x[0]))
// For a very negative x, exp(-x) is infinite and the result is 0, as it should be.
TBC_ELEMENT(SigmoidOp, e.div(e.number(x[0], 1), e.add(e.number(x[0], 1), e.exp(e.neg(x[0])))))
TBC_ELEMENT(ReluOp, e.select(e.notPositive(x[0]), e.number(x[0], 0), x[0]))
// Calls libm: the polynomials are only accurate near zero, and positions are large.
TBC_ELEMENT(SinOp, e.make<LLVM::SinOp>(x[0]))
TBC_ELEMENT(CosOp, e.make<LLVM::CosOp>(x[0]))
TBC_ELEMENT(AtanOp, arcTangent(e, x[0]))
TBC_ELEMENT(FloorOp, e.make<math::FloorOp>(x[0]))
TBC_ELEMENT(CeilOp, e.make<math::CeilOp>(x[0]))
TBC_ELEMENT(RoundOp, e.make<math::RoundEvenOp>(x[0]))
TBC_ELEMENT(AddOp, wrapped(op, e, e.add(x[0], x[1])))
TBC_ELEMENT(SubOp, wrapped(op, e, e.sub(x[0], x[1])))
TBC_ELEMENT(MulOp, wrapped(op, e, e.mul(x[0], x[1])))
TBC_ELEMENT(DivOp, e.div(x[0], x[1]))
TBC_ELEMENT(PowOp, e.make<LLVM::PowOp>(x[0], x[1]))
TBC_ELEMENT(MaximumOp, e.larger(x[0], x[1]))
TBC_ELEMENT(MinimumOp, e.smaller(x[0], x[1]))
TBC_ELEMENT(AndOp, e.make<arith::AndIOp>(x[0], x[1]))
TBC_ELEMENT(OrOp, e.make<arith::OrIOp>(x[0], x[1]))
TBC_ELEMENT(BitwiseAndOp, e.make<arith::AndIOp>(x[0], x[1]))
TBC_ELEMENT(BitwiseOrOp, e.make<arith::OrIOp>(x[0], x[1]))
TBC_ELEMENT(BitwiseXorOp, e.make<arith::XOrIOp>(x[0], x[1]))
TBC_ELEMENT(NotOp, e.make<arith::XOrIOp>(x[0], e.number(x[0], 1)))
TBC_ELEMENT(IsNanOp, e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, x[0], x[0]))
TBC_ELEMENT(SelectOp, e.select(x[0], x[1], x[2]))
TBC_ELEMENT(ReluGradOp, e.select(e.notPositive(x[0]), e.number(x[0], 0), x[1]))
#undef TBC_ELEMENT

Value buildCompareOp(CompareOp op, const Elements &e, ValueRange x) {
  // A NaN is unordered: only "ne" admits it.
  if (e.isFloat(x[0])) {
    auto predicate = llvm::StringSwitch<arith::CmpFPredicate>(op.getPredicate())
                         .Case("eq", arith::CmpFPredicate::OEQ)
                         .Case("ne", arith::CmpFPredicate::UNE)
                         .Case("lt", arith::CmpFPredicate::OLT)
                         .Case("le", arith::CmpFPredicate::OLE)
                         .Case("gt", arith::CmpFPredicate::OGT)
                         .Default(arith::CmpFPredicate::OGE);
    return e.make<arith::CmpFOp>(predicate, x[0], x[1]);
  }
  // Booleans are 0 and 1, so they compare as unsigned.
  auto predicate = llvm::StringSwitch<arith::CmpIPredicate>(op.getPredicate())
                       .Case("eq", arith::CmpIPredicate::eq)
                       .Case("ne", arith::CmpIPredicate::ne)
                       .Case("lt", arith::CmpIPredicate::slt)
                       .Case("le", arith::CmpIPredicate::sle)
                       .Case("gt", arith::CmpIPredicate::sgt)
                       .Default(arith::CmpIPredicate::sge);
  if (getElementTypeOrSelf(x[0]).isInteger(1)) {
    Type wide = Elements::typeLike(x[0], e.builder.getI64Type());
    return e.make<arith::CmpIOp>(predicate, e.make<arith::ExtUIOp>(wide, x[0]),
                                 e.make<arith::ExtUIOp>(wide, x[1]));
  }
  return e.make<arith::CmpIOp>(predicate, x[0], x[1]);
}

Value buildCastOp(CastOp op, const Elements &e, ValueRange x) {
  Type to = op.getType().getElementType();
  bool fromBool = getElementTypeOrSelf(x[0]).isInteger(1);
  if (to.isInteger(1)) {
    if (fromBool)
      return x[0];
    Value zero = e.number(x[0], 0);
    return e.isFloat(x[0]) ? e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, x[0], zero)
                           : e.make<arith::CmpIOp>(arith::CmpIPredicate::ne, x[0], zero);
  }
  if (isa<FloatType>(to)) {
    if (e.isFloat(x[0]))
      return x[0]; // rounded when it is stored
    Type type = Elements::typeLike(x[0], e.builder.getF32Type());
    return fromBool ? e.make<arith::UIToFPOp>(type, x[0]) : e.make<arith::SIToFPOp>(type, x[0]);
  }
  Type type = Elements::typeLike(x[0], e.builder.getI64Type());
  return fromBool ? e.make<arith::ExtUIOp>(type, x[0]) : wrapped(op, e, x[0]);
}

/// The reference refuses floats outside of the integer range. Kernels cannot report errors, so they
/// leave such casts to the reference.
struct CastModel : KernelOpInterface::ExternalModel<CastModel, CastOp> {
  SmallVector<Value, 1> buildElement(Operation *op, OpBuilder &builder, ValueRange x) const {
    return {buildCastOp(cast<CastOp>(op), Elements{builder, op->getLoc()}, x)};
  }
  bool isSupported(Operation *op) const {
    Type from = cast<CastOp>(op).getInput().getType().getElementType();
    Type to = cast<CastOp>(op).getType().getElementType();
    return isa<FloatType>(to) || to.isInteger(1) || !isa<FloatType>(from);
  }
};

template <typename Op, ElementFn<Op> build> void floats(MLIRContext &context) {
  Op::template attachInterface<ElementModel<Op, build>>(context);
}
template <typename Op, ElementFn<Op> build> void all(MLIRContext &context) {
  Op::template attachInterface<ElementModel<Op, build, Types::All>>(context);
}

} // namespace

void attachElementwiseKernels(MLIRContext &context) {
#define TBC_FLOATS(OP) floats<OP, build##OP>(context)
#define TBC_ALL(OP) all<OP, build##OP>(context)
  TBC_FLOATS(ExpOp);
  TBC_FLOATS(LogOp);
  TBC_FLOATS(SqrtOp);
  TBC_FLOATS(RsqrtOp);
  TBC_FLOATS(ReciprocalOp);
  TBC_FLOATS(TanhOp);
  TBC_FLOATS(ErfOp);
  TBC_FLOATS(SigmoidOp);
  TBC_FLOATS(ReluOp);
  TBC_FLOATS(SinOp);
  TBC_FLOATS(CosOp);
  TBC_FLOATS(AtanOp);
  TBC_FLOATS(FloorOp);
  TBC_FLOATS(CeilOp);
  TBC_FLOATS(RoundOp);
  TBC_FLOATS(ReluGradOp);
  TBC_FLOATS(IsNanOp);
  // The reference refuses integer division by zero and negative integer powers. Kernels cannot
  // report errors, so they do not support these ops on integers.
  TBC_FLOATS(DivOp);
  TBC_FLOATS(PowOp);
  TBC_ALL(NegOp);
  TBC_ALL(AbsOp);
  TBC_ALL(AddOp);
  TBC_ALL(SubOp);
  TBC_ALL(MulOp);
  TBC_ALL(MaximumOp);
  TBC_ALL(MinimumOp);
  TBC_ALL(AndOp);
  TBC_ALL(OrOp);
  TBC_ALL(NotOp);
  TBC_ALL(BitwiseAndOp);
  TBC_ALL(BitwiseOrOp);
  TBC_ALL(BitwiseXorOp);
  TBC_ALL(CompareOp);
  TBC_ALL(SelectOp);
  CastOp::attachInterface<CastModel>(context);
#undef TBC_FLOATS
#undef TBC_ALL
}

} // namespace tbc::region
