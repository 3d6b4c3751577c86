//===- LocalBlock.h - Builds one function of per-rank IR -------------------===//

#ifndef TBC_PASSES_PARTITION_LOCALBLOCK_H
#define TBC_PASSES_PARTITION_LOCALBLOCK_H

#include "ir/Roles.h"
#include "passes/partition/Partition.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include <map>
#include <set>

namespace tbc {

/// A function under construction: arguments and results are added on demand.
class FunctionBuilder {
public:
  FunctionBuilder(mlir::ModuleOp module, std::string name);

  mlir::OpBuilder &builder() { return bodyBuilder; }
  mlir::Value addArgument(mlir::Type type, TensorRole role, llvm::StringRef name, int peer = -1);
  void addResult(mlir::Value value, TensorRole role, llvm::StringRef name, int peer = -1);
  /// Adds an argument that is stored on the host, and copies it to the device.
  mlir::Value fetchArgument(mlir::Type type, TensorRole role, llvm::StringRef name);
  /// Copies a value to the host now; the result is for addHostResult.
  mlir::Value offload(mlir::Value value);
  void addHostResult(mlir::Value value, TensorRole role, llvm::StringRef name);
  /// Ends the body and sets the function's type.
  void finish();

private:
  mlir::DictionaryAttr attributes(TensorRole role, llvm::StringRef name, int peer,
                                  bool isOnHost = false);

  mlir::func::FuncOp func;
  mlir::OpBuilder bodyBuilder;
  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<mlir::DictionaryAttr> argAttrs, resultAttrs;
};

/// Emits one step of a resharding.
mlir::Value emitCollective(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input,
                           const reshard::Collective &collective, const reshard::Mesh &mesh,
                           llvm::ArrayRef<int64_t> resultShape);

/// Emits `reshard` on `value`, which has the sharding reshard.from.
mlir::Value emitReshard(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                        const reshard::Reshard &reshard, const reshard::TensorLayout &layout,
                        const reshard::Mesh &mesh);

/// A reshard of a bucket, and its operand.
struct BucketMember {
  mlir::Location loc;
  mlir::Value value;
  const reshard::Reshard *reshard;
  const reshard::TensorLayout *layout;
};

/// Emits the reshards of bucket `bucket`, message by message. The reshards of all members stand
/// together and carry kBucketAttr. Leaves the results in `members`.
void emitBucket(mlir::OpBuilder &builder, llvm::MutableArrayRef<BucketMember> members, int bucket,
                const reshard::Mesh &mesh);

/// The forward, backward or wgrad function of one chunk. `isLast`: the backward of the last
/// micro-batch, which completes gradients.
class LocalBlock {
public:
  LocalBlock(const PartitionInput &input, mlir::ModuleOp module, reshard::Phase phase, int chunk,
             bool isLast = false);

  mlir::LogicalResult build();

private:
  using Key = std::pair<int, reshard::Sharding>;

  void receive();
  mlir::LogicalResult emitKernel(const reshard::Kernel &emitted);
  mlir::LogicalResult emitOps(const reshard::Kernel &kernel,
                              llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> operands,
                              std::map<int, mlir::Value> &inside);
  void emitPacked(const std::vector<int> &kernel,
                  llvm::ArrayRef<llvm::SmallVector<mlir::Value>> operands,
                  std::map<int, mlir::Value> &inside);
  mlir::Value operandOf(int op, int operand);
  mlir::LogicalResult emitStreamed(int op, llvm::ArrayRef<mlir::Value> operands);
  mlir::LogicalResult emitGenerator(int op);
  mlir::Value inSequenceOrder(int value, mlir::Value generated);
  void emitResults();
  void emitForwardResults();
  void emitGradients(int value);
  void addGradient(int value, int parameter);
  void findLastReductions();
  void completeGradient(mlir::Value part, int parameter);
  mlir::Value addToTotal(mlir::Value part, int parameter);
  void reduceTotals(int bucket);
  void storeTotal(int parameter, mlir::Value total, mlir::Value reduced);
  mlir::LogicalResult emitBucketOf(int bucket);
  void emitFullBuckets();
  const reshard::Reshard *bucketed(int value, const reshard::Sharding &sharding);
  /// Returns graph value `value` in `sharding`. If it is not in the block yet, it is resharded,
  /// received or read. Returns null, with a diagnostic, if the derivation does not provide it.
  mlir::Value get(int value, const reshard::Sharding &sharding);
  mlir::Value source(int value, const reshard::Sharding &sharding);
  mlir::Value remember(int value, const reshard::Sharding &sharding, mlir::Value made);
  std::string nameOf(const reshard::Residual &residual) const;
  reshard::Phase phaseOf(int value) const;
  mlir::Operation *templateOf(int op) const;
  mlir::Operation *emitLocal(int op, llvm::ArrayRef<mlir::Value> operands);
  mlir::Operation *foldInteger(mlir::Operation *local);
  void resize(mlir::Operation *local, int op);
  mlir::RankedTensorType localType(int value, const reshard::Sharding &sharding) const;
  mlir::Location locOf(int value) const;

  const PartitionInput &in;
  reshard::Phase phase;
  int chunk;
  bool isLast;
  FunctionBuilder function;
  std::map<Key, mlir::Value> cache;
  std::map<Key, mlir::Value> onHost; // offloaded values of the block, null until computed
  std::map<int, std::vector<const reshard::Reshard *>> reshards; // of this block, by value
  std::multimap<int, const reshard::Reshard *> gathersBefore;    // issued ahead of their use, by op
  std::multimap<int, int> gradientsOf; // parameters, by the value to be added to their gradient
  /// By bucket: members with a computed value, and the parameters of their gradients.
  std::map<int, std::map<const reshard::Reshard *, llvm::SmallVector<int>>> waiting;
  /// Of the last backward: the reductions of gradients, by parameter; by bucket those of totals at
  /// hand.
  std::map<int, const reshard::Reshard *> lastReductions;
  std::map<int, std::map<const reshard::Reshard *, std::pair<int, mlir::Value>>> totals;
  std::map<int, mlir::Value> generated;            // results of generators, in the original order
  llvm::SmallVector<mlir::Operation *> generators; // emitted
  int64_t numKernels = 0;
  bool failed = false;
};

/// The name of a residual in a given sharding.
std::string residualName(const reshard::Graph &graph, const reshard::Mesh &mesh, int value,
                         const reshard::Sharding &sharding);

} // namespace tbc

#endif // TBC_PASSES_PARTITION_LOCALBLOCK_H
