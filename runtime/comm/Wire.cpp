//===- Wire.cpp - Tensors as bytes between ranks ---------------------------===//

#include "runtime/comm/Wire.h"

#include <cstring>

namespace tbc::comm {

using kernels::Arith;
using kernels::DType;
using kernels::Residue;
using kernels::Residue251;
using kernels::Tensor;
using kernels::TensorType;

static_assert(sizeof(Residue) == 8, "residues travel as they lie in memory");

Arith arithOf(const Tensor &tensor) {
  if (tensor.holds<Residue>())
    return Arith::Residue61;
  if (tensor.holds<Residue251>())
    return Arith::Residue251;
  return tensor.holds<double>() && tensor.dtype() != DType::F64 ? Arith::F64 : Arith::Native;
}

int64_t wireWidth(DType dtype, Arith arith) {
  bool isWide = arith == Arith::F64 || arith == Arith::Residue61;
  return kernels::isFloat(dtype) && isWide ? 8 : kernels::byteWidth(dtype);
}

template <typename T> static std::vector<unsigned char> copyOut(const std::vector<T> &elements) {
  std::vector<unsigned char> bytes(elements.size() * sizeof(T));
  if (!bytes.empty())
    std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <typename T> static Tensor copyIn(const TensorType &type, const void *bytes) {
  std::vector<T> elements(kernels::numElements(type.shape));
  if (!elements.empty())
    std::memcpy(elements.data(), bytes, elements.size() * sizeof(T));
  return Tensor(type, std::move(elements));
}

std::vector<unsigned char> encode(const Tensor &tensor) {
  if (tensor.holds<Residue>())
    return copyOut(tensor.data<Residue>());
  if (tensor.holds<double>())
    return copyOut(tensor.data<double>());
  if (tensor.holds<float>() && tensor.dtype() == DType::F32)
    return copyOut(tensor.data<float>());
  return tensor.toBytes();
}

Tensor decode(const TensorType &type, Arith arith, const void *bytes) {
  if (!kernels::isFloat(type.dtype))
    return Tensor::fromBytes(type, Arith::Native, bytes);
  if (arith == Arith::Residue61)
    return copyIn<Residue>(type, bytes);
  if (arith == Arith::Residue251)
    return Tensor::residuesFromBytes(type, bytes);
  if (arith == Arith::F64 || type.dtype == DType::F64)
    return copyIn<double>(type, bytes);
  if (type.dtype == DType::F32)
    return copyIn<float>(type, bytes);
  return Tensor::fromBytes(type, Arith::Native, bytes);
}

} // namespace tbc::comm
