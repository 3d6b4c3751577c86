//===- RaiseExpertLoops.cpp - Experts one by one ---------------------------===//
//
// An unrolled loop over experts: each has its own weights and maps all tokens. The results are
// added with weights per token, which are 0 unless the router chose the expert. The weights are
// stacked and the experts become one op.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Experts.h"
#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Formula.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"
#include "llvm/ADT/SetVector.h"

#include <vector>

using namespace mlir;

namespace tbc::raise {

namespace {

/// The dim of experts, in the dims of a Spread.
constexpr int64_t kExpertDim = 1 << 20;

/// A mask: true at the elements of `index`, spread over the mask, that are `expert`.
struct Choice {
  Spread index;
  int64_t expert = 0;
};

/// Looks through ops that only rearrange a mask or cast it.
std::optional<Choice> matchChoice(Value mask) {
  Spread at = Spread::of(mask);
  std::optional<int64_t> expert;
  while (Operation *op = at.strip().value.getDefiningOp()) {
    if (auto cast = dyn_cast<CastOp>(op)) {
      at = at.operand(cast.getInput());
    } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
      SmallVector<int64_t> dims(at.dims.size());
      for (auto [i, from] : llvm::enumerate(transpose.getPermutation()))
        dims[from] = at.dims[i];
      at = {transpose.getInput(), dims};
    } else if (auto slice = dyn_cast<SliceOp>(op); slice && slice.getSize() == 1 && !expert) {
      expert = slice.getOffset();
      SmallVector<int64_t> dims = at.dims;
      dims[slice.getDim()] = kExpertDim;
      at = {slice.getInput(), dims};
    } else if (auto compare = dyn_cast<CompareOp>(op);
               compare && compare.getPredicate() == "ne" && splatNumber(compare.getRhs()) == 0.0) {
      at = at.operand(compare.getLhs());
    } else if (auto select = dyn_cast<SelectOp>(op); select &&
                                                     splatNumber(select.getOnTrue()) == 1.0 &&
                                                     splatNumber(select.getOnFalse()) == 0.0) {
      at = at.operand(select.getPred());
    } else {
      break;
    }
  }
  auto equal = definedBy<CompareOp>(at.value);
  if (!equal || equal.getPredicate() != "eq")
    return std::nullopt;
  for (auto [left, right] :
       {std::pair(equal.getLhs(), equal.getRhs()), std::pair(equal.getRhs(), equal.getLhs())}) {
    Spread index = at.operand(left).strip(), other = at.operand(right).strip();
    if (llvm::is_contained(index.dims, kExpertDim))
      continue;
    auto iota = definedBy<IotaOp>(other.value);
    if (expert && iota && other.dims[iota.getDim()] == kExpertDim)
      return Choice{index, *expert};
    if (auto number = splatNumber(right); number && !expert)
      return Choice{index, int64_t(*number)};
  }
  return std::nullopt;
}

/// Returns `value` before a reshape that a second reshape reverted, and before casts between
/// floats.
Value stripReshapes(Value value) {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  value = stripFloatCasts(value);
  Value from = value;
  while (auto reshape = definedBy<ReshapeOp>(from)) {
    from = stripFloatCasts(reshape.getInput());
    if (tensorType(from).getShape() == shape)
      value = from;
  }
  return value;
}

/// The weight of an expert per token, and the proof that few experts matter to a token.
/// It is one column of a matrix of weights, or the sum of the weights of the choices equal to the
/// expert.
struct Column {
  Value value;
  /// For each dim of `value` its dim of the tokens, or -1 for one of size 1.
  SmallVector<int64_t> dims;
  int64_t expert = 0;
  /// The matrix and its dim of experts.
  Value matrix;
  int64_t matrixDim = 0;
  /// The sum over dim `choicesDim` of `weights` at the choices of this expert.
  Choice choice;
  Spread weights;
  int64_t choicesDim = 0, choices = 0;

