//===- Resize.h - The same function with factors of other sizes ------------===//

#ifndef TBC_IR_RESIZE_H
#define TBC_IR_RESIZE_H

#include "ir/FactorAnalysis.h"

#include <map>

namespace tbc {

/// New sizes of some factors.
using FactorSizes = std::map<reshard::FactorId, int64_t>;

/// Returns the resizable factors of `func` with their sizes: every op lets them vary on their own
/// (ShardableOpInterface::isResizable). The batch is not among them; see Rebatch.h.
FactorSizes resizableFactors(mlir::func::FuncOp func, const FactorAnalysis &analysis);

/// The size of `layout` with factors of `sizes`. Example: a dim of segments (2 x 3) and 4 with the
/// factor 3 resized to 5 has size 14.
int64_t resized(const reshard::DimLayout &layout, const FactorSizes &sizes);

/// Gives factors of `func` other sizes, throughout. `analysis` is the analysis of `func` before the
/// change, and is invalid afterwards. Constants keep their first elements along a factor that
/// shrinks.
///
/// Error: a constant that is not a splat would have to grow, at the constant.
mlir::LogicalResult resizeFactors(mlir::func::FuncOp func, const FactorAnalysis &analysis,
                                  const FactorSizes &sizes);

} // namespace tbc

#endif // TBC_IR_RESIZE_H
