//===- Matmul.h - A matmul by oneDNN --------------------------------------===//
//
// Part of tbc. Plain C++; includes no header of oneDNN.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_MATMUL_H
#define TBC_RUNTIME_CPU_MATMUL_H

#include "runtime/kernels/DType.h"

#include <cstdint>
#include <memory>
#include <tuple>

namespace tbc::cpu {

/// c[m x n] = a[m x k] * b[k x n], or c += a * b. Rows of c are dense. Rows of a and b are dense
/// too; if transposed, their columns are. m, n, k >= 1.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  /// Stride in elements from row to row; for a transposed operand from column to column.
  int64_t strideA = 0, strideB = 0, strideC = 0;
  bool transposedA = false, transposedB = false;
  bool accumulates = false;                    // c += a * b; f32 results only
  kernels::DType input = kernels::DType::F32;  // F32 or BF16
  kernels::DType result = kernels::DType::F32; // F32; BF16 only with BF16 inputs

  auto key() const {
    return std::tie(m, n, k, strideA, strideB, strideC, transposedA, transposedB, accumulates,
                    input, result);
  }
  bool operator<(const MatmulShape &o) const { return key() < o.key(); }
};

/// A matmul of one shape, compiled for this processor. Sums are in f32, in an order that depends on
/// the shape alone. Several threads may use it at once.
///
/// Why oneDNN: 2.6.3 of Debian 12 beside OpenBLAS 0.3.21, in GFLOP/s of one thread of an EPYC of
/// family 26 (Zen 5, AVX512-BF16; registers alone reach 225 and 450), 1024 x 3072 x 768:
///
///   f32   oneDNN 203, OpenBLAS 110 by default, 202 as SkylakeX (0.3.21 does not know the processor
///         and takes its kernels for AVX2 unless told otherwise)
///   bf16  oneDNN 412, OpenBLAS of Debian has no such kernel
///
/// Its GEMM for AVX2 reads operands of small matmuls in place. If their rows lie a multiple of 512
/// B apart, they are copied to padded rows first. GFLOP/s of one thread of a Zen 3, in place and
/// copied; m x n x k, "tn" with a transposed:
///
///   512 x 384 x 1576 tn, strides 1536 and 384   68, 82
///   512 x 512 x  400 tn, strides  512 and 512   57, 83
///   384 x 384 x 1576 tn, strides  384 and 384   81, 87
class Matmul {
public:
  virtual ~Matmul() = default;
  virtual void run(const void *a, const void *b, void *c) const = 0;

  /// Returns the shared object of this shape, or null if this processor has no such matmul (bf16
  /// before AVX-512).
  static std::shared_ptr<const Matmul> find(const MatmulShape &shape);
};

/// Runs an f32 matmul with a shape known only at run time; no code is compiled or kept.
void multiplyOnce(const MatmulShape &shape, const float *a, const float *b, float *c);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_MATMUL_H