  /// Whether two experts were chosen in the same way.
  bool isLike(const Column &other) const {
    return matrix == other.matrix && matrixDim == other.matrixDim &&
           choice.index.value == other.choice.index.value &&
           choice.index.dims == other.choice.index.dims && weights.value == other.weights.value &&
           weights.dims == other.weights.dims && choicesDim == other.choicesDim &&
           choices == other.choices && dims == other.dims &&
           value.getType() == other.value.getType();
  }
};

/// `per` has one number for each token.
std::optional<Column> matchColumn(const Spread &per) {
  Column column;
  column.value = per.value;
  column.dims = per.dims;
  Value source = stripSpread(Spread::of(per.value)).value;
  int64_t tokens = tensorType(per.value).getNumElements();
  if (auto slice = definedBy<SliceOp>(source); slice && slice.getSize() == 1 &&
                                               tensorType(slice).getRank() >= 2 &&
                                               tensorType(slice).getNumElements() == tokens) {
    column.matrix = slice.getInput();
    column.matrixDim = slice.getDim();
    column.expert = slice.getOffset();
    return column;
  }
  auto sum = definedBy<ReduceSumOp>(source);
  if (!sum || sum.getDims().size() != 1 || tensorType(sum).getNumElements() != tokens)
    return std::nullopt;
  column.choicesDim = sum.getDims()[0];
  column.choices = tensorType(sum.getInput()).getDimSize(column.choicesDim);
  Value chosen = stripFloatCasts(sum.getInput());
  auto take = [&](Value mask, Value weights) {
    auto choice = matchChoice(mask);
    if (!choice)
      return false;
    column.choice = *choice;
    column.expert = choice->expert;
    column.weights = stripSpread(Spread::of(stripReshapes(weights)));
    return true;
  };
  if (auto select = definedBy<SelectOp>(chosen))
    if (splatNumber(select.getOnFalse()) == 0.0 && take(select.getPred(), select.getOnTrue()))
      return column;
  if (auto product = definedBy<MulOp>(chosen))
    if (take(product.getLhs(), product.getRhs()) || take(product.getRhs(), product.getLhs()))
      return column;
  return std::nullopt;
}

/// One layer of one expert: rows [tokens, from] to [tokens, to].
std::optional<Layer> matchOwnLayer(Value value, int64_t from, int64_t to) {
  unsigned tokenDims = unsigned(tensorType(value).getRank()) - 1;
  auto layer = matchLayer({value, tokenLabels(tokenDims, {to})}, from);
  if (!layer || (layer->bias && layer->bias->labels != SmallVector<int64_t>{to}))
    return std::nullopt;
  if (!layer->left.has(kToken))
    std::swap(layer->left, layer->right);
  if (layer->left.labels != tokenLabels(tokenDims, {from}) || !layer->right.isOf({from, to}))
    return std::nullopt;
  layer->left.value = stripFloatCasts(layer->left.value);
  return layer;
}

/// One expert: its output on the tokens, times its column.
struct Term {
  Column column;
  Inner inner;
  Layer gate, out;
  std::optional<Layer> up;

