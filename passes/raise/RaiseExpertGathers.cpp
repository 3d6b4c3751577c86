//===- RaiseExpertGathers.cpp - Experts with gathered weights -------------===//
//
// Each choice of each token is a row with its own copy of its expert's weights. The weights of the
// experts are gathered by the router's indices and multiplied as a batch. The results are weighted,
// and the choices of a token are added. This equals routed experts, without the copies: the
// router's weights are scattered to the positions of its indices.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Experts.h"
#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Experts.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// Returns `value` as a matrix [tokens, choices], also if it lists one in row-major order.
Value asChoices(PatternRewriter &rewriter, Location loc, Value value, int64_t tokens,
                int64_t choices) {
  SmallVector<int64_t> shape{tokens, choices};
  if (tensorType(value).getShape() == ArrayRef<int64_t>(shape))
    return value;
  if (auto reshape = definedBy<ReshapeOp>(value))
    if (tensorType(reshape.getInput()).getShape() == ArrayRef<int64_t>(shape))
      return reshape.getInput();
  SmallVector<int64_t> in(tensorType(value).getRank(), 0), out{1, 1};
  in[0] = 2;
  return rewriter.create<ReshapeOp>(loc, value, shape, in, out);
}

/// A stack of weights or biases, gathered by expert: [row, ...] from [expert, ...].
struct Gathered {
  Labelled stack;
  Value indices;
};
std::optional<Gathered> matchGathered(const Labelled &value) {
  auto gather = definedBy<GatherOp>(stripFloatCasts(value.value));
  if (!gather || gather.getDim() != 0 || tensorType(gather.getIndices()).getRank() != 1 ||
      value.labels[0] != kToken)
    return std::nullopt;
  Gathered result{{gather.getTable(), value.labels}, gather.getIndices()};
  result.stack.labels[0] = kExpert;
  return result;
}

/// A layer on rows, each with the weights of its own expert.
struct RowLayer {
  Value rows, indices;
  Labelled weights;
  std::optional<Labelled> bias;
};
std::optional<RowLayer> matchRowLayer(Value value, int64_t from, int64_t to) {
  auto layer = matchLayer({value, {kToken, to}}, from);
  if (!layer)
    return std::nullopt;
  if (layer->left.labels.size() == 3)
    std::swap(layer->left, layer->right);
  auto weights = layer->right.labels.size() == 3 ? matchGathered(layer->right) : std::nullopt;
  if (!weights || layer->left.labels != SmallVector<int64_t>{kToken, from})
    return std::nullopt;
  RowLayer result{stripFloatCasts(layer->left.value), weights->indices, weights->stack,
                  std::nullopt};
  if (layer->bias) {
    auto bias = layer->bias->labels == SmallVector<int64_t>{kToken, to}
                    ? matchGathered(*layer->bias)
                    : std::nullopt;
    if (!bias || bias->indices != result.indices)
      return std::nullopt;
    result.bias = bias->stack;
  }
  return result;
}

/// Returns the tokens [t, h] if `rows` has `choices` copies of each, one behind the other; or null.
Value tokensOf(Value rows, int64_t choices) {
  auto reshape = definedBy<ReshapeOp>(rows);
  if (!reshape || reshape.getIn() != ArrayRef<int64_t>{1, 1, 1} ||
      reshape.getOut() != ArrayRef<int64_t>{2, 1})
    return {};
  Spread spread = stripSpread(Spread::of(reshape.getInput()));
  bool repeats = tensorType(reshape.getInput()).getDimSize(1) == choices;
  return repeats && spread.dims == SmallVector<int64_t>{0, 2} ? spread.value : Value();
}

struct RaiseExpertGathers : OpRewritePattern<ReduceSumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ReduceSumOp sum, PatternRewriter &rewriter) const override {
    auto type = tensorType(sum.getInput());
    auto split = definedBy<ReshapeOp>(stripFloatCasts(sum.getInput()));
    if (!split || type.getRank() != 3 || sum.getDims() != ArrayRef<int64_t>{1} ||
        split.getIn() != ArrayRef<int64_t>{2, 1} || split.getOut() != ArrayRef<int64_t>{1, 1, 1})
      return failure();
    int64_t tokens = type.getDimSize(0), choices = type.getDimSize(1);
    auto product = definedBy<MulOp>(stripFloatCasts(split.getInput()));
    if (!product)
      return failure();
    Value weights;
    std::optional<RowLayer> second;
    for (auto [row, weight] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())}) {
      Spread spread = stripSpread(Spread::of(weight));
      bool isPerRow = !spread.dims.empty() && spread.dims[0] == 0 &&
                      tensorType(spread.value).getNumElements() == tokens * choices;
      if (second = matchRowLayer(row, kInner, kOut); second && isPerRow) {
        weights = spread.value;
        break;
      }
    }
    std::optional<Inner> inner = weights ? matchInner(second->rows) : std::nullopt;
    if (!inner || (inner->halvesDim && *inner->halvesDim != 1))
      return failure();
    auto gate = matchRowLayer(inner->gate, kIn, kInner);
    auto up = inner->up ? matchRowLayer(inner->up, kIn, kInner) : std::nullopt;
    if (!gate || gate->indices != second->indices || (inner->up && !up) ||
        (up && (up->indices != gate->indices || up->rows != gate->rows)))
      return failure();
    Value x = tokensOf(gate->rows, choices);
    if (!x)
      return failure();

    Location loc = sum.getLoc();
    ExpertLayers experts;
    experts.tokens = {x, {kToken, kIn}};
    Value indices = asChoices(rewriter, loc, second->indices, tokens, choices);
    Value chosen = asChoices(rewriter, loc, weights, tokens, choices);
    auto scattered = RankedTensorType::get({tokens, second->weights.sizeOf(kExpert)},
                                           tensorType(chosen).getElementType());
    experts.weights = {rewriter.create<ScatterElementsAddOp>(loc, scattered, chosen, indices, 1),
                       {kToken, kExpert}};
    experts.gate = gate->weights;
    experts.gateBias = gate->bias;
    if (up) {
      experts.up = up->weights;
      experts.upBias = up->bias;
    }
    experts.out = second->weights;
    experts.outBias = second->bias;
    experts.activation = inner->activation;
    experts.isGated = inner->isGated();
    experts.top = choices;
    rewriter.replaceOp(sum, buildRoutedExperts(rewriter, sum, experts));
    return success();
  }
};

} // namespace

void addExpertGatherPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseExpertGathers>(patterns.getContext());
}

} // namespace tbc::raise
