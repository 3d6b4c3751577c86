//===- RaiseNorms.cpp - layer_norm and rms_norm ----------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Elementwise.h"
#include "ir/Normalization.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// x / sqrt(mean(x^2) + epsilon) over the last dim.
struct RootMeanSquare {
  Value x;
  double epsilon = 0;
};

/// Returns u if `variance` is mean(u^2) - mean(u)^2 over the last dim, at least 0 or not, else
/// null. Flax computes variances so.
Value matchFastVariance(Spread variance, int64_t numDims) {
  variance.strip();
  if (auto maximum = definedBy<MaximumOp>(variance.value)) {
    bool isLeft = splatNumber(maximum.getLhs()) == 0.0;
    if (!isLeft && splatNumber(maximum.getRhs()) != 0.0)
      return {};
    variance = variance.operand(isLeft ? maximum.getRhs() : maximum.getLhs()).strip();
  }
  auto sub = definedBy<SubOp>(variance.value);
  if (!sub)
    return {};
  Value square = meanOverLastDim(variance.operand(sub.getLhs()), numDims);
  Value mean = squareRoot(variance.operand(sub.getRhs()).strip().value);
  Value u = mean ? meanOverLastDim(Spread{mean, variance.dims}, numDims) : Value();
  return u && square && squareRoot(square) == u ? u : Value();
}

/// x if `value` is x - mean(x) over the last dim.
Value matchCentred(Value value) {
  auto sub = definedBy<SubOp>(value);
  if (!sub)
    return {};
  Value x = meanOverLastDim(Spread::of(sub.getRhs()), tensorType(value).getRank());
  return x == sub.getLhs() ? x : Value();
}

/// Matches `value` as x times its normalizing factor, or x divided by its root mean square.
std::optional<RootMeanSquare> matchNormalized(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<MulOp, DivOp>(op))
    return std::nullopt;
  int64_t numDims = tensorType(value).getRank();
  auto fits = [&](Value x, const std::optional<RootOfSum> &root) {
    if (!root)
      return false;
    Value square = meanOverLastDim(root->sum, numDims);
    if (square && squareRoot(square) == x)
      return true;
    Value u = matchFastVariance(root->sum, numDims);
    return u && matchCentred(x) == u;
  };
  Value lhs = op->getOperand(0), rhs = op->getOperand(1);
  if (isa<DivOp>(op)) {
    auto divisor = root(Spread::of(rhs));
    if (fits(lhs, divisor))
      return RootMeanSquare{lhs, divisor->epsilon};
    return std::nullopt;
  }
  for (auto [x, factor] : {std::pair(lhs, rhs), std::pair(rhs, lhs)}) {
    auto rstd = reciprocalRoot(Spread::of(factor));
    if (fits(x, rstd))
      return RootMeanSquare{x, rstd->epsilon};
  }
  return std::nullopt;
}

/// A value scaled along its last dim: normalized * weight, perhaps with a cast in between.
struct Scaled {
  RootMeanSquare normalized;
  /// The vector of weights, or null.
  Value weight;
};

/// Skips a cast from wider to narrower float.
Value skipNarrowing(Value value) {
  auto cast = definedBy<CastOp>(value);
  if (!cast || !cast.isAdditive())
    return value;
  auto width = [](Value v) { return tensorType(v).getElementTypeBitWidth(); };
  return width(cast.getInput()) > width(value) ? cast.getInput() : value;
}

std::optional<Scaled> matchScaled(Value value) {
  if (auto mul = definedBy<MulOp>(value))
    for (auto [x, factor] :
         {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())})
      if (Value weight = vectorOfLastDim(factor))
        if (auto normalized = matchNormalized(skipNarrowing(x)))
          return Scaled{*normalized, weight};
  return std::nullopt;
}

Value vectorLike(PatternRewriter &rewriter, Location loc, Value x, double number) {
  auto type = tensorType(x);
  return splat(rewriter, loc,
               RankedTensorType::get(type.getShape().take_back(), type.getElementType()), number);
}

