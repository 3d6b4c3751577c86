//===- ScoreTerms.cpp - Terms between a matmul and its softmax -------------===//

#include "passes/raise/ScoreTerms.h"

#include "passes/raise/Match.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/HidingNumber.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

bool isFloatCast(Operation *op) { return isa<CastOp>(op) && cast<CastOp>(op).isAdditive(); }

std::optional<Renormalized> matchRenormalized(Operation *op) {
  auto guard = dyn_cast<SelectOp>(op);
  if (guard && splatNumber(guard.getOnFalse()) != 0.0)
    return std::nullopt;
  auto div = guard ? definedBy<DivOp>(guard.getOnTrue()) : dyn_cast<DivOp>(op);
  if (!div)
    return std::nullopt;
  Spread divisor = Spread::of(div.getRhs()).strip();
  auto select = definedBy<SelectOp>(divisor.value);
  auto compare = select ? definedBy<CompareOp>(select.getPred()) : nullptr;
  if (!compare || compare.getPredicate() != "gt" || splatNumber(compare.getRhs()) != 0.0 ||
      compare.getLhs() != select.getOnTrue() || splatNumber(select.getOnFalse()) != 1.0)
    return std::nullopt;
  if (guard) {
    Spread pred = Spread::of(guard.getPred()).strip();
    if (pred.value != select.getPred() || pred.dims != divisor.dims)
      return std::nullopt;
  }
  Value masked = div.getLhs();
  const int64_t last = tensorType(masked).getRank() - 1;
  Spread total = divisor.operand(select.getOnTrue()).strip();
  auto sum = definedBy<ReduceSumOp>(total.value);
  auto product = definedBy<MulOp>(masked);
  if (!product || !sum || sum.getInput() != masked || sum.getDims() != ArrayRef<int64_t>{last} ||
      !llvm::equal(total.dims, llvm::seq<int64_t>(0, last)))
    return std::nullopt;
  for (auto [weights, kept] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())})
    if (auto softmax = definedBy<SoftmaxOp>(weights); softmax && int64_t(softmax.getDim()) == last)
      return Renormalized{weights, kept};
  return std::nullopt;
}

/// Returns true if only ops of scores stand between `value` and a matmul.
static bool leadsToProduct(Value value, int depth = 0) {
  Operation *op = value.getDefiningOp();
  if (!op || depth > 16)
    return false;
  if (isa<EinsumOp>(op))
    return true;
  if (isa<AddOp, SubOp>(op))
    return leadsToProduct(op->getOperand(0), depth + 1) ||
           (isa<AddOp>(op) && leadsToProduct(op->getOperand(1), depth + 1));
  if (isa<MulOp, DivOp>(op))
    return leadsToProduct(op->getOperand(0), depth + 1) ||
           (isa<MulOp>(op) && leadsToProduct(op->getOperand(1), depth + 1));
  if (auto select = dyn_cast<SelectOp>(op))
    return leadsToProduct(select.getOnTrue(), depth + 1) ||
           leadsToProduct(select.getOnFalse(), depth + 1);
  return isa<TanhOp, CastOp, TransposeOp, ReshapeOp>(op) &&
         leadsToProduct(op->getOperand(0), depth + 1);
}

/// Returns true for the number of hidden scores in a mask that replaces scores.
static bool isHidden(Value value) {
  auto number = splatNumber(value);
  return number && hidesScores(*number);
}

/// Adds a mask. Its number is multiplied by the factors found so far.
bool ScoreTerms::addStep(MaskStep step) {
  if (!factors.empty())
    reason = "its scores are multiplied by a tensor after they are masked";
  if (softCap != 0)
    reason = "its scores are capped after they are masked";
  step.number *= scale;
  step.isBiased = !biases.empty();
  if (!hidesScores(step.number))
    reason = "its masks add a number too small to hide keys: hiding takes -9984 or less";
  masks.push_back(step);
  return reason.empty();
}

/// Separates masks from the other summands of `factor` times `term`.
void ScoreTerms::separateMasks(View term, double factor, std::vector<MaskStep> &found,
                               SmallVectorImpl<Bias> &rests) {
  if (auto steps = masksOfBias(table, term, factor)) {
    found.insert(found.end(), steps->begin(), steps->end());
    return;
  }
  auto opposite = masksOfBias(table, term, -factor);
  undoesMasks |= opposite && !opposite->empty();
  while (stepThroughView(table, term))
    ;
  Operation *op = term.value.getDefiningOp();
  if (isa_and_nonnull<AddOp, SubOp>(op)) {
    separateMasks({op->getOperand(0), term.dims}, factor, found, rests);
    separateMasks({op->getOperand(1), term.dims}, isa<AddOp>(op) ? factor : -factor, found, rests);
    return;
  }
  rests.push_back({term, factor});
}

