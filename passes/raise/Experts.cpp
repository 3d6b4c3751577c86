//===- Experts.cpp - Common patterns of all forms of a mixture of experts --===//

#include "passes/raise/Experts.h"

#include "ir/Activation.h"
#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Experts.h"
#include "ir/Formula.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace mlir;

namespace tbc::raise {

Value stripFloatCasts(Value value) {
  while (auto cast = definedBy<CastOp>(value)) {
    if (!cast.isAdditive())
      break;
    value = cast.getInput();
  }
  return value;
}

Spread stripSpread(Spread spread) {
  for (Value before; before != spread.value;) {
    before = spread.value;
    spread.strip();
    spread.value = stripFloatCasts(spread.value);
  }
  return spread;
}

//===- the first layer's activation ----------------------------------------===//

static std::optional<std::string> activationOf(Operation *op) {
  if (isa_and_nonnull<SiluOp>(op))
    return "silu";
  if (isa_and_nonnull<ReluOp>(op))
    return "relu";
  if (auto gelu = dyn_cast_or_null<GeluOp>(op))
    return gelu.getApproximate() == "none" ? "gelu" : "gelu_tanh";
  return std::nullopt;
}

/// Whether `front` and `back` are the halves of one value.
static bool areHalves(SliceOp front, SliceOp back) {
  return front && back && front.getInput() == back.getInput() && front.getDim() == back.getDim() &&
         front.getOffset() == 0 && front.getSize() == back.getSize() &&
         back.getOffset() == front.getSize() &&
         tensorType(front.getInput()).getDimSize(front.getDim()) == int64_t(2 * front.getSize());
}

std::optional<Inner> matchInner(Value value) {
  value = stripFloatCasts(value);
  if (auto activation = activationOf(value.getDefiningOp()))
    return Inner{*activation, value.getDefiningOp()->getOperand(0), {}, std::nullopt};
  auto product = definedBy<MulOp>(value);
  if (!product)
    return std::nullopt;
  Value left = stripFloatCasts(product.getLhs()), right = stripFloatCasts(product.getRhs());
  for (auto [activated, up] : {std::pair(left, right), std::pair(right, left)}) {
    auto activation = activationOf(activated.getDefiningOp());
    if (!activation)
      continue;
    Value gate = stripFloatCasts(activated.getDefiningOp()->getOperand(0));
    auto front = definedBy<SliceOp>(gate), back = definedBy<SliceOp>(up);
    if (areHalves(front, back))
      return Inner{*activation, front.getInput(), {}, int64_t(front.getDim())};
    return Inner{*activation, gate, up, std::nullopt};
  }
  return std::nullopt;
}

//===- labelled tensors ----------------------------------------------------===//

Labelled Labelled::stripped() const {
  Labelled result{stripFloatCasts(value), labels};
  while (auto broadcast = definedBy<BroadcastOp>(result.value)) {
    SmallVector<int64_t> kept;
    for (int64_t dim : broadcast.getDims())
      kept.push_back(result.labels[dim]);
    result = {stripFloatCasts(broadcast.getInput()), kept};
  }
  return result;
}

bool Labelled::isOf(ArrayRef<int64_t> expected) const {
  return labels.size() == expected.size() &&
         llvm::all_of(expected, [&](int64_t label) { return has(label); });
}

SmallVector<int64_t> tokenLabels(unsigned count, ArrayRef<int64_t> last) {
  SmallVector<int64_t> labels{kToken};
  for (unsigned i = 1; i < count; ++i)
    labels.push_back(kNextToken + i - 1);
  labels.append(last.begin(), last.end());
  return labels;
}

std::optional<Layer> matchLayer(const Labelled &value, int64_t summed) {
  Layer layer;
  Value product = stripFloatCasts(value.value);
  if (auto add = definedBy<AddOp>(product)) {
    Value left = stripFloatCasts(add.getLhs()), right = stripFloatCasts(add.getRhs());
    bool first = bool(definedBy<EinsumOp>(left));
    layer.bias = Labelled{first ? right : left, value.labels}.stripped();
    product = first ? left : right;
  }
  auto einsum = definedBy<EinsumOp>(product);
  if (!einsum)
    return std::nullopt;
  auto relabelled = [&](Value operand, ArrayRef<int64_t> labels) {
    Labelled result{operand, {}};
    for (int64_t label : labels) {
      auto at = llvm::find(einsum.getOutLabels(), label);
      result.labels.push_back(at == einsum.getOutLabels().end()
                                  ? summed
                                  : value.labels[at - einsum.getOutLabels().begin()]);
    }
    return result;
  };
  layer.left = relabelled(einsum.getLhs(), einsum.getLhsLabels());
  layer.right = relabelled(einsum.getRhs(), einsum.getRhsLabels());
  for (const Labelled *side : {&layer.left, &layer.right})
    if (llvm::count(side->labels, summed) != 1)
      return std::nullopt;
  return layer;
}

//===- choices of the router -----------------------------------------------===//

bool isOneHotAlong(Value value, int64_t dim) {
  while (auto cast = definedBy<CastOp>(value))
    value = cast.getInput();
  if (auto select = definedBy<SelectOp>(value))
    if (splatNumber(select.getOnTrue()) == 1.0 && splatNumber(select.getOnFalse()) == 0.0)
      value = select.getPred();
  auto compare = definedBy<CompareOp>(value);
  if (!compare || compare.getPredicate() != "eq")
    return false;
  for (auto [position, index] : {std::pair(compare.getLhs(), compare.getRhs()),
                                 std::pair(compare.getRhs(), compare.getLhs())}) {
    Spread along = Spread::of(position).strip(), other = Spread::of(index).strip();
    auto iota = definedBy<IotaOp>(along.value);
    if (iota && along.dims[iota.getDim()] == dim && !llvm::is_contained(other.dims, dim))
      return true;
  }
  return false;
}

/// If dim `dim` of the result of `reshape` is a dim of its input, returns that dim.
static std::optional<int64_t> inputDim(ReshapeOp reshape, int64_t dim) {
  ArrayRef<int64_t> in = reshape.getIn(), out = reshape.getOut();
  int64_t before = std::accumulate(out.begin(), out.begin() + dim, int64_t(0));
  if (out[dim] != 1)
    return std::nullopt;
  for (size_t i = 0; i < in.size(); ++i) {
    if (before == 0 && in[i] == 1)
      return i;
    before -= in[i];
  }
  return std::nullopt;
}

std::optional<int64_t> chosenPerRow(Value weights, int64_t dim) {
  weights = stripFloatCasts(weights);
  if (auto reshape = definedBy<ReshapeOp>(weights)) {
    auto from = inputDim(reshape, dim);
    return from ? chosenPerRow(reshape.getInput(), *from) : std::nullopt;
  }
  if (auto transpose = definedBy<TransposeOp>(weights))
    return chosenPerRow(transpose.getInput(), transpose.getPermutation()[dim]);
  if (auto scatter = definedBy<ScatterElementsAddOp>(weights)) {
    if (int64_t(scatter.getDim()) != dim)
      return std::nullopt;
    return tensorType(scatter.getUpdates()).getDimSize(dim);
  }
  auto sum = definedBy<ReduceSumOp>(weights);
  if (!sum || sum.getDims().size() != 1)
    return std::nullopt;
  int64_t choices = sum.getDims()[0];
  auto product = definedBy<MulOp>(stripFloatCasts(sum.getInput()));
  if (!product)
    return std::nullopt;
  int64_t expert = dim < choices ? dim : dim + 1;
  if (!isOneHotAlong(product.getLhs(), expert) && !isOneHotAlong(product.getRhs(), expert))
    return std::nullopt;
  return tensorType(sum.getInput()).getDimSize(choices);
}

//===- the op --------------------------------------------------------------===//

Value withFrontDim(OpBuilder &builder, Location loc, Value value) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), ones(sizes.size(), 1), out{0};
  out.append(ones);
  return builder.create<ReshapeOp>(loc, value, sizes, ones, out);
}

