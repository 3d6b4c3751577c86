//===- Optimizer.cpp - Parameter updates in compiled kernels ----------------===//
//
// In f32, like PyTorch. Scalars derived from the step alone are computed in f64, once per call.
//
//===----------------------------------------------------------------------===//

#include "ir/Optimizer.h"
#include "codegen/region/ops/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tbc::region {
namespace {

double number(const APFloat &value) { return value.convertToDouble(); }

Value buildScaleBy(ScaleByOp, const Elements &e, ValueRange x) { return e.mul(x[0], x[1]); }

Value buildClipValue(ClipValueOp op, const Elements &e, ValueRange x) {
  Value high = e.number(x[0], number(op.getLimit()));
  Value low = e.number(x[0], -number(op.getLimit()));
  return e.select(e.less(x[0], low), low, e.select(e.less(high, x[0]), high, x[0]));
}

Value buildUpdateIf(UpdateIfOp, const Elements &e, ValueRange x) {
  return e.select(x[2], x[1], x[0]);
}

Value buildSgd(SgdOp op, const Elements &e, ValueRange x) {
  Value decay = e.number(x[0], number(op.getWeightDecay()));
  return e.sub(x[0], e.mul(x[2], e.add(x[1], e.mul(decay, x[0]))));
}

struct SgdMomentumModel : KernelOpInterface::ExternalModel<SgdMomentumModel, SgdMomentumOp> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<SgdMomentumOp>(operation);
    Elements e{builder, op.getLoc()};
    Value decay = e.number(x[0], number(op.getWeightDecay()));
    Value momentum = e.number(x[0], number(op.getMomentum()));
    Value gradient = e.add(x[1], e.mul(decay, x[0]));
    Value buffer = e.add(e.mul(momentum, x[2]), gradient);
    Value step = op.getNesterov() ? e.add(gradient, e.mul(momentum, buffer)) : buffer;
    return {e.sub(x[0], e.mul(x[3], step)), buffer};
  }
};

/// Returns 1 - beta^step as f32, a scalar or vector like `step`. Computed in f64, because the
/// subtraction would cancel in f32. Example: beta = 0.999 and step = 1 give 0.001.
Value biasCorrection(const Elements &e, double beta, Value step, bool takeRoot) {
  Type wide = Elements::typeLike(step, e.builder.getF64Type());
  Value exponent = e.make<arith::SIToFPOp>(wide, step);
  Value power = e.make<math::ExpOp>(e.mul(exponent, e.constant(wide, std::log(beta))));
  if (beta == 0)
    power = e.constant(wide, 0);
  Value correction = e.sub(e.constant(wide, 1), power);
  if (takeRoot)
    correction = e.make<math::SqrtOp>(correction);
  return e.make<arith::TruncFOp>(Elements::typeLike(step, e.builder.getF32Type()), correction);
}

/// Adam and AdamW. Operands: parameter, gradient, both moments, rate, step.
template <typename Op, bool isDecoupled>
struct AdaptiveModel : KernelOpInterface::ExternalModel<AdaptiveModel<Op, isDecoupled>, Op> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<Op>(operation);
    Elements e{builder, op.getLoc()};
    Value p = x[0], gradient = x[1], rate = x[4];
    double beta1 = number(op.getBeta1()), beta2 = number(op.getBeta2());
    Value decay = e.number(p, number(op.getWeightDecay()));
    Value kept = p;
    if (isDecoupled)
      kept = e.sub(p, e.mul(e.mul(rate, decay), p));
    else
      gradient = e.add(gradient, e.mul(decay, p));
    Value first = e.add(e.mul(e.number(p, beta1), x[2]), e.mul(e.number(p, 1 - beta1), gradient));
    Value second = e.add(e.mul(e.number(p, beta2), x[3]),
                         e.mul(e.number(p, 1 - beta2), e.mul(gradient, gradient)));
    Value stepSize = e.div(rate, biasCorrection(e, beta1, x[5], false));
    Value root = e.div(e.sqrt(second), biasCorrection(e, beta2, x[5], true));
    Value denominator = e.add(root, e.number(p, number(op.getEpsilon())));
    return {e.sub(kept, e.div(e.mul(stepSize, first), denominator)), first, second};
  }
};

struct MuonMomentumModel : KernelOpInterface::ExternalModel<MuonMomentumModel, MuonMomentumOp> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<MuonMomentumOp>(operation);
    Elements e{builder, op.getLoc()};
    double momentum = number(op.getMomentum());
    auto joined = [&](Value buffer) {
      return e.add(e.mul(e.number(buffer, momentum), buffer),
                   e.mul(e.number(buffer, 1 - momentum), x[0]));
    };
    Value buffer = joined(x[1]);
    return {buffer, op.getNesterov() ? joined(buffer) : buffer};
  }
};

Value buildDivideByNorm(DivideByNormOp op, const Elements &e, ValueRange x) {
  return e.div(x[0], e.larger(e.sqrt(x[1]), e.number(x[1], number(op.getEpsilon()))));
}

Value buildWeightedSum(WeightedSumOp op, const Elements &e, ValueRange x) {
  return e.add(e.mul(e.number(x[0], number(op.getAlpha())), x[0]),
               e.mul(e.number(x[1], number(op.getBeta())), x[1]));
}

Value buildMuonStep(MuonStepOp op, const Elements &e, ValueRange x) {
  Value decay = e.mul(x[2], e.number(x[2], number(op.getWeightDecay())));
  Value step = e.mul(x[2], e.number(x[2], number(op.getScale())));
  return e.sub(e.sub(x[0], e.mul(decay, x[0])), e.mul(step, x[1]));
}

