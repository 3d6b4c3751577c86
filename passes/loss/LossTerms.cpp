//===- LossTerms.cpp - A scalar loss as a sum of means ---------------------===//

#include "passes/loss/LossTerms.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Formula.h"
#include "ir/Gradient.h"
#include "ir/Movement.h"
#include "ir/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

namespace {

/// Limits the terms: a sum x + x, doubled again and again, has 2^n of them.
constexpr size_t maxTerms = 64;

Value withoutCasts(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  return value;
}

/// Collects the terms of a loss, from its last op to the sums over the batch.
class TermCollector {
public:
  TermCollector(OpBuilder &builder, Location loc) : f{builder, loc} {}

  LossSum sum;

  /// Adds `coefficient` * `value` / (`count` * samples); without `count` there is no division yet.
  /// Returns false for another function of sums over the batch.
  bool collect(Value value, Value coefficient, std::optional<int64_t> count);

private:
  bool collectQuotient(DivOp division, Value coefficient, std::optional<int64_t> count);
  bool dependsOnSamples(Value value);
  Value scaled(Value coefficient, Value factor) {
    factor = f.wide(factor);
    return coefficient ? f.mul(coefficient, factor) : factor;
  }
  Value negated(Value coefficient, Value like) {
    return coefficient ? f.neg(coefficient) : f.number(f.wide(like), -1);
  }

  Formula f;
  llvm::DenseMap<Value, bool> dependent;
};

} // namespace

/// Whether `value` is computed from an input, a label, or the batch size.
bool TermCollector::dependsOnSamples(Value value) {
  SmallVector<Value> pending{value};
  while (!pending.empty()) {
    Value next = pending.back();
    if (dependent.count(next)) {
      pending.pop_back();
      continue;
    }
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      dependent[next] = argumentRole(function, argument.getArgNumber()) != TensorRole::Parameter;
      continue;
    }
    Operation *op = next.getDefiningOp();
    size_t before = pending.size();
    for (Value operand : op->getOperands())
      if (!dependent.count(operand))
        pending.push_back(operand);
    if (pending.size() == before)
      dependent[next] = isa<FactorSizeOp, IotaOp>(op) ||
                        llvm::any_of(op->getOperands(), [&](Value v) { return dependent[v]; });
  }
  return dependent[value];
}

bool TermCollector::collectQuotient(DivOp division, Value coefficient,
                                    std::optional<int64_t> count) {
  Value divisor = withoutCasts(division.getRhs());
  if (auto size = divisor.getDefiningOp<FactorSizeOp>())
    return !count && collect(division.getLhs(), coefficient, int64_t(size.getCount()));
  if (dependsOnSamples(divisor))
    return false;
  Value one = coefficient ? coefficient : f.number(f.wide(division.getRhs()), 1);
  return collect(division.getLhs(), f.div(one, f.wide(division.getRhs())), count);
}

