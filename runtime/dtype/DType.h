//===- DType.h - Element types ---------------------------------------------===//
//
// Plain C++. The one list of element types, for the planner, the IR, Programs and kernels. It knows
// facts about a type, not its numbers: rounding is in runtime/kernels/DType.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DTYPE_DTYPE_H
#define TBC_RUNTIME_DTYPE_DTYPE_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tbc {

enum class DType { F64, F32, BF16, F16, F8E4M3, F8E5M2, I64, I32, I16, I8, U8, Bool, U16, U32 };

/// Returns every dtype, in the order of the enum.
const std::vector<DType> &dtypes();
/// Returns the name. Example: "f32", "bf16", "f8e4m3", "bool".
std::string_view name(DType dtype);
/// The inverse of name(); nullopt for any other text.
std::optional<DType> parseDType(std::string_view text);
/// Bytes of one element in memory and on the wire; Bool takes one.
int64_t byteWidth(DType dtype);
bool isFloat(DType dtype);
/// Whether tensors of a Program may have the type, because the reference kernels compute with it.
/// Example: f32, not f8e4m3: fp8 exists within matmuls of GPUs alone.
bool isStorable(DType dtype);
/// Returns the key of the peak FLOP/s in a cluster file, under device.peak_flops_per_second.
/// Example: "f8" for f8e4m3 and f8e5m2.
const char *rateKey(DType dtype);

/// A key of device.peak_flops_per_second.
struct Rate {
  std::string key;
  bool isRequired; // in every cluster file
};
/// Returns all keys, each once: f32, bf16 and f16, and the optional f8.
const std::vector<Rate> &rates();

} // namespace tbc

#endif // TBC_RUNTIME_DTYPE_DTYPE_H
