//===- PadVocabulary.h - Vocabularies divisible by devices -----------------===//

#ifndef TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
#define TBC_PASSES_DECOMPOSE_PADVOCABULARY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/SmallVector.h"

namespace tbc {

struct PaddedVocabulary {
  int64_t size = 0, paddedSize = 0;
};

/// Rounds the vocabularies of `train`'s embeddings and class sums up to multiples of `multiple`, as
/// Megatron-LM's --make-vocab-size-divisible-by does. Example: GPT-2's 50257 rows cannot be split
/// over devices, 50304 can.
///
/// Parameters with such a dim get the padded type. The added rows must be zero initially and stay
/// zero: padding has negative numbers, and the ops skip it. So the step computes the same, and
/// serially just as in parallel.
///
/// Pads only if that adds less than 1/64, unless `isAnySize`, and if the vocabulary is a dim of its
/// own in every op. Ops must treat it index by index, without constants or inputs along it. Must
/// run before autodiff. Returns the padded sizes, each pair once.
mlir::FailureOr<llvm::SmallVector<PaddedVocabulary>>
padVocabularies(mlir::func::FuncOp train, int64_t multiple, bool isAnySize = false);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
