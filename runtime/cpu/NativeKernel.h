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

/// Addresses of operands and results. Each is dense, row-major, with elements as wide as their
/// dtype, and aligned to at least 64 bytes. A result of an elementwise op
/// (kernels::isElementwiseKernel) may have the address of an operand of its type. No other buffers
/// overlap.
struct Buffers {
  std::vector<const void *> operands;
  std::vector<void *> results;

  template <typename T> const T *operand(size_t i) const {
    return static_cast<const T *>(operands[i]);
  }
  template <typename T> T *result(size_t i) const { return static_cast<T *>(results[i]); }
};

/// An op with its attributes and types, prepared once. The result does not depend on the number of
/// threads.
using NativeKernel = std::function<void(Threads &threads, const Buffers &buffers)>;

/// Returns the kernel of an op, or an empty one if these attributes and types are not supported;
/// the reference kernel then runs. A native kernel has the contract of the reference kernel except
/// for rounding: f32 and bf16 are computed in f32. The op must be well-typed.
NativeKernel findNativeKernel(std::string_view op, const kernels::Attrs &attrs,
                              const Types &operands, const Types &results);

/// The part of one family in `findNativeKernel`.
using NativeKernelMaker = NativeKernel (*)(std::string_view op, const kernels::Attrs &attrs,
                                           const Types &operands, const Types &results);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_NATIVEKERNEL_H
