//===- Fp8Kernels.h - The kernels that make matrices of fp8 on GPUs ---------===//
//
// Part of tbc. Plain C++. A program for GPUs has beside the kernels of its regions (CudaKernels.h)
// those by which a run may multiply its matrices in fp8. All parameters are addresses; sizes lie in
// memory.
//
// A matrix of a product, maybe one per index of a batch, is read where it lies, element (b, r, d)
// at b * batchStride + r * rowStride + d * depthStride, d being what is summed over, a multiple of
// 16; it is written dense, as [batch][rows][depth]. i64 `sizes` = {elements in all, batch, rows,
// depth, batchStride, rowStride, depthStride, whether neighbouring threads take neighbouring rows}.
//
//   amax_T        elements T, sizes, partials i32 [numWarps]: the largest magnitude, by its bits
//   scale_F       partials, scales f32 [2]: what undoes it, and the power of two by which elements
//                 are multiplied, the largest by which none exceeds the largest number of F; both
//                 from 2^-126 to 2^126. Where all are 0 both are 1. Where one is infinite or no
//                 number what undoes it is no number, and so is every element of the product.
//   quantise_F_T  elements T, sizes, scales, result u8: each multiplied and rounded to the nearest
//                 number of F, of two the even one; the result's address is a multiple of 16
//
// F: e4m3 (4 bits of exponent, 3 of mantissa, to 448) or e5m2 (to 57344). T: f32, bf16 or f16.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_FP8KERNELS_H
#define TBC_RUNTIME_ABI_FP8KERNELS_H

#include "runtime/kernels/DType.h"

#include <cstdint>
#include <string>

namespace tbc::program::fp8 {

enum class Format { E4M3, E5M2 };
inline constexpr Format formats[] = {Format::E4M3, Format::E5M2};
inline std::string nameOf(Format format) { return format == Format::E4M3 ? "e4m3" : "e5m2"; }

inline bool isQuantised(kernels::DType type) {
  return type == kernels::DType::F32 || type == kernels::DType::BF16 || type == kernels::DType::F16;
}

inline std::string amaxSymbol(kernels::DType type) {
  return "tbc_fp8_amax_" + std::string(name(type));
}
inline std::string scaleSymbol(Format format) { return "tbc_fp8_scale_" + nameOf(format); }
inline std::string quantiseSymbol(Format format, kernels::DType type) {
  return "tbc_fp8_quantise_" + nameOf(format) + "_" + std::string(name(type));
}

/// Of a launch, but for `scale`, which is one warp; the same for any sizes. Many quantise, for each
/// waits for what it reads; few find the largest, for one warp reads what they found.
inline constexpr int64_t numThreads = int64_t(1) << 16, numQuantiseThreads = int64_t(1) << 18;
inline constexpr int64_t numWarps = numThreads / 32;

/// What a thread quantises at a time, and sizes of matrices have to be multiples of.
inline constexpr int64_t step = 16;
inline constexpr int64_t numSizes = 8;

} // namespace tbc::program::fp8

#endif // TBC_RUNTIME_ABI_FP8KERNELS_H
