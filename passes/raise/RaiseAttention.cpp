//===- RaiseAttention.cpp - Attention, however it is spelled ---------------===//
//
// From the product of weights and values upwards: weights are a softmax, of scores, of a product of
// queries and keys. On the way stand, in any order and place, factors, masks, casts, and reshapes,
// transposes and broadcasts. What every dim is made of is followed through all of them, so the
// roles of the pieces (sample, head, query, key ...) follow from where they occur and from nothing
// else.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Dims.h"
#include "passes/raise/MaskPredicate.h"
#include "passes/raise/Match.h"

#include "ir/Attention.h"
#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

namespace {

/// A tensor that hides scores, as it stands beside them.
struct Mask {
  View view;
  /// A boolean: true where scores are kept, or hidden if `isNegated`. Otherwise a bias to add.
  bool isBoolean = false, isNegated = false;
};

bool contains(ArrayRef<unsigned> list, unsigned atom) { return llvm::is_contained(list, atom); }

bool isFloatCast(Operation *op) { return isa<CastOp>(op) && cast<CastOp>(op).isAdditive(); }

/// The value that `select` returns unless it is not a number, or null.
Value guardedAgainstNan(SelectOp select) {
  Value pred = select.getPred(), kept = select.getOnFalse(), replacement = select.getOnTrue();
  if (auto negation = definedBy<NotOp>(pred)) {
    pred = negation.getInput();
    std::swap(kept, replacement);
  }
  auto isNan = definedBy<IsNanOp>(pred);
  return isNan && isNan.getInput() == kept && splatNumber(replacement) ? kept : Value();
}

/// Everything that makes up one attention.
class Attention {
public:
  explicit Attention(EinsumOp product) : product(product) {}

  /// Whether the product is weights times values; then all of the below is set.
  bool match();

  /// Says why an attention that was found cannot be raised; empty: it can.
  std::string reason;

  Value build(PatternRewriter &rewriter);

private:
  using Labels = llvm::MapVector<int64_t, DimList>;

  View viewOf(Value value, ArrayRef<int64_t> labels, Labels &lists) {
    View view{value, {}};
    for (auto [dim, label] : llvm::enumerate(labels)) {
      if (!lists.count(label))
        lists[label] = table.add(tensorType(value).getDimSize(dim));
      view.dims.push_back(lists[label]);
    }
    return view;
  }

  bool matchWeights(View weights);
  bool matchScores(View scores);
  bool stepThroughScores(View &scores);
  void stepThroughFactors(View &view);
  bool assignRoles();
  bool classifyMask();
  bool addMask(const Mask &mask, PairPredicate &predicate);

  EinsumOp product;
  DimTable table;
  View query, key, value, probabilities;
  DimList keyAtomsBefore, keys;
  SmallVector<DimList> resultDims;
  double scale = 1;
  SmallVector<Mask> masks;

