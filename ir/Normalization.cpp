//===- Normalization.cpp - Softmax and norms -------------------------------===//

#include "ir/Normalization.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"

using namespace mlir;

namespace tbc {

namespace {

/// The loops of x[.., N]: one per row dim, and the last, which a norm sums over on every rank.
struct RowLoops {
  RowLoops(FactorRule &rule, RankedTensorType type, LoopKind rowKind) {
    for (int64_t size : type.getShape().drop_back())
      rows.push_back(rule.addLoop(size, rowKind));
    last = rule.addLoop(type.getShape().back(), LoopKind::Fixed);
  }
  SmallVector<FactorRule::Dim, 4> whole() const {
    auto dims = statistic();
    dims.push_back(FactorRule::dim(last));
    return dims;
  }
  SmallVector<FactorRule::Dim, 4> statistic() const { return FactorRule::dims(rows); }
  SmallVector<FactorRule::Dim, 4> vector() const { return {FactorRule::dim(last)}; }

  SmallVector<unsigned, 4> rows;
  unsigned last;
};

} // namespace

static int64_t lastDim(Value x) { return tensorType(x).getRank() - 1; }

/// Every dim but `dim`.
static SmallVector<int64_t> dimsBut(Value x, int64_t dim) {
  SmallVector<int64_t> dims;
  for (int64_t i = 0; i < tensorType(x).getRank(); ++i)
    if (i != dim)
      dims.push_back(i);
  return dims;
}

static Type vectorType(int64_t size, Type elementType) {
  return RankedTensorType::get({size}, elementType);
}

/// Checks a norm's operands: x has a last dim, `vectors` fit it, `statistics` are of its rows.
static LogicalResult checkNorm(std::optional<Location> loc, Value x, ValueRange vectors,
                               ValueRange statistics, Value cotangent = {}) {
  auto type = tensorType(x);
  if (type.getRank() < 1)
    return emitOptionalError(loc, "normalizes a scalar, which has no last dim");
  if (cotangent && cotangent.getType() != type)
    return emitOptionalError(loc, "has a cotangent of type ", cotangent.getType(), " for ", type);
  Type vector = vectorType(type.getShape().back(), type.getElementType());
  for (Value value : vectors)
    if (value.getType() != vector)
      return emitOptionalError(loc, "has a weight or bias of type ", value.getType(), ", expected ",
                               vector);
  Type statistic = statisticType(type, {type.getRank() - 1});
  for (Value value : statistics)
    if (value.getType() != statistic)
      return emitOptionalError(loc, "has a statistic of type ", value.getType(), ", expected ",
                               statistic);
  return success();
}

/// Returns the cotangent of the first result, or an error if a statistic has one. Statistics are
/// saved for the gradient and have no cotangent.
static FailureOr<Value> onlyFirst(Operation *op, ArrayRef<Value> cotangents) {
  for (Value cotangent : cotangents.drop_front())
    if (cotangent)
      return op->emitOpError("is not differentiable through its statistics");
  return cotangents[0];
}

//===- softmax -------------------------------------------------------------===//

static LogicalResult inferSoftmax(std::optional<Location> loc, Value x, int64_t dim,
                                  SmallVectorImpl<Type> &types) {
  if (dim < 0 || dim >= tensorType(x).getRank())
    return emitOptionalError(loc, "names dim ", dim, " of ", x.getType());
  types.push_back(x.getType());
  return success();
}

LogicalResult SoftmaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferSoftmax(loc, adaptor.getInput(), adaptor.getDim(), types); // softmax_c1
}
LogicalResult SoftmaxGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (adaptor.getInput().getType() != adaptor.getCotangent().getType()) // softmax_grad_c1
    return emitOptionalError(loc, "has a cotangent of type ", adaptor.getCotangent().getType(),
                             " for ", adaptor.getInput().getType());
  return inferSoftmax(loc, adaptor.getInput(), adaptor.getDim(), types); // softmax_grad_c1
}

static FactorRule softmaxRule(Operation *op, int64_t dim) {
  FactorRule rule = elementwiseRule(op);
  rule.loops[dim].kind = LoopKind::Fixed;
  return rule;
}
FactorRule SoftmaxOp::getFactorRule() { return softmaxRule(*this, getDim()); }
FactorRule SoftmaxGradOp::getFactorRule() { return softmaxRule(*this, getDim()); }

