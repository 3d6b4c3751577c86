//===- Window.h - The geometry of convolution and pooling windows ----------===//

#ifndef TBC_IR_WINDOW_H
#define TBC_IR_WINDOW_H

#include "ir/Tbc.h"

#include <optional>

namespace tbc {

/// A sliding window over the spatial dims of x[n, c, *].
struct Window {
  llvm::ArrayRef<int64_t> kernel, strides, pads, dilations;
};

/// Checks that the window suits a tensor of `numSpatial` spatial dims.
mlir::LogicalResult checkWindow(std::optional<mlir::Location> loc, const Window &window,
                                int64_t numSpatial);

/// Returns the number of positions of the window in each of the spatial dims `sizes`: (size + low +
/// high - dilation * (kernel - 1) - 1) / stride + 1. Error: the window does not fit. Example: size
/// 5, pads 1 and 1, kernel 3, dilation 1, stride 2 give 3.
mlir::FailureOr<llvm::SmallVector<int64_t>> windowPositions(std::optional<mlir::Location> loc,
                                                            const Window &window,
                                                            llvm::ArrayRef<int64_t> sizes);

} // namespace tbc

#endif // TBC_IR_WINDOW_H