bool TermCollector::collect(Value value, Value coefficient, std::optional<int64_t> count) {
  if (tensorType(value).getRank() != 0 || sum.terms.size() >= maxTerms)
    return false;
  if (!dependsOnSamples(value)) {
    if (count) // its share would depend on the batch size
      return false;
    Value constant = scaled(coefficient, value);
    sum.constant = sum.constant ? f.add(sum.constant, constant) : constant;
    return true;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (auto cast = dyn_cast<CastOp>(op))
    return isa<FloatType>(tensorType(cast.getInput()).getElementType()) &&
           collect(cast.getInput(), coefficient, count);
  if (auto add = dyn_cast<AddOp>(op))
    return collect(add.getLhs(), coefficient, count) && collect(add.getRhs(), coefficient, count);
  if (auto sub = dyn_cast<SubOp>(op))
    return collect(sub.getLhs(), coefficient, count) &&
           collect(sub.getRhs(), negated(coefficient, value), count);
  if (auto neg = dyn_cast<NegOp>(op))
    return collect(neg.getInput(), negated(coefficient, value), count);
  if (auto mul = dyn_cast<MulOp>(op)) {
    bool isRight = !dependsOnSamples(mul.getRhs());
    if (!isRight && dependsOnSamples(mul.getLhs()))
      return false;
    return collect(isRight ? mul.getLhs() : mul.getRhs(),
                   scaled(coefficient, isRight ? mul.getRhs() : mul.getLhs()), count);
  }
  if (auto division = dyn_cast<DivOp>(op))
    return collectQuotient(division, coefficient, count);
  Value elements = summedUp(value);
  if (!elements)
    return false;
  sum.terms.push_back({elements, coefficient, count.value_or(0)});
  return true;
}

std::optional<LossSum> lossTerms(OpBuilder &builder, Location loc, Value scalar) {
  TermCollector collector(builder, loc);
  if (!collector.collect(scalar, {}, std::nullopt) || collector.sum.terms.empty())
    return std::nullopt;
  LossSum &sum = collector.sum;
  // The constant becomes a part of a mean, so that its shares add up.
  auto *mean = llvm::find_if(sum.terms, [](const LossTerm &term) { return term.count > 0; });
  if (sum.constant && mean == sum.terms.end())
    return std::nullopt;
  if (mean != sum.terms.end())
    std::swap(sum.terms.front(), *mean);
  return sum;
}

Value summedUp(Value value) {
  auto sum = withoutCasts(value).getDefiningOp<ReduceSumOp>();
  return sum && int64_t(sum.getDims().size()) == tensorType(sum.getInput()).getRank()
             ? sum.getInput()
             : Value();
}

Value scalarOf(OpBuilder &builder, Value value) {
  auto type = tensorType(value);
  if (type.getRank() == 0)
    return value;
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<ReshapeOp, BroadcastOp>(op))
    return scalarOf(builder, op->getOperand(0));
  if (op && op->hasTrait<OpTrait::SameOperandsAndResultShape>() && op->getNumResults() == 1 &&
      op->getNumOperands() > 0 && !isa<DropoutOpInterface>(op)) {
    IRMapping scalars;
    for (Value operand : op->getOperands())
      scalars.map(operand, scalarOf(builder, operand));
    Operation *made = builder.clone(*op, scalars);
    made->getResult(0).setType(RankedTensorType::get({}, type.getElementType()));
    made->removeAttr(kIdAttr);
    return made->getResult(0);
  }
  SmallVector<int64_t> in(type.getRank(), 0);
  return builder.create<ReshapeOp>(value.getLoc(), value, ArrayRef<int64_t>{}, in,
                                   ArrayRef<int64_t>{});
}

/// The number of a constant scalar.
static std::optional<double> numberOf(Value value) {
  auto constant = withoutCasts(value).getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!splat)
    return std::nullopt;
  if (isa<FloatType>(splat.getElementType()))
    return splat.getSplatValue<APFloat>().convertToDouble();
  return double(splat.getSplatValue<APInt>().getSExtValue());
}

/// Whether `weights` are integers, or floats cast from them.
static bool isInteger(Value weights) {
  auto cast = weights.getDefiningOp<CastOp>();
  return isa<IntegerType>(tensorType(weights).getElementType()) ||
         (cast && isInteger(cast.getInput()));
}

/// If `op` is of kind `Op` with a constant operand, sets both, the other operand in `rest`.
template <typename Op> static bool matchWithNumber(Value value, Value &rest, double &number) {
  auto op = value.getDefiningOp<Op>();
  if (!op)
    return false;
  for (unsigned i = 0; i < 2; ++i)
    if (std::optional<double> found = numberOf(op->getOperand(i))) {
      number = *found;
      rest = op->getOperand(1 - i);
      return true;
    }
  return false;
}

/// Returns `value` without its sign and constant factors, which multiply `factor`. Example: of
/// -0.5 * x it is x, and `factor` is multiplied by -0.5.
static Value withoutFactors(Value value, double &factor) {
  Value rest;
  double number = 0;
  for (value = withoutCasts(value);; value = withoutCasts(rest)) {
    if (auto neg = value.getDefiningOp<NegOp>()) {
      rest = neg.getInput();
      factor = -factor;
    } else if (matchWithNumber<MulOp>(value, rest, number)) {
      factor *= number;
    } else {
      return value;
    }
  }
}

std::optional<WeightedMean> weightedMean(Value scalar) {
  WeightedMean mean;
  auto division = withoutFactors(scalar, mean.factor).getDefiningOp<DivOp>();
  mean.elements = division ? summedUp(withoutFactors(division.getLhs(), mean.factor)) : Value();
  if (!mean.elements)
    return std::nullopt;
  Value elements = mean.elements, divisor = withoutCasts(division.getRhs()), rest;
  double number = 0;
  bool isLimited = matchWithNumber<MaximumOp>(divisor, rest, number);
  if (isLimited && number > 1)
    return std::nullopt;
  if (!isLimited && matchWithNumber<AddOp>(divisor, rest, number)) {
    if (number < 0)
      return std::nullopt;
    mean.epsilon = number;
  }
  mean.weights = summedUp(rest ? rest : divisor);
  // Counts get no gradient.
  if (!mean.weights || isTrained(mean.weights) || (isLimited && !isInteger(mean.weights)) ||
      tensorType(mean.weights).getShape() != tensorType(elements).getShape())
    return std::nullopt;
  return mean;
}

} // namespace tbc
