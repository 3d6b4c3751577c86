//===- RaiseExperts.cpp - Experts written densely, with stacked weights ----===//
//
// The match goes upwards from the combination: y[t, o] is the sum over experts e of w[t, e] times
// the output of e on the token t. w is a one-hot sum over the few experts that the router chose. So
// most of w is zero, and only the other experts need be computed. Example: with top 2 of 8 experts,
// 6 of 8 weights are zero.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Experts.h"
#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace tbc::raise {

namespace {

bool isBiasOf(const std::optional<Labelled> &bias, int64_t width) {
  return !bias || bias->isOf({kExpert, width}) || bias->isOf({width});
}

/// Reads `value`, the experts' output on tokens, as a layer; the tokens may be repeated per expert.
std::optional<Layer> matchExpertLayer(const Labelled &value, int64_t from, int64_t to) {
  auto layer = matchLayer(value, from);
  if (!layer || !isBiasOf(layer->bias, to))
    return std::nullopt;
  if (!layer->left.has(kToken))
    std::swap(layer->left, layer->right);
  return layer->right.isOf({kExpert, to, from}) ? layer : std::nullopt;
}

/// Matches the layers of experts with the output `each`, [tokens, expert, out].
std::optional<ExpertLayers> matchStacked(const Labelled &each, unsigned tokenDims) {
  ExpertLayers experts;
  experts.tokenDims = tokenDims;
  auto second = matchExpertLayer(each, kInner, kOut);
  if (!second || !second->left.isOf(tokenLabels(tokenDims, {kExpert, kInner})))
    return std::nullopt;
  experts.out = second->right;
  experts.outBias = second->bias;
  const Labelled &middle = second->left;
  std::optional<Inner> inner = matchInner(middle.value);
  if (!inner || (inner->halvesDim && *inner->halvesDim != middle.dimOf(kInner)))
    return std::nullopt;
  experts.activation = inner->activation;
  experts.isGated = inner->isGated();
  auto gate = matchExpertLayer({inner->gate, middle.labels}, kIn, kInner);
  if (!gate)
    return std::nullopt;
  experts.tokens = gate->left.stripped();
  experts.gate = gate->right;
  experts.gateBias = gate->bias;
  if (inner->up) {
    auto up = matchExpertLayer({inner->up, middle.labels}, kIn, kInner);
    if (!up || up->left.stripped().value != experts.tokens.value ||
        up->left.stripped().labels != experts.tokens.labels)
      return std::nullopt;
    experts.up = up->right;
    experts.upBias = up->bias;
  }
  if (!experts.tokens.isOf(tokenLabels(tokenDims, {kIn})))
    return std::nullopt;
  return experts;
}

/// Matches the sum over experts of `each` times `weights`. Labels of tokens are those of
/// tokenLabels(`tokenDims`).
std::optional<ExpertLayers> matchCombination(const Labelled &each, const Labelled &weights,
                                             unsigned tokenDims) {
  if (!each.isOf(tokenLabels(tokenDims, {kExpert, kOut})) ||
      !weights.isOf(tokenLabels(tokenDims, {kExpert})))
    return std::nullopt;
  auto top = chosenPerRow(weights.value, weights.dimOf(kExpert));
  auto experts = top ? matchStacked(each, tokenDims) : std::nullopt;
  if (!experts)
    return std::nullopt;
  experts->weights = weights;
  experts->top = *top;
  return experts;
}

/// Replaces `root`, whose dims have the labels `order`.
LogicalResult replace(PatternRewriter &rewriter, Operation *root,
                      const std::optional<ExpertLayers> &experts, ArrayRef<int64_t> order) {
  if (!experts)
    return failure();
  Labelled result{buildRoutedExperts(rewriter, root, *experts),
                  tokenLabels(experts->tokenDims, {kOut})};
  SmallVector<int64_t> permutation;
  for (int64_t label : order)
    permutation.push_back(result.dimOf(label));
  if (!llvm::is_sorted(permutation))
    result.value = rewriter.create<TransposeOp>(root->getLoc(), result.value, permutation);
  rewriter.replaceOp(root, result.value);
  return success();
}

/// Gives `key` the next label of a token if it has none yet.
struct TokenNames {
  llvm::SmallMapVector<int64_t, int64_t, 4> labels;

