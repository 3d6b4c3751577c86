//===- Tensor.cpp - Dense tensors in one of four arithmetics ---------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Tensor.h"
#include "runtime/kernels/Support.h"

#include <cstring>

using namespace tbc::kernels;

int64_t tbc::kernels::numElements(const Shape &shape) {
  int64_t product = 1;
  for (int64_t size : shape)
    product *= size;
  return product;
}

std::string tbc::kernels::toString(const TensorType &type) {
  std::string text;
  for (int64_t size : type.shape)
    text += std::to_string(size) + "x";
  return text + std::string(name(type.dtype));
}

namespace {

/// Rounds bf16 and f16 elements and wraps integers; other elements stay.
template <typename T> void roundInPlace(DType dtype, std::vector<T> &elements) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BF16)
      for (float &element : elements)
        element = decodeBF16(encodeBF16(element));
    else if (dtype == DType::F16)
      for (float &element : elements)
        element = float(roundTo(DType::F16, element));
  }
  if constexpr (std::is_same_v<T, int64_t>)
    if (dtype != DType::I64)
      for (int64_t &element : elements)
        element = wrapTo(dtype, element);
}

template <typename T> T fromDouble(DType dtype, double value) {
  if constexpr (std::is_same_v<T, float>)
    return float(roundTo(dtype, value)); // once, not through f32
  else if constexpr (isResidue<T>)
    return T::fromDouble(value);
  else
    return T(value);
}

double decodeElement(DType dtype, const unsigned char *bytes) {
  auto as = [&](auto stored) {
    std::memcpy(&stored, bytes, sizeof stored);
    return stored;
  };
  switch (dtype) {
  case DType::F64:
    return as(double());
  case DType::F32:
    return as(float());
  case DType::BF16:
    return decodeBF16(as(uint16_t()));
  case DType::F16:
    return decodeF16(as(uint16_t()));
  default:
    throw KernelError("tensors do not have floats of " + std::string(name(dtype)));
  }
}

void encodeElement(DType dtype, double value, unsigned char *bytes) {
  auto put = [&](auto stored) { std::memcpy(bytes, &stored, sizeof stored); };
  switch (dtype) {
  case DType::F64:
    return put(value);
  case DType::F32:
    return put(float(value));
  case DType::BF16:
    return put(encodeBF16(float(roundTo(DType::BF16, value))));
  case DType::F16:
    return put(encodeF16(float(roundTo(DType::F16, value))));
  default:
    throw KernelError("tensors do not have floats of " + std::string(name(dtype)));
  }
}

} // namespace

template <typename T>
Tensor::Tensor(TensorType type, std::vector<T> elements) : tensorType(std::move(type)) {
  require(int64_t(elements.size()) == numElements(), [&] {
    return std::to_string(elements.size()) + " elements given for a tensor of type " +
           toString(tensorType);
  });
  require((std::is_same_v<T, int64_t>) != isFloat(tensorType.dtype), [&] {
    return "elements of the wrong kind given for a tensor of type " + toString(tensorType);
  });
  roundInPlace(tensorType.dtype, elements);
  storage = std::make_shared<Storage>(std::move(elements));
}

template Tensor::Tensor(TensorType, std::vector<float>);
template Tensor::Tensor(TensorType, std::vector<double>);
template Tensor::Tensor(TensorType, std::vector<Residue>);
template Tensor::Tensor(TensorType, std::vector<Residue251>);
template Tensor::Tensor(TensorType, std::vector<int64_t>);

Tensor Tensor::zeros(const TensorType &type, Arith arith) {
  return dispatch(arith, type.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Tensor(type, std::vector<T>(kernels::numElements(type.shape), zero));
  });
}

Tensor Tensor::fromDoubles(const TensorType &type, Arith arith, const std::vector<double> &values) {
  int64_t count = kernels::numElements(type.shape);
  require(int64_t(values.size()) == count || values.size() == 1, [&] {
    return std::to_string(values.size()) + " values given for a tensor of type " + toString(type);
  });
  return dispatch(arith, type.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(count);
    for (int64_t i = 0; i < count; ++i)
      elements[i] = fromDouble<T>(type.dtype, values.size() == 1 ? values[0] : values[i]);
    return Tensor(type, std::move(elements));
  });
}

Tensor Tensor::fromInts(const TensorType &type, const std::vector<int64_t> &values) {
  int64_t count = kernels::numElements(type.shape);
  if (values.size() == 1 && count != 1)
    return Tensor(type, std::vector<int64_t>(count, values[0]));
  return Tensor(type, values);
}

