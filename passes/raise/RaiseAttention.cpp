//===- RaiseAttention.cpp - Attention in all its spellings -----------------===//
//
// The match goes upwards from the matmul of weights and values. The weights are a softmax of
// scores, and the scores a matmul of queries and keys. Between them stand, in any order: factors,
// masks, biases, a soft cap, casts, reshapes, transposes and broadcasts. The softmax may have one
// column more, a sink. The atoms of every dim are followed through
// all of them. So the roles of the atoms (sample, head, query, key ...) follow from their positions
// alone.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Dims.h"
#include "passes/raise/MaskedRows.h"
#include "passes/raise/Match.h"
#include "passes/raise/ScoreTerms.h"

#include "ir/Attention.h"
#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "ir/Random.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

namespace {

bool contains(ArrayRef<unsigned> list, unsigned atom) { return llvm::is_contained(list, atom); }

/// Returns x if `select` is a guard against NaN, select(isnan(x), 0, x), else null.
Value guardedAgainstNan(SelectOp select) {
  Value pred = select.getPred(), kept = select.getOnFalse(), replacement = select.getOnTrue();
  if (auto negation = definedBy<NotOp>(pred)) {
    pred = negation.getInput();
    std::swap(kept, replacement);
  }
  auto isNan = definedBy<IsNanOp>(pred);
  return isNan && isNan.getInput() == kept && splatNumber(replacement) == 0.0 ? kept : Value();
}

/// The pieces of one attention.
class Attention {
public:
  explicit Attention(EinsumOp product) : product(product) {}

  /// Returns true if the matmul is weights times values; all members below are then set.
  bool match();

  /// The reason why an attention cannot be raised; empty: it can.
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
  bool takeSink(View &scores, unsigned dim);
  bool readBiases();
  bool isOfQueries(const View &factor);
  bool readFactors();
  SmallVector<Value> buildBiases(PatternRewriter &rewriter, std::string &letters);
  bool assignRoles();
  void separateGroups();
  bool readMasks();
  bool chooseHiddenRows(ArrayRef<MaskTerms> steps);
  bool readKeptWeights();
  SmallVector<Value> buildMasks(PatternRewriter &rewriter);

  EinsumOp product;
  DimTable table;
  View query, key, value, probabilities;
  DimList keyAtomsBefore, keys;
  SmallVector<DimList> resultDims;
  ScoreTerms terms{table, reason};
  /// The weights that are not replaced by 0 after the softmax.
  std::vector<Truth> keptWeights;
  /// The factors that mask weights whose rows then sum to 1 again.
  SmallVector<View> masksOfWeights;
  /// The column of scores without values; null: none. The atoms of its dim if it is sliced off.
  View sink;
  std::optional<DimList> slicedDim;
  bool isSinkFirst = false;
  std::optional<double> sinkNumber;
  /// The ratio of weights dropped in training.
  double dropout = 0;
  /// Whether a NaN of the softmax is replaced by 0.
  bool replacesNan = false;

