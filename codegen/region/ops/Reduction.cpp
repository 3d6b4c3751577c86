//===- Reduction.cpp - Reductions in compiled kernels -----------------------===//

#include "codegen/region/ops/Elements.h"
#include "ir/Contraction.h"

using namespace mlir;

namespace tbc::region {
namespace {

template <typename Op, Combiner combiner>
struct ReductionModel : KernelOpInterface::ExternalModel<ReductionModel<Op, combiner>, Op> {
  bool isSupported(Operation *op) const {
    return isa<FloatType>(getElementTypeOrSelf(op->getOperand(0).getType()));
  }
  Combiner getCombiner(Operation *) const { return combiner; }
  SmallVector<Value, 1> buildElement(Operation *, OpBuilder &, ValueRange elements) const {
    return {elements[0]};
  }
};

} // namespace

void attachReductionKernels(MLIRContext &context) {
  ReduceSumOp::attachInterface<ReductionModel<ReduceSumOp, Combiner::Sum>>(context);
  ReduceMaxOp::attachInterface<ReductionModel<ReduceMaxOp, Combiner::Max>>(context);
  StabilizerMaxOp::attachInterface<ReductionModel<StabilizerMaxOp, Combiner::Max>>(context);
}

} // namespace tbc::region
