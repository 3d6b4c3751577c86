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

using namespace mlir;

namespace tbc::raise {

namespace {

/// Whether the labels are exactly `expected`, in any order.
bool isOf(const Labelled &value, ArrayRef<int64_t> expected) {
  return value.labels.size() == expected.size() &&
         llvm::all_of(expected, [&](int64_t label) { return value.has(label); });
}
bool isBiasOf(const std::optional<Labelled> &bias, int64_t width) {
  return !bias || isOf(*bias, {kExpert, width}) || isOf(*bias, {width});
}

/// Reads `value`, the experts' output on tokens, as a layer; the tokens may be repeated per expert.
std::optional<Layer> matchExpertLayer(const Labelled &value, int64_t from, int64_t to) {
  auto layer = matchLayer(value, from);
  if (!layer || !isBiasOf(layer->bias, to))
    return std::nullopt;
  if (!layer->left.has(kToken))
    std::swap(layer->left, layer->right);
  return isOf(layer->right, {kExpert, to, from}) ? layer : std::nullopt;
}

/// Matches the layers of experts with the output `each`, [token, expert, out].
std::optional<ExpertLayers> matchStacked(const Labelled &each) {
  ExpertLayers experts;
  auto second = matchExpertLayer(each, kInner, kOut);
  if (!second || !isOf(second->left, {kExpert, kToken, kInner}))
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
  if (!isOf(experts.tokens, {kToken, kIn}))
    return std::nullopt;
  return experts;
}

std::optional<ExpertLayers> matchCombination(const Labelled &each, const Labelled &weights) {
  if (!isOf(each, {kToken, kExpert, kOut}) || !isOf(weights, {kToken, kExpert}))
    return std::nullopt;
  auto top = chosenPerRow(weights.value, weights.dimOf(kExpert));
  auto experts = top ? matchStacked(each) : std::nullopt;
  if (!experts)
    return std::nullopt;
  experts->weights = weights;
  experts->top = *top;
  return experts;
}

LogicalResult replace(PatternRewriter &rewriter, Operation *root,
                      const std::optional<ExpertLayers> &experts, ArrayRef<int64_t> order) {
  if (!experts)
    return failure();
  Type element = tensorType(root->getResult(0)).getElementType();
  for (const Labelled *value : {&experts->tokens, &experts->weights, &experts->gate, &experts->out})
    if (tensorType(value->value).getElementType() != element)
      return failure();
  Value result = buildRoutedExperts(rewriter, root, *experts);
  if (order[0] == kOut)
    result = rewriter.create<TransposeOp>(root->getLoc(), result, SmallVector<int64_t>{1, 0});
  rewriter.replaceOp(root, result);
  return success();
}

/// The combination as einsum.
struct RaiseExpertEinsum : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EinsumOp combine, PatternRewriter &rewriter) const override {
    auto out = combine.getOutLabels();
    Labelled each{combine.getLhs(), SmallVector<int64_t>(combine.getLhsLabels())};
    Labelled weights{combine.getRhs(), SmallVector<int64_t>(combine.getRhsLabels())};
    if (each.labels.size() == 2)
      std::swap(each, weights);
    if (each.labels.size() != 3 || weights.labels.size() != 2 || out.size() != 2)
      return failure();
    bool tokenFirst = weights.has(out[0]);
    auto name = [&](int64_t label) -> int64_t {
      if (label == out[0])
        return tokenFirst ? kToken : kOut;
      return label == out[1] ? (tokenFirst ? kOut : kToken) : int64_t(kExpert);
    };
    for (Labelled *side : {&each, &weights})
      for (int64_t &label : side->labels)
        label = name(label);
    return replace(rewriter, combine, matchCombination(each, weights),
                   {tokenFirst ? kToken : kOut});
  }
};

/// The combination as multiplication and sum.
struct RaiseExpertSum : OpRewritePattern<ReduceSumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ReduceSumOp sum, PatternRewriter &rewriter) const override {
    auto product = definedBy<MulOp>(sum.getInput());
    if (!product || sum.getDims().size() != 1 || tensorType(product).getRank() != 3)
      return failure();
    int64_t expert = sum.getDims()[0];
    for (auto [each, weights] : {std::pair(product.getLhs(), product.getRhs()),
                                 std::pair(product.getRhs(), product.getLhs())}) {
      Spread spread = Spread::of(weights).strip();
      if (spread.dims.size() != 2 || !llvm::is_contained(spread.dims, expert))
        continue;
      int64_t token = spread.dims[spread.dims[0] == expert ? 1 : 0];
      auto name = [&](int64_t dim) -> int64_t {
        return dim == expert ? kExpert : dim == token ? kToken : kOut;
      };
      Labelled left{each, {name(0), name(1), name(2)}};
      Labelled right{spread.value, {name(spread.dims[0]), name(spread.dims[1])}};
      auto experts = token < 0 ? std::nullopt : matchCombination(left, right);
      if (experts)
        return replace(rewriter, sum, experts, {name(expert == 0 ? 1 : 0)});
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