  void add(int64_t key) { labels.insert({key, tokenLabels(unsigned(labels.size()) + 1).back()}); }
};

/// The combination as einsum. A label is of a token if both operands and the result have it, of an
/// expert if the result lacks it, and of the width if the weights lack it.
struct RaiseExpertEinsum : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EinsumOp combine, PatternRewriter &rewriter) const override {
    Labelled each{combine.getLhs(), SmallVector<int64_t>(combine.getLhsLabels())};
    Labelled weights{combine.getRhs(), SmallVector<int64_t>(combine.getRhsLabels())};
    if (each.labels.size() < weights.labels.size())
      std::swap(each, weights);
    SmallVector<int64_t> out(combine.getOutLabels());
    if (weights.labels.size() < 2 || each.labels.size() != weights.labels.size() + 1 ||
        out.size() != weights.labels.size())
      return failure();
    TokenNames tokens;
    for (int64_t label : out)
      if (weights.has(label))
        tokens.add(label);
    auto rename = [&](SmallVector<int64_t> &labels) {
      for (int64_t &label : labels) {
        auto token = tokens.labels.find(label);
        label = token != tokens.labels.end()     ? token->second
                : llvm::is_contained(out, label) ? int64_t(kOut)
                                                 : int64_t(kExpert);
      }
    };
    if (tokens.labels.empty())
      return failure();
    rename(each.labels);
    rename(weights.labels);
    SmallVector<int64_t> order = out;
    rename(order);
    return replace(rewriter, combine,
                   matchCombination(each, weights, unsigned(tokens.labels.size())), order);
  }
};

/// The combination as multiplication and sum.
struct RaiseExpertSum : OpRewritePattern<ReduceSumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ReduceSumOp sum, PatternRewriter &rewriter) const override {
    auto product = definedBy<MulOp>(stripFloatCasts(sum.getInput()));
    int64_t rank = tensorType(sum.getInput()).getRank();
    if (!product || sum.getDims().size() != 1 || rank < 3)
      return failure();
    int64_t expert = sum.getDims()[0];
    for (auto [each, weights] : {std::pair(product.getLhs(), product.getRhs()),
                                 std::pair(product.getRhs(), product.getLhs())}) {
      Spread spread = stripSpread(Spread::of(weights));
      if (int64_t(spread.dims.size()) != rank - 1 || !llvm::is_contained(spread.dims, expert) ||
          llvm::is_contained(spread.dims, -1))
        continue;
      TokenNames tokens;
      for (int64_t dim = 0; dim < rank; ++dim)
        if (dim != expert && llvm::is_contained(spread.dims, dim))
          tokens.add(dim);
      auto name = [&](int64_t dim) -> int64_t {
        auto token = tokens.labels.find(dim);
        return token != tokens.labels.end() ? token->second : dim == expert ? kExpert : kOut;
      };
      Labelled left{each, {}}, right{spread.value, {}};
      SmallVector<int64_t> order;
      for (int64_t dim = 0; dim < rank; ++dim) {
        left.labels.push_back(name(dim));
        if (dim != expert)
          order.push_back(name(dim));
      }
      for (int64_t dim : spread.dims)
        right.labels.push_back(name(dim));
      if (auto experts = matchCombination(left, right, unsigned(tokens.labels.size())))
        return replace(rewriter, sum, experts, order);
    }
    return failure();
  }
};

} // namespace

void addExpertPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseExpertEinsum, RaiseExpertSum>(patterns.getContext());
  addExpertLoopPatterns(patterns);
  addExpertGatherPatterns(patterns);
}

} // namespace tbc::raise
