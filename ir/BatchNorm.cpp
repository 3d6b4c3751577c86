//===- BatchNorm.cpp - Batch norm, for inference and for training ----------===//

#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"

using namespace mlir;

namespace tbc {

/// Checks that x has channels and that every one of `vectors` has one element per channel.
static LogicalResult checkChannels(std::optional<Location> loc, Value x, ValueRange vectors) {
  auto type = tensorType(x);
  if (type.getRank() < 2)
    return emitOptionalError(loc, "normalizes ", type, ", which has no channels");
  for (Value vector : vectors)
    if (tensorType(vector).getShape() != type.getShape().slice(1, 1))
      return emitOptionalError(loc, "has a vector of type ", vector.getType(), " for ",
                               type.getDimSize(1), " channels");
  return success();
}

/// n, channels and spatial dims are loops; the vectors run through the channels.
static FactorRule channelRule(Operation *op, LoopKind others) {
  auto input = cast<RankedTensorType>(op->getOperand(0).getType());
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (auto [dim, size] : llvm::enumerate(input.getShape()))
    loops.push_back(rule.addLoop(size, dim == 1 ? LoopKind::Parallel : others));
  SmallVector<FactorRule::Dim, 4> vector{FactorRule::dim(loops[1])};
  rule.operands.assign(op->getNumOperands(), vector);
  rule.results.assign(op->getNumResults(), vector);
  rule.operands[0] = rule.results[0] = FactorRule::dims(loops);
  return rule;
}

/// Every dim but the channels.
static SmallVector<int64_t> allButChannels(Value x) {
  SmallVector<int64_t> dims{0};
  for (int64_t dim = 2; dim < tensorType(x).getRank(); ++dim)
    dims.push_back(dim);
  return dims;
}

/// (x - mean) * rstd * scale + bias in the wide element type of x.
static Value normalize(Formula &f, Value centred, Value rstd, Value scale, Value bias) {
  Value normal = f.mul(centred, f.along(rstd, centred, 1));
  return f.add(f.mul(normal, f.along(scale, centred, 1)), f.along(bias, centred, 1));
}

LogicalResult BatchNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(checkChannels(loc, adaptor.getInput(),
                           adaptor.getOperands().drop_front()))) // batch_norm_c1
    return failure();
  types.push_back(adaptor.getInput().getType());
  return success();
}

FactorRule BatchNormOp::getFactorRule() { return channelRule(*this, LoopKind::Parallel); }

LogicalResult BatchNormOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  Type element = tensorType(x).getElementType();
  Value variance = f.cast(getVariance(), element);
  Value rstd = f.rsqrt(f.add(variance, f.number(variance, getEpsilon().convertToDouble())));
  Value centred = f.sub(x, f.along(f.cast(getMean(), element), x, 1));
  Value y = normalize(f, centred, rstd, f.cast(getScale(), element), f.cast(getBias(), element));
  results.assign({f.cast(y, getType().getElementType())});
  return success();
}

LogicalResult BatchNormOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (!cotangents[0])
    return success();
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput()), dy = f.wide(cotangents[0]);
  Type element = tensorType(x).getElementType();
  SmallVector<int64_t> reduced = allButChannels(x);
  Value mean = f.cast(getMean(), element), variance = f.cast(getVariance(), element);
  Value scale = f.cast(getScale(), element);
  Value rstd = f.rsqrt(f.add(variance, f.number(variance, getEpsilon().convertToDouble())));
  Value factor = f.mul(scale, rstd);
  auto sumOfDy = [&] { return f.sum(dy, reduced); };
  auto sumOfDyCentred = [&] { return f.sum(f.mul(dy, f.sub(x, f.along(mean, x, 1))), reduced); };
  auto set = [&](unsigned i, Value cotangent) {
    operandCotangents[i] = f.cast(cotangent, tensorType(getOperand(i)).getElementType());
  };
  if (needed[0])
    set(0, f.mul(dy, f.along(factor, x, 1)));
  if (needed[1])
    set(1, f.mul(sumOfDyCentred(), rstd));
  if (needed[2])
    set(2, sumOfDy());
  if (needed[3])
    set(3, f.neg(f.mul(sumOfDy(), factor)));
  if (needed[4])
    set(4, f.mul(f.mul(sumOfDyCentred(), factor), f.mul(f.number(rstd, -0.5), f.mul(rstd, rstd))));
  return success();
}

LogicalResult BatchNormTrainOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Value x = adaptor.getInput();
  if (failed(checkChannels(loc, x, adaptor.getOperands().drop_front()))) // batch_norm_train_c1
    return failure();
  auto type = tensorType(x);
  if (type.getNumElements() < 2 * type.getDimSize(1)) // batch_norm_train_c2
    return emitOptionalError(loc, "takes the variance of fewer than two elements per channel of ",
                             type);
  types.assign({type, adaptor.getRunningMean().getType(), adaptor.getRunningVariance().getType()});
  return success();
}

FactorRule BatchNormTrainOp::getFactorRule() { return channelRule(*this, LoopKind::Fixed); }

LogicalResult BatchNormTrainOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Value x = f.wide(getInput());
  Type element = tensorType(x).getElementType();
  SmallVector<int64_t> reduced = allButChannels(x);
  // The number of elements per channel holds the batch, so it is no constant.
  int64_t samples = tensorType(x).getDimSize(0);
  int64_t perSample = tensorType(x).getNumElements() / samples / tensorType(x).getDimSize(1);
  Value size = f.make<FactorSizeOp>(RankedTensorType::get({}, element), perSample, samples);
  auto perChannel = [&](Value scalar) {
    return broadcastTo(builder, getLoc(), scalar, {tensorType(x).getDimSize(1)}, {});
  };
  Value count = perChannel(size);

  Value mean = f.div(f.sum(x, reduced), count);
  Value centred = f.sub(x, f.along(mean, x, 1));
  Value variance = f.div(f.sum(f.mul(centred, centred), reduced), count);
  Value rstd = f.rsqrt(f.add(variance, f.number(variance, getEpsilon().convertToDouble())));
  Value y = normalize(f, centred, rstd, f.cast(getScale(), element), f.cast(getBias(), element));

  double momentum = getMomentum().convertToDouble();
  auto blend = [&](Value old, Value now) {
    Value wide = f.cast(old, element);
    Value keep = f.number(now, momentum);
    Value result = f.add(f.mul(keep, wide), f.mul(f.sub(f.number(now, 1), keep), now));
    return f.cast(result, tensorType(old).getElementType());
  };
  Value kept = variance;
  if (getUnbiased())
    kept = f.mul(variance, f.div(count, f.sub(count, f.number(count, 1))));
  results.assign({f.cast(y, tensorType(getInput()).getElementType()), blend(getRunningMean(), mean),
                  blend(getRunningVariance(), kept)});
  return success();
}

} // namespace tbc