LogicalResult SoftmaxOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<SoftmaxGradOp>(getLoc(), getResult(), cotangents[0], getDim());
  return success();
}

LogicalResult SoftmaxOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  SmallVector<int64_t, 1> dims{int64_t(getDim())};
  Value x = f.wide(getInput());
  Value maximum = f.repeat(f.make<StabilizerMaxOp>(x, dims), x, dims);
  Value e = f.exp(f.sub(x, maximum));
  Value y = f.div(e, f.repeat(f.sum(e, dims), e, dims));
  results.assign({f.cast(y, getType().getElementType())});
  return success();
}

LogicalResult SoftmaxGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  SmallVector<int64_t, 1> dims{int64_t(getDim())};
  Value y = f.wide(getInput()), dy = f.wide(getCotangent());
  Value dot = f.repeat(f.sum(f.mul(y, dy), dims), y, dims);
  results.assign({f.cast(f.mul(y, f.sub(dy, dot)), getType().getElementType())});
  return success();
}

//===- layer_norm ----------------------------------------------------------===//

LogicalResult LayerNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  if (failed(checkNorm(loc, x, {adaptor.getWeight(), adaptor.getBias()}, {}))) // layer_norm_c1
    return failure();
  Type statistic = statisticType(tensorType(x), {lastDim(x)});
  types.assign({x.getType(), statistic, statistic});
  return success();
}

FactorRule LayerNormOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Parallel);
  rule.operands = {loops.whole(), loops.vector(), loops.vector()};
  rule.results = {loops.whole(), loops.statistic(), loops.statistic()};
  return rule;
}

LogicalResult LayerNormOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  auto dy = onlyFirst(*this, cotangents);
  if (failed(dy) || !*dy)
    return dy;
  Formula f{builder, getLoc()};
  if (needed[0])
    operandCotangents[0] =
        f.make<LayerNormGradOp>(*dy, getInput(), getWeight(), getMean(), getRstd());
  if (needed[1])
    operandCotangents[1] = f.make<NormScaleGradOp>(*dy, getInput(), getMean(), getRstd());
  if (needed[2])
    operandCotangents[2] = f.sum(*dy, dimsBut(*dy, lastDim(*dy)));
  return success();
}

LogicalResult LayerNormOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  int64_t last = lastDim(x);
  Value mean = f.mean(x, {last});
  Value centred = f.sub(x, f.repeat(mean, x, {last}));
  Value variance = f.mean(f.mul(centred, centred), {last});
  Value rstd = f.rsqrt(f.add(variance, f.number(variance, getEpsilon().convertToDouble())));
  Value normal = f.mul(centred, f.repeat(rstd, x, {last}));
  Value scaled = f.mul(normal, f.along(f.wide(getWeight()), x, last));
  Value y = f.add(scaled, f.along(f.wide(getBias()), x, last));
  results.assign({f.cast(y, tensorType(getInput()).getElementType()), mean, rstd});
  return success();
}

LogicalResult LayerNormGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(checkNorm(loc, adaptor.getInput(), {adaptor.getWeight()},
                       {adaptor.getMean(), adaptor.getRstd()},
                       adaptor.getCotangent()))) // layer_norm_grad_c1
    return failure();
  types.push_back(adaptor.getInput().getType());
  return success();
}

FactorRule LayerNormGradOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Parallel);
  rule.operands = {loops.whole(), loops.whole(), loops.vector(), loops.statistic(),
                   loops.statistic()};
  rule.results = {loops.whole()};
  return rule;
}

LogicalResult LayerNormGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  int64_t last = lastDim(x);
  Value rstd = f.repeat(getRstd(), x, {last});
  Value normal = f.mul(f.sub(x, f.repeat(getMean(), x, {last})), rstd);
  Value g = f.mul(dy, f.along(f.wide(getWeight()), x, last));
  Value gMean = f.repeat(f.mean(g, {last}), x, {last});
  Value dotMean = f.repeat(f.mean(f.mul(g, normal), {last}), x, {last});
  Value dx = f.mul(rstd, f.sub(f.sub(g, gMean), f.mul(normal, dotMean)));
  results.assign({f.cast(dx, getType().getElementType())});
  return success();
}