Value buildDivideByRoot(DivideByRootOp op, const Elements &e, ValueRange x) {
  return e.div(x[0], e.add(e.sqrt(x[1]), e.number(x[1], number(op.getEpsilon()))));
}

/// Returns the number of a step as f32, a scalar or vector like `step`.
Value stepAsFloat(const Elements &e, Value step) {
  return e.make<arith::SIToFPOp>(Elements::typeLike(step, e.builder.getF32Type()), step);
}

struct AdagradModel : KernelOpInterface::ExternalModel<AdagradModel, AdagradOp> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<AdagradOp>(operation);
    Elements e{builder, op.getLoc()};
    Value decay = e.number(x[0], number(op.getWeightDecay())), step = stepAsFloat(e, x[4]);
    Value later = e.sub(step, e.number(step, 1)), one = e.number(step, 1);
    Value slower = e.add(one, e.mul(later, e.number(step, number(op.getRateDecay()))));
    Value gradient = e.add(x[1], e.mul(decay, x[0]));
    Value sum = e.add(x[2], e.mul(gradient, gradient));
    Value root = e.add(e.sqrt(sum), e.number(sum, number(op.getEpsilon())));
    return {e.sub(x[0], e.div(e.mul(e.div(x[3], slower), gradient), root)), sum};
  }
};

struct FactoredMomentModel
    : KernelOpInterface::ExternalModel<FactoredMomentModel, FactoredMomentOp> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<FactoredMomentOp>(operation);
    Elements e{builder, op.getLoc()};
    Value step = stepAsFloat(e, x[2]);
    Value weight = e.make<LLVM::PowOp>(step, e.number(step, number(op.getBeta2Decay())));
    Value mean = e.div(x[0], e.number(x[0], double(op.getCount())));
    return {e.add(x[1], e.mul(weight, e.sub(mean, x[1])))};
  }
};

Value buildFactoredDirection(FactoredDirectionOp op, const Elements &e, ValueRange x) {
  const double epsilon = number(op.getEpsilon());
  Value mean = e.div(x[3], e.number(x[3], double(op.getCount())));
  Value estimate = e.div(e.mul(x[1], x[2]), e.larger(mean, e.number(mean, epsilon)));
  return e.div(x[0], e.sqrt(e.larger(estimate, e.number(estimate, epsilon * epsilon))));
}

Value buildRootDirection(RootDirectionOp op, const Elements &e, ValueRange x) {
  const double epsilon = number(op.getEpsilon());
  return e.div(x[0], e.sqrt(e.larger(x[1], e.number(x[1], epsilon * epsilon))));
}

struct AdafactorStepModel : KernelOpInterface::ExternalModel<AdafactorStepModel, AdafactorStepOp> {
  SmallVector<Value, 1> buildElement(Operation *operation, OpBuilder &builder, ValueRange x) const {
    auto op = cast<AdafactorStepOp>(operation);
    Elements e{builder, op.getLoc()};
    auto rootOfMean = [&](Value squares) {
      return e.sqrt(e.div(squares, e.number(squares, double(op.getCount()))));
    };
    Value rate = x[4], root = e.sqrt(stepAsFloat(e, x[5]));
    Value most = e.div(e.number(root, 1), root);
    Value size = e.larger(rootOfMean(x[2]), e.number(x[2], number(op.getEpsilon())));
    Value moved = e.div(rootOfMean(x[3]), e.number(x[3], number(op.getClipThreshold())));
    Value limit = e.larger(moved, e.number(moved, 1));
    Value smaller = e.select(e.less(most, rate), most, rate);
    Value length = e.div(e.mul(size, smaller), limit);
    Value decay = e.mul(rate, e.number(rate, number(op.getWeightDecay())));
    return {e.sub(e.sub(x[0], e.mul(decay, x[0])), e.mul(length, x[1]))};
  }
};

} // namespace

void attachOptimizerKernels(MLIRContext &context) {
  ScaleByOp::attachInterface<ElementModel<ScaleByOp, buildScaleBy>>(context);
  ClipValueOp::attachInterface<ElementModel<ClipValueOp, buildClipValue>>(context);
  UpdateIfOp::attachInterface<ElementModel<UpdateIfOp, buildUpdateIf, Types::All>>(context);
  SgdOp::attachInterface<ElementModel<SgdOp, buildSgd>>(context);
  SgdMomentumOp::attachInterface<SgdMomentumModel>(context);
  MuonMomentumOp::attachInterface<MuonMomentumModel>(context);
  DivideByNormOp::attachInterface<ElementModel<DivideByNormOp, buildDivideByNorm>>(context);
  WeightedSumOp::attachInterface<ElementModel<WeightedSumOp, buildWeightedSum>>(context);
  MuonStepOp::attachInterface<ElementModel<MuonStepOp, buildMuonStep>>(context);
  FactoredMomentOp::attachInterface<FactoredMomentModel>(context);
  FactoredDirectionOp::attachInterface<ElementModel<FactoredDirectionOp, buildFactoredDirection>>(
      context);
  RootDirectionOp::attachInterface<ElementModel<RootDirectionOp, buildRootDirection>>(context);
  AdafactorStepOp::attachInterface<AdafactorStepModel>(context);
  AdagradOp::attachInterface<AdagradModel>(context);
  DivideByRootOp::attachInterface<ElementModel<DivideByRootOp, buildDivideByRoot>>(context);
  AdamOp::attachInterface<AdaptiveModel<AdamOp, false>>(context);
  AdamwOp::attachInterface<AdaptiveModel<AdamwOp, true>>(context);
}

} // namespace tbc::region