/// `value` with its dims in the order `labels`.
static Value inOrder(OpBuilder &builder, Location loc, const Labelled &value,
                     ArrayRef<int64_t> labels) {
  if (ArrayRef<int64_t>(value.labels) == labels)
    return value.value;
  SmallVector<int64_t> permutation;
  for (int64_t label : labels)
    permutation.push_back(value.dimOf(label));
  return builder.create<TransposeOp>(loc, value.value, permutation);
}

/// `value`, [tokens, width], with all dims of tokens as one.
static Value flattened(OpBuilder &builder, Location loc, Value value) {
  auto type = tensorType(value);
  if (type.getRank() == 2)
    return value;
  SmallVector<int64_t> sizes(type.getShape()), in(sizes.size(), 1);
  return builder.create<ReshapeOp>(loc, value, sizes, in,
                                   SmallVector<int64_t>{type.getRank() - 1, 1});
}

/// The opposite: [all tokens, width] to [tokens, width] with the dims of `like`.
static Value unflattened(OpBuilder &builder, Location loc, Value value, Value like) {
  SmallVector<int64_t> sizes(tensorType(like).getShape());
  if (sizes.size() == 2)
    return value;
  sizes.back() = tensorType(value).getShape().back();
  SmallVector<int64_t> in{int64_t(sizes.size()) - 1, 1}, out(sizes.size(), 1);
  return builder.create<ReshapeOp>(loc, value, sizes, in, out);
}