Tensor Tensor::fromBytes(const TensorType &type, Arith arith, const void *bytes) {
  int64_t count = kernels::numElements(type.shape), width = byteWidth(type.dtype);
  const auto *cursor = static_cast<const unsigned char *>(bytes);
  if (!isFloat(type.dtype)) {
    std::vector<int64_t> elements(count);
    // Little-endian: the low bytes of an int64_t; the constructor extends the sign.
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(&elements[i], cursor + i * width, width);
    return Tensor(type, std::move(elements));
  }
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = decodeElement(type.dtype, cursor + i * width);
  if (count == 0)
    return zeros(type, arith);
  return fromDoubles(type, arith, values);
}

Tensor Tensor::residuesFromBytes(const TensorType &type, const void *bytes) {
  Tensor numbers = fromBytes(type, Arith::Native, bytes);
  if (!isFloat(type.dtype))
    return numbers;
  std::vector<Residue251> residues;
  residues.reserve(size_t(numbers.numElements()));
  for (double number : numbers.toDoubles()) {
    bool isOne = number >= 0 && number < double(Residue251::modulus);
    auto v = isOne ? uint8_t(number) : uint8_t(0);
    require(isOne && double(v) == number, "what is there is no residue: something else was stored "
                                          "over a part of it");
    residues.push_back(Residue251(v));
  }
  return Tensor(type, std::move(residues));
}

std::vector<uint64_t> Tensor::toResidues() const {
  require(holdsResidues(), "the tensor holds no residues");
  std::vector<uint64_t> numbers;
  dispatch(*this, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (isResidue<T>)
      for (T residue : data<T>())
        numbers.push_back(residue.v);
  });
  return numbers;
}

std::vector<double> Tensor::toDoubles() const {
  require(storage != nullptr, "the tensor holds no value");
  return std::visit(
      [](const auto &elements) {
        std::vector<double> values(elements.size());
        for (size_t i = 0; i < elements.size(); ++i) {
          if constexpr (isResidue<std::decay_t<decltype(elements[i])>>)
            values[i] = double(elements[i].v);
          else
            values[i] = double(elements[i]);
        }
        return values;
      },
      *storage);
}

std::vector<unsigned char> Tensor::toBytes() const {
  require(storage && !holds<Residue>(), "residues have no byte encoding in their tensor's dtype");
  int64_t count = numElements(), width = byteWidth(dtype());
  std::vector<unsigned char> bytes(count * width);
  if (holds<int64_t>()) {
    const std::vector<int64_t> &elements = data<int64_t>();
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(&bytes[i * width], &elements[i], width);
    return bytes;
  }
  if (holds<float>() && (dtype() == DType::F32 || dtype() == DType::BF16)) { // the elements fit
    const std::vector<float> &elements = data<float>();
    if (dtype() == DType::F32 && count > 0)
      std::memcpy(bytes.data(), elements.data(), bytes.size());
    for (int64_t i = 0; dtype() == DType::BF16 && i < count; ++i) {
      uint16_t bits = encodeBF16(elements[size_t(i)]);
      std::memcpy(&bytes[i * width], &bits, sizeof bits);
    }
    return bytes;
  }
  std::vector<double> values = toDoubles();
  for (int64_t i = 0; i < count; ++i)
    encodeElement(dtype(), values[i], &bytes[i * width]);
  return bytes;
}

Tensor Tensor::reshaped(Shape shape) const {
  require(kernels::numElements(shape) == numElements(), [&] {
    return "cannot view " + toString(tensorType) + " as " + toString({dtype(), shape}) +
           ": the element counts differ";
  });
  Tensor result = *this;
  result.tensorType.shape = std::move(shape);
  return result;
}

bool tbc::kernels::bitwiseEqual(const Tensor &a, const Tensor &b) {
  if (!a.storage || !b.storage)
    return !a.storage && !b.storage;
  if (a.type() != b.type() || a.storage->index() != b.storage->index())
    return false;
  return std::visit(
      [&](const auto &elements) {
        using Elements = std::decay_t<decltype(elements)>;
        const auto &others = std::get<Elements>(*b.storage);
        size_t bytes = elements.size() * sizeof(typename Elements::value_type);
        return bytes == 0 || std::memcmp(elements.data(), others.data(), bytes) == 0;
      },
      *a.storage);
}
