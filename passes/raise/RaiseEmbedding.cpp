//===- RaiseEmbedding.cpp - embedding --------------------------------------===//

#include "ir/Roles.h"
#include "passes/raise/Patterns.h"

#include "ir/Contraction.h"
#include "ir/Vocabulary.h"

using namespace mlir;

namespace tbc::raise {

namespace {

/// Raises a gather of rows of a parameter. Rows of a computed tensor could be gathered too, but
/// sharding them gains no memory.
struct RaiseEmbedding : OpRewritePattern<GatherOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatherOp gather, PatternRewriter &rewriter) const override {
    auto table = dyn_cast<BlockArgument>(gather.getTable());
    auto function = dyn_cast<func::FuncOp>(gather->getParentOp());
    if (!table || !function || gather.getDim() != 0 ||
        !isa<FloatType>(tensorType(table).getElementType()))
      return failure();
    if (argumentRole(function, table.getArgNumber()) != TensorRole::Parameter)
      return failure();
    VocabularyNumbers rows =
        numberVocabulary(rewriter, gather.getLoc(), tensorType(table).getDimSize(0));
    auto embedding = rewriter.create<EmbeddingOp>(gather.getLoc(), table, gather.getIndices(),
                                                  rows.numbers, rows.last);
    embedding->setDiscardableAttrs(gather->getDiscardableAttrDictionary());
    rewriter.replaceOp(gather, embedding);
    return success();
  }
};

} // namespace

void addEmbeddingPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseEmbedding>(patterns.getContext());
}

} // namespace tbc::raise
