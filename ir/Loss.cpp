//===- Loss.cpp - Cross entropy --------------------------------------------===//

#include "ir/Loss.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Vocabulary.h"

using namespace mlir;

namespace tbc {

static LogicalResult inferCrossEntropy(std::optional<Location> loc, Value logits, Value labels,
                                       SmallVectorImpl<Type> &types) {
  auto type = tensorType(logits);
  if (type.getRank() < 1 ||
      tensorType(labels).getShape() != type.getShape().drop_back()) // cross_entropy_c1
    return emitOptionalError(loc, "labels ", type, " by ", labels.getType());
  types.assign(3, statisticType(type, {type.getRank() - 1}));
  return success();
}

LogicalResult CrossEntropyOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferCrossEntropy(loc, adaptor.getLogits(), adaptor.getLabels(), types);
}

LogicalResult CrossEntropyGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                   Adaptor adaptor, SmallVectorImpl<Type> &types) {
  SmallVector<Type> forward;
  if (failed(inferCrossEntropy(loc, adaptor.getLogits(), adaptor.getLabels(), forward)))
    return failure();
  for (Value value : {adaptor.getMaximum(), adaptor.getDenominator(), adaptor.getCotangent()})
    if (value.getType() != forward[0]) // cross_entropy_grad_c1
      return emitOptionalError(loc, "has an operand of type ", value.getType(), ", expected ",
                               forward[0]);
  types.push_back(adaptor.getLogits().getType());
  return success();
}

namespace {

struct LossDims {
  LossDims(FactorRule &rule, RankedTensorType logitsType) {
    SmallVector<unsigned, 4> loops;
    for (int64_t size : logitsType.getShape())
      loops.push_back(rule.addLoop(size));
    rule.loops.back().kind = LoopKind::Fixed;
    logits = FactorRule::dims(loops);
    rows = FactorRule::dims(ArrayRef<unsigned>(loops).drop_back());
  }
  SmallVector<FactorRule::Dim, 4> logits, rows;
};

} // namespace

FactorRule CrossEntropyOp::getFactorRule() {
  FactorRule rule;
  LossDims dims(rule, tensorType(getLogits()));
  rule.operands = {dims.logits, dims.rows};
  rule.results = {dims.rows, dims.rows, dims.rows};
  return rule;
}
FactorRule CrossEntropyGradOp::getFactorRule() {
  FactorRule rule;
  LossDims dims(rule, tensorType(getLogits()));
  rule.operands = {dims.logits, dims.rows, dims.rows, dims.rows, dims.rows};
  rule.results = {dims.logits};
  return rule;
}

void CrossEntropyOp::resizeLoops(ArrayRef<int64_t>) {}
void CrossEntropyGradOp::resizeLoops(ArrayRef<int64_t>) {}
double CrossEntropyOp::getFlops() { return 5.0 * double(tensorType(getLogits()).getNumElements()); }
double CrossEntropyGradOp::getFlops() {
  return 5.0 * double(tensorType(getLogits()).getNumElements());
}
KernelClass CrossEntropyOp::getKernelClass() { return KernelClass::Reduction; }
KernelClass CrossEntropyGradOp::getKernelClass() { return KernelClass::Elementwise; }

LogicalResult CrossEntropyOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                       ArrayRef<bool> needed,
                                       SmallVectorImpl<Value> &operandCotangents) {
  if (cotangents[1] || cotangents[2])
    return emitOpError("is not differentiable through its statistics");
  if (needed[0] && cotangents[0])
    operandCotangents[0] = builder.create<CrossEntropyGradOp>(
        getLoc(), getLogits(), getLabels(), getMaximum(), getDenominator(), cotangents[0],
        getIgnoreIndexAttr(), getLabelSmoothingAttr());
  return success();
}

/// True for labels other than `ignoreIndex`.
static Value isCounted(Formula &f, Value labels, int64_t ignoreIndex) {
  return f.compare(labels, f.number(labels, double(ignoreIndex)), "ne");
}

/// The target weights of the label's class and of every class: 1 - s and s / v. Example: s = 0.1
/// and 10 classes give 0.9 and 0.01.
static std::pair<double, double> targetWeights(const APFloat &smoothing, int64_t classes) {
  double s = smoothing.convertToDouble();
  return {1 - s, s / double(classes)};
}

LogicalResult CrossEntropyOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  int64_t classes = tensorType(getLogits()).getShape().back();
  auto [onLabel, onAll] = targetWeights(getLabelSmoothing(), classes);
  VocabularyNumbers v = numberVocabulary(builder, getLoc(), classes);
  Value m = f.make<ClassMaxOp>(getLogits(), v.numbers);
  auto sums = builder.create<ClassSumsOp>(getLoc(), getLogits(), m, getLabels(), v.numbers, v.last,
                                          getIgnoreIndexAttr(), builder.getF64FloatAttr(onLabel),
                                          builder.getF64FloatAttr(onAll));
  Value loss = f.sub(f.add(m, f.log(sums.getDenominator())), sums.getTarget());
  Value counts = isCounted(f, getLabels(), getIgnoreIndex());
  results.assign({f.select(counts, loss, f.number(loss, 0)), m, sums.getDenominator()});
  return success();
}

LogicalResult CrossEntropyGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  int64_t classes = tensorType(getLogits()).getShape().back();
  auto [onLabel, onAll] = targetWeights(getLabelSmoothing(), classes);
  VocabularyNumbers v = numberVocabulary(builder, getLoc(), classes);
  Value counts = isCounted(f, getLabels(), getIgnoreIndex());
  Value scale = f.select(counts, getCotangent(), f.number(getCotangent(), 0));
  results.assign(
      {f.make<ClassSumsGradOp>(getLogits(), getMaximum(), getLabels(), v.numbers, v.last,
                               f.div(scale, getDenominator()), f.neg(scale), getIgnoreIndexAttr(),
                               builder.getF64FloatAttr(onLabel), builder.getF64FloatAttr(onAll))});
  return success();
}

} // namespace tbc
