//===- Optimizer.cpp - Parameter updates -----------------------------------===//

#include "ir/Optimizer.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// Checks that all of `tensors` have the parameter's shape. The results have the types of
/// `replaced`.
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

LogicalResult AdagradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getParameter(), {adaptor.getGradient(), adaptor.getSum()},
                     adaptor.getSum(), types); // adagrad_c1
}
LogicalResult DivideByRootOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getInput(), adaptor.getSquares(), {}, types); // divide_by_root_c1
}

LogicalResult MuonMomentumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(inferUpdate(loc, adaptor.getBuffer(), adaptor.getGradient(), {},
                         types))) // muon_momentum_c1
    return failure();
  types.push_back(adaptor.getBuffer().getType());
  return success();
}
LogicalResult GatherMatricesOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  return success();
}
LogicalResult ShardMatricesOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  return success();
}
LogicalResult DivideByNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getInput(), adaptor.getSquares(), {}, types); // divide_by_norm_c1
}
LogicalResult WeightedSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getLhs(), adaptor.getRhs(), {}, types); // weighted_sum_c1
}
LogicalResult MuonStepOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getParameter(), adaptor.getDirection(), {},
                     types); // muon_step_c1
}

LogicalResult FactoredMomentOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getCount()) <= 0) // factored_moment_c2
    return emitOptionalError(loc, "takes a mean of ", int64_t(adaptor.getCount()), " elements");
  return inferUpdate(loc, adaptor.getMoment(), adaptor.getSums(), {},
                     types); // factored_moment_c1
}
LogicalResult FactoredDirectionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                    Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getCount()) <= 0) // factored_direction_c2
    return emitOptionalError(loc, "takes a mean of ", int64_t(adaptor.getCount()), " elements");
  return inferUpdate(loc, adaptor.getGradient(),
                     {adaptor.getRow(), adaptor.getColumn(), adaptor.getTotal()}, {},
                     types); // factored_direction_c1
}
LogicalResult RootDirectionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferUpdate(loc, adaptor.getGradient(), adaptor.getMoment(), {},
                     types); // root_direction_c1
}
LogicalResult SquareTotalsOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  for (Value tensor : adaptor.getTensors()) {
    if (tensorType(tensor).getShape() != tensorType(adaptor.getTensors().front()).getShape())
      return emitOptionalError(loc, "adds up squares of ", tensor.getType(), " beside ",
                               adaptor.getTensors().front().getType()); // square_totals_c1
    types.push_back(RankedTensorType::get({}, Float32Type::get(context)));
  }
  return success();
}
LogicalResult AdafactorStepOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getCount()) <= 0) // adafactor_step_c2
    return emitOptionalError(loc, "takes a mean of ", int64_t(adaptor.getCount()), " elements");
  const APFloat &threshold = adaptor.getClipThreshold();
  if (!threshold.isFinite() || threshold.isNegative() || threshold.isZero()) // adafactor_step_c2
    return emitOptionalError(loc, "limits directions to ", threshold.convertToDouble());
  return inferUpdate(loc, adaptor.getParameter(), adaptor.getDirection(), {},
                     types); // adafactor_step_c1
}

