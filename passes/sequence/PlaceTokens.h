//===- PlaceTokens.h - Ops that know the places of their tokens ------------===//

#ifndef TBC_PASSES_SEQUENCE_PLACETOKENS_H
#define TBC_PASSES_SEQUENCE_PLACETOKENS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Makes ops for which it matters where a token stands in its sequence read that from vectors of
/// indices, so that they mean the same for a part of a sequence in any order; if an input of
/// `model` has a dim of tokens: attention with a window has the places of its queries and keys as
/// operands. Where no query can be left without a key, `hidden_rows` becomes zero, which says so.
void placeTokens(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_SEQUENCE_PLACETOKENS_H
