//===- PadVocabulary.h - Vocabularies that devices divide ------------------===//

#ifndef TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
#define TBC_PASSES_DECOMPOSE_PADVOCABULARY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/SmallVector.h"

namespace tbc {

struct PaddedVocabulary {
  int64_t size = 0, paddedSize = 0;
};

/// Rounds the vocabularies of `train`'s embeddings and class sums up to multiples of `multiple`,
/// as Megatron-LM's --make-vocab-size-divisible-by does: GPT-2's 50257 rows cannot be split over
/// devices, 50304 can. Parameters with such a dim get the padded type; what is added must be zero
/// initially and stays zero, since padding has negative numbers, which the ops take for nothing.
/// So the step computes the same, and serially just as in parallel.
///
/// Only where that adds less than 1/64, and every op has the vocabulary as a dim of its own that
/// it treats index by index (no constants or inputs along it). Before autodiff. Returns what was
/// padded, each pair of sizes once.
mlir::FailureOr<llvm::SmallVector<PaddedVocabulary>> padVocabularies(mlir::func::FuncOp train,
                                                                     int64_t multiple);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