LogicalResult SquareSumOp::inferReturnTypes(MLIRContext *context, std::optional<Location>, Adaptor,
                                            SmallVectorImpl<Type> &types) {
  types.push_back(RankedTensorType::get({}, Float32Type::get(context)));
  return success();
}
LogicalResult CountNotFiniteOp::inferReturnTypes(MLIRContext *context, std::optional<Location>,
                                                 Adaptor, SmallVectorImpl<Type> &types) {
  types.push_back(RankedTensorType::get({}, Float32Type::get(context)));
  return success();
}
LogicalResult UpdateLossScaleOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                  Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getGrowthInterval()) <= 0) // update_loss_scale_c1
    return emitOptionalError(loc, "grows every ", int64_t(adaptor.getGrowthInterval()), " steps");
  for (const APFloat &factor : {adaptor.getGrowthFactor(), adaptor.getBackoffFactor()})
    if (!factor.isFinite() || factor.isNegative() || factor.isZero()) // update_loss_scale_c2
      return emitOptionalError(loc, "multiplies the scale by ", factor.convertToDouble());
  types.push_back(adaptor.getScale().getType());
  types.push_back(adaptor.getTracker().getType());
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
static FactorRule sumRule(ValueRange gradients) {
  FactorRule rule;
  for (Value gradient : gradients) {
    SmallVector<unsigned, 4> loops;
    for (int64_t size : tensorType(gradient).getShape())
      loops.push_back(rule.addLoop(size, LoopKind::Reduction));
    rule.operands.push_back(FactorRule::dims(loops));
  }
  rule.results.push_back({});
  return rule;
}
static double countElements(ValueRange gradients) {
  double elements = 0;
  for (Value gradient : gradients)
    elements += double(tensorType(gradient).getNumElements());
  return elements;
}

FactorRule SquareSumOp::getFactorRule() { return sumRule(getGradients()); }
void SquareSumOp::resizeLoops(ArrayRef<int64_t>) {}
double SquareSumOp::getFlops() { return 2 * countElements(getGradients()); }
KernelClass SquareSumOp::getKernelClass() { return KernelClass::Reduction; }

/// Every loop is summed over, and every operand has them.
FactorRule SquareTotalsOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  for (int64_t size : tensorType(getTensors().front()).getShape())
    loops.push_back(rule.addLoop(size, LoopKind::Reduction));
  rule.operands.assign(getTensors().size(), FactorRule::dims(loops));
  rule.results.resize(getTotals().size());
  return rule;
}
void SquareTotalsOp::resizeLoops(ArrayRef<int64_t>) {}
double SquareTotalsOp::getFlops() { return 2 * countElements(getTensors()); }
KernelClass SquareTotalsOp::getKernelClass() { return KernelClass::Reduction; }

FactorRule CountNotFiniteOp::getFactorRule() { return sumRule(getGradients()); }
void CountNotFiniteOp::resizeLoops(ArrayRef<int64_t>) {}
double CountNotFiniteOp::getFlops() { return countElements(getGradients()); }
KernelClass CountNotFiniteOp::getKernelClass() { return KernelClass::Reduction; }

/// The rule of an op on scalars.
static FactorRule scalarRule(Operation *op) {
  FactorRule rule;
  rule.operands.resize(op->getNumOperands());
  rule.results.resize(op->getNumResults());
  return rule;
}

FactorRule UpdateLossScaleOp::getFactorRule() { return scalarRule(*this); }
void UpdateLossScaleOp::resizeLoops(ArrayRef<int64_t>) {}
double UpdateLossScaleOp::getFlops() { return 1; }
KernelClass UpdateLossScaleOp::getKernelClass() { return KernelClass::None; }

FactorRule StepTotalOp::getFactorRule() { return scalarRule(*this); }
void StepTotalOp::resizeLoops(ArrayRef<int64_t>) {}
double StepTotalOp::getFlops() { return 0; }
KernelClass StepTotalOp::getKernelClass() { return KernelClass::None; }

FactorRule optimizerRule(Operation *op) {
  FactorRule rule;
  SmallVector<unsigned, 4> loops;
  auto parameter = cast<RankedTensorType>(op->getOperand(0).getType());
  for (int64_t size : parameter.getShape())
    loops.push_back(rule.addLoop(size));
  // Operands without the parameter's shape are scalars.
  for (Type type : op->getOperandTypes()) {
    bool isScalar = cast<RankedTensorType>(type).getRank() == 0;
    rule.operands.push_back(isScalar ? SmallVector<FactorRule::Dim, 4>() : FactorRule::dims(loops));
  }
  rule.results.assign(op->getNumResults(), FactorRule::dims(loops));
  return rule;
}

} // namespace tbc
