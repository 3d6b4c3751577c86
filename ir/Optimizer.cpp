//===- Optimizer.cpp - Parameter updates -----------------------------------===//

#include "ir/Optimizer.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// Checks that all of `tensors` have the parameter's shape; the results are those that an update
/// replaces.
static LogicalResult inferUpdate(std::optional<Location> loc, Value parameter, ValueRange tensors,
                                 ValueRange replaced, SmallVectorImpl<Type> &types) {
  for (Value tensor : tensors)
    if (tensorType(tensor).getShape() != tensorType(parameter).getShape())
      return emitOptionalError(loc, "updates ", parameter.getType(), " by ", tensor.getType());
  types.push_back(parameter.getType());
  llvm::append_range(types, replaced.getTypes());
  return success();
}

LogicalResult SgdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getParameter(), adaptor.getGradient(), {}, types); // sgd_c1
}
LogicalResult SgdMomentumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getParameter(), {adaptor.getGradient(), adaptor.getBuffer()},
                     adaptor.getBuffer(), types); // sgd_momentum_c1
}
LogicalResult AdamOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  Value first = adaptor.getFirstMoment(), second = adaptor.getSecondMoment();
  return inferUpdate(loc, adaptor.getParameter(), {adaptor.getGradient(), first, second},
                     {first, second}, types); // adam_c1
}
LogicalResult AdamwOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  Value first = adaptor.getFirstMoment(), second = adaptor.getSecondMoment();
  return inferUpdate(loc, adaptor.getParameter(), {adaptor.getGradient(), first, second},
                     {first, second}, types); // adamw_c1
}

LogicalResult SquareSumOp::inferReturnTypes(MLIRContext *context, std::optional<Location>, Adaptor,
                                            SmallVectorImpl<Type> &types) {
  types.push_back(RankedTensorType::get({}, Float32Type::get(context)));
  return success();
}
LogicalResult StepTotalOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  for (Value part : adaptor.getParts())
    if (part.getType() != adaptor.getParts().front().getType()) // step_total_c1
      return emitOptionalError(loc, "adds up ", part.getType(), " beside ",
                               adaptor.getParts().front().getType());
  llvm::append_range(types, adaptor.getParts().getTypes());
  return success();
}
LogicalResult ScaleByOp::inferReturnTypes(MLIRContext *, std::optional<Location>, Adaptor adaptor,
                                          SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  return success();
}
LogicalResult ClipValueOp::inferReturnTypes(MLIRContext *, std::optional<Location>, Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  return success();
}
LogicalResult UpdateIfOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (adaptor.getOld().getType() != adaptor.getReplacement().getType()) // update_if_c1
    return emitOptionalError(loc, "replaces ", adaptor.getOld().getType(), " by ",
                             adaptor.getReplacement().getType());
  types.push_back(adaptor.getOld().getType());
  return success();
}

/// Every loop is summed over.
FactorRule SquareSumOp::getFactorRule() {
  FactorRule rule;
  for (Value gradient : getGradients()) {
    SmallVector<unsigned, 4> loops;
    for (int64_t size : tensorType(gradient).getShape())
      loops.push_back(rule.addLoop(size, LoopKind::Reduction));
    rule.operands.push_back(FactorRule::dims(loops));
  }
  rule.results.push_back({});
  return rule;
}
void SquareSumOp::resizeLoops(ArrayRef<int64_t>) {}
double SquareSumOp::getFlops() {
  double elements = 0;
  for (Value gradient : getGradients())
    elements += double(tensorType(gradient).getNumElements());
  return 2 * elements;
}
StringRef SquareSumOp::getKernelClass() { return "reduction"; }

FactorRule StepTotalOp::getFactorRule() {
  FactorRule rule;
  rule.operands.resize(getNumOperands());
  rule.results.resize(getNumResults());
  return rule;
}
void StepTotalOp::resizeLoops(ArrayRef<int64_t>) {}
double StepTotalOp::getFlops() { return 0; }
StringRef StepTotalOp::getKernelClass() { return "none"; }

FactorRule optimizerRule(Operation *op) {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  auto parameter = cast<RankedTensorType>(op->getOperand(0).getType());
  for (int64_t size : parameter.getShape())
    loops.push_back(rule.addLoop(size));
  // What does not have the parameter's shape is a scalar.
  for (Type type : op->getOperandTypes()) {
    bool isScalar = cast<RankedTensorType>(type).getRank() == 0;
    rule.operands.push_back(isScalar ? SmallVector<FactorRule::Dim, 4>() : FactorRule::dims(loops));
  }
  rule.results.assign(op->getNumResults(), FactorRule::dims(loops));
  return rule;
}

} // namespace tbc
