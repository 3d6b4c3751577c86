//===- LocalUpdate.h - The update function of one stage --------------------===//

#ifndef TBC_PASSES_PARTITION_LOCALUPDATE_H
#define TBC_PASSES_PARTITION_LOCALUPDATE_H

#include "passes/partition/LocalBlock.h"

namespace tbc {

/// Builds @update_s: completes accumulated gradients and brings them to the state's sharding, runs
/// the optimizer on that shard, and gathers the new parameters to their stored sharding. Ops on
/// scalars run on every stage. Before tbc.step_total, which becomes an all_reduce, they work on the
/// rank's own part of the step.
class LocalUpdate {
public:
  LocalUpdate(const PartitionInput &input, mlir::ModuleOp module, int stage);

  mlir::LogicalResult build();

private:
  void assignParameters();
  mlir::Value argument(mlir::BlockArgument arg);
  mlir::LogicalResult emitOp(mlir::Operation &op, int parameter);
  mlir::Value stateArgument(mlir::BlockArgument arg, int p, llvm::StringRef name);
  mlir::LogicalResult emitSquareTotals(mlir::Operation &op, int parameter);
  void addTogether(mlir::Operation &op, llvm::SmallVector<mlir::Value> scalars,
                   const reshard::Reshard &derived);
  mlir::LogicalResult gatherMatrices(mlir::Operation &op, int parameter);
  void shardMatrices(mlir::Operation &op, int parameter);
  bool isOnMatrices(mlir::Operation &op) const;
  std::vector<int64_t> localResultShape(mlir::Value result, int parameter, bool onMatrices) const;
  reshard::Sharding matricesOf(int parameter) const;
  void joinRun(mlir::Operation *op, int parameter);
  void joinMatrixKernel(mlir::Operation &op, mlir::Operation *clone);
  mlir::LogicalResult emitScalarOp(mlir::Operation &op);
  mlir::LogicalResult emitOwnedSum(mlir::Operation &op);
  mlir::LogicalResult emitStepTotal(mlir::Operation &op);
  mlir::Value scalarArgument(mlir::BlockArgument arg, llvm::StringRef name);
  std::vector<reshard::AxisRef> replicatedAxes(const reshard::Sharding &sharding) const;
  mlir::Value onFirst(mlir::Value scalar, const std::vector<reshard::AxisRef> &axes);
  mlir::Value operandOf(mlir::Value value);
  int stageOf(int graphValue) const;
  int parameterOfOp(mlir::Operation *op) const;
  void emitNewParameter(int parameter);
  void offloadNewStates(mlir::Operation &op);
  void emitResults();
  void emitLoss();
  void holdUnused();
  /// Applies every reshard of `parameter` at `where` to `value`, from sharding `from` to `to`.
  mlir::Value apply(mlir::Value value, int graphValue, reshard::Where where,
                    const reshard::Sharding &from, const reshard::Sharding &to);
  mlir::Value reduceBucket(const reshard::Reshard &wanted);
  const reshard::Reshard *jointGather(int parameter) const;
  void gatherBucket(const reshard::Reshard &ready, mlir::Value value, llvm::StringRef name);
  mlir::Value accumulated(int parameter);
  bool holds(int parameter) const;
  bool hasPart(int parameter) const;
  mlir::Value zeros(int parameter, mlir::Type elementType);

  const PartitionInput &in;
  int stage;
  FunctionBuilder function;
  llvm::DenseMap<mlir::Value, int> parameterOf;               // values of @update
  llvm::DenseMap<mlir::Value, llvm::StringRef> newParameters; // of it, with their names
  llvm::DenseMap<int, mlir::Value> newValueOf; // of them not yet stored, by parameter
  llvm::DenseSet<mlir::Value> newStates;       // of it, of parameters
  llvm::DenseSet<mlir::Value> matrices;        // of it, whole on every rank
  llvm::DenseMap<mlir::Value, mlir::Value> local;
  llvm::DenseMap<mlir::Value, mlir::Value> onHost;               // of new states
  llvm::DenseMap<int, mlir::BlockArgument> gradientOf;           // of @update, by parameter
  llvm::DenseMap<int, mlir::Value> gradients;                    // as accumulated, by parameter
  llvm::DenseMap<const reshard::Reshard *, mlir::Value> reduced; // members of buckets
  /// By bucket of gathers: members with a new parameter, its shard and its name.
  std::map<int, std::map<const reshard::Reshard *, std::pair<mlir::Value, llvm::StringRef>>>
      waiting;
  static constexpr int noParameter = -1;
  mlir::Operation *lastOfRun = nullptr; // of the current kernel
  int parameterOfRun = noParameter;
  int64_t numKernels = 0;
};

} // namespace tbc

#endif // TBC_PASSES_PARTITION_LOCALUPDATE_H
