//===- Recompute.cpp - Recomputation: forward ops cloned into the backward -===//

#include "passes/plan/Recompute.h"

#include "ir/PlannedStep.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"
#include "planner/reshard/Recompute.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_RECOMPUTEPASS
#include "passes/Passes.h.inc"

/// Returns per op whether it is recomputed, and removes the marks.
static FailureOr<std::vector<bool>> takeMarks(func::FuncOp train, const StepGraph &step,
                                              const llvm::StringSet<> &ids) {
  std::vector<bool> flags(step.ops.size(), false);
  llvm::StringSet<> unknown = ids;
  for (auto [i, op] : llvm::enumerate(step.ops)) {
    if (step.graph.ops[i].phase != reshard::Phase::Forward)
      continue;
    flags[i] = op->hasAttr(kRecomputeAttr) || ids.contains(getId(op));
    op->removeAttr(kRecomputeAttr);
    unknown.erase(getId(op));
  }
  if (unknown.empty())
    return flags;
  SmallVector<StringRef> names(unknown.keys());
  return train.emitError() << "there is no forward op \"" << *llvm::min_element(names)
                           << "\" to recompute";
}

/// Clones `op` at the builder's position, with operands mapped by `cloned`.
static void clone(OpBuilder &builder, Operation *op, IRMapping &cloned) {
  Operation *copy = builder.clone(*op, cloned);
  copy->setAttr(kForwardIdAttr, op->getAttr(kIdAttr));
  copy->setAttr(kIdAttr, builder.getStringAttr(getId(op) + reshard::cloneSuffix));
  setPhase(copy, reshard::Phase::Backward);
  copy->setAttr(kRecomputedAttr, builder.getUnitAttr());
  copy->removeAttr(kOffloadAttr);
}

LogicalResult applyRecompute(func::FuncOp train, const llvm::StringSet<> &ids) {
  FailureOr<StepGraph> step = extractStructure(train);
  if (failed(step))
    return failure();
  FailureOr<std::vector<bool>> flags = takeMarks(train, *step, ids);
  if (failed(flags))
    return failure();
  OpBuilder builder(train.getContext());
  IRMapping cloned; // values to those of their clones
  SmallVector<Operation *> waiting;
  for (const reshard::ClonedOp &entry : reshard::recomputeOrder(step->graph, *flags)) {
    Operation *op = step->ops[entry.source];
    if (entry.isClone) {
      waiting.push_back(op);
      continue;
    }
    builder.setInsertionPoint(op);
    for (Operation *forward : waiting)
      clone(builder, forward, cloned);
    waiting.clear();
    for (OpOperand &operand : op->getOpOperands())
      operand.set(cloned.lookupOrDefault(operand.get()));
  }
  return success();
}

namespace {
struct Recompute : impl::RecomputePassBase<Recompute> {
  using RecomputePassBase::RecomputePassBase;
  void runOnOperation() override {
    llvm::StringSet<> wanted;
    for (const std::string &id : ids)
      wanted.insert(id);
    FailureOr<func::FuncOp> train = findFunction(getOperation(), "train");
    if (failed(train) || failed(applyRecompute(*train, wanted)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