/// Adds `factor` times a summand of the scores: masks, and biases. A sum without masks stays one
/// bias.
bool ScoreTerms::addTerm(View term, double factor) {
  std::vector<MaskStep> found;
  SmallVector<Bias> rests;
  separateMasks(term, factor, found, rests);
  if (found.empty()) {
    while (stepThroughView(table, term))
      ;
    rests = {{term, factor}};
  }
  if (!factors.empty())
    reason = "its scores are multiplied by a tensor after something is added to them";
  if (softCap != 0)
    reason = "its scores are capped after something is added to them";
  for (const Bias &rest : rests)
    biases.push_back({rest.view, rest.factor * scale});
  return reason.empty() && llvm::all_of(found, [&](const MaskStep &step) { return addStep(step); });
}

/// Takes a number into `scale`, and a tensor into `factors`.
bool ScoreTerms::stepThroughProduct(Operation *op, View &scores) {
  Value lhs = op->getOperand(0), rhs = op->getOperand(1);
  bool divides = isa<DivOp>(op);
  if (!divides && (splatNumber(lhs) || (!splatNumber(rhs) && !leadsToProduct(lhs))))
    std::swap(lhs, rhs);
  if (auto number = splatNumber(rhs)) {
    scale *= divides ? 1 / *number : *number;
    scores.value = lhs;
    return true;
  }
  // Two matmuls, or none: no scores with a factor.
  if (!leadsToProduct(lhs) || leadsToProduct(rhs))
    return false;
  factors.push_back({{rhs, scores.dims}, divides});
  scores.value = lhs;
  return true;
}

bool ScoreTerms::stepUp(View &scores) {
  Operation *op = scores.value.getDefiningOp();
  if (!op)
    return false;
  if (isFloatCast(op)) {
    scores.value = op->getOperand(0);
    return true;
  }
  if (isa<MulOp, DivOp>(op))
    return stepThroughProduct(op, scores);
  if (isa<AddOp, SubOp>(op)) {
    // Scores are either operand of a sum, and the left one of a difference.
    double factor = isa<AddOp>(op) ? 1 : -1;
    SmallVector<std::pair<Value, Value>, 2> sides{{op->getOperand(0), op->getOperand(1)}};
    if (isa<AddOp>(op))
      sides.push_back({op->getOperand(1), op->getOperand(0)});
    for (auto [rest, bias] : sides)
      if (auto steps = masksOfBias(table, {bias, scores.dims}, factor)) {
        scores.value = rest;
        return llvm::all_of(*steps, [&](const MaskStep &step) { return addStep(step); });
      }
    for (auto [rest, bias] : sides)
      if (leadsToProduct(rest)) {
        View term{bias, scores.dims};
        scores.value = rest;
        return addTerm(term, factor);
      }
    return false;
  }
  if (auto tanh = dyn_cast<TanhOp>(op)) {
    if (softCap != 0 || scale <= 0 || !factors.empty())
      reason = "its scores are capped twice, or by a tensor or a negative number";
    softCap = scale;
    scores.value = tanh.getInput();
    return reason.empty();
  }
  // A lower bound on masked scores: all hidden scores become equal.
  if (auto maximum = dyn_cast<MaximumOp>(op)) {
    bool isLeft = isHidden(maximum.getLhs());
    if (!isLeft && !isHidden(maximum.getRhs()))
      return false;
    scores.value = isLeft ? maximum.getRhs() : maximum.getLhs();
    return addStep({{}, *splatNumber(maximum->getOperand(isLeft ? 0 : 1)), true});
  }
  if (auto select = dyn_cast<SelectOp>(op)) {
    bool hidesFalse = isHidden(select.getOnFalse());
    if (!hidesFalse && !isHidden(select.getOnTrue()))
      return false;
    Value number = hidesFalse ? select.getOnFalse() : select.getOnTrue();
    scores.value = hidesFalse ? select.getOnTrue() : select.getOnFalse();
    return addStep(
        {truthOf({select.getPred(), scores.dims}, !hidesFalse), *splatNumber(number), true});
  }
  return isa<TransposeOp, ReshapeOp>(op) && stepThroughView(table, scores);
}

void ScoreTerms::stepThroughFactors(View &view) {
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

bool ScoreTerms::addMaskOfWeights(View kept) {
  while (stepThroughView(table, kept))
    ;
  auto cast = definedBy<CastOp>(kept.value);
  if (!cast || !tensorType(cast.getInput()).getElementType().isInteger(1))
    return false;
  // The last mask that is applied, and rows without keys are 0.
  masks.insert(masks.begin(),
               MaskStep{truthOf({cast.getInput(), kept.dims}, false), -INFINITY, true});
  return true;
}

void ScoreTerms::clear() {
  scale = 1;
  softCap = 0;
  undoesMasks = false;
  masks.clear();
  biases.clear();
  factors.clear();
}

} // namespace tbc::raise
