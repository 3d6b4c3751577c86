//===- Random.cpp - Dropout and random numbers -----------------------------===//

#include "ir/Random.h"
#include "ir/Elementwise.h"

using namespace mlir;

namespace tbc {

static bool isRatio(double ratio) { return ratio >= 0 && ratio < 1; }

LogicalResult DropoutOp::verify() {
  if (!isRatio(getRatio().convertToDouble())) // dropout_c1
    return emitOpError() << "has ratio " << getRatio().convertToDouble()
                         << "; expected 0 or more and less than 1";
  return success();
}

LogicalResult DropoutOp::buildVjp(OpBuilder &, ArrayRef<Value> cotangents, ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0])
    operandCotangents[0] = cotangents[0];
  return success();
}

SmallVector<std::pair<Value, unsigned>> DropoutOp::getDroppedDims() {
  SmallVector<std::pair<Value, unsigned>> dims;
  for (int64_t dim = 0; dim < tensorType(getInput()).getRank(); ++dim)
    dims.push_back({getInput(), unsigned(dim)});
  return dims;
}

SmallVector<Value> DropoutOp::buildTrainingDropout(OpBuilder &builder, Value step,
                                                   ValueRange indices, int64_t seed, int64_t key) {
  return {builder.create<DropoutTrainOp>(getLoc(), getInput(), step, indices, getRatioAttr(),
                                         builder.getI64IntegerAttr(seed),
                                         builder.getI64IntegerAttr(key))};
}

SmallVector<Value> DropoutOp::buildWithoutDropout(OpBuilder &) { return {getInput()}; }

LogicalResult DropoutTrainOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto type = tensorType(adaptor.getInput());
  bool fits = int64_t(adaptor.getIndices().size()) == type.getRank();
  for (int64_t dim = 0; fits && dim < type.getRank(); ++dim)
    fits =
        tensorType(adaptor.getIndices()[dim]).getShape() == ArrayRef<int64_t>(type.getDimSize(dim));
  if (!fits) // dropout_train_c1
    return emitOptionalError(loc, "numbers the elements of ", type,
                             " by vectors that are not one per dim, of its size");
  if (!isRatio(adaptor.getRatio().convertToDouble())) // dropout_train_c2
    return emitOptionalError(loc, "has ratio ", adaptor.getRatio().convertToDouble(),
                             "; expected 0 or more and less than 1");
  types.push_back(type);
  return success();
}

FactorRule DropoutTrainOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (int64_t size : tensorType(getInput()).getShape())
    loops.push_back(rule.addLoop(size));
  rule.operands = {FactorRule::dims(loops), {}};
  for (unsigned loop : loops)
    rule.operands.push_back(FactorRule::dims(loop));
  rule.results = {FactorRule::dims(loops)};
  return rule;
}
void DropoutTrainOp::resizeLoops(ArrayRef<int64_t>) {}
double DropoutTrainOp::getFlops() { return elementwiseFlops(*this, 40); }
KernelClass DropoutTrainOp::getKernelClass() { return KernelClass::Elementwise; }

LogicalResult DropoutTrainOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                       ArrayRef<bool> needed,
                                       SmallVectorImpl<Value> &operandCotangents) {
  if (needed[0] && cotangents[0])
    operandCotangents[0] =
        builder.create<DropoutTrainOp>(getLoc(), cotangents[0], getStep(), getIndices(),
                                       getRatioAttr(), getSeedAttr(), getKeyAttr());
  return success();
}

//===----------------------------------------------------------------------===//
// Random numbers
//===----------------------------------------------------------------------===//

LogicalResult RandomUniformOp::verify() {
  if (tensorType(getLike()).getRank() == 0) // random_uniform_c1
    return emitOpError() << "draws for a tensor without dims; expected at least one";
  return success();
}

/// The numbers depend on no element of `like`.
LogicalResult RandomUniformOp::buildVjp(OpBuilder &, ArrayRef<Value>, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &) {
  return success();
}

SmallVector<std::pair<Value, unsigned>> RandomUniformOp::getDroppedDims() {
  SmallVector<std::pair<Value, unsigned>> dims;
  for (int64_t dim = 0; dim < tensorType(getLike()).getRank(); ++dim)
    dims.push_back({getLike(), unsigned(dim)});
  return dims;
}

SmallVector<Value> RandomUniformOp::buildTrainingDropout(OpBuilder &builder, Value step,
                                                         ValueRange indices, int64_t seed,
                                                         int64_t key) {
  Value drawn = builder.create<RandomUniformTrainOp>(
      getLoc(), step, indices, builder.getI64IntegerAttr(seed), builder.getI64IntegerAttr(key));
  if (drawn.getType() != getType())
    drawn = builder.create<CastOp>(getLoc(), getType(), drawn);
  return {drawn};
}

SmallVector<Value> RandomUniformOp::buildWithoutDropout(OpBuilder &) { return {}; }

LogicalResult RandomUniformTrainOp::inferReturnTypes(MLIRContext *context,
                                                     std::optional<Location> loc, Adaptor adaptor,
                                                     SmallVectorImpl<Type> &types) {
  SmallVector<int64_t> shape;
  for (Value index : adaptor.getIndices()) {
    auto type = tensorType(index);
    if (type.getRank() != 1) // random_uniform_train_c1
      return emitOptionalError(loc, "numbers elements by ", type, "; expected a vector per dim");
    shape.push_back(type.getDimSize(0));
  }
  types.push_back(RankedTensorType::get(shape, Float32Type::get(context)));
  return success();
}

FactorRule RandomUniformTrainOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  rule.operands = {{}};
  for (Value index : getIndices()) {
    loops.push_back(rule.addLoop(tensorType(index).getDimSize(0)));
    rule.operands.push_back(FactorRule::dims(loops.back()));
  }
  rule.results = {FactorRule::dims(loops)};
  return rule;
}
void RandomUniformTrainOp::resizeLoops(ArrayRef<int64_t>) {}
double RandomUniformTrainOp::getFlops() { return elementwiseFlops(*this, 40); }
KernelClass RandomUniformTrainOp::getKernelClass() { return KernelClass::Elementwise; }

} // namespace tbc