  /// Roles, in terms of atoms.
  DimList samples, keyHeads, groups, queries, width, valueWidth;
  MaskTerms mask;
  MaskWindow window;
  StringRef hiddenRows = "zero";
};

bool Attention::match() {
  for (bool weightsAreLeft : {true, false}) {
    table = DimTable();
    Labels lists;
    View left = viewOf(product.getLhs(), product.getLhsLabels(), lists);
    View right = viewOf(product.getRhs(), product.getRhsLabels(), lists);
    resultDims.clear();
    keptWeights.clear();
    masksOfWeights.clear();
    dropout = 0;
    replacesNan = false;
    slicedDim.reset();
    for (int64_t label : product.getOutLabels())
      resultDims.push_back(lists[label]);
    value = weightsAreLeft ? right : left;
    if (matchWeights(weightsAreLeft ? left : right)) {
      for (const View &kept : masksOfWeights)
        if (reason.empty() && !terms.addMaskOfWeights(kept))
          reason = "its weights are multiplied by a tensor that is no mask";
      bool isRaised =
          reason.empty() && assignRoles() && readMasks() && readBiases() && readFactors();
      if (!isRaised && reason.empty() && (isParameter(key.value) || isParameter(value.value)))
        return false; // such as a sum of experts with weights of a router
      if (!isRaised && reason.empty())
        reason = "its dims have no roles in an attention";
      return true;
    }
  }
  return false;
}

/// Walks up from the weights, as the matmul reads them, to the softmax.
bool Attention::matchWeights(View weights) {
  while (true) {
    if (auto softmax = definedBy<SoftmaxOp>(weights.value)) {
      probabilities = weights;
      keys = weights.dims[softmax.getDim()];
      View scores{softmax.getInput(), weights.dims};
      sink = {};
      sinkNumber.reset();
      if (slicedDim && (*slicedDim != keys || !takeSink(scores, unsigned(softmax.getDim()))))
        return false;
      return matchScores(scores);
    }
    Operation *op = weights.value.getDefiningOp();
    if (!op)
      return false;
    if (isFloatCast(op)) {
      weights.value = op->getOperand(0);
      continue;
    }
    if (auto slice = dyn_cast<SliceOp>(op)) {
      int64_t dim = int64_t(slice.getDim());
      if (slicedDim || int64_t(slice.getOffset()) > 1 ||
          int64_t(slice.getSize()) + 1 != tensorType(slice.getInput()).getDimSize(dim))
        return false;
      isSinkFirst = int64_t(slice.getOffset()) == 1;
      slicedDim = weights.dims[size_t(dim)];
      weights.value = slice.getInput();
      continue;
    }
    if (auto drop = dyn_cast<DropoutOp>(op); drop && dropout == 0) {
      dropout = drop.getRatio().convertToDouble();
      weights.value = drop.getInput();
      continue;
    }
    if (auto found = matchRenormalized(op)) {
      masksOfWeights.push_back({found->kept, weights.dims});
      weights.value = found->weights;
      continue;
    }
    if (auto select = dyn_cast<SelectOp>(op)) {
      if (Value kept = guardedAgainstNan(select)) {
        replacesNan = true;
        weights.value = kept;
        continue;
      }
      bool keepsTrue = splatNumber(select.getOnFalse()) == 0.0;
      if (keepsTrue || splatNumber(select.getOnTrue()) == 0.0) {
        keptWeights.push_back(truthOf({select.getPred(), weights.dims}, !keepsTrue));
        weights.value = keepsTrue ? select.getOnTrue() : select.getOnFalse();
        continue;
      }
    }
    if (!isa<TransposeOp, ReshapeOp>(op) || !stepThroughView(table, weights))
      return false;
  }
}

/// Reads concat(scores, sink) over the keys, or concat(sink, scores), where zeros may be a pad.
/// Sets `scores`, and `sink` or its number.
bool Attention::takeSink(View &scores, unsigned dim) {
  while (scores.value.getDefiningOp() && isFloatCast(scores.value.getDefiningOp()))
    scores.value = scores.value.getDefiningOp()->getOperand(0);
  auto pad = definedBy<PadOp>(scores.value);
  if (pad && pad.getDim() == dim && pad.getLow() == isSinkFirst && pad.getHigh() == !isSinkFirst) {
    sinkNumber = 0;
    scores.value = pad.getInput();
    return true;
  }
  unsigned place = isSinkFirst ? 0 : 1;
  auto concat = definedBy<ConcatOp>(scores.value);
  if (!concat || concat.getDim() != dim || concat.getInputs().size() != 2 ||
      tensorType(concat.getInputs()[place]).getDimSize(dim) != 1)
    return false;
  sinkNumber = splatNumber(concat.getInputs()[place]);
  sink = {sinkNumber ? Value() : concat.getInputs()[place], scores.dims};
  sink.dims[dim] = {};
  scores.value = concat.getInputs()[1 - place];
  return true;
}

/// Walks up from the scores, as the softmax reads them, to queries and keys.
bool Attention::matchScores(View scores) {
  terms.clear();
  while (!definedBy<EinsumOp>(scores.value))
    if (!terms.stepUp(scores)) {
      // Both matmuls were found, with something unknown between them: report it.
      if (reason.empty() && readsProduct(scores.value))
        reason = ("'" + scores.value.getDefiningOp()->getName().getStringRef() +
                  "' stands between its scores and their softmax")
                     .str();
      return !reason.empty();
    }
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
  terms.stepThroughFactors(query);
  terms.stepThroughFactors(key);
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
    // Learned queries are the same for all samples.
    if ((!contains(inQuery, atom) && !contains(inKey, atom)) || !contains(inResult, atom) ||
        contains(inKey, atom) != contains(inValue, atom))
      return false;
    if (contains(inKey, atom))
      (samples.empty() ? samples : keyHeads).push_back(atom);
    else
      // Heads that share copies of one key head; queries have no copies.
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

/// Separates heads from queries. Both occur beside the same keys, but only queries are in masks.
void Attention::separateGroups() {
  std::vector<const Truth *> stack;
  for (const MaskStep &step : terms.masks)
    stack.push_back(&step.kept);
  while (!stack.empty()) {
    const Truth &truth = *stack.back();
    stack.pop_back();
    for (const Truth &operand : truth.operands)
      stack.push_back(&operand);
    View view = truth.view;
    while (view.value && stepThroughView(table, view))
      ;
    for (const DimList &dim : view.dims) {
      DimList atoms = table.expand(dim);
      queries = table.expand(queries);
      if (atoms.empty() || atoms == table.expand(keys))
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
}

/// Joins the masks into one predicate with operands.
bool Attention::readMasks() {
  separateGroups();
  MaskRoles roles{samples, queries, keys};
  SmallVector<MaskTerms> steps;
  for (const MaskStep &step : terms.masks) {
    steps.emplace_back();
    if (!addTerms(table, roles, step.kept, steps.back(), reason) ||
        !addTerms(table, roles, step.kept, mask, reason))
      return false;
  }
  if (mask.segments.size() > 1 || mask.orders.size() > 1 ||
      (!mask.segments.empty() && !mask.queries.empty())) {
    reason = "its mask divides or orders sequences in more than one way";
    return false;
  }
  auto found = windowOf(mask.positions, table.sizeOf(queries), table.sizeOf(keys));
  if (!found) {
    reason = "its mask is no window of positions";
    return false;
  }
  window = *found;
  if (!chooseHiddenRows(steps))
    return false;
  // Masks may have split atoms further.
  for (DimList *list : {&samples, &keyHeads, &groups, &queries, &keys, &width, &valueWidth})
    *list = table.expand(*list);
  return true;
}

/// Chooses `hiddenRows`, the treatment of fully masked rows, from the masks.
bool Attention::chooseHiddenRows(ArrayRef<MaskTerms> steps) {
  // Beside the score of a sink, weights of hidden keys are 0.
  if ((sink.value || sinkNumber) && keptWeights.empty())
    return true;
  if (!keptWeights.empty())
    return readKeptWeights();
  if (!mask.haveData())
    return true;
  const MaskedRows rows{terms.masks,
                        steps,
                        mask,
                        window,
                        table.sizeOf(queries),
                        table.sizeOf(keys),
                        tensorType(probabilities.value).getElementType()};
  std::optional<StringRef> found = rows.hiddenRows(reason);
  hiddenRows = found.value_or(hiddenRows);
  return found.has_value();
}

/// Reads weights that become 0 after the softmax. Weights of hidden scores do not change, except in
/// fully masked rows, which become 0.
bool Attention::readKeptWeights() {
  MaskRoles roles{samples, queries, keys};
  MaskTerms kept;
  for (const Truth &truth : keptWeights)
    if (!addTerms(table, roles, truth, kept, reason))
      return false;
  auto keptWindow = windowOf(kept.positions, table.sizeOf(queries), table.sizeOf(keys));
  bool isSame = keptWindow && keptWindow->left == window.left &&
                keptWindow->right == window.right && kept.isDataWithin(mask) &&
                mask.isDataWithin(kept);
  if (!isSame)
    reason = "its weights become 0 where its masks do not hide the scores";
  hiddenRows = "zero";
  return isSame;
}

/// Whether biases and sink have dims of scores alone.
bool Attention::readBiases() {
  DimList heads = table.expand(keyHeads), all;
  llvm::append_range(heads, table.expand(groups));
  for (const DimList *list : {&samples, &keyHeads, &groups, &queries, &keys})
    llvm::append_range(all, table.expand(*list));
  auto isWithin = [&](const View &view, const DimList &list) {
    return llvm::all_of(view.atoms(table), [&](unsigned atom) { return contains(list, atom); });
  };
  // A term that is equal for all keys cancels in the softmax, such as the row max of the scores.
  if (!sink.value && !sinkNumber)
    llvm::erase_if(terms.biases, [&](const Bias &bias) { return isOfQueries(bias.view); });
  auto isFinite = [](const MaskStep &step) { return !std::isinf(step.number); };
  if (terms.undoesMasks && llvm::any_of(terms.masks, isFinite))
    reason = "a number is added to its scores that undoes a mask";
  for (const Bias &bias : terms.biases)
    if (!isWithin(bias.view, all) || bias.view.atoms(table).empty())
      reason = "what is added to its scores has other dims than they have";
  if (sink.value) {
    while (stepThroughView(table, sink))
      ;
    if (!isWithin(sink, heads))
      reason = "its sink has other dims than heads";
  }
  for (DimList *list : {&samples, &keyHeads, &groups, &queries, &keys, &width, &valueWidth})
    *list = table.expand(*list);
  return reason.empty();
}

/// Returns true if no dim of `factor` is one of keys.
bool Attention::isOfQueries(const View &factor) {
  DimList ofKeys = table.expand(keys);
  return llvm::none_of(factor.atoms(table), [&](unsigned atom) { return contains(ofKeys, atom); });
}

/// Whether each factor of the scores can be one of queries or of keys: (f q) k' = f (q k').
bool Attention::readFactors() {
  // Zeros among hidden scores change no weight, for no row is fully masked by positions.
  if (!mask.haveData())
    llvm::erase_if(terms.factors, [&](const ScoreFactor &factor) {
      return !factor.divides &&
             isOneWithin(table, {samples, queries, keys}, factor.view, mask.positions);
    });
  for (ScoreFactor &factor : terms.factors) {
    while (stepThroughView(table, factor.view))
      ;
    bool ofQueries = isOfQueries(factor.view);
    DimList allowed;
    for (const DimList *list :
         {&samples, &keyHeads, ofQueries ? &groups : &keys, ofQueries ? &queries : &keys})
      llvm::append_range(allowed, table.expand(*list));
    bool isWithin = llvm::all_of(factor.view.atoms(table),
                                 [&](unsigned atom) { return contains(allowed, atom); });
    bool isSameType =
        tensorType(factor.view.value).getElementType() == tensorType(query.value).getElementType();
    if (!isWithin || !isSameType)
      reason = "its scores are multiplied by a tensor of queries and keys, or of another type";
  }
  for (DimList *list : {&samples, &keyHeads, &groups, &queries, &keys, &width, &valueWidth})
    *list = table.expand(*list);
  return reason.empty();
}

/// The biases; `letters` lists their dims as in the op.
SmallVector<Value> Attention::buildBiases(PatternRewriter &rewriter, std::string &letters) {
  Location loc = product.getLoc();
  SmallVector<Value> operands;
  DimList heads = keyHeads;
  llvm::append_range(heads, groups);
  for (const Bias &bias : terms.biases) {
    DimList present = bias.view.atoms(table);
    SmallVector<DimList> own;
    letters += letters.empty() ? "" : ",";
    for (auto [letter, group] : {std::pair('b', samples), std::pair('h', heads),
                                 std::pair('s', queries), std::pair('t', keys)})
      if (llvm::any_of(group, [&](unsigned atom) { return contains(present, atom); })) {
        own.push_back(group);
        letters += letter;
      }
    Value value = regroupRepeated(rewriter, loc, table, bias.view, own);
    if (bias.factor != 1) {
      Value factor = splat(rewriter, loc, tensorType(value), bias.factor);
      value = rewriter.create<MulOp>(loc, value, factor);
    }
    operands.push_back(value);
  }
  if (sinkNumber) // 0 in softmax1: exp(z) / (1 + the sum)
    operands.push_back(splat(
        rewriter, loc,
        RankedTensorType::get({table.sizeOf(heads)}, tensorType(query.value).getElementType()),
        *sinkNumber));
  else if (sink.value)
    operands.push_back(regroupRepeated(rewriter, loc, table, sink, {heads}));
  return operands;
}

/// The operands of the mask, in the order of the op.
SmallVector<Value> Attention::buildMasks(PatternRewriter &rewriter) {
  Location loc = product.getLoc();
  SmallVector<Value> operands;
  if (!mask.keys.empty())
    operands.push_back(buildTerms(rewriter, loc, table, samples, keys, mask.keys));
  auto addPair = [&](const std::pair<View, View> &pair) {
    operands.push_back(buildIntegers(rewriter, loc, table, samples, queries, pair.first));
    operands.push_back(buildIntegers(rewriter, loc, table, samples, keys, pair.second));
  };
  if (!mask.segments.empty()) {
    addPair(mask.segments.front());
  } else if (!mask.queries.empty()) {
    // Queries that read no key are in no key's segment.
    Value reads = buildTerms(rewriter, loc, table, samples, queries, mask.queries);
    Type integer = rewriter.getI64Type();
    auto typeLike = [&](Value value) {
      return RankedTensorType::get(tensorType(value).getShape(), integer);
    };
    operands.push_back(rewriter.create<CastOp>(loc, typeLike(reads), reads));
    auto type = RankedTensorType::get({table.sizeOf(samples), table.sizeOf(keys)}, integer);
    operands.push_back(splat(rewriter, loc, type, 1));
  }
  if (!mask.orders.empty())
    addPair(mask.orders.front());
  return operands;
}

/// Returns one over the root of the head's width if `scale` is equal to it after rounding, else
/// `scale`.
double cleanScale(double scale, int64_t width) {
  double usual = 1 / std::sqrt(double(width));
  return isClose(scale, usual) ? usual : scale;
}

Value Attention::build(PatternRewriter &rewriter) {
  Location loc = product.getLoc();
  DimList heads = keyHeads;
  llvm::append_range(heads, groups);
  Value q = regroupRepeated(rewriter, loc, table, query, {samples, heads, queries, width});
  Value k = regroup(rewriter, loc, table, key, {samples, keyHeads, keys, width});
  Value v = regroup(rewriter, loc, table, value, {samples, keyHeads, keys, valueWidth});
  for (const ScoreFactor &factor : terms.factors) {
    bool ofQueries = isOfQueries(factor.view);
    Value &scaled = ofQueries ? q : k;
    Value by =
        regroupRepeated(rewriter, loc, table, factor.view,
                        {samples, ofQueries ? heads : keyHeads, ofQueries ? queries : keys, width});
    scaled = factor.divides ? rewriter.create<DivOp>(loc, scaled, by).getResult()
                            : rewriter.create<MulOp>(loc, scaled, by).getResult();
  }
  double number = cleanScale(terms.scale, tensorType(q).getDimSize(3));
  bool hasKeyMask = !mask.keys.empty();
  bool hasSegments = !mask.segments.empty() || !mask.queries.empty();
  bool isCausal = window.right == 0;
  std::string letters;
  SmallVector<Value> operands = buildBiases(rewriter, letters);
  llvm::append_range(operands, buildMasks(rewriter));
  auto attention = rewriter.create<AttentionOp>(
      loc, q, k, v, operands, APFloat(number), isCausal, window.left, isCausal ? -1 : window.right,
      hasKeyMask, hasSegments, !mask.orders.empty(), false, hiddenRows, APFloat(dropout), false, 0,
      0, APFloat(terms.softCap), letters, sink.value || sinkNumber, /*token_major=*/"");
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
    std::string why = attention.match() ? attention.reason : whyPairsStay(einsum);
    if (!why.empty())
      einsum.emitRemark() << "this attention stays decomposed: " << why << priceOfPairs(einsum);
  }
}

void addAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseAttention>(patterns.getContext());
}

} // namespace tbc::raise
