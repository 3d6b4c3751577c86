//===- SplitBackward.cpp - Splits the backward into dgrad and wgrad --------===//

#include "passes/plan/SplitBackward.h"

#include "ir/PlannedStep.h"
#include "ir/Roles.h"
#include "passes/Passes.h"
#include "planner/reshard/SplitBackward.h"
#include "runtime/schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_SPLITBACKWARDPASS
#include "passes/Passes.h.inc"

LogicalResult splitBackward(func::FuncOp train) {
  FailureOr<StepGraph> step = extractStructure(train);
  if (failed(step))
    return failure();
  std::vector<bool> weights = reshard::weightOps(step->graph);
  for (auto [i, op] : llvm::enumerate(step->ops))
    if (weights[i])
      setPhase(op, reshard::Phase::Weight);
  return success();
}

namespace {
struct SplitBackward : impl::SplitBackwardPassBase<SplitBackward> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto name = module->getAttrOfType<StringAttr>(kScheduleAttr);
    if (!name)
      return;
    auto kind = schedule::parseScheduleKind(name.str());
    if (!kind) {
      module.emitError() << kScheduleAttr << " names no schedule: " << name;
      return signalPassFailure();
    }
    FailureOr<func::FuncOp> train = findFunction(module, "train");
    if (failed(train) || (schedule::splitsBackward(*kind) && failed(splitBackward(*train))))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
