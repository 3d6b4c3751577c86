//===- RaiseExperts.cpp - Experts written densely --------------------------===//
//
// From the combination upwards: y[t, o] is the sum over experts e of w[t, e] times what e makes of
// the token t, where w is a one-hot sum over the few experts that the router chose. So most of w is
// zero, and only the others need be computed.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Activation.h"
#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Experts.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"

#include <tuple>

using namespace mlir;

namespace tbc::raise {

namespace {

Value stripFloatCasts(Value value) {
  while (auto cast = definedBy<CastOp>(value)) {
    if (!cast.isAdditive())
      break;
    value = cast.getInput();
  }
  return value;
}

/// Whether `value` is 1 (or true) where an index equals the position along dim `dim`, and 0
/// elsewhere: one element of that dim at most.
bool isOneHotAlong(Value value, int64_t dim) {
  while (auto cast = definedBy<CastOp>(value))
    value = cast.getInput();
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

/// How many elements of each row of the matrix `weights` may differ from 0, along its dim `dim`;
/// nothing if that does not follow from how it is made.
std::optional<int64_t> chosenPerRow(Value weights, int64_t dim) {
  weights = stripFloatCasts(weights);
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

/// The operands of an einsum by their labels.
struct Side {
  Value value;
  ArrayRef<int64_t> labels;

  bool has(int64_t label) const { return llvm::is_contained(labels, label); }
  int64_t dimOf(int64_t label) const { return llvm::find(labels, label) - labels.begin(); }
};

std::pair<Side, Side> sides(EinsumOp einsum) {
  return {{einsum.getLhs(), einsum.getLhsLabels()}, {einsum.getRhs(), einsum.getRhsLabels()}};
}

/// `side` with its dims in the order `labels`.
Value inOrder(PatternRewriter &rewriter, Location loc, const Side &side, ArrayRef<int64_t> labels) {
  if (side.labels == labels)
    return side.value;
  SmallVector<int64_t> permutation;
  for (int64_t label : labels)
    permutation.push_back(side.dimOf(label));
  return rewriter.create<TransposeOp>(loc, side.value, permutation);
}

/// The pieces of one layer of experts, each with labels of its own einsum.
struct Experts {
  Side tokens, weights, in, out;
  SmallVector<int64_t> inOrder, outOrder;
  std::string activation;
  bool gated = false;
  int64_t top = 0;
};

std::optional<std::string> activationOf(Operation *op) {
  if (isa_and_nonnull<SiluOp>(op))
    return "silu";
  if (isa_and_nonnull<ReluOp>(op))
    return "relu";
  if (auto gelu = dyn_cast_or_null<GeluOp>(op))
    return gelu.getApproximate() == "none" ? "gelu" : "gelu_tanh";
  return std::nullopt;
}

/// What stands between the two layers: act(p), or act(gate) * up where p is gate and up along one
/// dim. Sets `first` to p and `dim` to that dim.
bool matchInner(Value inner, Experts &experts, Value &first, std::optional<int64_t> &dim) {
  if (auto activation = activationOf(inner.getDefiningOp())) {
    experts.activation = *activation;
    first = inner.getDefiningOp()->getOperand(0);
    return true;
  }
  auto product = definedBy<MulOp>(inner);
  if (!product)
    return false;
  for (auto [activated, up] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())}) {
    auto activation = activationOf(activated.getDefiningOp());
    if (!activation)
      continue;
    auto front = definedBy<SliceOp>(activated.getDefiningOp()->getOperand(0)),
         back = definedBy<SliceOp>(up);
    if (!front || !back || front.getInput() != back.getInput() || front.getDim() != back.getDim() ||
        front.getOffset() != 0 || front.getSize() != back.getSize() ||
        back.getOffset() != front.getSize() ||
        tensorType(front.getInput()).getDimSize(front.getDim()) != int64_t(2 * front.getSize()))
      continue;
    experts.activation = *activation;
    experts.gated = true;
    first = front.getInput();
    dim = front.getDim();
    return true;
  }
  return false;
}

std::optional<Experts> matchExperts(EinsumOp combine) {
  Experts experts;
  Side each, weights;
  std::tie(each, weights) = sides(combine);
  if (each.labels.size() == 2)
    std::swap(each, weights);
  if (each.labels.size() != 3 || weights.labels.size() != 2 || combine.getOutLabels().size() != 2)
    return std::nullopt;
  int64_t token = combine.getOutLabels()[0], width = combine.getOutLabels()[1];
  if (!weights.has(token) || weights.has(width) || !each.has(token) || !each.has(width))
    return std::nullopt;
  int64_t expert = weights.labels[weights.labels[0] == token ? 1 : 0];
  if (!each.has(expert))
    return std::nullopt;
  auto top = chosenPerRow(weights.value, weights.dimOf(expert));
  auto second = definedBy<EinsumOp>(each.value);
  if (!top || !second)
    return std::nullopt;
  experts.top = *top;
  experts.weights = weights;

  // The second layer: inner[e, t, f], out[e, o, f] -> each[e, t, o].
  auto at = [&](int64_t label) { return second.getOutLabels()[each.dimOf(label)]; };
  int64_t e = at(expert), t = at(token), o = at(width);
  Side inner, out;
  std::tie(inner, out) = sides(second);
  if (!inner.has(t))
    std::swap(inner, out);
  if (inner.labels.size() != 3 || out.labels.size() != 3 || !inner.has(t) || !inner.has(e) ||
      !out.has(e) || !out.has(o) || out.has(t))
    return std::nullopt;
  int64_t f = *llvm::find_if(inner.labels, [&](int64_t l) { return l != t && l != e; });
  if (!out.has(f))
    return std::nullopt;
  experts.out = out;
  experts.outOrder = {e, o, f};

  Value first;
  std::optional<int64_t> halves;
  if (!matchInner(inner.value, experts, first, halves) || (halves && *halves != inner.dimOf(f)))
    return std::nullopt;

  // The first layer: x[t, h], in[e, g * f, h] -> p[e, t, g * f].
  auto product = definedBy<EinsumOp>(first);
  if (!product)
    return std::nullopt;
  auto inFirst = [&](int64_t label) { return product.getOutLabels()[inner.dimOf(label)]; };
  int64_t e1 = inFirst(e), t1 = inFirst(t), f1 = inFirst(f);
  auto [x, in] = sides(product);
  if (!x.has(t1))
    std::swap(x, in);
  if (x.labels.size() != 2 || in.labels.size() != 3 || x.labels[0] != t1 || x.labels[1] == f1 ||
      x.labels[1] == e1 || !in.has(e1) || !in.has(f1) || !in.has(x.labels[1]))
    return std::nullopt;
  experts.tokens = x;
  experts.in = in;
  experts.inOrder = {e1, f1, x.labels[1]};
  return experts;
}

struct RaiseExperts : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EinsumOp combine, PatternRewriter &rewriter) const override {
    std::optional<Experts> experts = matchExperts(combine);
    if (!experts)
      return failure();
    Location loc = combine.getLoc();
    int64_t token = combine.getOutLabels()[0];
    SmallVector<int64_t> weightOrder{token, 0};
    for (int64_t label : experts->weights.labels)
      if (label != token)
        weightOrder[1] = label;
    auto routed = rewriter.create<RoutedExpertsOp>(
        loc, experts->tokens.value, inOrder(rewriter, loc, experts->weights, weightOrder),
        inOrder(rewriter, loc, experts->in, experts->inOrder),
        inOrder(rewriter, loc, experts->out, experts->outOrder),
        rewriter.getStringAttr(experts->activation), rewriter.getBoolAttr(experts->gated),
        rewriter.getI64IntegerAttr(experts->top));
    takeIdentity(routed, combine);
    rewriter.replaceOp(combine, routed);
    return success();
  }
};

} // namespace

void addExpertPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseExperts>(patterns.getContext());
}

} // namespace tbc::raise
