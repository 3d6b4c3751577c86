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
LogicalResult AdamwOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  Value first = adaptor.getFirstMoment(), second = adaptor.getSecondMoment();
  return inferUpdate(loc, adaptor.getParameter(), {adaptor.getGradient(), first, second},
                     {first, second}, types); // adamw_c1
}

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
