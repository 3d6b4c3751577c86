//===- FoldReshapes.h - Merged dims stay apart ------------------------------===//

#ifndef TBC_PASSES_LAYOUT_FOLDRESHAPES_H
#define TBC_PASSES_LAYOUT_FOLDRESHAPES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Removes reshapes that merge dims for ops that need no merged dims (RegroupableOpInterface). The
/// merge moves behind such an op, where another reshape often undoes it. It runs before autodiff,
/// so backward has no such copies either.
///
/// - All operands with the merged dim must be merged alike, or be broadcast along it.
/// - Two reshapes in a row become one, or none.
/// - A merge stays for readers that need it, such as a matmul that sums over the merged dim.
///
/// Example: Hugging Face's Conv1D flattens x[b, s, i] to [bs, i] for its matmul, adds a bias, and
/// splits the sum into [b, s, o] again. It becomes the einsum bsi,io->bso and a sum of rank 3.
void foldReshapes(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_LAYOUT_FOLDRESHAPES_H
