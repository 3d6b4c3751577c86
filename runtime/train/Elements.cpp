//===- Elements.cpp - One element of a file, as a number -------------------===//

#include "runtime/train/Elements.h"

#include <cstring>

namespace tbc::train {

using kernels::DType;

template <typename T> static T load(const unsigned char *bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

double elementAt(DType dtype, const unsigned char *bytes) {
  switch (dtype) {
  case DType::F64:
    return load<double>(bytes);
  case DType::F32:
    return double(load<float>(bytes));
  case DType::BF16:
    return double(kernels::decodeBF16(load<uint16_t>(bytes)));
  case DType::F16:
    return double(kernels::decodeF16(load<uint16_t>(bytes)));
  case DType::I64:
    return double(load<int64_t>(bytes));
  case DType::I32:
    return double(load<int32_t>(bytes));
  case DType::I16:
    return double(load<int16_t>(bytes));
  case DType::I8:
    return double(load<int8_t>(bytes));
  case DType::U16:
    return double(load<uint16_t>(bytes));
  case DType::U32:
    return double(load<uint32_t>(bytes));
  case DType::U8:
  case DType::Bool:
    return double(*bytes);
  case DType::F8E4M3:
  case DType::F8E5M2:
    break; // not storable
  }
  __builtin_unreachable();
}

} // namespace tbc::train
