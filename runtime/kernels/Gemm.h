//===- Gemm.h - The multiply-add loop of einsum and convolution ------------===//
//
// Part of tbc. Internal to the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_GEMM_H
#define TBC_RUNTIME_KERNELS_GEMM_H

#include "runtime/kernels/Scalar.h"

#include <algorithm>
#include <vector>

namespace tbc::kernels {

/// The accumulator for products of T. Floats add in double, residues unreduced in 128 bits (modulo
/// 251 in 32 bits), integers modulo 2^64. `fold` bounds the total again; it must be called after at
/// most `foldEvery` products. `result` rounds or reduces it.
template <typename T> struct Total {
  using Type = double;
  using Term = double;
  static constexpr int64_t foldEvery = INT64_MAX;
  static Term term(T x) { return double(x); }
  static void fold(Type &) {}
  static T result(Type total) { return T(total); }
};

template <> struct Total<Residue> {
  using Type = unsigned __int128;
  using Term = uint64_t;
  static constexpr int64_t foldEvery = 48; // 2^70 + 48 * 2^122 < 2^128
  static Term term(Residue x) { return x.v; }
  static void fold(Type &total) { total = (total & Residue::modulus) + (total >> 61); }
  static Residue result(Type total) { return Residue::reduce(total); }
};

template <> struct Total<Residue251> {
  using Type = uint32_t;
  using Term = uint32_t;
  static constexpr int64_t foldEvery = 1 << 16; // 250 + 2^16 * 250^2 < 2^32
  static Term term(Residue251 x) { return x.v; }
  static void fold(Type &total) { total %= Residue251::modulus; }
  static Residue251 result(Type total) { return Residue251::reduce(total); }
};

template <> struct Total<int64_t> {
  using Type = uint64_t;
  using Term = uint64_t;
  static constexpr int64_t foldEvery = INT64_MAX;
  static Term term(int64_t x) { return uint64_t(x); }
  static void fold(Type &) {}
  static int64_t result(Type total) { return int64_t(total); }
};

/// totals[m x n] += a[m x k] * b[k x n], all row-major and dense. Every total adds its k products
/// in ascending order under any blocking. So float results do not depend on m and n.
template <typename T>
void multiplyAdd(int64_t m, int64_t n, int64_t k, const T *a, const T *b,
                 typename Total<T>::Type *totals) {
  using Type = typename Total<T>::Type;
  using Term = typename Total<T>::Term;
  // A tile of totals stays in registers and L1 while it is computed from rows of `a` and a panel of
  // `b`.
  constexpr int64_t rows = 4, columns = isResidue<T> ? 16 : 64;
  Type tile[rows][columns];
  Term line[columns];
  int64_t chunk = std::min<int64_t>(Total<T>::foldEvery, std::max<int64_t>(k, 1));
  for (int64_t i0 = 0; i0 < m; i0 += rows) {
    int64_t height = std::min(rows, m - i0);
    for (int64_t j0 = 0; j0 < n; j0 += columns) {
      int64_t width = std::min(columns, n - j0);
      for (int64_t i = 0; i < height; ++i)
        std::copy_n(totals + (i0 + i) * n + j0, width, tile[i]);
      for (int64_t p0 = 0; p0 < k; p0 += chunk) {
        int64_t end = std::min(k, p0 + chunk);
        for (int64_t p = p0; p < end; ++p) {
          for (int64_t j = 0; j < width; ++j)
            line[j] = Total<T>::term(b[p * n + j0 + j]);
          for (int64_t i = 0; i < height; ++i) {
            Term factor = Total<T>::term(a[(i0 + i) * k + p]);
            for (int64_t j = 0; j < width; ++j)
              tile[i][j] += Type(factor) * line[j];
          }
        }
        for (int64_t i = 0; i < height; ++i)
          for (int64_t j = 0; j < width; ++j)
            Total<T>::fold(tile[i][j]);
      }
      for (int64_t i = 0; i < height; ++i)
        std::copy_n(tile[i], width, totals + (i0 + i) * n + j0);
    }
  }
}

/// The rounded or reduced totals.
template <typename T> std::vector<T> finish(const std::vector<typename Total<T>::Type> &totals) {
  std::vector<T> elements(totals.size());
  for (size_t i = 0; i < totals.size(); ++i)
    elements[i] = Total<T>::result(totals[i]);
  return elements;
}

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_GEMM_H
