//===- ExpandMath.cpp - Polynomials for functions without a GPU instruction -===//

#include "codegen/cuda/ExpandMath.h"

#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

using region::Elements;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();
constexpr int fractionBits = 52, exponentBias = 1023; // of f64

/// Arithmetic on f64, scalars or vectors.
struct Wide {
  Elements e;

  Value number(Value like, double value) const { return e.number(like, value); }
  Value fma(Value a, Value b, double c) const { return e.make<math::FmaOp>(a, b, number(a, c)); }
  Value compare(arith::CmpFPredicate predicate, Value x, double y) const {
    return e.make<arith::CmpFOp>(predicate, x, number(x, y));
  }
  Value isEqual(Value x, double y) const { return compare(arith::CmpFPredicate::OEQ, x, y); }
  Value isNan(Value x) const { return e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x); }
  Value select(Value condition, double x, Value y) const {
    return e.select(condition, number(y, x), y);
  }
  Value anyOf(Value a, Value b) const { return e.make<arith::OrIOp>(a, b); }
  Value both(Value a, Value b) const { return e.make<arith::AndIOp>(a, b); }
  Value clamp(Value x, double low, double high) const {
    Value above = e.make<arith::MaxNumFOp>(x, number(x, low));
    return e.make<arith::MinNumFOp>(above, number(x, high));
  }
  /// Evaluates coefficients[0] + coefficients[1] x + ...
  Value polynomial(Value x, ArrayRef<double> coefficients) const {
    Value sum = number(x, coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      sum = fma(sum, x, coefficient);
    return sum;
  }
  Value bitsOf(Value x) const {
    return e.make<arith::BitcastOp>(Elements::typeLike(x, e.builder.getI64Type()), x);
  }
  Value fromBits(Value bits) const {
    return e.make<arith::BitcastOp>(Elements::typeLike(bits, e.builder.getF64Type()), bits);
  }
};

/// Returns x - n (high + low), without losing bits to cancellation.
Value reduced(const Wide &w, Value x, Value n, double high, double low) {
  Value minus = w.e.neg(n);
  Value rest = w.e.make<math::FmaOp>(minus, w.number(n, high), x);
  return w.e.make<math::FmaOp>(minus, w.number(n, low), rest);
}

/// Returns exp(x) = 2^n e^r for x = n ln 2 + r, |r| <= ln 2 / 2.
Value expOf(const Wide &w, Value x) {
  constexpr double log2e = 1.4426950408889634, ln2High = 0.6931471805599453,
                   ln2Low = 2.3190468138462996e-17;
  constexpr double least = -708.0, most = 709.0; // 2^n is a normal number
  Value inside = w.clamp(x, least, most);
  Value n = w.e.make<math::RoundEvenOp>(w.e.mul(inside, w.number(x, log2e)));
  Value r = reduced(w, inside, n, ln2High, ln2Low);
  SmallVector<double> taylor = {1.0};
  for (int i = 1; i <= 13; ++i)
    taylor.push_back(taylor.back() / i);
  Value count = w.e.make<arith::FPToSIOp>(Elements::typeLike(x, w.e.builder.getI64Type()), n);
  Value biased = w.e.add(count, w.number(count, exponentBias));
  Value power = w.fromBits(w.e.make<arith::ShLIOp>(biased, w.number(biased, fractionBits)));
  Value result = w.e.mul(w.polynomial(r, taylor), power);
  result = w.select(w.compare(arith::CmpFPredicate::OLT, x, least), 0, result);
  result = w.select(w.compare(arith::CmpFPredicate::OGT, x, most), infinity, result);
  return w.e.select(w.isNan(x), x, result);
}

/// Returns log(x) = e ln 2 + 2 artanh((m - 1) / (m + 1)) for x = m 2^e > 0, 1 / sqrt 2 < m <= sqrt
/// 2.
Value logOf(const Wide &w, Value x) {
  constexpr double ln2 = 0.6931471805599453, root2 = 1.4142135623730951;
  Value bits = w.bitsOf(x);
  Value shift = w.number(bits, fractionBits);
  Value biased = w.e.make<arith::ShRUIOp>(bits, shift);
  Value fraction = w.e.sub(
      bits, w.e.make<arith::ShLIOp>(w.e.sub(biased, w.number(biased, exponentBias)), shift));
  Value m = w.fromBits(fraction);
  Value exponent = w.e.make<arith::SIToFPOp>(
      x.getType(), Value(w.e.sub(biased, w.number(biased, exponentBias))));
  Value isLarge = w.compare(arith::CmpFPredicate::OGT, m, root2);
  m = w.e.select(isLarge, w.e.mul(m, w.number(m, 0.5)), m);
  exponent = w.e.select(isLarge, w.e.add(exponent, w.number(exponent, 1)), exponent);
  Value f = w.e.div(w.e.sub(m, w.number(m, 1)), w.e.add(m, w.number(m, 1)));
  SmallVector<double> series;
  for (int i = 0; i < 10; ++i)
    series.push_back(2.0 / (2 * i + 1));
  Value fraction2 = w.e.mul(f, w.polynomial(w.e.mul(f, f), series));
  return w.e.add(w.e.mul(exponent, w.number(exponent, ln2)), fraction2);
}

