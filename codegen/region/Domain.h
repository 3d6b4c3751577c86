//===- Domain.h - Common loops of the values of a kernel --------------------===//

#ifndef TBC_CODEGEN_REGION_DOMAIN_H
#define TBC_CODEGEN_REGION_DOMAIN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <vector>

namespace tbc::region {

/// Where an argument or result of a kernel's function lies in memory.
struct Array {
  int buffer = 0; // of the operands, or of the results
  /// Of columns of a wider tensor: the first one, and the elements between rows; 0: a whole tensor.
  int64_t first = 0, pitch = 0;
  int columnLoops = 0; // the last ones of its loops, which are of its columns

  bool isWhole() const { return pitch == 0; }
};

/// A kernel's function as one nest of loops. Every value is an array over some of the loops, in
/// some order. A reduction runs over the loops of its operand that its result lacks. Loops of size
/// 1 are left out.
///
/// There are two kinds of kernels. In both, an iteration of the parallel loop does all of `rows`
/// for one index, or a part of the vector loop for it:
///   - The innermost loop is reduced: vectors run along it and are reduced to a scalar at its end.
///     Example: softmax or a norm over the last dim.
///   - It is not reduced: each lane of a vector is a separate element. Example: elementwise chains,
///     sums over rows.
///
/// A kernel of the first kind may also have *column sums*: reductions over all rows, with the
/// vector loops as their result. Example: rms_norm_grad(dy, x, w, rstd) and rms_scale_grad(dy, x,
/// rstd) read the same rows; the first one's dx is of rows, and the second one's result has a sum
/// per column.
struct Domain {
  using Loops = llvm::SmallVector<int, 4>;

  llvm::SmallVector<int64_t> sizes; // of each loop
  /// The loops of every value, outermost first, in memory order.
  llvm::DenseMap<mlir::Value, Loops> loops;
  /// The number of passes over the reduced loops that each value has to wait for. Example: in
  /// softmax, the row max is ready after pass 1 and the row sum after pass 2. -1: it waits for
  /// column sums.
  llvm::DenseMap<mlir::Value, int> ready;
  int numPasses = 0;

  Loops rows;    // parallel, outside
  Loops reduced; // sequential, outside of `vector`
  Loops vector;  // the loops of vectors; contiguous in memory in every value with them
  bool isVectorReduced = false;
  llvm::SmallVector<Array> arguments, results; // of the function
  int numOperands = 0, numResults = 0;         // buffers

  /// If there are any, the vector is reduced, and no other loop but the rows.
  llvm::SmallVector<mlir::Operation *> columnSums;

  /// The work of one pass over the reduced loops at every index: combine, and write.
  struct Pass {
    llvm::SmallVector<mlir::Operation *> reductions;
    llvm::SmallVector<int> results; // indices of returned values
    bool isEmpty() const { return reductions.empty() && results.empty(); }
  };
  /// Returns pass `number`, 0 to `numPasses`, of `function`, the one of this domain.
  Pass passOf(mlir::func::FuncOp function, int number) const;
  /// Returns the results that wait for column sums.
  llvm::SmallVector<int> resultsBehindColumns(mlir::func::FuncOp function) const;
  /// Returns the results without reduced loops. They are written once, after all passes.
  llvm::SmallVector<int> resultsBehindPasses(mlir::func::FuncOp function) const;

  int64_t product(llvm::ArrayRef<int> of) const;
  /// Whether `op` combines several elements into one; false for a reduction over size 1.
  bool isReduction(mlir::Operation &op) const;
  bool hasVector(mlir::Value value) const;
  /// Whether `value` has one of the reduced loops.
  bool hasReduced(mlir::Value value) const;
  /// Returns the place of an argument.
  const Array &arrayOf(mlir::BlockArgument argument) const;
  /// Returns the strides of `value` as it lies in `array`, in elements, in the order of its loops.
  llvm::SmallVector<int64_t> strides(mlir::Value value, const Array &array) const;
  /// Returns by buffer of the results, then of the operands: whether a result may lie over an
  /// operand. `mayLieOver(i, argument)` is asked for result i of the function, if both are whole
  /// tensors with the same loops and type.
  std::vector<std::vector<bool>>
  overwrites(mlir::func::FuncOp function,
             llvm::function_ref<bool(size_t, mlir::BlockArgument)> mayLieOver) const;
};

/// Returns the loops of `function`. Its ops must have KernelOpInterface and one element per index;
/// it returns the kernel's outputs. Fails without a diagnostic, since there are other ways to
/// execute it, in these cases: it is not one nest of loops; it is empty; several iterations would
/// write the same element.
mlir::FailureOr<Domain> findDomain(mlir::func::FuncOp function);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_DOMAIN_H
