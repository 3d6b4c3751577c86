//===- Matmul.h - A matrix product by oneDNN ----------------------------------===//
//
// Part of tbc. Plain C++; includes none of oneDNN's headers.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_MATMUL_H
#define TBC_RUNTIME_CPU_MATMUL_H

#include "runtime/kernels/DType.h"

#include <cstdint>
#include <memory>
#include <tuple>

namespace tbc::cpu {

/// c[m x n] = a[m x k] * b[k x n], or c += ... Rows of c are contiguous; a and b either way: of a
/// transposed one the columns are. m, n, k >= 1.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  /// Elements from one row to the next, of a transposed one from column to column.
  int64_t strideA = 0, strideB = 0, strideC = 0;
  bool transposedA = false, transposedB = false;
  bool accumulates = false;                    // of f32 results
  kernels::DType input = kernels::DType::F32;  // F32 or BF16
  kernels::DType result = kernels::DType::F32; // F32, or BF16 of BF16

  auto key() const {
    return std::tie(m, n, k, strideA, strideB, strideC, transposedA, transposedB, accumulates,
                    input, result);
  }
  bool operator<(const MatmulShape &o) const { return key() < o.key(); }
};

/// A product of one shape, generated for this processor. Sums are taken in f32, in an order that
/// depends on the shape alone. May be used by several threads at once.
///
/// Why oneDNN: 2.6.3 as in Debian 12 beside OpenBLAS 0.3.21, GFLOP/s of one thread of an EPYC of
/// family 26 (Zen 5, AVX512-BF16; registers alone reach 225 and 450), 1024 x 3072 x 768:
///
///   f32   oneDNN 203, OpenBLAS 110 as it comes, 202 as SkylakeX (0.3.21 does not know the
///         processor and takes its kernels for AVX2 unless told otherwise)
///   bf16  oneDNN 412, OpenBLAS of Debian has none
class Matmul {
public:
  virtual ~Matmul() = default;
  virtual void run(const void *a, const void *b, void *c) const = 0;

  /// Products of the same shape are the same object. Nothing where this processor has no such
  /// product (bf16 before AVX-512).
  static std::shared_ptr<const Matmul> find(const MatmulShape &shape);
};

/// A product of f32 whose shape is known where it is executed only: nothing is generated or kept.
void multiplyOnce(const MatmulShape &shape, const float *a, const float *b, float *c);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_MATMUL_H
