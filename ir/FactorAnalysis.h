//===- FactorAnalysis.h - The factors of every dim of a function -----------===//

#ifndef TBC_IR_FACTORANALYSIS_H
#define TBC_IR_FACTORANALYSIS_H

#include "ir/FactorRule.h"
#include "ir/FactorSpace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <optional>

namespace tbc {

/// The factors of every dim of every value of a function, from the factor rules of its ops.
///
/// Results with role `grad` or `state` have the dims of the argument with their name. The batch
/// dims of inputs are one. Dims are never identified by equal sizes, only by ops.
class FactorAnalysis {
public:
  explicit FactorAnalysis(mlir::func::FuncOp func);

  /// The layout of one dim of `value`, a sum of products of factors. Example: the 24 columns of q,
  /// k and v in one weight, of 2 heads with 4 elements each, are 3 segments (heads, head_dim).
  reshard::DimLayout dimLayout(mlir::Value value, unsigned dim) const;
  reshard::TensorLayout tensorLayout(mlir::Value value) const;
  /// The layout of one loop of the op's factor rule.
  reshard::DimLayout loopLayout(mlir::Operation *op, unsigned loop) const;
  bool isShardable(reshard::FactorId factor) const { return space.isShardable(factor); }

  /// The batch factor b: the factor of the input dims marked by `tbc.batch_dim`. Null if no input
  /// is marked, if inputs disagree, or if some op made the batch inseparable from another factor.
  std::optional<reshard::FactorId> batchFactor() const { return batch; }
  /// The factor of the tokens of a sample: the factor of the dims marked by `tbc.sequence_dim` on
  /// used inputs. Null in the same cases as the batch.
  std::optional<reshard::FactorId> sequenceFactor() const { return sequence; }

private:
  void addFunctionBoundary(mlir::func::FuncOp func);
  bool addClone(mlir::Operation *clone);
  void addOp(mlir::Operation *op);
  FactorSpace::Node dimNode(mlir::Value value, unsigned dim);
  FactorSpace::Node build(const FactorRule::Dim &dim, llvm::ArrayRef<FactorSpace::Node> loops);
  std::optional<reshard::FactorId> findMarked(mlir::func::FuncOp func, llvm::StringRef attribute,
                                              bool ofUnused);

  FactorSpace space;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<FactorSpace::Node, 4>> dims;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<FactorSpace::Node, 6>> loops;
  llvm::StringMap<mlir::Operation *> opById; // the first op of each id
  std::vector<FactorSpace::Node> all;
  /// Dims of arguments with those of the results that have their names.
  std::vector<std::pair<FactorSpace::Node, FactorSpace::Node>> boundary;
  std::optional<reshard::FactorId> batch, sequence;
};

/// Bytes of one element as stored; booleans take one byte.
int64_t elementBytes(mlir::Type elementType);

} // namespace tbc

#endif // TBC_IR_FACTORANALYSIS_H
