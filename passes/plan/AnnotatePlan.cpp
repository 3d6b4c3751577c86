//===- AnnotatePlan.cpp - A plan's decisions on the IR ---------------------===//

#include "passes/plan/AnnotatePlan.h"

#include "ir/Plan.h"
#include "passes/loss/AttachLoss.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// Sets the unit attribute `name`, or removes it.
static void setFlag(Operation *op, StringRef name, bool isSet) {
  if (isSet)
    op->setAttr(name, UnitAttr::get(op->getContext()));
  else
    op->removeAttr(name);
}

static void annotateModule(ModuleOp module, const StepPlan &plan) {
  OpBuilder builder(module.getContext());
  module->setAttr(kMeshAttr, toAttribute(module.getContext(), plan.mesh));
  auto set = [&](StringRef name, int64_t value) {
    module->setAttr(name, builder.getI64IntegerAttr(value));
  };
  set(kBatchAttr, plan.batch);
  set(kGlobalBatchSizeAttr, plan.globalBatch);
  set(kMicroBatchesAttr, plan.microBatches);
  set(kBucketBytesAttr, plan.overlap.bucketBytes);
  set(kPrefetchAttr, plan.overlap.prefetch);
  module->removeAttr(kGatherBytesAttr);
  if (plan.overlap.gatherBytes > 0)
    set(kGatherBytesAttr, plan.overlap.gatherBytes);
  module->removeAttr(kScheduleAttr);
  if (plan.schedule)
    module->setAttr(kScheduleAttr, builder.getStringAttr(schedule::name(*plan.schedule)));
  module->removeAttr(kChunkStageAttr);
  if (!plan.chunkStage.empty())
    module->setAttr(kChunkStageAttr,
                    builder.getDenseI64ArrayAttr(llvm::to_vector_of<int64_t>(plan.chunkStage)));
  setFlag(module, kZigzagAttr, plan.isZigzag);
  setFlag(module, kOffloadStatesAttr, plan.offloadsStates);
}

void annotatePlan(ModuleOp module, const StepGraph &step, const StepPlan &plan) {
  MLIRContext *context = module.getContext();
  OpBuilder builder(context);
  annotateModule(module, plan);
  for (auto [i, op] : llvm::enumerate(step.ops)) {
    StrategyAttr strategy = toAttribute(context, plan.mesh, plan.strategies[i]);
    op->removeAttr(kStrategyAttr);
    if (!strategy.getLoops().empty())
      op->setAttr(kStrategyAttr, strategy);
    setFlag(op, kRecomputeAttr, plan.recomputed[i]);
    setFlag(op, kOffloadAttr, plan.offloaded[i]);
    op->removeAttr(kChunkBeginAttr);
  }
  for (auto [chunk, op] : llvm::enumerate(plan.firstOps))
    if (plan.firstOps.size() > 1)
      step.ops[op]->setAttr(kChunkBeginAttr, builder.getI64IntegerAttr(int64_t(chunk)));
  auto train = module.lookupSymbol<func::FuncOp>("train");
  for (auto [p, parameter] : llvm::enumerate(step.graph.parameters))
    train.setArgAttr(parameter.value, kParameterPlanAttr,
                     toAttribute(context, plan.mesh, plan.parameterPlans[p]));
  for (auto function : module.getOps<func::FuncOp>())
    setBatchSizes(function, plan.globalBatch, plan.batch);
}

} // namespace tbc
