//===- Patterns.h - The patterns of the raising pass -----------------------===//

#ifndef TBC_PASSES_RAISE_PATTERNS_H
#define TBC_PASSES_RAISE_PATTERNS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"

#include <string>

namespace tbc::raise {

// Each group runs on its own, in the order of RaiseComposites.cpp.
void addShiftedLayerNormPatterns(mlir::RewritePatternSet &patterns);
void addScaledLayerNormPatterns(mlir::RewritePatternSet &patterns);
void addPlainLayerNormPatterns(mlir::RewritePatternSet &patterns);
void addScaledRmsNormPatterns(mlir::RewritePatternSet &patterns);
void addPlainRmsNormPatterns(mlir::RewritePatternSet &patterns);
void addGeluPatterns(mlir::RewritePatternSet &patterns);
void addSiluPatterns(mlir::RewritePatternSet &patterns);
void addSwigluPatterns(mlir::RewritePatternSet &patterns);
void addRotaryPatterns(mlir::RewritePatternSet &patterns);
void addSoftmaxPatterns(mlir::RewritePatternSet &patterns);
void addExpertPatterns(mlir::RewritePatternSet &patterns);
void addExpertLoopPatterns(mlir::RewritePatternSet &patterns);
void addExpertGatherPatterns(mlir::RewritePatternSet &patterns);
void addAttentionPatterns(mlir::RewritePatternSet &patterns);
void addEmbeddingPatterns(mlir::RewritePatternSet &patterns);
void addCrossEntropyPatterns(mlir::RewritePatternSet &patterns);

/// Emits a remark with the reason and the price at each attention that stays decomposed.
void explainAttentions(mlir::func::FuncOp function);
/// Returns the reason if `product` multiplies weights of pairs by values, where the weights come
/// from another matmul but not by a softmax alone; empty if not. Example: relu(q k') v.
std::string whyPairsStay(mlir::Operation *product);
/// Returns the price of such weights, from " (" to ")", or nothing if they are small. Example:
/// 4,096 weights of each query are 32 times the elements of its query, key and value of 128.
std::string priceOfPairs(mlir::Operation *product);
/// Emits a remark at each log-softmax over the classes of a layer, such as a vocabulary.
void explainLogSoftmaxes(mlir::func::FuncOp function);
/// Emits a remark at each topk that routes to experts that stay decomposed, with the share of the
/// FLOPs that they take. Example: with top 2 of 8, dense experts take 4 times the FLOPs.
void explainExperts(mlir::func::FuncOp function);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_PATTERNS_H
