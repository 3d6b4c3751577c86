//===- RaiseCrossEntropy.cpp - Log-probabilities of labels -----------------===//
//
// Losses of preferences and policies (DPO, GRPO) take the log-probability of each token from all of
// its row: log_softmax(x).gather(-1, label), or x.gather(-1, label) - logsumexp(x). It is the
// negative cross entropy, which holds no log-probabilities of other classes.
//
//===----------------------------------------------------------------------===//

#include "passes/raise/Patterns.h"

#include "passes/raise/Match.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Indexing.h"
#include "ir/Loss.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// A label that never occurs: every row counts.
constexpr int64_t noLabel = -(int64_t(1) << 40);

/// Returns true if `value` has one element for each row of `rows`, at all dims but the last.
bool isOfRows(const Spread &value, Value rows) {
  return llvm::equal(value.dims, llvm::seq<int64_t>(0, tensorType(rows).getRank() - 1));
}

/// Returns y if `value` is the logarithm of the sum of exp(y) over the last dim, else null.
Value logSumOf(Value value) {
  auto log = definedBy<LogOp>(value);
  auto sum = log ? definedBy<ReduceSumOp>(log.getInput()) : nullptr;
  auto exp = sum ? definedBy<ExpOp>(sum.getInput()) : nullptr;
  if (!exp || sum.getDims() != ArrayRef<int64_t>{tensorType(exp.getInput()).getRank() - 1})
    return {};
  return exp.getInput();
}

/// Returns m if `value` is select(m - m == 0, m, 0), which is 0 where m is infinite; else `value`.
Value unguarded(Value value) {
  auto select = definedBy<SelectOp>(value);
  auto compare = select ? definedBy<CompareOp>(select.getPred()) : nullptr;
  auto difference = compare ? definedBy<SubOp>(compare.getLhs()) : nullptr;
  bool isGuard = difference && compare.getPredicate() == "eq" &&
                 splatNumber(compare.getRhs()) == 0.0 && splatNumber(select.getOnFalse()) == 0.0 &&
                 difference.getLhs() == select.getOnTrue() &&
                 difference.getRhs() == select.getOnTrue();
  return isGuard ? select.getOnTrue() : value;
}

/// Returns x if `shifted` is x less the maximum of each row, which is `maximum` if that is given.
Value unshifted(Value shifted, Value maximum = {}) {
  auto sub = definedBy<SubOp>(shifted);
  if (!sub)
    return {};
  Spread spread = Spread::of(sub.getRhs()).strip();
  auto found = definedBy<StabilizerMaxOp>(unguarded(spread.value));
  bool isMaximum = found && found.getInput() == sub.getLhs() && isOfRows(spread, shifted) &&
                   found.getDims() == ArrayRef<int64_t>{tensorType(shifted).getRank() - 1} &&
                   (!maximum || maximum == spread.value);
  return isMaximum ? sub.getLhs() : Value();
}

/// Returns x if `value` is log_softmax(x) over the last dim, else null.
Value logSoftmaxOf(Value value) {
  auto sub = definedBy<SubOp>(value);
  if (!sub)
    return {};
  Spread spread = Spread::of(sub.getRhs()).strip();
  if (logSumOf(spread.value) != sub.getLhs() || !isOfRows(spread, value))
    return {};
  Value x = unshifted(sub.getLhs());
  return x ? x : sub.getLhs();
}

/// Returns x if `value` is logsumexp(x) over the last dim, else null.
Value logSumExpOf(Value value) {
  auto add = definedBy<AddOp>(value);
  if (!add)
    return logSumOf(value);
  for (auto [log, maximum] :
       {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())})
    if (Value shifted = logSumOf(log))
      if (Value x = unshifted(shifted, Spread::of(maximum).strip().value))
        return x;
  return {};
}

/// Returns `value` [.., 1] without its last dim.
Value squeezeLast(PatternRewriter &rewriter, Location loc, Value value) {
  ArrayRef<int64_t> shape = tensorType(value).getShape().drop_back();
  if (auto broadcast = definedBy<BroadcastOp>(value))
    if (tensorType(broadcast.getInput()).getShape() == shape &&
        llvm::equal(broadcast.getDims(), llvm::seq<int64_t>(0, shape.size())))
      return broadcast.getInput();
  SmallVector<int64_t> in(shape.size(), 1), out(shape.size(), 1);
  in.push_back(0);
  return rewriter.create<ReshapeOp>(loc, value, shape, in, out);
}

