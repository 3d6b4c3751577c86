//===- PadVocabulary.h - Vocabularies divisible by devices -----------------===//

#ifndef TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
#define TBC_PASSES_DECOMPOSE_PADVOCABULARY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/SmallVector.h"

namespace tbc {

/// Marks a parameter with a padded dim: its sizes without padding. A mean over its elements counts
/// these only.
inline constexpr llvm::StringLiteral kUnpaddedAttr = "tbc.unpadded";

struct PaddedVocabulary {
  int64_t size = 0, paddedSize = 0;
};

struct VocabularyPadding {
  llvm::SmallVector<PaddedVocabulary> padded; ///< each pair once
  int64_t largest = 0;                        ///< size before padding; 0: no vocabulary
  bool leavesLargest = false;                 ///< it is no multiple, and is not padded
};

/// Rounds the vocabularies of `train`'s embeddings and class sums up to multiples of `multiple`, as
/// Megatron-LM's --make-vocab-size-divisible-by does. Example: GPT-2's 50257 rows cannot be split
/// over devices, 50304 can.
///
/// Parameters with such a dim get the padded type, and kUnpaddedAttr. The added rows must be zero
/// initially and stay zero: padding has negative numbers, and the ops skip it. So the step computes
/// the same, and serially just as in parallel.
///
/// Pads only if that adds less than 1/64, and if the vocabulary is a dim of its own in every op.
/// Ops must treat it index by index, without constants or inputs along it. `isAnySize`: the largest
/// vocabulary is padded also if that adds more. Example: 1024 makes 51200 of 50257. Smaller ones
/// may be tables of positions or token types. Must run before autodiff.
mlir::FailureOr<VocabularyPadding> padVocabularies(mlir::func::FuncOp train, int64_t multiple,
                                                   bool isAnySize = false);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_PADVOCABULARY_H
