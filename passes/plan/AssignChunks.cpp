//===- AssignChunks.cpp - The chunk of every op ----------------------------===//

#include "passes/plan/AssignChunks.h"

#include "ir/PlannedStep.h"
#include "passes/Passes.h"
#include "planner/reshard/Chunks.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_ASSIGNCHUNKSPASS
#include "passes/Passes.h.inc"

/// Returns the numbers of the marked ops.
static FailureOr<std::vector<int>> findBegins(const StepGraph &step) {
  std::vector<int> begins;
  for (auto [i, op] : llvm::enumerate(step.ops)) {
    auto chunk = op->getAttrOfType<IntegerAttr>(kChunkBeginAttr);
    if (!chunk)
      continue;
    if (chunk.getInt() != int64_t(begins.size()))
      return op->emitOpError() << "begins chunk " << chunk.getInt() << ", but the one to begin is "
                               << begins.size();
    if (step.graph.ops[i].phase != reshard::Phase::Forward || (begins.empty() && i != 0))
      return op->emitOpError("cannot begin a chunk: chunks begin with forward ops, the first chunk "
                             "with the first op");
    begins.push_back(int(i));
  }
  return begins;
}

LogicalResult assignChunks(func::FuncOp train) {
  FailureOr<StepGraph> step = extractStructure(train);
  if (failed(step))
    return failure();
  FailureOr<std::vector<int>> begins = findBegins(*step);
  if (failed(begins))
    return failure();
  if (begins->empty())
    return success();
  reshard::setChunks(step->graph, *begins);
  OpBuilder builder(train.getContext());
  for (auto [i, op] : llvm::enumerate(step->ops)) {
    op->removeAttr(kChunkBeginAttr);
    op->setAttr(kChunkAttr, builder.getI64IntegerAttr(step->graph.ops[i].chunk));
  }
  return success();
}

namespace {
struct AssignChunks : impl::AssignChunksPassBase<AssignChunks> {
  void runOnOperation() override {
    FailureOr<func::FuncOp> train = findFunction(getOperation(), "train");
    if (failed(train) || failed(assignChunks(*train)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
