//===- Resize.h - The same function with factors of other sizes ------------===//

#ifndef TBC_IR_RESIZE_H
#define TBC_IR_RESIZE_H

#include "ir/FactorAnalysis.h"

#include <map>

namespace tbc {

/// A size for some factors.
using FactorSizes = std::map<reshard::FactorId, int64_t>;

/// The factors of `func` that may have another size, with their sizes: those that every op
/// (ShardableOpInterface::isResizable) lets vary on their own. The batch is not among them; see
/// Rebatch.h.
FactorSizes resizableFactors(mlir::func::FuncOp func, const FactorAnalysis &analysis);

/// The size of `layout` when factors have `sizes`.
int64_t resized(const reshard::DimLayout &layout, const FactorSizes &sizes);

/// Gives factors of `func` other sizes, throughout. `analysis` is that of `func` as it is, and does
/// not hold afterwards. Constants keep their first elements along a factor that shrinks.
///
/// Errors: a constant that is not the same everywhere would have to grow, at the constant.
mlir::LogicalResult resizeFactors(mlir::func::FuncOp func, const FactorAnalysis &analysis,
                                  const FactorSizes &sizes);

} // namespace tbc

#endif // TBC_IR_RESIZE_H
