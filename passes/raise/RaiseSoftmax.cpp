//===- RaiseSoftmax.cpp - softmax ------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Normalization.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// Returns the dim along which `spread` repeats a tensor of rank `numDims`, if there is one and the
/// rest is in order.
std::optional<int64_t> repeatedDim(const Spread &spread, int64_t numDims) {
  if (int64_t(spread.dims.size()) != numDims - 1)
    return std::nullopt;
  int64_t missing = numDims - 1;
  for (int64_t i = numDims - 2; i >= 0 && spread.dims[i] != i; --i)
    missing = i;
  for (auto [i, dim] : llvm::enumerate(spread.dims))
    if (dim != int64_t(i) + (int64_t(i) >= missing))
      return std::nullopt;
  return missing;
}

/// Returns the dim over which `value` is the sum of `summand`, repeated.
std::optional<int64_t> repeatedSumOf(Value value, Value summand) {
  Spread spread = Spread::of(value).strip();
  auto sum = definedBy<ReduceSumOp>(spread.value);
  auto dim = repeatedDim(spread, tensorType(value).getRank());
  if (!sum || !dim || sum.getInput() != summand || sum.getDims() != ArrayRef<int64_t>{*dim})
    return std::nullopt;
  return dim;
}

/// Whether `value` is the maximum of x over `dim`, repeated.
bool isRepeatedMaximum(Value value, Value x, int64_t dim) {
  Spread spread = Spread::of(value).strip();
  Operation *op = spread.value.getDefiningOp();
  if (!op || !isa<ReduceMaxOp, StabilizerMaxOp>(op) || op->getOperand(0) != x ||
      repeatedDim(spread, tensorType(value).getRank()) != dim)
    return false;
  auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dims");
  return dims.asArrayRef() == ArrayRef<int64_t>{dim};
}

LogicalResult raise(Operation *root, Value e, Value denominator, PatternRewriter &rewriter) {
  auto exp = definedBy<ExpOp>(e);
  auto dim = exp ? repeatedSumOf(denominator, e) : std::nullopt;
  if (!dim)
    return failure();
  // Subtracting the maximum is for numerical stability alone and does not change the result.
  Value x = exp.getInput();
  if (auto sub = definedBy<SubOp>(x); sub && isRepeatedMaximum(sub.getRhs(), sub.getLhs(), *dim))
    x = sub.getLhs();
  auto softmax = rewriter.create<SoftmaxOp>(root->getLoc(), x, *dim);
  takeIdentity(softmax, root);
  rewriter.replaceOp(root, softmax);
  return success();
}

/// e / sum(e), e = exp(x - max(x))
struct RaiseQuotient : OpRewritePattern<DivOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DivOp div, PatternRewriter &rewriter) const override {
    return raise(div, div.getLhs(), div.getRhs(), rewriter);
  }
};

/// e * (1 / sum(e))
struct RaiseProduct : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MulOp mul, PatternRewriter &rewriter) const override {
    for (auto [e, factor] :
         {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
      Spread spread = Spread::of(factor).strip();
      Value sum;
      if (auto reciprocal = definedBy<ReciprocalOp>(spread.value))
        sum = reciprocal.getInput();
      else if (auto div = definedBy<DivOp>(spread.value); div && splatNumber(div.getLhs()) == 1.0)
        sum = div.getRhs();
      if (!sum || sum.getType() != mul.getType())
        continue;
      if (succeeded(raise(mul, e, sum, rewriter)))
        return success();
    }
    return failure();
  }
};

/// softmax(x - max(x)) is softmax(x).
struct DropMaximum : OpRewritePattern<SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SoftmaxOp softmax, PatternRewriter &rewriter) const override {
    auto sub = definedBy<SubOp>(softmax.getInput());
    if (!sub || !isRepeatedMaximum(sub.getRhs(), sub.getLhs(), softmax.getDim()))
      return failure();
    rewriter.modifyOpInPlace(softmax, [&] { softmax.getInputMutable().assign(sub.getLhs()); });
    return success();
  }
};

} // namespace

void addSoftmaxPatterns(RewritePatternSet &patterns) {
  patterns.add<DropMaximum, RaiseQuotient, RaiseProduct>(patterns.getContext());
}

} // namespace tbc::raise