/// An angle as `quarters` * pi / 2 + `rest`, |rest| <= pi / 4.
struct Angle {
  Value quarters, rest; // f64; quarters is a whole number
};

/// Quarters are exact, so `x` is less than 2^52 of them.
Angle reduceSmall(const Wide &w, Value x) {
  constexpr double twoOverPi = 0.6366197723675814, halfPiHigh = 1.5707963267948966,
                   halfPiLow = 6.123233995736766e-17;
  Value n = w.e.make<math::RoundEvenOp>(w.e.mul(x, w.number(x, twoOverPi)));
  return {n, reduced(w, x, n, halfPiHigh, halfPiLow)};
}

/// Reduces an f32 of at least 2^23 with as many bits of 1 / (2 pi) as it needs (Payne and Hanek,
/// Radian Reduction for Trigonometric Functions, 1983). With x = m 2^e of a whole m < 2^24, the
/// first e bits give whole turns, and the next 96 give the turn's fraction within 2^-64. `quarters`
/// is 0 to 3, with the sign of x.
Angle reduceLarge(const Wide &w, Value x) {
  const Elements &e = w.e;
  constexpr uint64_t turn[] = {0x28be60db9391054a, 0x7f09d5f47d4d3770, 0x36d8a5664f10e410,
                               0x7f9458eaf7aef158}; // the first 256 bits of 1 / (2 pi)
  constexpr int wordBits = 64, floatBits = 24, unusedBits = fractionBits + 1 - floatBits;
  constexpr double radians = 6.283185307179586 / 18446744073709551616.0; // of 2^-64 turns
  Value bits = w.bitsOf(e.make<math::AbsFOp>(x));
  auto word = [&](uint64_t value) {
    Type type = bits.getType();
    TypedAttr attr = e.builder.getI64IntegerAttr(int64_t(value));
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, Attribute(attr));
    return e.make<arith::ConstantOp>(attr);
  };
  auto left = [&](Value value, Value by) { return e.make<arith::ShLIOp>(value, by); };
  auto right = [&](Value value, Value by) { return e.make<arith::ShRUIOp>(value, by); };
  Value biased = right(bits, word(fractionBits));
  Value exponent = e.sub(biased, word(exponentBias + floatBits - 1));
  Value one = word(uint64_t(1) << fractionBits);
  Value fraction = e.make<arith::AndIOp>(bits, word((uint64_t(1) << fractionBits) - 1));
  Value m = right(e.make<arith::OrIOp>(fraction, one), word(unusedBits));
  // The word that the 96 bits begin in, and the bit within it.
  Value isSecond =
      e.make<arith::CmpIOp>(arith::CmpIPredicate::sge, exponent, word(uint64_t(wordBits)));
  Value shift = e.make<arith::AndIOp>(exponent, word(wordBits - 1));
  Value words[3];
  for (int i = 0; i < 3; ++i)
    words[i] = e.select(isSecond, word(turn[i + 1]), word(turn[i]));
  auto from = [&](int i) {
    Value next = right(right(words[i + 1], word(1)), e.sub(word(wordBits - 1), shift));
    return Value(e.make<arith::OrIOp>(left(words[i], shift), next));
  };
  Value half = word(wordBits / 2);
  // In units of 2^-64 turns; whole turns overflow.
  Value part = e.add(e.mul(m, from(0)), right(e.mul(m, right(from(1), half)), half));
  Value quarters = right(e.add(part, word(uint64_t(1) << (wordBits - 3))), word(wordBits - 2));
  Value rest = e.sub(part, left(quarters, word(wordBits - 2)));
  auto signedLike = [&](Value whole) {
    return Value(e.make<math::CopySignOp>(e.make<arith::SIToFPOp>(x.getType(), whole), x));
  };
  Value angle = e.mul(e.make<arith::SIToFPOp>(x.getType(), rest), w.number(x, radians));
  Value isMinus = w.compare(arith::CmpFPredicate::OLT, x, 0);
  return {signedLike(quarters), e.select(isMinus, e.neg(angle), angle)};
}

