//===- Domain.h - The loops that the values of a kernel have in common ------===//

#ifndef TBC_CODEGEN_CPU_DOMAIN_H
#define TBC_CODEGEN_CPU_DOMAIN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace tbc::cpu {

/// A kernel's function seen as one nest of loops: every value is an array over some of them, in
/// some order; a reduction runs over those that its operand has and its result has not. Loops of
/// size 1 are left out.
///
/// There are two kinds of kernels. In both, an iteration of the parallel loop does all of `rows`
/// for one index, or a part of the vector loop for it:
///  - The innermost loop is reduced: vectors run along it, and are reduced to a scalar at its end
///    (softmax, norms over the last dim).
///  - It is not: each lane of a vector is an element of its own (elementwise chains, sums over
///  rows).
struct Domain {
  using Loops = llvm::SmallVector<int, 4>;

  llvm::SmallVector<int64_t> sizes; // of each loop
  /// The loops of every value of the function, outermost first, as it lies in memory.
  llvm::DenseMap<mlir::Value, Loops> loops;
  /// Of every value, how many passes over the reduced loops must be over before it can be computed.
  llvm::DenseMap<mlir::Value, int> ready;
  int numPasses = 0;

  Loops rows;    // parallel, outside
  Loops reduced; // sequential, outside of `vector`
  Loops vector;  // what vectors run along, all of it contiguous in memory where a value has it
  bool isVectorReduced = false;

  /// What a pass over the reduced loops does at every index: combine, and write.
  struct Pass {
    llvm::SmallVector<mlir::Operation *> reductions;
    llvm::SmallVector<int> results; // of those that the function returns
    bool isEmpty() const { return reductions.empty() && results.empty(); }
  };
  /// Pass `number`, from 0 to numPasses, of the function this is the domain of.
  Pass passOf(mlir::func::FuncOp function, int number) const;
  /// The results without reduced loops: they are written once, behind all passes.
  llvm::SmallVector<int> resultsBehindPasses(mlir::func::FuncOp function) const;

  int64_t product(llvm::ArrayRef<int> of) const;
  /// Whether `op` makes one element of many: not where what it reduces has size 1.
  bool isReduction(mlir::Operation &op) const;
  bool hasVector(mlir::Value value) const;
  /// Whether `value` has one of the reduced loops.
  bool hasReduced(mlir::Value value) const;
  /// Elements between neighbours along the loops of `value`, in their order.
  llvm::SmallVector<int64_t> strides(mlir::Value value) const;
};

/// The loops of `function`, whose ops all have KernelOpInterface and one element per index, and
/// which returns what the kernel writes. Failure (without a diagnostic: there are other ways to
/// execute it) if it is not one nest of loops, if it is empty, or if parts of it would be written
/// by several iterations.
mlir::FailureOr<Domain> findDomain(mlir::func::FuncOp function);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_DOMAIN_H
