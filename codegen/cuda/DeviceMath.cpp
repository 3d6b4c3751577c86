//===- DeviceMath.cpp - Functions of f32 by instructions of a GPU -----------===//

#include "codegen/cuda/DeviceMath.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tbc::cuda {

using region::Elements;

/// An instruction of one f32.
static Value instruction(const Elements &e, const char *intrinsic, Value x) {
  return e.builder
      .create<LLVM::CallIntrinsicOp>(e.loc, x.getType(), StringRef(intrinsic), ValueRange{x})
      .getResult(0);
}

Value powerOfTwo(const Elements &e, Value x) { return instruction(e, "llvm.nvvm.ex2.approx.f", x); }

namespace {

/// Formulas of one f32.
struct Formulas {
  Elements e;

  Value number(double value) const { return e.constant(e.builder.getF32Type(), value); }
  Value fma(Value a, Value b, Value c) const { return e.make<math::FmaOp>(a, b, c); }
  Value inverse(Value x) const { return instruction(e, "llvm.nvvm.rcp.approx.ftz.f", x); }
  /// Returns coefficients[0] + coefficients[1] x + ...
  Value polynomial(Value x, ArrayRef<double> coefficients) const {
    Value sum = number(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      sum = fma(sum, x, number(coefficient));
    return sum;
  }
  Value isBelow(Value x, double bound) const {
    return e.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, number(bound));
  }
  Value withSignOf(Value x, Value sign) const { return e.make<math::CopySignOp>(x, sign); }

  /// 2^h (1 + l ln 2) for h + l = x log2 e, where h is rounded and l is the rest: |l| <= 2^-16.
  Value exp(Value x) const {
    constexpr double most = 150; // e^-150 is 0, e^150 infinite; infinity - infinity is no number
    constexpr double log2eHigh = 1.44269502162933349609375, log2eLow = log2e - log2eHigh;
    x = e.make<arith::MinimumFOp>(x, number(most));
    x = e.make<arith::MaximumFOp>(x, number(-most));
    Value high = e.mul(x, number(log2eHigh));
    Value low = fma(x, number(log2eHigh), e.neg(high));
    low = fma(x, number(log2eLow), low);
    return e.mul(powerOfTwo(e, high), fma(low, number(ln2), number(1)));
  }

  /// 1 - 2 / (1 + e^2|x|) with the sign of x. Near 0, where that cancels, x times its series.
  Value tanh(Value x) const {
    constexpr double limit = 0.4;
    Value size = e.make<math::AbsFOp>(x);
    Value power = powerOfTwo(e, e.mul(size, number(2 * log2e)));
    Value large = fma(inverse(e.add(power, number(1))), number(-2), number(1));
    // Of tanh(x) / x in x^2. At the limit the next term is 2^-24.1.
    Value small = polynomial(e.mul(x, x),
                             {1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925});
    return e.select(isBelow(size, limit), e.mul(x, small), withSignOf(large, x));
  }

  /// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, within 1.5e-7 of 1; near 0
  /// x times the series 7.1.5.
  Value erf(Value x) const {
    constexpr double limit = 0.6;
    Value size = e.make<math::AbsFOp>(x);
    Value t = inverse(fma(size, number(0.3275911), number(1)));
    Value sum = e.mul(
        t, polynomial(t, {0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429}));
    Value square = e.mul(size, size);
    Value power = powerOfTwo(e, e.mul(square, number(-log2e)));
    Value large = fma(e.neg(sum), power, number(1));
    SmallVector<double> series; // 2 / sqrt(pi) (-1)^n / (n! (2 n + 1))
    double term = 1.1283791670955126;
    for (int n = 0; n < 6; ++n) {
      series.push_back(term / (2 * n + 1));
      term /= -(n + 1);
    }
    Value small = e.mul(x, polynomial(square, series));
    return e.select(isBelow(size, limit), small, withSignOf(large, x));
  }

  Value of(Operation *op, Value x) const {
    return isa<math::ExpOp>(op) ? exp(x) : isa<math::TanhOp>(op) ? tanh(x) : erf(x);
  }
};

} // namespace

void useDeviceMath(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<math::ExpOp, math::TanhOp, math::ErfOp>(op) &&
        getElementTypeOrSelf(op->getResult(0)).isF32())
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder builder(op);
    Formulas f{{builder, op->getLoc()}};
    Value x = op->getOperand(0), result;
    if (auto vector = dyn_cast<VectorType>(x.getType())) {
      result = f.e.constant(vector, 0);
      for (int64_t i = 0; i < vector.getNumElements(); ++i)
        result = f.e.make<vector::InsertOp>(f.of(op, f.e.make<vector::ExtractOp>(x, i)), result, i);
    } else {
      result = f.of(op, x);
    }
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }
}

} // namespace tbc::cuda
