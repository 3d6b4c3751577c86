//===- FoldTransposes.h - Transposes become part of other ops --------------===//

#ifndef TBC_PASSES_LAYOUT_FOLDTRANSPOSES_H
#define TBC_PASSES_LAYOUT_FOLDTRANSPOSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Removes transposes whose readers, or whose producer, can work on the tensor before (behind) the
/// transpose just as fast (ReorderableOpInterface). A transpose first moves behind readers that do
/// not care about the order (TransposableOpInterface). It runs before autodiff, so gradients need
/// no transposes either: the gradient of a weight has the layout of the weight.
///
/// Example: nn.Linear stores w[out, in], and its export is a transpose and a matmul. Its step
/// copied w three times: in forward, in backward, and as a gradient. The heads of an attention are
/// transposed four times in forward, [b, s, h, d] to [b, h, s, d] and back, and in backward;
/// attention reads and writes either order.
void foldTransposes(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_LAYOUT_FOLDTRANSPOSES_H