/// Returns `x` in the element type `elementType`: the operand of its cast, or itself.
Value inElementType(Value x, Type elementType) {
  if (tensorType(x).getElementType() == elementType)
    return x;
  auto cast = definedBy<CastOp>(x);
  if (cast && tensorType(cast.getInput()).getElementType() == elementType)
    return cast.getInput();
  return {};
}

LogicalResult raiseLayerNorm(Operation *root, const Scaled &scaled, Value bias,
                             PatternRewriter &rewriter) {
  Value x = matchCentred(scaled.normalized.x);
  if (!x)
    return failure();
  x = inElementType(x, tensorType(root->getResult(0)).getElementType());
  if (!x)
    return failure();
  Location loc = root->getLoc();
  Value weight = scaled.weight ? scaled.weight : vectorLike(rewriter, loc, x, 1);
  if (!bias)
    bias = vectorLike(rewriter, loc, x, 0);
  // A cast may stand between the scale and the shift, so that their types differ.
  if (weight.getType() != bias.getType())
    return failure();
  auto norm = rewriter.create<LayerNormOp>(loc, x, weight, bias,
                                           rewriter.getF64FloatAttr(scaled.normalized.epsilon));
  takeIdentity(norm, root);
  rewriter.replaceOp(root, norm.getResult());
  return success();
}

/// (x - mean) * rstd * weight + bias
struct RaiseShifted : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp add, PatternRewriter &rewriter) const override {
    for (auto [x, shift] :
         {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
      Value bias = vectorOfLastDim(shift);
      if (!bias)
        continue;
      if (auto scaled = matchScaled(skipNarrowing(x)))
        if (succeeded(raiseLayerNorm(add, *scaled, bias, rewriter)))
          return success();
    }
    return failure();
  }
};

/// The same without bias.
struct RaiseScaled : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    auto scaled = matchScaled(mul);
    return scaled ? raiseLayerNorm(mul, *scaled, {}, rewriter) : failure();
  }
};

/// The same with neither.
template <typename Op> struct RaiseNormalized : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    auto normalized = matchNormalized(op);
    return normalized ? raiseLayerNorm(op, {*normalized, {}}, {}, rewriter) : failure();
  }
};

LogicalResult raiseRmsNorm(Operation *root, const Scaled &scaled, PatternRewriter &rewriter) {
  Type elementType = tensorType(root->getResult(0)).getElementType();
  Value x = inElementType(scaled.normalized.x, elementType);
  if (!x)
    return failure();
  Location loc = root->getLoc();
  Value weight = scaled.weight ? scaled.weight : vectorLike(rewriter, loc, x, 1);
  auto norm = rewriter.create<RmsNormOp>(loc, x, weight,
                                         rewriter.getF64FloatAttr(scaled.normalized.epsilon));
  takeIdentity(norm, root);
  rewriter.replaceOp(root, norm.getResult());
  return success();
}

/// x * rstd * weight
struct RaiseScaledRms : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    auto scaled = matchScaled(mul);
    return scaled ? raiseRmsNorm(mul, *scaled, rewriter) : failure();
  }
};

/// x * rstd
template <typename Op> struct RaisePlainRms : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    auto normalized = matchNormalized(op);
    return normalized ? raiseRmsNorm(op, {*normalized, {}}, rewriter) : failure();
  }
};

} // namespace

void addShiftedLayerNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseShifted>(patterns.getContext());
}
void addScaledLayerNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseScaled>(patterns.getContext());
}
void addPlainLayerNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseNormalized<MulOp>, RaiseNormalized<DivOp>>(patterns.getContext());
}
void addScaledRmsNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseScaledRms>(patterns.getContext());
}
void addPlainRmsNormPatterns(RewritePatternSet &patterns) {
  patterns.add<RaisePlainRms<MulOp>, RaisePlainRms<DivOp>>(patterns.getContext());
}

} // namespace tbc::raise