  bool isLike(const Term &other) const {
    auto sameLayer = [](const Layer &a, const Layer &b) {
      return a.right.labels == b.right.labels &&
             a.right.value.getType() == b.right.value.getType() && bool(a.bias) == bool(b.bias);
    };
    return column.isLike(other.column) && inner.activation == other.inner.activation &&
           inner.halvesDim == other.inner.halvesDim && bool(up) == bool(other.up) &&
           gate.left.value == other.gate.left.value && sameLayer(gate, other.gate) &&
           sameLayer(out, other.out) && (!up || sameLayer(*up, *other.up));
  }
};

std::optional<Term> matchExpert(Value each, Column column) {
  int64_t rank = tensorType(each).getRank();
  auto out = rank >= 2 ? matchOwnLayer(each, kInner, kOut) : std::nullopt;
  auto inner = out ? matchInner(out->left.value) : std::nullopt;
  if (!inner || (inner->halvesDim && *inner->halvesDim != rank - 1))
    return std::nullopt;
  auto gate = matchOwnLayer(inner->gate, kIn, kInner);
  auto up = inner->up ? matchOwnLayer(inner->up, kIn, kInner) : std::nullopt;
  if (!gate || (inner->up && (!up || up->left.value != gate->left.value)))
    return std::nullopt;
  return Term{std::move(column), *inner, *gate, *out, up};
}

std::optional<Term> matchTerm(Value value) {
  value = stripFloatCasts(value);
  auto product = definedBy<MulOp>(value);
  if (!product || tensorType(value).getRank() < 2)
    return std::nullopt;
  ArrayRef<int64_t> tokens = tensorType(value).getShape().drop_back();
  for (auto [each, weight] : {std::pair(product.getLhs(), product.getRhs()),
                              std::pair(product.getRhs(), product.getLhs())}) {
    // One number per token: a column keeps its dim of size 1.
    Spread per = Spread::of(weight).strip();
    SmallVector<int64_t> dims;
    llvm::copy_if(per.dims, std::back_inserter(dims), [](int64_t dim) { return dim >= 0; });
    bool isColumn = !dims.empty() && llvm::is_sorted(dims) && dims.back() < int64_t(tokens.size());
    int64_t elements = 1;
    for (int64_t size : tokens)
      elements *= size;
    if (!isColumn || tensorType(per.value).getNumElements() != elements)
      continue;
    if (auto column = matchColumn(per))
      if (auto term = matchExpert(each, *column))
        return term;
  }
  return std::nullopt;
}

/// Returns the limit for the columns of a token that differ from 0.
std::optional<int64_t> chosenOf(ArrayRef<Term> terms) {
  llvm::SmallSetVector<int64_t, 16> experts;
  for (const Term &term : terms)
    if (!term.isLike(terms[0]) || !experts.insert(term.column.expert))
      return std::nullopt;
  const Column &column = terms[0].column;
  if (!column.matrix)
    return std::min<int64_t>(column.choices, terms.size());
  return chosenPerRow(column.matrix, column.matrixDim);
}

/// The terms' tensors behind each other along a new dim of experts, in front.
Labelled stack(PatternRewriter &rewriter, Location loc, ArrayRef<Term> terms,
               llvm::function_ref<Labelled(const Term &)> part) {
  SmallVector<Value> parts;
  for (const Term &term : terms)
    parts.push_back(withFrontDim(rewriter, loc, part(term).value));
  Labelled result{parts.size() == 1 ? parts[0] : Value(rewriter.create<ConcatOp>(loc, parts, 0)),
                  {kExpert}};
  result.labels.append(part(terms[0]).labels);
  return result;
}

/// The columns of all experts, [tokens, experts]. `tokens` are the sizes of the tokens' dims.
Labelled stackColumns(PatternRewriter &rewriter, Location loc, ArrayRef<Term> terms,
                      ArrayRef<int64_t> tokens) {
  const Column &first = terms[0].column;
  int64_t count = terms.size();
  if (first.matrix && tensorType(first.matrix).getDimSize(first.matrixDim) == count) {
    bool inOrder = true;
    for (auto [i, term] : llvm::enumerate(terms))
      inOrder = inOrder && term.column.expert == int64_t(i);
    SmallVector<int64_t> shape(tokens), labels = tokenLabels(tokens.size());
    shape.insert(shape.begin() + std::min<int64_t>(first.matrixDim, tokens.size()), count);
    labels.insert(labels.begin() + std::min<int64_t>(first.matrixDim, tokens.size()), kExpert);
    if (inOrder && tensorType(first.matrix).getShape() == ArrayRef<int64_t>(shape))
      return {first.matrix, labels};
  }
  // A token's dim of size 1 may be absent.
  SmallVector<int64_t> sizes, in, out(tokens.size() + 1, 0), shape(tokens);
  for (int64_t dim : first.dims) {
    in.push_back(dim >= 0 ? 1 : 0);
    if (dim >= 0) {
      sizes.push_back(tokens[dim]);
      out[dim] = 1;
    }
  }
  shape.push_back(1);
  SmallVector<Value> columns;
  for (const Term &term : terms)
    columns.push_back(term.column.value.getType() == first.value.getType() &&
                              tensorType(first.value).getShape() == ArrayRef<int64_t>(shape)
                          ? term.column.value
                          : rewriter.create<ReshapeOp>(loc, term.column.value, sizes, in, out));
  return {columns.size() == 1 ? columns[0]
                              : Value(rewriter.create<ConcatOp>(loc, columns, tokens.size())),
          tokenLabels(tokens.size(), {kExpert})};
}

/// The sum of the terms, instead of `root`; null if they are no experts of one kind.
Value buildLoop(PatternRewriter &rewriter, Operation *root, ArrayRef<Term> found) {
  std::vector<Term> terms = found.vec();
  llvm::sort(terms, [](const Term &a, const Term &b) { return a.column.expert < b.column.expert; });
  auto top = terms.size() < 2 ? std::nullopt : chosenOf(terms);
  if (!top)
    return {};
  const Term &first = terms[0];
  Location loc = root->getLoc();
  ExpertLayers experts;
  experts.tokens = first.gate.left;
  ArrayRef<int64_t> tokens = tensorType(experts.tokens.value).getShape().drop_back();
  experts.tokenDims = tokens.size();
  experts.weights = stackColumns(rewriter, loc, terms, tokens);
  auto all = [&](llvm::function_ref<const Layer &(const Term &)> layer, Labelled &weights,
                 std::optional<Labelled> &bias) {
    weights = stack(rewriter, loc, terms, [&](const Term &term) { return layer(term).right; });
    if (layer(first).bias)
      bias = stack(rewriter, loc, terms, [&](const Term &term) { return *layer(term).bias; });
  };
  auto gateOf = [](const Term &term) -> const Layer & { return term.gate; };
  auto upOf = [](const Term &term) -> const Layer & { return *term.up; };
  auto outOf = [](const Term &term) -> const Layer & { return term.out; };
  all(gateOf, experts.gate, experts.gateBias);
  if (first.up)
    all(upOf, experts.up.emplace(), experts.upBias);
  all(outOf, experts.out, experts.outBias);
  experts.activation = first.inner.activation;
  experts.isGated = first.inner.isGated();
  experts.top = *top;
  return buildRoutedExperts(rewriter, root, experts);
}

/// Collects the operands of a tree of sums: experts, and all other terms.
void collect(Value value, std::vector<Term> &terms, SmallVectorImpl<Value> &others) {
  if (auto term = matchTerm(value)) {
    terms.push_back(*term);
    return;
  }
  auto add = definedBy<AddOp>(stripFloatCasts(value));
  if (!add || !add->hasOneUse()) {
    others.push_back(value);
    return;
  }
  collect(add.getLhs(), terms, others);
  collect(add.getRhs(), terms, others);
}

/// The only user of `value`, behind casts between floats; null without one.
Operation *onlyUser(Value value, Value &used) {
  for (used = value; used.hasOneUse(); used = used.getUsers().begin()->getResult(0)) {
    Operation *user = *used.user_begin();
    auto cast = dyn_cast<CastOp>(user);
    if (!cast || !cast.isAdditive())
      return user;
  }
  return nullptr;
}

/// expert_0(x) * w[0] + expert_1(x) * w[1] + ...
struct RaiseExpertLoop : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AddOp add, PatternRewriter &rewriter) const override {
    if (tensorType(add).getRank() < 2 || (!matchTerm(add.getLhs()) && !matchTerm(add.getRhs())))
      return failure();
    // From the last sum on.
    Value used;
    if (auto next = dyn_cast_or_null<AddOp>(onlyUser(add, used));
        next && matchTerm(otherOperand(next, used)))
      return failure();
    std::vector<Term> terms;
    SmallVector<Value> others;
    collect(add.getLhs(), terms, others);
    collect(add.getRhs(), terms, others);
    Value result = buildLoop(rewriter, add, terms);
    if (!result)
      return failure();
    Formula f{rewriter, add.getLoc()};
    for (Value other : others)
      result = f.add(f.cast(other, tensorType(add).getElementType()), result);
    rewriter.replaceOp(add, result);
    return success();
  }
};