/// Returns log softmax(x)[label] of each row in the type of `like`, that of x without its last dim.
/// Labels: [.., 1].
Value logProbability(PatternRewriter &rewriter, Operation *root, Value x, Value labels,
                     Type elementType) {
  Location loc = root->getLoc();
  auto loss = rewriter.create<CrossEntropyOp>(loc, x, squeezeLast(rewriter, loc, labels), noLabel,
                                              APFloat(0.0));
  takeIdentity(loss, root);
  Value result = rewriter.create<NegOp>(loc, loss.getLoss());
  auto type = tensorType(result);
  if (type.getElementType() != elementType)
    result =
        rewriter.create<CastOp>(loc, RankedTensorType::get(type.getShape(), elementType), result);
  return result;
}

/// Returns true if `gather` takes one element of each row.
bool takesLabels(GatherElementsOp gather) {
  int64_t last = tensorType(gather.getTable()).getRank() - 1;
  return last > 0 && int64_t(gather.getDim()) == last &&
         tensorType(gather.getResult()).getDimSize(last) == 1;
}

/// log_softmax(x).gather(-1, label); not if the other log-probabilities are used too.
struct RaiseGathered : OpRewritePattern<GatherElementsOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(GatherElementsOp gather, PatternRewriter &rewriter) const override {
    Value x = takesLabels(gather) ? logSoftmaxOf(gather.getTable()) : Value();
    if (!x || !llvm::all_of(gather.getTable().getUsers(),
                            [](Operation *user) { return isa<GatherElementsOp>(user); }))
      return failure();
    auto type = tensorType(gather.getResult());
    Value rows = logProbability(rewriter, gather, x, gather.getIndices(), type.getElementType());
    auto dims = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank() - 1));
    rewriter.replaceOpWithNewOp<BroadcastOp>(gather, type, rows, dims);
    return success();
  }
};

/// x.gather(-1, label) - logsumexp(x), or the negative of it.
struct RaiseDifference : OpRewritePattern<SubOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SubOp sub, PatternRewriter &rewriter) const override {
    for (bool isLoss : {false, true}) {
      Value chosen = isLoss ? sub.getRhs() : sub.getLhs();
      Value sum = isLoss ? sub.getLhs() : sub.getRhs();
      auto gather = definedBy<GatherElementsOp>(skipUnitDims(chosen));
      if (!gather || !takesLabels(gather) || !gather->hasOneUse() || !sum.hasOneUse())
        continue;
      auto type = tensorType(sub.getResult());
      ArrayRef<int64_t> rows = tensorType(gather.getTable()).getShape().drop_back();
      if (type.getShape() != rows || logSumExpOf(sum) != gather.getTable())
        continue;
      Value result = logProbability(rewriter, sub, gather.getTable(), gather.getIndices(),
                                    type.getElementType());
      if (isLoss)
        result = rewriter.create<NegOp>(sub.getLoc(), result);
      rewriter.replaceOp(sub, result);
      return success();
    }
    return failure();
  }
};

/// Returns the classes of a layer whose outputs are the rows of `value`, if there are more of them
/// than of its inputs; else 0. Example: 50257 for logits of tokens [.., 768].
int64_t classesOf(Value value) {
  while (isa_and_nonnull<CastOp, SubOp, ReshapeOp, SliceOp, MulOp, DivOp, AddOp>(
      value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto layer = definedBy<EinsumOp>(value);
  if (!layer)
    return 0;
  auto type = tensorType(value);
  int64_t classes = type.getDimSize(type.getRank() - 1);
  for (auto [rows, weight] :
       {std::pair(layer.getLhs(), layer.getRhs()), std::pair(layer.getRhs(), layer.getLhs())})
    if (isParameter(weight) && tensorType(weight).getNumElements() < classes * classes &&
        tensorType(rows).getNumElements() < type.getNumElements())
      return classes;
  return 0;
}

} // namespace

void explainLogSoftmaxes(func::FuncOp function) {
  for (auto log : function.getOps<LogOp>()) {
    Value shifted = logSumOf(log.getResult());
    if (int64_t classes = shifted ? classesOf(shifted) : 0)
      log.emitRemark() << "this log-softmax of " << classes << " classes stays decomposed, so each "
                       << "row holds " << classes << " more numbers; a loss that reads "
                       << "log_softmax(x).gather(-1, label) alone is a cross entropy";
  }
}

void addCrossEntropyPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseGathered, RaiseDifference>(patterns.getContext());
}

} // namespace tbc::raise
