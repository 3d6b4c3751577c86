//===- BlockShare.h - What threads of a block and blocks of a launch share --===//

#ifndef TBC_CODEGEN_CUDA_BLOCKSHARE_H
#define TBC_CODEGEN_CUDA_BLOCKSHARE_H

#include "codegen/region/ops/Elements.h"

#include "mlir/IR/BuiltinOps.h"

namespace tbc::cuda {

/// The shared memory of a block, and counters of blocks, of a kernel of the device form.
///
/// Every thread of a block comes to `barrier` and to `isLastOf`: the code around them branches on
/// values that all threads of the block have.
class BlockShare {
public:
  using Value = mlir::Value;

  /// f32 that fit in the shared memory: 4 KiB.
  static constexpr int numFloats = 1024;

  /// `inBlock`: this thread's number in its block, i64.
  BlockShare(mlir::ModuleOp module, mlir::OpBuilder &builder, mlir::Location loc, Value inBlock);

  /// Returns the address of `numFloats` f32, without content at first. Kernels of one image use the
  /// same name, so a block has it once.
  Value memory();
  /// All threads of the block wait for each other here.
  void barrier();

  /// Combines the values of number `number` of a list: `combine(number, x, y)`.
  using Combine = llvm::function_ref<Value(size_t number, Value x, Value y)>;
  /// Returns the f32 at `first`, `first` + `step`, ... of the memory, `count` in all, combined in
  /// this order as values of number `number`.
  Value overLines(Value first, int64_t count, int64_t step, size_t number, Combine combine);
  /// Returns each of `values` (f32, the same in all lanes of a warp), combined over the `warps` of
  /// the block in their order, in every thread. They pass through the memory from `first` on, which
  /// no thread may still read. Example: the first pass of a norm over a row has two sums, of x and
  /// of x^2; with 4 warps they take 8 floats. `lane`: this thread's number in its warp, i64.
  llvm::SmallVector<Value> overWarps(llvm::ArrayRef<Value> values, Value lane, int64_t warps,
                                     Value first, Combine combine);

  /// Returns whether this block is the last of `numBlocks` of its `group` to come here, i1. If so,
  /// its threads read behind this what threads of all these blocks have written before it.
  ///
  /// A group of the launch has a counter, a variable of the image: 0 when the image is loaded, and
  /// 0 again after the last block. So launches with counters must not overlap. Kernels of one rank
  /// do not, because these are in its stream of computation, in graphs too
  /// (codegen/AssignStreams.h).
  ///
  /// Which block is the last differs from run to run. A sum stays the same if that block adds in an
  /// order of its own, not in that of arrival.
  ///
  /// Source: the grid barrier of cooperative groups (CUDA's cooperative_groups.h), which has the
  /// same fences around the atomic operation of one thread, between barriers of the block. PTX ISA,
  /// atom: inc of x by limit m is (x >= m) ? 0 : x + 1.
  Value isLastOf(Value group, int64_t numGroups, int64_t numBlocks);

private:
  void addGlobal(llvm::StringRef name, mlir::Type type, mlir::Attribute value, unsigned space);
  void fence();

  mlir::ModuleOp module;
  mlir::OpBuilder &builder;
  mlir::Location loc;
  region::Elements e;
  Value inBlock;
};

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_BLOCKSHARE_H
