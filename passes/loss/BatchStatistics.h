//===- BatchStatistics.h - Numbers of the batch inside a loss --------------===//

#ifndef TBC_PASSES_LOSS_BATCHSTATISTICS_H
#define TBC_PASSES_LOSS_BATCHSTATISTICS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Returns the first op of `function` that computes a value over all samples, such as their mean,
/// which a value of each sample behind it reads on the way to `output`; null if there is no such
/// op. Several micro-batches have a statistic each, so the loss depends on their number. Example:
/// x.mean(0) in (x - x.mean(0)).square().mean(); not the last mean.
mlir::Operation *statisticInSamples(mlir::func::FuncOp function, mlir::Value output);

/// Returns the first op of `function` on the way to `output` that runs along the samples, so that
/// the result of one depends on others, or null. Batch norms are left out: theirs are
/// the statistics of an execution. Several micro-batches have results of their own. Example:
/// softmax(x, dim=0) of x[batch, 8].
mlir::Operation *runAlongSamples(mlir::func::FuncOp function, mlir::Value output);

} // namespace tbc

#endif // TBC_PASSES_LOSS_BATCHSTATISTICS_H
