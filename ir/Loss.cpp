//===- Loss.cpp - Cross entropy --------------------------------------------===//

#include "ir/Loss.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

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
StringRef CrossEntropyOp::getKernelClass() { return "reduction"; }
StringRef CrossEntropyGradOp::getKernelClass() { return "elementwise"; }

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

/// Where a logit is that of its row's label.
static Value isLabel(Formula &f, Value logits, Value labels) {
  auto type =
      RankedTensorType::get(tensorType(logits).getShape(), tensorType(labels).getElementType());
  int64_t last = type.getRank() - 1;
  Value index = f.make<IotaOp>(type, last);
  return f.compare(index, f.repeat(labels, index, {last}), "eq");
}

/// Where a label is not the one that is ignored.
static Value isCounted(Formula &f, Value labels, int64_t ignoreIndex) {
  return f.compare(labels, f.number(labels, double(ignoreIndex)), "ne");
}

LogicalResult CrossEntropyOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getLogits());
  int64_t last = tensorType(x).getRank() - 1;
  Value m = f.make<StabilizerMaxOp>(x, ArrayRef<int64_t>{last});
  Value l = f.sum(f.exp(f.sub(x, f.repeat(m, x, {last}))), {last});
  Value chosen = f.sum(f.select(isLabel(f, x, getLabels()), x, f.number(x, 0)), {last});
  if (double smoothing = getLabelSmoothing().convertToDouble()) {
    double share = smoothing / double(tensorType(x).getDimSize(last));
    Value spread = f.sum(x, {last});
    chosen = f.add(f.mul(chosen, f.number(chosen, 1 - smoothing)),
                   f.mul(spread, f.number(spread, share)));
  }
  Value loss = f.sub(f.add(m, f.log(l)), chosen);
  Value counts = isCounted(f, getLabels(), getIgnoreIndex());
  results.assign({f.select(counts, loss, f.number(loss, 0)), m, l});
  return success();
}

LogicalResult CrossEntropyGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getLogits());
  int64_t last = tensorType(x).getRank() - 1;
  Value e = f.exp(f.sub(x, f.repeat(getMaximum(), x, {last})));
  Value p = f.div(e, f.repeat(getDenominator(), x, {last}));
  double smoothing = getLabelSmoothing().convertToDouble();
  double share = smoothing / double(tensorType(x).getDimSize(last));
  Value hot =
      f.select(isLabel(f, x, getLabels()), f.number(x, 1 - smoothing + share), f.number(x, share));
  Value counts = isCounted(f, getLabels(), getIgnoreIndex());
  Value scale = f.select(counts, getCotangent(), f.number(getCotangent(), 0));
  Value dx = f.mul(f.repeat(scale, x, {last}), f.sub(p, hot));
  results.assign({f.cast(dx, getType().getElementType())});
  return success();
}

} // namespace tbc