/// The sum over e of concat(expert_e(x)) * w[e].
struct RaiseStackedLoop : OpRewritePattern<ReduceSumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ReduceSumOp sum, PatternRewriter &rewriter) const override {
    auto product = definedBy<MulOp>(stripFloatCasts(sum.getInput()));
    int64_t rank = tensorType(sum.getInput()).getRank();
    if (!product || sum.getDims().size() != 1 || rank < 3 || sum.getDims()[0] == rank - 1)
      return failure();
    int64_t expert = sum.getDims()[0];
    // [tokens, expert] in the order of the product, which has the width behind.
    SmallVector<int64_t> expected;
    for (int64_t dim = 0; dim < rank - 1; ++dim)
      expected.push_back(dim);
    for (auto [each, weights] : {std::pair(product.getLhs(), product.getRhs()),
                                 std::pair(product.getRhs(), product.getLhs())}) {
      auto concat = definedBy<ConcatOp>(stripFloatCasts(each));
      Spread spread = stripSpread(Spread::of(weights));
      SmallVector<int64_t> dims = spread.dims;
      llvm::sort(dims);
      if (!concat || int64_t(concat.getDim()) != expert || dims != expected ||
          int64_t(concat.getInputs().size()) != tensorType(each).getDimSize(expert))
        continue;
      Column column;
      column.matrix = column.value = spread.value;
      column.matrixDim = llvm::find(spread.dims, expert) - spread.dims.begin();
      // Other orders of the tokens' dims are left alone.
      dims = spread.dims;
      dims.erase(dims.begin() + column.matrixDim);
      if (!llvm::is_sorted(dims))
        continue;
      std::vector<Term> terms;
      for (Value input : concat.getInputs()) {
        auto term = matchExpert(stripSpread(Spread::of(input)).value, column);
        if (!term)
          break;
        terms.push_back(*term);
        ++column.expert;
      }
      if (terms.size() != concat.getInputs().size())
        continue;
      if (Value result = buildLoop(rewriter, sum, terms)) {
        rewriter.replaceOp(sum, result);
        return success();
      }
    }
    return failure();
  }
};

} // namespace

void addExpertLoopPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseExpertLoop, RaiseStackedLoop>(patterns.getContext());
}

} // namespace tbc::raise
