//===- ApplyPlan.cpp - Annotate the IR of a step with a plan ---------------===//

#include "tools/driver/ApplyPlan.h"

#include "ir/PlannedStep.h"
#include "planner/plan/PlanFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;

namespace tbc::driver {

#define GEN_PASS_DEF_APPLYPLANPASS
#include "tools/driver/Passes.h.inc"

StepPlan toStepPlan(const planner::Plan &plan, const planner::PlannedStep &planned) {
  const reshard::Assignment &assignment = planned.assignment;
  StepPlan result;
  result.mesh = assignment.mesh;
  result.schedule = plan.schedule;
  result.chunkStage = assignment.chunkStage;
  result.batch = plan.microBatch * plan.mesh.dataRanks();
  result.globalBatch = plan.job.globalBatch;
  result.microBatches = assignment.microBatches;
  result.parameterPlans = assignment.parameterPlans;
  result.offloadsStates = assignment.offloadsStates;
  result.isZigzag = plan.zigzag;
  result.overlap = plan.overlap;
  // Skips recompute clones: the step does not have them yet, tbc-recompute makes them.
  for (size_t op = 0; op < planned.graph.ops.size(); ++op) {
    if (planned.isRecomputed(int(op)))
      continue;
    int index = int(result.strategies.size());
    if (llvm::is_contained(plan.stages, planned.graph.ops[op].id))
      result.firstOps.push_back(index);
    result.strategies.push_back(assignment.strategies[op]);
    result.offloaded.push_back(assignment.offloads(int(op)));
    result.recomputed.push_back(
        std::binary_search(planned.reexecuted.begin(), planned.reexecuted.end(), index));
  }
  return result;
}

OwningOpRef<ModuleOp> annotatedModule(const TrainingStep &step, const planner::Plan &plan,
                                      const planner::PlannedStep &planned) {
  OwningOpRef<ModuleOp> module(cast<ModuleOp>(ModuleOp(*step.model.module)->clone()));
  // The ops of the copy, in block order, which is the order of the step's graph.
  StepGraph copy;
  copy.graph.parameters = step.step.graph.parameters;
  if (Operation *model = module->lookupSymbol("model")) // the source of @train
    model->erase();
  auto train = module->lookupSymbol<func::FuncOp>("train");
  for (Operation &op : train.getBody().front().without_terminator())
    copy.ops.push_back(&op);
  annotatePlan(*module, copy, toStepPlan(plan, planned));
  return module;
}

namespace {
struct ApplyPlan : impl::ApplyPlanPassBase<ApplyPlan> {
  using ApplyPlanPassBase::ApplyPlanPassBase;
  void runOnOperation() override {
    if (failed(apply(getOperation())))
      signalPassFailure();
  }

private:
  LogicalResult apply(ModuleOp module) {
    auto file = llvm::MemoryBuffer::getFile(plan);
    if (!file)
      return module.emitError() << "cannot read plan \"" << plan
                                << "\": " << file.getError().message()
                                << "; --tbc-apply-plan=plan=FILE names it";
    auto read = planner::readPlan((*file)->getBuffer().str(), plan);
    if (!read)
      return module.emitError() << read.error().message;
    FailureOr<func::FuncOp> train = findFunction(module, "train");
    FailureOr<func::FuncOp> update = findFunction(module, "update");
    if (failed(train) || failed(update))
      return failure();
    FactorAnalysis analysis(*train);
    FailureOr<StepGraph> step = extractStepGraph(*train, analysis, *update);
    if (failed(step))
      return failure();
    auto planned = planner::applyPlan(step->graph, *read);
    if (!planned)
      return module.emitError() << plan << ": " << planned.error().message;
    annotatePlan(module, *step, toStepPlan(*read, *planned));
    return success();
  }
};
} // namespace

} // namespace tbc::driver
