//===- MaskedRows.h - Rows of an attention that read no key ----------------===//

#ifndef TBC_PASSES_RAISE_MASKEDROWS_H
#define TBC_PASSES_RAISE_MASKEDROWS_H

#include "passes/raise/MaskTerms.h"

namespace tbc::raise {

/// The masks of an attention, for the rows in which they hide every key.
struct MaskedRows {
  /// In order from the softmax upwards, and the terms of each.
  llvm::ArrayRef<MaskStep> masks;
  llvm::ArrayRef<MaskTerms> steps;
  /// The conjunction of all masks, and its window.
  const MaskTerms &mask;
  MaskWindow window;
  int64_t numQueries, numKeys;
  /// The type of the scores.
  mlir::Type element;

  /// Returns the attribute `hidden_rows` of the attention (ir/Attention.td): the keys that fully
  /// masked rows read. Returns nullopt and sets `reason` if no value of it describes them. Example:
  /// one mask that adds -1e9 to f32 scores makes all of them equal: "mean".
  std::optional<llvm::StringRef> hiddenRows(std::string &reason) const;

private:
  bool areAllInWindow(llvm::ArrayRef<unsigned> active, bool areEqual) const;
};

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_MASKEDROWS_H
