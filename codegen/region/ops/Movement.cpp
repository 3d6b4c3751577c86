//===- Movement.cpp - Broadcasts, reshapes and constants in kernels ---------===//
//
// The factor rule of these ops gives the source of each element; its value does not change.
//
//===----------------------------------------------------------------------===//

#include "ir/Movement.h"
#include "codegen/region/ops/Elements.h"

using namespace mlir;

namespace tbc::region {
namespace {

template <typename Op> Value sameElement(Op, const Elements &, ValueRange x) { return x[0]; }

struct ConstantModel : KernelOpInterface::ExternalModel<ConstantModel, ConstantOp> {
  bool isSupported(Operation *op) const {
    return isa<SplatElementsAttr>(cast<ConstantOp>(op).getValue());
  }
  SmallVector<Value, 1> buildElement(Operation *op, OpBuilder &builder, ValueRange) const {
    auto value = cast<SplatElementsAttr>(cast<ConstantOp>(op).getValue());
    Elements e{builder, op->getLoc()};
    Type element = value.getElementType();
    if (isa<FloatType>(element))
      return {e.constant(builder.getF32Type(), value.getSplatValue<APFloat>().convertToDouble())};
    APInt number = value.getSplatValue<APInt>();
    if (element.isInteger(1))
      return {e.make<arith::ConstantIntOp>(number.getBoolValue(), 1)};
    bool isUnsigned = element.isUnsignedInteger();
    return {e.make<arith::ConstantIntOp>(
        isUnsigned ? int64_t(number.getZExtValue()) : number.getSExtValue(), 64)};
  }
};

/// The divisor of a mean, a constant after partitioning.
Value buildFactorSize(FactorSizeOp op, const Elements &e, ValueRange) {
  return e.constant(e.builder.getF32Type(), double(op.getCount()) * double(op.getSamples()));
}

} // namespace

void attachMovementKernels(MLIRContext &context) {
  BroadcastOp::attachInterface<ElementModel<BroadcastOp, sameElement, Types::All>>(context);
  ReshapeOp::attachInterface<ElementModel<ReshapeOp, sameElement, Types::All>>(context);
  TransposeOp::attachInterface<ElementModel<TransposeOp, sameElement, Types::All>>(context);
  ConstantOp::attachInterface<ConstantModel>(context);
  FactorSizeOp::attachInterface<ElementModel<FactorSizeOp, buildFactorSize, Types::All>>(context);
}

} // namespace tbc::region
