//===- PlaceTokens.h - Position ids for ops over sequences -----------------===//

#ifndef TBC_PASSES_SEQUENCE_PLACETOKENS_H
#define TBC_PASSES_SEQUENCE_PLACETOKENS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Gives position ids to ops that depend on the position of a token in its sequence, if an input of
/// `model` has a dim of tokens. Such an op then means the same for a part of a sequence in any
/// order. Attention with a window gets the positions of its queries and keys as operands. If every
/// query has a key, `hidden_rows` becomes zero, because no row is fully masked.
void placeTokens(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_SEQUENCE_PLACETOKENS_H
