//===- DType.cpp - Element types -------------------------------------------===//

#include "runtime/dtype/DType.h"

#include <algorithm>
#include <cassert>

namespace tbc {

namespace {
/// One element type. No field has a default, so that a new row answers every question.
struct Row {
  std::string_view name;
  int64_t bytes;
  bool isFloat;
  bool isStorable;
  const char *rateKey;
};
} // namespace

/// Integers and f64 have no rate of their own in any cluster file; their matmuls count as f32.
static constexpr std::optional<Row> findRow(DType dtype) {
  switch (dtype) {
  case DType::F64:
    return Row{"f64", 8, true, true, "f32"};
  case DType::F32:
    return Row{"f32", 4, true, true, "f32"};
  case DType::BF16:
    return Row{"bf16", 2, true, true, "bf16"};
  case DType::F16:
    return Row{"f16", 2, true, true, "f16"};
  case DType::F8E4M3:
    return Row{"f8e4m3", 1, true, false, "f8"};
  case DType::F8E5M2:
    return Row{"f8e5m2", 1, true, false, "f8"};
  case DType::I64:
    return Row{"i64", 8, false, true, "f32"};
  case DType::I32:
    return Row{"i32", 4, false, true, "f32"};
  case DType::I16:
    return Row{"i16", 2, false, true, "f32"};
  case DType::I8:
    return Row{"i8", 1, false, true, "f32"};
  case DType::U8:
    return Row{"u8", 1, false, true, "f32"};
  case DType::U16:
    return Row{"u16", 2, false, true, "f32"};
  case DType::U32:
    return Row{"u32", 4, false, true, "f32"};
  case DType::Bool:
    return Row{"bool", 1, false, true, "f32"};
  }
  return std::nullopt;
}

static Row row(DType dtype) {
  std::optional<Row> row = findRow(dtype);
  assert(row && "every dtype has a row");
  return *row;
}

const std::vector<DType> &dtypes() {
  static const std::vector<DType> all = [] {
    std::vector<DType> dtypes;
    for (int i = 0; findRow(DType(i)); ++i)
      dtypes.push_back(DType(i));
    return dtypes;
  }();
  return all;
}

std::string_view name(DType dtype) { return row(dtype).name; }

std::optional<DType> parseDType(std::string_view text) {
  for (DType dtype : dtypes())
    if (name(dtype) == text)
      return dtype;
  return std::nullopt;
}

int64_t byteWidth(DType dtype) { return row(dtype).bytes; }
bool isFloat(DType dtype) { return row(dtype).isFloat; }
bool isStorable(DType dtype) { return row(dtype).isStorable; }
const char *rateKey(DType dtype) { return row(dtype).rateKey; }

const std::vector<Rate> &rates() {
  static const std::vector<Rate> all = [] {
    std::vector<Rate> rates;
    for (DType dtype : dtypes()) {
      const std::string key = rateKey(dtype);
      if (std::none_of(rates.begin(), rates.end(), [&](const Rate &r) { return r.key == key; }))
        rates.push_back({key, byteWidth(dtype) > 1});
    }
    return rates;
  }();
  return all;
}

} // namespace tbc
