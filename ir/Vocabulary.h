//===- Vocabulary.h - The ops of Vocabulary.td ------------------------===//

#ifndef TBC_IR_VOCABULARY_H
#define TBC_IR_VOCABULARY_H

#include "ir/Tbc.h"

namespace tbc {

/// Return the memory and the launches of embedding_grad on GPUs (ir/RowSums.h).
WorkspaceFn embeddingGradWorkspace();
LaunchesFn embeddingGradLaunches();

} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Vocabulary.h.inc"

namespace tbc {

/// The numbers 0 .. size - 1 of a vocabulary, and the last of them: operands of the ops above.
struct VocabularyNumbers {
  mlir::Value numbers, last;
};
VocabularyNumbers numberVocabulary(mlir::OpBuilder &builder, mlir::Location loc, int64_t size);

/// Returns the number of `numbers` outside the padding; they are made by numberVocabulary.
int64_t vocabularySize(mlir::Value numbers);

} // namespace tbc

#endif // TBC_IR_VOCABULARY_H
