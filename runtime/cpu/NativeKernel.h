//===- NativeKernel.h - Kernels on bytes, by op mnemonic ----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_NATIVEKERNEL_H
#define TBC_RUNTIME_CPU_NATIVEKERNEL_H

#include "runtime/cpu/Threads.h"
#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

#include <functional>
#include <string_view>
#include <vector>

namespace tbc::cpu {

using Types = std::vector<kernels::TensorType>;

/// Where operands and results lie: dense, row-major, each element in the width of its dtype,
/// aligned to 64 bytes at least. A result of an op that is elementwise
/// (kernels::isElementwiseKernel) may lie where an operand of its type does; no others overlap.
struct Buffers {
  std::vector<const void *> operands;
  std::vector<void *> results;

  template <typename T> const T *operand(size_t i) const {
    return static_cast<const T *>(operands[i]);
  }
  template <typename T> T *result(size_t i) const { return static_cast<T *>(results[i]); }
};

/// An op with its attributes and types: all that is worked out once. The result does not depend on
/// the number of threads.
using NativeKernel = std::function<void(Threads &threads, const Buffers &buffers)>;

/// The kernel of an op, or an empty one where there is none for these attributes and types: it is
/// then executed by its reference kernel, whose contract it has, but for rounding: f32 and bf16
/// are computed in f32. The attributes and types are those of a well-typed op.
NativeKernel findNativeKernel(std::string_view op, const kernels::Attrs &attrs,
                              const Types &operands, const Types &results);

/// A family's part of the above.
using NativeKernelMaker = NativeKernel (*)(std::string_view op, const kernels::Attrs &attrs,
                                           const Types &operands, const Types &results);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_NATIVEKERNEL_H
