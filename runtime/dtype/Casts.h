//===- Casts.h - Casts between element types -------------------------------===//
//
// Plain C++. Rules of casts that the reference kernels and generated kernels share.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DTYPE_CASTS_H
#define TBC_RUNTIME_DTYPE_CASTS_H

#include "runtime/dtype/DType.h"

#include <limits>

namespace tbc {

/// Returns the integer to which a cast takes an infinity or a float beyond 64 bits: the lowest i64
/// or i32, else 0, as PyTorch 2.11 on x86. A model may cast log(0) and not use the result, as
/// buckets of relative positions do. Kernels that cannot report an error take NaN to it, too.
/// Example: infinity as i32 is -2^31, and as i8 it is 0.
constexpr int64_t castOfTooLarge(DType to) {
  return to == DType::I64   ? std::numeric_limits<int64_t>::min()
         : to == DType::I32 ? std::numeric_limits<int32_t>::min()
                            : 0;
}

} // namespace tbc

#endif // TBC_RUNTIME_DTYPE_CASTS_H