Value buildRoutedExperts(PatternRewriter &rewriter, Operation *root, const ExpertLayers &layers) {
  Location loc = root->getLoc();
  Formula f{rewriter, loc};
  Type element = tensorType(layers.out.value).getElementType();
  auto ordered = [&](const Labelled &value, ArrayRef<int64_t> labels) {
    return f.cast(inOrder(rewriter, loc, value, labels), element);
  };
  auto joined = [&](Value a, Value b, int64_t dim) {
    return f.make<ConcatOp>(ValueRange{a, b}, dim);
  };
  Value spread = ordered(layers.tokens, tokenLabels(layers.tokenDims, {kIn}));
  Value tokens = flattened(rewriter, loc, spread);
  Value weights =
      flattened(rewriter, loc, ordered(layers.weights, tokenLabels(layers.tokenDims, {kExpert})));
  Value in = ordered(layers.gate, {kExpert, kInner, kIn});
  Value out = ordered(layers.out, {kExpert, kOut, kInner});
  if (layers.up)
    in = joined(in, ordered(*layers.up, {kExpert, kInner, kIn}), 1);
  if (layers.gateBias || layers.upBias) {
    auto shape = tensorType(in).getShape();
    int64_t inner = layers.up ? shape[1] / 2 : shape[1];
    auto biasOr0 = [&](const std::optional<Labelled> &bias) -> Value {
      auto type = RankedTensorType::get({shape[0], inner}, tensorType(in).getElementType());
      if (!bias)
        return splat(rewriter, loc, type, 0);
      const Labelled &all = *bias;
      // A bias equal for all experts lacks their dim.
      if (!all.has(kExpert))
        return broadcastTo(rewriter, loc, f.cast(all.value, element), type.getShape(), {1});
      return ordered(all, {kExpert, kInner});
    };
    Value bias = biasOr0(layers.gateBias);
    if (layers.up)
      bias = joined(bias, biasOr0(layers.upBias), 1);
    SmallVector<int64_t> column{shape[0], shape[1], 1};
    in = joined(in, broadcastTo(rewriter, loc, bias, column, {0, 1}), 2);
    auto one = RankedTensorType::get({tensorType(tokens).getDimSize(0), 1},
                                     tensorType(tokens).getElementType());
    tokens = joined(tokens, splat(rewriter, loc, one, 1), 1);
  }
  auto routed = rewriter.create<RoutedExpertsOp>(
      loc, tokens, weights, in, out, rewriter.getStringAttr(layers.activation),
      rewriter.getBoolAttr(layers.isGated), rewriter.getI64IntegerAttr(layers.top));
  takeIdentity(routed, root);
  Value result = routed;
  if (layers.outBias) {
    Value bias =
        layers.outBias->has(kExpert)
            ? ordered(*layers.outBias, {kExpert, kOut})
            : broadcastTo(rewriter, loc, f.cast(layers.outBias->value, element),
                          {tensorType(out).getDimSize(0), tensorType(out).getDimSize(1)}, {1});
    result =
        f.add(result, f.einsum(weights, bias, {kToken, kExpert}, {kExpert, kOut}, {kToken, kOut}));
  }
  return unflattened(rewriter, loc, f.cast(result, tensorType(root->getResult(0)).getElementType()),
                     spread);
}

} // namespace tbc::raise
