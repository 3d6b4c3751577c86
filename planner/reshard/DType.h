//===- DType.h - Element types, for the cost model -------------------------===//
//
// Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_DTYPE_H
#define TBC_PLANNER_RESHARD_DTYPE_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::reshard {

enum class DType { F64, F32, BF16, F16, F8E4M3, F8E5M2, I64, I32, I16, I8, U8, Bool };

const std::vector<DType> &dtypes();
/// Returns the name. Example: "f32", "bf16", "f8e4m3", "bool".
const char *name(DType dtype);
/// The inverse of name(); nullopt for any other text.
std::optional<DType> parseDType(std::string_view word);
/// Bytes of one element; Bool takes one.
int64_t byteWidth(DType dtype);
bool isFloat(DType dtype);
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

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_DTYPE_H
