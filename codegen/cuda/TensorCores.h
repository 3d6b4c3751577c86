//===- TensorCores.h - Matmuls of a warp by its tensor cores ----------------===//

#ifndef TBC_CODEGEN_CUDA_TENSORCORES_H
#define TBC_CODEGEN_CUDA_TENSORCORES_H

#include "codegen/cuda/ThreadKernel.h"

namespace tbc::cuda {

/// C += A B for bf16 or f16 operands and sums in f32, by `mma.sync.m16n8k16` (sm_80 and later).
///
/// A lane has parts of each matrix, in *fragments* of registers with two neighbours each. With quad
/// = lane / 4 and pair = 2 (lane % 4), PTX ISA, "matrix fragments for mma.m16n8k16":
/// - A, 16 x 16, four registers: rows quad and quad + 8 of columns pair, then of columns pair + 8.
/// - B, 16 x 8, two registers: column quad of rows pair, then of rows pair + 8.
/// - C, 16 x 8, four sums: row quad of columns pair and pair + 1, then row quad + 8 of them.
///
/// So the sums of two matrices beside each other are the fragment of a 16 x 16 A, rounded.
class TensorCores {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;
  static constexpr int64_t rows = 16, columns = 8, depth = 16;
  static constexpr int64_t sums = 4; // of a lane

  /// Gives the kernel's module `bytes` of shared memory of a block, in which tiles of operands lie.
  static void addTiles(const ThreadKernel &k, int64_t bytes);
  /// `tileBytes`: as given to `addTiles` before.
  TensorCores(const ThreadKernel &k, kernels::DType dtype, int64_t tileBytes);

  Value thread, lane, quad, inQuad; // of the block, of the warp; lane / 4 and lane % 4
  /// Returns the address of a byte of the tile memory.
  Value tileAddress(Value bytes) const;

  /// Loads four matrices of 8 x 8 elements, 8 lines each, by `ldmatrix`; lanes 0 to 7 have the
  /// addresses of the lines of the first, 8 to 15 of the second and so on. A lane gets element
  /// (quad, pair) and its neighbour of each; with `isTransposed` (pair, quad) and the next line's.
  Values loadMatrices(Value address, bool isTransposed) const;
  /// Adds a b to the four sums.
  void multiply(llvm::ArrayRef<Value> a, llvm::ArrayRef<Value> b,
                llvm::MutableArrayRef<Value> sums) const;
  /// Rounds two f32 to a register of a fragment.
  Value pack(Value lower, Value upper) const;
  /// Returns the sum or the maximum of `x` over the four lanes with the same rows.
  Value overQuad(Value x, bool isSum) const;

private:
  const ThreadKernel &k;
  kernels::DType dtype;
  mlir::Type shared;
  Value memory;
};

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_TENSORCORES_H