  /// Roles, in terms of atoms.
  DimList samples, keyHeads, groups, queries, width, valueWidth;
  bool isCausal = false;
};

bool Attention::match() {
  for (bool weightsAreLeft : {true, false}) {
    table = DimTable();
    Labels lists;
    View left = viewOf(product.getLhs(), product.getLhsLabels(), lists);
    View right = viewOf(product.getRhs(), product.getRhsLabels(), lists);
    resultDims.clear();
    for (int64_t label : product.getOutLabels())
      resultDims.push_back(lists[label]);
    value = weightsAreLeft ? right : left;
    if (matchWeights(weightsAreLeft ? left : right)) {
      if (!assignRoles() || !classifyMask())
        if (reason.empty())
          reason = "its dims have no roles in an attention";
      return true;
    }
  }
  return false;
}

/// Up from the weights as the product reads them to the softmax.
bool Attention::matchWeights(View weights) {
  while (true) {
    if (auto softmax = definedBy<SoftmaxOp>(weights.value)) {
      probabilities = weights;
      keys = weights.dims[softmax.getDim()];
      return matchScores({softmax.getInput(), weights.dims});
    }
    Operation *op = weights.value.getDefiningOp();
    if (!op)
      return false;
    if (isFloatCast(op)) {
      weights.value = op->getOperand(0);
      continue;
    }
    // A softmax of finite numbers is a number, and a row that is hidden as a whole is refused
    // below.
    if (auto select = dyn_cast<SelectOp>(op))
      if (Value kept = guardedAgainstNan(select)) {
        weights.value = kept;
        continue;
      }
    if (!isa<TransposeOp, ReshapeOp>(op) || !stepThroughView(table, weights))
      return false;
  }
}

/// A number above which scores are kept by a mask that replaces the others.
bool isHidden(Value value) {
  auto number = splatNumber(value);
  return number && *number < kHidden;
}

/// One step up through scores: a factor, a mask, a cast or a view. False where none of them is.
bool Attention::stepThroughScores(View &scores) {
  Operation *op = scores.value.getDefiningOp();
  if (!op)
    return false;
  if (isFloatCast(op)) {
    scores.value = op->getOperand(0);
    return true;
  }
  if (isa<MulOp, DivOp>(op)) {
    Value lhs = op->getOperand(0), rhs = op->getOperand(1);
    if (isa<MulOp>(op) && splatNumber(lhs))
      std::swap(lhs, rhs);
    auto number = splatNumber(rhs);
    if (!number)
      return false;
    scale *= isa<MulOp>(op) ? *number : 1 / *number;
    scores.value = lhs;
    return true;
  }
  if (auto add = dyn_cast<AddOp>(op)) {
    for (auto [rest, bias] :
         {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())})
      if (biasPredicateOf(bias)) {
        masks.push_back({{bias, scores.dims}});
        scores.value = rest;
        return true;
      }
    reason = "what is added to its scores is no mask that hides keys by their position";
    return false;
  }
  if (auto select = dyn_cast<SelectOp>(op)) {
    bool hidesFalse = isHidden(select.getOnFalse());
    if (!hidesFalse && !isHidden(select.getOnTrue()))
      return false;
    masks.push_back({{select.getPred(), scores.dims}, true, !hidesFalse});
    scores.value = hidesFalse ? select.getOnTrue() : select.getOnFalse();
    return true;
  }
  return isa<TransposeOp, ReshapeOp>(op) && stepThroughView(table, scores);
}

/// Up from queries or keys through views and factors.
void Attention::stepThroughFactors(View &view) {
  while (true) {
    if (stepThroughView(table, view))
      continue;
    Operation *op = view.value.getDefiningOp();
    if (!isa_and_nonnull<MulOp, DivOp>(op))
      return;
    Value lhs = op->getOperand(0), rhs = op->getOperand(1);
    if (isa<MulOp>(op) && splatNumber(lhs))
      std::swap(lhs, rhs);
    auto number = splatNumber(rhs);
    if (!number)
      return;
    scale *= isa<MulOp>(op) ? *number : 1 / *number;
    view.value = lhs;
  }
}

/// Up from the scores that the softmax reads to queries and keys.
bool Attention::matchScores(View scores) {
  scale = 1;
  masks.clear();
  while (!definedBy<EinsumOp>(scores.value))
    if (!stepThroughScores(scores))
      // Something was found between two products: say what is wrong with it.
      return !reason.empty();
  auto einsum = definedBy<EinsumOp>(scores.value);
  Labels lists;
  for (auto [dim, label] : llvm::enumerate(einsum.getOutLabels()))
    lists[label] = scores.dims[dim];
  query = viewOf(einsum.getLhs(), einsum.getLhsLabels(), lists);
  key = viewOf(einsum.getRhs(), einsum.getRhsLabels(), lists);
  DimList atKeys = table.expand(keys);
  if (atKeys.empty() || contains(query.atoms(table), atKeys.front()))
    std::swap(query, key);
  DimList before = key.atoms(table);
  llvm::append_range(before, value.atoms(table));
  keyAtomsBefore = before;
  stepThroughFactors(query);
  stepThroughFactors(key);
  while (stepThroughView(table, value))
    ;
  keyAtomsBefore = table.expand(before);
  return true;
}

