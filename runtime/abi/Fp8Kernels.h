//===- Fp8Kernels.h - GPU kernels that quantise matrices to fp8 -----------===//
//
// Part of tbc. Plain C++. Kernels for matmuls in fp8. A program for GPUs has them beside the
// kernels of its regions (CudaKernels.h). All parameters are addresses; sizes lie in memory.
//
// The operand of a matmul is a matrix, or one per index of a batch. It is read in place: element
// (b, r, d) lies at b * batchStride + r * rowStride + d * depthStride. d is the contracted index;
// its size is a multiple of 16. The result is dense, as [batch][rows][depth]. i64 `sizes` = {total
// number of elements, batch, rows, depth, batchStride, rowStride, depthStride, whether neighbouring
// threads take neighbouring rows}.
//
//   amax_T        elements T, sizes, partials i32 [numWarps]: the largest magnitude, as its bits
//   scale_F       partials, scales f32 [2]: {dequantisation factor, quantisation factor}
//   quantise_F_T  elements T, sizes, scales, result u8: each element is multiplied by the
//                 quantisation factor and rounded to the nearest number of F, ties to even; the
//                 address of the result is a multiple of 16
//
// The quantisation factor is the largest power of two such that no element exceeds the largest
// number of F. The dequantisation factor is its inverse. Both are from 2^-126 to 2^126. If all
// elements are 0, both are 1. If one is infinite or NaN, the dequantisation factor is NaN, and so
// is every element of the matmul. Example: elements up to 3 in e4m3 get the factor 2^7, because 384
// <= 448 < 768.
//
// F: e4m3 (4 bits of exponent, 3 of mantissa, up to 448) or e5m2 (up to 57344). T: f32, bf16 or
// f16.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_FP8KERNELS_H
#define TBC_RUNTIME_ABI_FP8KERNELS_H

#include "runtime/kernels/DType.h"
#include "runtime/memory/Fp8Workspace.h"

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

inline constexpr int64_t numSizes = 8;

} // namespace tbc::program::fp8

#endif // TBC_RUNTIME_ABI_FP8KERNELS_H
