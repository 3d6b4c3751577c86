//===- Floats.h - Ranges of f32 and bf16 elements as f32 ------------------===//
//
// Part of tbc. Plain C++. Internal to the native kernels, which compute in f32.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_FLOATS_H
#define TBC_RUNTIME_CPU_FLOATS_H

#include "runtime/cpu/NativeKernel.h"
#include "runtime/cpu/Vector.h"

#include <algorithm>
#include <cstring>

namespace tbc::cpu {

inline bool isNativeFloat(kernels::DType dtype) {
  return dtype == kernels::DType::F32 || dtype == kernels::DType::BF16;
}

inline bool areNativeFloats(const Types &types) {
  return std::all_of(types.begin(), types.end(),
                     [](const kernels::TensorType &type) { return isNativeFloat(type.dtype); });
}

/// Bytes of a piece of work that is worth a handover to another thread.
inline constexpr int64_t pieceBytes = 1 << 18;

/// Returns the number of rows of `rowElements` floats in a piece.
inline int64_t rowsPerPiece(int64_t rowElements) {
  return std::max<int64_t>(1, pieceBytes / 4 / std::max<int64_t>(1, rowElements));
}

/// Reads elements of an operand; bf16 is converted to f32.
class FloatsIn {
public:
  FloatsIn(const void *base, kernels::DType dtype)
      : base(base), isF32(dtype == kernels::DType::F32) {}

  /// Elements [offset, offset + n); valid until the next call.
  const float *at(int64_t offset, int64_t n) {
    if (isF32)
      return static_cast<const float *>(base) + offset;
    buffer.resize(size_t(n));
    vectors().fromBF16(static_cast<const uint16_t *>(base) + offset, buffer.data(), n);
    return buffer.data();
  }

private:
  const void *base;
  bool isF32;
  std::vector<float> buffer;
};

/// Writes elements of a result as f32; bf16 is rounded afterwards.
class FloatsOut {
public:
  FloatsOut(void *base, kernels::DType dtype) : base(base), isF32(dtype == kernels::DType::F32) {}

  /// Returns the buffer for elements [offset, offset + n); `finish` completes the write.
  float *at(int64_t offset, int64_t n) {
    start = offset, count = n;
    if (isF32)
      return static_cast<float *>(base) + offset;
    buffer.resize(size_t(n));
    return buffer.data();
  }
  void finish() {
    if (!isF32)
      vectors().toBF16(buffer.data(), static_cast<uint16_t *>(base) + start, count);
  }

private:
  void *base;
  bool isF32;
  int64_t start = 0, count = 0;
  std::vector<float> buffer;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_FLOATS_H