LogicalResult NormScaleGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  if (failed(checkNorm(loc, x, {}, {adaptor.getMean(), adaptor.getRstd()},
                       adaptor.getCotangent()))) // norm_scale_grad_c1
    return failure();
  types.push_back(vectorType(tensorType(x).getShape().back(), tensorType(x).getElementType()));
  return success();
}

FactorRule NormScaleGradOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Reduction);
  rule.operands = {loops.whole(), loops.whole(), loops.statistic(), loops.statistic()};
  rule.results = {loops.vector()};
  return rule;
}

LogicalResult NormScaleGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  int64_t last = lastDim(x);
  Value centred = f.sub(x, f.repeat(getMean(), x, {last}));
  Value product = f.mul(dy, f.mul(centred, f.repeat(getRstd(), x, {last})));
  results.assign({f.cast(f.sum(product, dimsBut(x, last)), getType().getElementType())});
  return success();
}

//===- rms_norm ------------------------------------------------------------===//

LogicalResult RmsNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  if (failed(checkNorm(loc, x, {adaptor.getWeight()}, {}))) // rms_norm_c1
    return failure();
  types.assign({x.getType(), statisticType(tensorType(x), {lastDim(x)})});
  return success();
}

FactorRule RmsNormOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Parallel);
  rule.operands = {loops.whole(), loops.vector()};
  rule.results = {loops.whole(), loops.statistic()};
  return rule;
}

LogicalResult RmsNormOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  auto dy = onlyFirst(*this, cotangents);
  if (failed(dy) || !*dy)
    return dy;
  Formula f{builder, getLoc()};
  if (needed[0])
    operandCotangents[0] = f.make<RmsNormGradOp>(*dy, getInput(), getWeight(), getRstd());
  if (needed[1])
    operandCotangents[1] = f.make<RmsScaleGradOp>(*dy, getInput(), getRstd());
  return success();
}

LogicalResult RmsNormOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  int64_t last = lastDim(x);
  Value square = f.mean(f.mul(x, x), {last});
  Value rstd = f.rsqrt(f.add(square, f.number(square, getEpsilon().convertToDouble())));
  Value y = f.mul(f.mul(x, f.repeat(rstd, x, {last})), f.along(f.wide(getWeight()), x, last));
  results.assign({f.cast(y, tensorType(getInput()).getElementType()), rstd});
  return success();
}

LogicalResult RmsNormGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(checkNorm(loc, adaptor.getInput(), {adaptor.getWeight()}, {adaptor.getRstd()},
                       adaptor.getCotangent()))) // rms_norm_grad_c1
    return failure();
  types.push_back(adaptor.getInput().getType());
  return success();
}

FactorRule RmsNormGradOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Parallel);
  rule.operands = {loops.whole(), loops.whole(), loops.vector(), loops.statistic()};
  rule.results = {loops.whole()};
  return rule;
}

LogicalResult RmsNormGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  int64_t last = lastDim(x);
  Value rstd = f.repeat(getRstd(), x, {last});
  Value normal = f.mul(x, rstd);
  Value g = f.mul(dy, f.along(f.wide(getWeight()), x, last));
  Value dotMean = f.repeat(f.mean(f.mul(g, normal), {last}), x, {last});
  Value dx = f.mul(rstd, f.sub(g, f.mul(normal, dotMean)));
  results.assign({f.cast(dx, getType().getElementType())});
  return success();
}

LogicalResult RmsScaleGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  if (failed(checkNorm(loc, x, {}, {adaptor.getRstd()},
                       adaptor.getCotangent()))) // rms_scale_grad_c1
    return failure();
  types.push_back(vectorType(tensorType(x).getShape().back(), tensorType(x).getElementType()));
  return success();
}

FactorRule RmsScaleGradOp::getFactorRule() {
  FactorRule rule;
  RowLoops loops(rule, tensorType(getInput()), LoopKind::Reduction);
  rule.operands = {loops.whole(), loops.whole(), loops.statistic()};
  rule.results = {loops.vector()};
  return rule;
}

LogicalResult RmsScaleGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(getCotangent());
  int64_t last = lastDim(x);
  Value product = f.mul(dy, f.mul(x, f.repeat(getRstd(), x, {last})));
  results.assign({f.cast(f.sum(product, dimsBut(x, last)), getType().getElementType())});
  return success();
}

} // namespace tbc