bool Attention::assignRoles() {
  keys = table.expand(keys);
  DimList inQuery = query.atoms(table), inKey = key.atoms(table), inValue = value.atoms(table);
  DimList inWeights = probabilities.atoms(table), inResult;
  for (const DimList &dim : resultDims)
    llvm::append_range(inResult, table.expand(dim));

  for (unsigned atom : keys)
    if (contains(inQuery, atom) || !contains(inKey, atom) || !contains(inValue, atom) ||
        contains(inResult, atom))
      return false;
  for (unsigned atom : inWeights) {
    if (contains(keys, atom))
      continue;
    if (!contains(inQuery, atom) || !contains(inResult, atom) ||
        contains(inKey, atom) != contains(inValue, atom))
      return false;
    if (contains(inKey, atom))
      (samples.empty() ? samples : keyHeads).push_back(atom);
    else
      // Heads whose keys are copies of each other's; queries have no copies.
      (contains(keyAtomsBefore, atom) ? groups : queries).push_back(atom);
  }
  for (unsigned atom : inQuery)
    if (!contains(inWeights, atom)) {
      if (!contains(inKey, atom) || contains(inValue, atom))
        return false;
      width.push_back(atom);
    }
  for (unsigned atom : inKey)
    if (!contains(inWeights, atom) && !contains(width, atom))
      return false;
  for (unsigned atom : inValue)
    if (!contains(inWeights, atom)) {
      if (!contains(inResult, atom) || contains(inKey, atom) || contains(inQuery, atom))
        return false;
      valueWidth.push_back(atom);
    }
  for (unsigned atom : inResult)
    if (!contains(inWeights, atom) && !contains(valueWidth, atom))
      return false;
  auto elementType = [](Value v) { return tensorType(v).getElementType(); };
  return elementType(query.value) == elementType(key.value) &&
         elementType(query.value) == elementType(value.value);
}

/// What `mask` lets through, by query and key; its dims must be those of queries and keys.
bool Attention::addMask(const Mask &given, PairPredicate &predicate) {
  Mask mask = given;
  while (stepThroughView(table, mask.view))
    ;
  auto which = mask.isBoolean ? predicateOf(mask.view.value) : biasPredicateOf(mask.view.value);
  if (!which || (mask.isNegated && which->halfPlanes.size() > 1)) {
    reason = "its mask depends on more than the positions of query and key";
    return false;
  }
  // Per dim of the mask: 0 it runs over queries, 1 over keys, nothing if it has size 1.
  SmallVector<std::optional<unsigned>> roles;
  for (const DimList &dim : mask.view.dims) {
    DimList atoms = table.expand(dim);
    if (atoms.empty())
      roles.push_back(std::nullopt);
    else if (atoms == keys)
      roles.push_back(1);
    else if (atoms == queries)
      roles.push_back(0);
    else {
      reason = "its mask differs between samples or heads, or between parts of a sequence";
      return false;
    }
  }
  auto shape = tensorType(mask.view.value).getShape();
  if (which->table.empty()) {
    for (const HalfPlane &plane : which->halfPlanes) {
      PairPredicate::HalfPlane pair{0, 0, plane.offset};
      for (auto [role, coefficient] : llvm::zip_equal(roles, plane.coefficients))
        if (role)
          (*role == 0 ? pair.query : pair.key) += coefficient;
      if (mask.isNegated)
        pair = {-pair.query, -pair.key, -pair.offset - 1};
      predicate.halfPlanes.push_back(pair);
    }
    if (mask.isNegated && which->halfPlanes.empty())
      predicate.halfPlanes.push_back({0, 0, -1});
    return true;
  }
  int64_t strides[2] = {0, 0}, stride = 1;
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    if (roles[dim])
      strides[*roles[dim]] = stride;
    stride *= shape[dim];
  }
  auto sizeOf = [&](ArrayRef<unsigned> atoms) {
    int64_t size = 1;
    for (unsigned atom : atoms)
      size *= table.size(atom);
    return size;
  };
  std::vector<bool> pairs;
  for (int64_t i = 0, numQueries = sizeOf(queries); i < numQueries; ++i)
    for (int64_t j = 0, numKeys = sizeOf(keys); j < numKeys; ++j)
      pairs.push_back(which->table[i * strides[0] + j * strides[1]] != mask.isNegated);
  predicate.tables.push_back(pairs);
  return true;
}

