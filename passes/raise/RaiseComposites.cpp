//===- RaiseComposites.cpp - Finds composites in decomposed exports --------===//

#include "passes/raise/RaiseComposites.h"

#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"
#include "passes/raise/Patterns.h"

#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_RAISECOMPOSITESPASS
#include "passes/Passes.h.inc"

namespace {

/// One group of patterns, run to its fixed point before the next. A layer norm contains an RMS
/// norm, attention a softmax, experts a swiglu.
struct Phase {
  StringRef op;
  void (*add)(RewritePatternSet &patterns);
};

const Phase phases[] = {
    {"layer_norm", raise::addShiftedLayerNormPatterns},
    {"layer_norm", raise::addScaledLayerNormPatterns},
    {"layer_norm", raise::addPlainLayerNormPatterns},
    {"rms_norm", raise::addScaledRmsNormPatterns},
    {"rms_norm", raise::addPlainRmsNormPatterns},
    {"gelu", raise::addGeluPatterns},
    {"silu", raise::addSiluPatterns},
    {"rotary", raise::addRotaryPatterns},
    {"softmax", raise::addSoftmaxPatterns},
    {"routed_experts", raise::addExpertPatterns},
    {"swiglu", raise::addSwigluPatterns},
    {"attention", raise::addAttentionPatterns},
    {"embedding", raise::addEmbeddingPatterns},
    {"cross_entropy", raise::addCrossEntropyPatterns},
};

} // namespace

/// Names new ops without an old counterpart after their node.
static void nameNewOps(func::FuncOp function) {
  OpIds ids(function);
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (!getId(&op).empty())
      continue;
    auto name = dyn_cast<NameLoc>(op.getLoc());
    std::string id =
        name ? ids.numbered(name.getName().getValue()) : ids.numbered(op.getName().stripDialect());
    op.setAttr(kIdAttr, StringAttr::get(op.getContext(), id));
  }
}

LogicalResult raiseComposites(func::FuncOp function, ArrayRef<std::string> ops) {
  for (const Phase &phase : phases) {
    if (!ops.empty() && !llvm::is_contained(ops, phase.op))
      continue;
    RewritePatternSet patterns(function.getContext());
    phase.add(patterns);
    GreedyRewriteConfig config;
    config.useTopDownTraversal = true;
    if (failed(applyPatternsAndFoldGreedily(function, std::move(patterns), config)))
      return function.emitError() << "raising " << phase.op << " does not come to an end";
  }
  if (ops.empty() || llvm::is_contained(ops, "attention"))
    raise::explainAttentions(function);
  if (ops.empty() || llvm::is_contained(ops, "routed_experts"))
    raise::explainExperts(function);
  if (ops.empty() || llvm::is_contained(ops, "cross_entropy"))
    raise::explainLogSoftmaxes(function);
  // Old ops have ids of their own and stay. Equal new ops, such as the tables of all layers, become
  // one.
  IRRewriter rewriter(function.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
  nameNewOps(function);
  return success();
}

namespace {
struct RaiseComposites : impl::RaiseCompositesPassBase<RaiseComposites> {
  using RaiseCompositesPassBase::RaiseCompositesPassBase;
  void runOnOperation() override {
    if (failed(raiseComposites(getOperation(), ops)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
