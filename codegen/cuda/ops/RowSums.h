//===- RowSums.h - Sums of updates by rows of a table ----------------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_ROWSUMS_H
#define TBC_CODEGEN_CUDA_OPS_ROWSUMS_H

#include "codegen/cuda/ThreadKernel.h"

#include <functional>

namespace tbc::cuda {

/// Result 0 is a table [outer][rows][width], operand 0 has updates [outer][count][width]. Update t
/// is added to row `rowOf(k, t)`, or to none if that is `rows`.
struct RowSums {
  int64_t outer = 1, rows = 1, width = 1, count = 1;
  std::function<mlir::Value(const ThreadKernel &k, mlir::Value update)> rowOf;
};

/// Returns the kernel of the sums. The work grows with updates + rows, and the order of every sum
/// depends on the rows of the updates alone.
///
/// Up to 32 updates, a thread per access of the table compares all of them. For more:
///
/// 1. Keys, row * 2^32 + update, are sorted: groups of 128 by counting, then up to 16 runs at once
///    by merging. A key's place is the number of smaller keys, found by bisection of every run.
/// 2. Of each row the first key is found. Aligned groups of 32 sorted updates of one row are
/// summed.
///    So a row with many updates, such as a frequent word or padding, is not the work of few
///    threads.
/// 3. Every row adds its updates, or groups of these, and is written once.
///
/// Example: 16,384 tokens are 128 groups, which take 2 merges, so 6 launches. Comparing all tokens
/// with 50,304 rows takes 31 ms on an H100 by the estimate of tests/gate.
mlir::FailureOr<region::Kernel> sumByRows(mlir::MLIRContext &context, const OpCall &call,
                                          const RowSums &sums, Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_ROWSUMS_H