/// Returns sin(x + quarters * pi / 2) of an f32 as f64.
Value sinOf(const Wide &w, Value x, int quarters) {
  constexpr double large = 0x1p40;
  Angle small = reduceSmall(w, x), big = reduceLarge(w, x);
  Value size = w.e.make<math::AbsFOp>(x);
  // An infinity is not reduced as large: `reduceSmall` gives NaN.
  Value isLarge = w.both(w.compare(arith::CmpFPredicate::OGE, size, large),
                         w.compare(arith::CmpFPredicate::OLT, size, infinity));
  Value n = w.e.select(isLarge, big.quarters, small.quarters);
  Value r = w.e.select(isLarge, big.rest, small.rest);
  Value r2 = w.e.mul(r, r);
  // Terms up to r^13 and r^12; |r| <= pi / 4.
  SmallVector<double> sines = {1.0}, cosines = {1.0};
  for (int i = 1; i <= 6; ++i) {
    sines.push_back(-sines.back() / (2 * i * (2 * i + 1)));
    cosines.push_back(-cosines.back() / (2 * i * (2 * i - 1)));
  }
  Value sine = w.e.mul(r, w.polynomial(r2, sines)), cosine = w.polynomial(r2, cosines);
  Value turned = w.e.add(n, w.number(n, quarters));
  Value whole = w.e.make<math::FloorOp>(w.e.mul(turned, w.number(n, 0.25)));
  Value quarter = w.e.sub(turned, w.e.mul(whole, w.number(n, 4))); // 0, 1, 2 or 3
  Value isOdd = w.anyOf(w.isEqual(quarter, 1), w.isEqual(quarter, 3));
  Value isNegative = w.compare(arith::CmpFPredicate::OGT, quarter, 1.5);
  Value result = w.e.select(isOdd, cosine, sine);
  return w.e.select(isNegative, w.e.neg(result), result);
}

Value powOf(const Wide &w, Value x, Value y) {
  const Elements &e = w.e;
  Value size = e.make<math::AbsFOp>(x);
  Value log = logOf(w, size);
  log = w.select(w.isEqual(size, 0), -infinity, log);
  log = w.select(w.isEqual(size, infinity), infinity, log);
  Value result = expOf(w, e.mul(y, log));
  // pow(-1, +-infinity) is 1; log(1) * infinity would give NaN.
  Value isInfinite = w.isEqual(e.make<math::AbsFOp>(y), infinity);
  result = w.select(w.both(w.isEqual(size, 1), isInfinite), 1, result);
  Value floor = e.make<math::FloorOp>(y);
  Value isWhole = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, floor, y);
  Value half = e.mul(y, w.number(y, 0.5));
  Value isEven =
      e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, Value(e.make<math::FloorOp>(half)), half);
  Value isOdd = w.both(isWhole, e.make<arith::XOrIOp>(isEven, e.number(isEven, 1)));
  // A negative base with an odd exponent gives a negative result, also for -0.
  Value isMinus =
      e.make<arith::CmpIOp>(arith::CmpIPredicate::slt, w.bitsOf(x), e.number(w.bitsOf(x), 0));
  result = e.select(w.both(isMinus, isOdd), e.neg(result), result);
  Value isBelow = w.both(w.compare(arith::CmpFPredicate::OLT, x, 0),
                         w.compare(arith::CmpFPredicate::OGT, x, -infinity));
  Value isBroken = w.both(isBelow, e.make<arith::XOrIOp>(isWhole, e.number(isWhole, 1)));
  result = w.select(isBroken, notANumber, result);
  result = e.select(w.isNan(x), x, result);
  result = e.select(w.isNan(y), y, result);
  return w.select(w.anyOf(w.isEqual(x, 1), w.isEqual(y, 0)), 1, result);
}

/// Computes an op of f32 in f64.
struct Widened {
  explicit Widened(Operation *op)
      : builder(op), w{{builder, op->getLoc()}}, type(op->getResult(0).getType()) {
    for (Value operand : op->getOperands()) {
      Type wide = Elements::typeLike(operand, builder.getF64Type());
      operands.push_back(operand.getType() == wide ? operand
                                                   : w.e.make<arith::ExtFOp>(wide, operand));
    }
  }
  void replace(Operation *op, Value result) {
    if (result.getType() != type)
      result = w.e.make<arith::TruncFOp>(type, result);
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }

  OpBuilder builder;
  Wide w;
  Type type;
  SmallVector<Value> operands;
};

} // namespace

void expandMath(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    bool isWide = op->getNumResults() == 1 && getElementTypeOrSelf(op->getResult(0)).isF64();
    bool isNarrow = op->getNumResults() == 1 && getElementTypeOrSelf(op->getResult(0)).isF32();
    if ((isWide && isa<math::ExpOp>(op)) ||
        (isNarrow && isa<LLVM::SinOp, LLVM::CosOp, LLVM::PowOp>(op)))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    Widened wide(op);
    Value x = wide.operands[0];
    Value result = isa<math::ExpOp>(op)   ? expOf(wide.w, x)
                   : isa<LLVM::SinOp>(op) ? sinOf(wide.w, x, 0)
                   : isa<LLVM::CosOp>(op) ? sinOf(wide.w, x, 1)
                                          : powOf(wide.w, x, wide.operands[1]);
    wide.replace(op, result);
  }
}

} // namespace tbc::cuda
