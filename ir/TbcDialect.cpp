//===- TbcDialect.cpp - Registration and helpers shared by the families ----===//

#include "ir/Movement.h"
#include "ir/Register.h"

#include "ir/TbcDialect.cpp.inc"
#include "ir/TbcInterfaces.cpp.inc"

using namespace mlir;

namespace tbc {

void TbcDialect::initialize() {
  registerAttributes();
  registerActivationOps(*this);
  registerAttentionOps(*this);
  registerCollectiveOps(*this);
  registerContractionOps(*this);
  registerConvolutionOps(*this);
  registerElementwiseOps(*this);
  registerExpertsOps(*this);
  registerGradientOps(*this);
  registerHostOps(*this);
  registerIndexingOps(*this);
  registerLossOps(*this);
  registerMovementOps(*this);
  registerNormalizationOps(*this);
  registerOptimizerOps(*this);
  registerPoolingOps(*this);
  registerRandomOps(*this);
  registerRecurrentOps(*this);
  registerReshardOps(*this);
  registerVocabularyOps(*this);
}

FactorRule elementwiseRule(Operation *op) {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (int64_t size : cast<RankedTensorType>(op->getResult(0).getType()).getShape())
    loops.push_back(rule.addLoop(size));
  rule.operands.assign(op->getNumOperands(), FactorRule::dims(loops));
  rule.results.assign(op->getNumResults(), FactorRule::dims(loops));
  return rule;
}

bool hasKernelTypes(Operation *op) {
  auto isKnown = [](Type type) { return !getElementTypeOrSelf(type).isF64(); };
  return llvm::all_of(op->getOperandTypes(), isKnown) &&
         llvm::all_of(op->getResultTypes(), isKnown);
}

double elementwiseFlops(Operation *op, double perElement) {
  return perElement * double(cast<RankedTensorType>(op->getResult(0).getType()).getNumElements());
}

Value scalarConstant(OpBuilder &builder, Location loc, Type elementType, double value) {
  auto type = RankedTensorType::get({}, elementType);
  Attribute attr;
  if (isa<FloatType>(elementType))
    attr = builder.getFloatAttr(elementType, value);
  else
    attr = builder.getIntegerAttr(elementType, int64_t(value));
  return builder.create<ConstantOp>(loc, type, DenseElementsAttr::get(type, attr));
}

Value splat(OpBuilder &builder, Location loc, RankedTensorType type, double value) {
  Value scalar = scalarConstant(builder, loc, type.getElementType(), value);
  if (type.getRank() == 0)
    return scalar;
  return builder.create<BroadcastOp>(loc, type, scalar, ArrayRef<int64_t>{});
}

Value broadcastTo(OpBuilder &builder, Location loc, Value input, ArrayRef<int64_t> shape,
                  ArrayRef<int64_t> dims) {
  auto type = RankedTensorType::get(shape, tensorType(input).getElementType());
  if (type == input.getType())
    return input;
  return builder.create<BroadcastOp>(loc, type, input, dims);
}

} // namespace tbc
