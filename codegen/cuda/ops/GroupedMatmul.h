//===- GroupedMatmul.h - Matmuls of groups whose sizes are data ------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_GROUPEDMATMUL_H
#define TBC_CODEGEN_CUDA_OPS_GROUPEDMATMUL_H

#include "codegen/cuda/ThreadKernel.h"

#include <functional>

namespace tbc::cuda {

/// The result of a matmul is made in tiles of these sizes, one per block.
inline constexpr int64_t tileRows = 128, tileColumns = 128;
/// Column ranges of a tile that are summed apart (`TileMatmul::storeSum`).
inline constexpr int64_t sumsOfTile = 4;

/// An operand of a tile, made of lines of `width` contiguous elements.
///
/// - By default a line is a row of the left operand or a column of the right one. Its elements run
///   along the depth. Example: w[out, in] as the right operand of x w^T has `out` lines.
/// - With `linesAreDepth` a line is an index of the depth. Its elements run along the rows or
///   columns. Example: w[out, in] as the right operand of dy w.
struct TileOperand {
  bool isResult = false;
  int index = 0; // of the operand or result of the call
  bool linesAreDepth = false;
  int64_t width = 0;
  struct Line {
    mlir::Value begin;   // offset of its first element
    mlir::Value isThere; // a line that is absent counts as zeros
  };
  std::function<Line(mlir::Value line)> line;
};

/// A tile of C[m, n] = sum over k of left(m, k) right(n, k), for m >= row, n >= column and
/// depthBegin <= k < depthEnd. Sums are in f32, in one order for each shape.
struct TileMatmul {
  mlir::Value isThere; // whether the block has work; the same in all its threads
  mlir::Value row, column, depthBegin, depthEnd;
  TileOperand left, right;
  /// Columns are not made beyond this number, or rows if it is not 0.
  int64_t numColumns = 0, numRows = 0;
  /// 2: the right operand has two lines for each result column, at `line` and `line + numColumns`,
  /// and a tile has 64 columns of the result. Example: the gate and the up layer of an expert.
  int parts = 1;
  /// If set: is called before the columns of a row, to build values of the row.
  std::function<void(mlir::Value row)> beginRow;
  /// Consumes C[row, column] and, if there are two values per part, C[row, column + 1]. Returns a
  /// term of the row's sum, or no value.
  using Parts = llvm::SmallVector<llvm::SmallVector<mlir::Value, 2>, 2>;
  std::function<mlir::Value(mlir::Value row, mlir::Value column, const Parts &parts)> consume;
  /// If set: gets the sum of the terms of each of the `sumsOfTile` ranges of the tile's columns. In
  /// the host form a range is one column of the result.
  std::function<void(mlir::Value row, mlir::Value range, mlir::Value sum)> storeSum;
};

/// Returns the kernel of `blocks` tiles of matmuls of elements of type `dtype`: f32, bf16 or f16.
/// Tiles of the operands go through shared memory, the next one on its way while one is multiplied.
/// 16-bit types use tensor cores (`mma.sync.m16n8k16`, sm_80 and later); f32 is not rounded to
/// TF32.
///
/// `describe` builds what the tile of a block is.
mlir::FailureOr<region::Kernel> emitGroupedMatmul(
    mlir::MLIRContext &context, const OpCall &call, Form form, kernels::DType dtype, int64_t blocks,
    llvm::function_ref<TileMatmul(const ThreadKernel &k, mlir::Value block)> describe);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_GROUPEDMATMUL_H
