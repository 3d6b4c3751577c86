//===- TestData.cpp - The tensors of ONNX's backend tests -----------------===//

#include "tests/conformance/TestData.h"

#include "frontend/onnx/Known.h"
#include "frontend/onnx/Model.h"

#include "onnx/onnx.pb.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tbc::conformance {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;

/// Throws `UnsupportedData` if tbc has no such element type.
static DType dtypeOf(int32_t type, const std::string &what) {
  try {
    return frontend::dtypeOfOnnx(type, what);
  } catch (const frontend::ImportError &error) {
    throw UnsupportedData(error.what());
  }
}

Tensor readTensorFile(const std::filesystem::path &path, Arith arith) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  onnx::TensorProto proto;
  if (!file || !proto.ParseFromString(bytes) || proto.data_type() == 0)
    throw UnsupportedData(path.filename().string() + " is not a tensor");
  DType dtype = dtypeOf(proto.data_type(), path.filename().string());
  TensorType type{dtype, {proto.dims().begin(), proto.dims().end()}};
  int64_t elements = kernels::numElements(type.shape);
  auto requireCount = [&](int64_t count, int64_t expected) {
    if (count != expected)
      throw std::runtime_error(path.string() + " holds " + std::to_string(count) + " of " +
                               std::to_string(expected));
  };
  if (proto.has_raw_data()) {
    requireCount(proto.raw_data().size(), elements * kernels::byteWidth(dtype));
    return Tensor::fromBytes(type, arith, proto.raw_data().data());
  }
  if (dtype == DType::F32) {
    requireCount(proto.float_data_size(), elements);
    return elements == 0 ? Tensor::zeros(type, arith)
                         : Tensor::fromDoubles(
                               type, arith, {proto.float_data().begin(), proto.float_data().end()});
  }
  if (dtype == DType::F64) {
    requireCount(proto.double_data_size(), elements);
    return elements == 0
               ? Tensor::zeros(type, arith)
               : Tensor::fromDoubles(type, arith,
                                     {proto.double_data().begin(), proto.double_data().end()});
  }
  std::vector<int64_t> ints(proto.int32_data().begin(), proto.int32_data().end());
  if (dtype == DType::I64)
    ints.assign(proto.int64_data().begin(), proto.int64_data().end());
  requireCount(ints.size(), elements);
  if (elements == 0)
    return Tensor::zeros(type, arith);
  if (!kernels::isFloat(dtype))
    return Tensor::fromInts(type, ints);
  std::vector<double> reals;
  for (int64_t bits : ints)
    reals.push_back(dtype == DType::BF16 ? kernels::decodeBF16(uint16_t(bits))
                                         : kernels::decodeF16(uint16_t(bits)));
  return Tensor::fromDoubles(type, arith, reals);
}

std::vector<std::filesystem::path> listTensorFiles(const std::filesystem::path &folder,
                                                   const std::string &prefix) {
  std::vector<std::filesystem::path> paths;
  for (int i = 0;; ++i) {
    std::filesystem::path path = folder / (prefix + "_" + std::to_string(i) + ".pb");
    if (!std::filesystem::exists(path))
      return paths;
    paths.push_back(path);
  }
}

/// Returns whether both are NaN, the same infinity, or within the tolerance.
static bool agree(double found, double expected, double relative) {
  if (std::isnan(expected) || std::isnan(found))
    return std::isnan(expected) && std::isnan(found);
  if (std::isinf(expected) || std::isinf(found))
    return expected == found;
  return std::fabs(found - expected) <= 1e-7 + relative * std::fabs(expected);
}

std::string difference(const Tensor &found, const Tensor &expected) {
  if (found.type() != expected.type())
    return "has type " + kernels::toString(found.type()) + ", expected " +
           kernels::toString(expected.type());
  std::ostringstream text;
  if (!kernels::isFloat(found.dtype())) {
    const std::vector<int64_t> &x = found.data<int64_t>(), &y = expected.data<int64_t>();
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != y[i]) {
        text << "element " << i << " is " << x[i] << ", expected " << y[i];
        return text.str();
      }
    return "";
  }
  double relative = found.dtype() == DType::BF16 ? 0x1p-6 : 1e-3;
  std::vector<double> x = found.toDoubles(), y = expected.toDoubles();
  for (size_t i = 0; i < x.size(); ++i)
    if (!agree(x[i], y[i], relative)) {
      text << "element " << i << " is " << x[i] << ", expected " << y[i];
      return text.str();
    }
  return "";
}

} // namespace tbc::conformance