bool Attention::classifyMask() {
  // Heads that share nothing but their keys are told from queries by the mask, which knows queries.
  for (const Mask &mask : masks) {
    View view = mask.view;
    while (stepThroughView(table, view))
      ;
    for (const DimList &dim : view.dims) {
      DimList atoms = table.expand(dim);
      if (atoms.empty() || atoms == keys)
        continue;
      DimList rest;
      for (unsigned atom : queries)
        if (!contains(atoms, atom))
          rest.push_back(atom);
      if (rest.size() + atoms.size() == queries.size()) {
        llvm::append_range(groups, rest);
        queries = atoms;
      }
    }
  }
  PairPredicate predicate;
  for (const Mask &mask : masks)
    if (!addMask(mask, predicate))
      return false;
  int64_t numQueries = 1, numKeys = 1;
  for (unsigned atom : queries)
    numQueries *= table.size(atom);
  for (unsigned atom : keys)
    numKeys *= table.size(atom);
  MaskKind kind = classify(predicate, numQueries, numKeys);
  if (kind == MaskKind::Other)
    reason = "its mask is neither causal nor empty";
  isCausal = kind == MaskKind::Causal;
  return kind != MaskKind::Other;
}

/// A factor that is one over the root of the head's width but for rounding is meant to be that.
double cleanScale(double scale, int64_t width) {
  double usual = 1 / std::sqrt(double(width));
  return isClose(scale, usual) ? usual : scale;
}

Value Attention::build(PatternRewriter &rewriter) {
  Location loc = product.getLoc();
  DimList heads = keyHeads;
  llvm::append_range(heads, groups);
  Value q = regroup(rewriter, loc, table, query, {samples, heads, queries, width});
  Value k = regroup(rewriter, loc, table, key, {samples, keyHeads, keys, width});
  Value v = regroup(rewriter, loc, table, value, {samples, keyHeads, keys, valueWidth});
  double number = cleanScale(scale, tensorType(q).getDimSize(3));
  auto attention = rewriter.create<AttentionOp>(loc, q, k, v, ValueRange(), APFloat(number),
                                                isCausal, -1, -1, false, false, "zero");
  takeIdentity(attention, product);
  View result{attention.getResult(), {samples, heads, queries, valueWidth}};
  return regroup(rewriter, loc, table, result, resultDims);
}

struct RaiseAttention : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EinsumOp einsum, PatternRewriter &rewriter) const override {
    Attention attention(einsum);
    if (!attention.match() || !attention.reason.empty())
      return failure();
    rewriter.replaceOp(einsum, attention.build(rewriter));
    return success();
  }
};

} // namespace

void explainAttentions(func::FuncOp function) {
  for (auto einsum : function.getOps<EinsumOp>()) {
    Attention attention(einsum);
    if (attention.match() && !attention.reason.empty())
      einsum.emitRemark() << "this attention stays decomposed: " << attention.reason;
  }
}

void addAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseAttention>(patterns.getContext());
}

} // namespace tbc::raise
