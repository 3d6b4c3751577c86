//===- DecomposeComposites.cpp - Composite ops as simpler ops --------------===//

#include "passes/decompose/DecomposeComposites.h"

#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_DECOMPOSECOMPOSITESPASS
#include "passes/Passes.h.inc"

/// Replaces `op`; the ops made are added to `made`.
static LogicalResult decomposeOp(Operation *op, OpIds &ids, SmallVectorImpl<Operation *> &made) {
  auto composite = dyn_cast<CompositeOpInterface>(op);
  if (!composite)
    return op->emitOpError("is to be decomposed but is no composite");

  std::string prefix = getId(op).str();
  InsertionListener listener([&](Operation *inserted) {
    made.push_back(inserted);
    for (StringRef name : {StringRef(kPhaseAttr), StringRef(kChunkAttr), StringRef(kForwardIdAttr)})
      if (Attribute attr = op->getAttr(name))
        inserted->setAttr(name, attr);
    if (!prefix.empty())
      inserted->setAttr(kIdAttr, StringAttr::get(op->getContext(), ids.numbered(prefix)));
  });
  OpBuilder builder(op->getContext(), &listener);
  builder.setInsertionPoint(op);
  SmallVector<Value> results;
  if (failed(composite.decompose(builder, results)))
    return op->emitOpError("cannot be decomposed");
  for (auto [result, value] : llvm::zip_equal(op->getResults(), results)) {
    if (!value && !result.use_empty())
      return op->emitOpError() << "has a decomposition without its result "
                               << result.getResultNumber() << ", which is used";
    if (value)
      result.replaceAllUsesWith(value);
  }
  op->erase();
  return success();
}

LogicalResult decomposeComposites(func::FuncOp function,
                                  llvm::function_ref<bool(Operation *)> wanted) {
  OpIds ids(function);
  SmallVector<Operation *> work;
  for (Operation &op : function.getBody().front())
    if (wanted(&op))
      work.push_back(&op);
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    SmallVector<Operation *> made;
    if (failed(decomposeOp(op, ids, made)))
      return failure();
    for (Operation *inner : made)
      if (wanted(inner))
        work.push_back(inner);
  }
  eraseUnused(function);
  return success();
}

namespace {
struct DecomposeComposites : impl::DecomposeCompositesPassBase<DecomposeComposites> {
  using DecomposeCompositesPassBase::DecomposeCompositesPassBase;
  void runOnOperation() override {
    auto wanted = [&](Operation *op) {
      if (ops.empty())
        return isa<CompositeOpInterface>(op);
      return llvm::is_contained(ops, op->getName().stripDialect());
    };
    if (failed(decomposeComposites(getOperation(), wanted)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
