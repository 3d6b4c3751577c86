//===- AttentionTiles.h - Tensors of a block of tiled attention -------------===//
//
// Internal to the kernels of attention. A warp has 16 rows, queries or keys, in registers. Tiles of
// the others go through shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_ATTENTIONTILES_H
#define TBC_CODEGEN_CUDA_OPS_ATTENTIONTILES_H

#include "codegen/cuda/TensorCores.h"
#include "codegen/cuda/ops/AttentionCall.h"

#include <array>

namespace tbc::cuda {

/// A lane has one row of each half of a warp's rows.
inline constexpr int64_t numHalves = 2;

/// A tile of the others: `lines` tokens of k and v, or of q and do, in this order.
struct AttentionTileShape {
  explicit AttentionTileShape(const AttentionCall &a);

  int64_t stride(int tensor) const;
  int64_t bytesBefore(int tensor) const;
  int64_t bytes() const;
  /// Of two tiles: one is loaded while the other is multiplied.
  int64_t bytesOfBuffers() const { return numBuffers * bytes(); }
  /// Accesses of 16 bytes of a tensor's lines.
  int64_t accesses(int tensor) const;

  static constexpr int64_t numBuffers = 2;
  std::array<int64_t, 2> widths; // rounded up to whole steps of the tensor cores
  int64_t lines;                 // 64, 32 or 16
};

class AttentionTiles {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;
  using HeadLayout = kernels::HeadLayout;

  /// Asks for shared memory (`TensorCores::addTiles`) of the shape's buffers before.
  AttentionTiles(const ThreadKernel &k, const AttentionCall &a);

  const AttentionTileShape shape;
  const TensorCores cores;

  /// The first element of a head of a sample.
  Value begin(const HeadLayout &layout, Value sample, Value head) const;
  /// The lane's row of a half of the warp's rows.
  Value rowOf(Value firstRowOfWarp, int64_t half) const;

  using Fragments = llvm::SmallVector<Values>; // by step of the width
  /// Loads a warp's rows as a left operand. `rows`: the lane's, of both halves.
  Fragments loadRows(int operand, const HeadLayout &layout, Value begin,
                     llvm::ArrayRef<Value> rows) const;

  /// A tensor of the others on its way to shared memory.
  struct Staged {
    int operand, tensor;
    const HeadLayout *layout;
    Value begin;          // of the sample and head
    Values line, element; // of each access of this thread
  };
  Staged stage(int operand, int tensor, const HeadLayout &layout, Value begin) const;
  /// Loads this thread's elements of both tensors of a tile; zeros beyond the last token and
  /// column.
  Values load(const std::array<Staged, 2> &others, Value tile) const;
  /// Stores them to the buffer of step `step`, and waits for all threads of the block.
  void store(const std::array<Staged, 2> &others, Value step, llvm::ArrayRef<Value> loaded) const;

  /// Returns rows times the tile of step `step`, 16 x lines.
  Values multiply(const Fragments &rows, int tensor, Value step) const;
  /// sums += (pairs, 16 x lines, rounded) times columns [first, first + columns) of the tile.
  void accumulate(int tensor, Value step, llvm::ArrayRef<Value> pairs, Value first, int64_t columns,
                  llvm::MutableArrayRef<Value> sums) const;

private:
  mlir::Type accessType() const;
  bool fillsBlock(int tensor) const;
  void loadOne(const Staged &from, Value tile, Values &loaded) const;
  void storeOne(const Staged &from, Value buffer, llvm::ArrayRef<Value> loaded) const;
  Value bufferOf(Value step) const;
  Values rightOperands(int tensor, Value buffer, int64_t line, Value element, bool areDepth) const;
  void addProducts(llvm::ArrayRef<Value> left, llvm::ArrayRef<Value> right,
                   llvm::MutableArrayRef<Value> sums, int64_t first) const;

  const ThreadKernel &k;
  const region::Elements &e;
  /// The lane's line and element of `rightOperands`, by `areDepth`.
  std::array<Value, 2> alongLines, alongElements;
};

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_ATTENTIONTILES_H
