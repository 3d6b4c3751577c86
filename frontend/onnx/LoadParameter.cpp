//===- LoadParameter.cpp - The data of a parameter -------------------------===//

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Sources.h"
#include "frontend/onnx/Wire.h"

namespace tbc::frontend {

Result<data::MappedFile> openDataOf(const ParameterSource &source) {
  if (!source.opened)
    return Error{ErrorCode::ModelRejected, "initializer '" + source.name + "': its data file " +
                                               source.file + " is not there"};
  return *source.opened;
}

Result<kernels::Tensor> loadParameter(const ParameterSource &source, kernels::Arith arith) {
  auto fail = [&](const std::string &why) {
    return Error{ErrorCode::ModelRejected, "initializer '" + source.name + "': " + why};
  };
  Result<data::MappedFile> file = openDataOf(source);
  if (!file)
    return file.error();
  const uint8_t *data = bytesOf(source);
  if (!data)
    return fail("its data is outside " + source.file);
  kernels::TensorType type{source.dtype, source.shape};
  try {
    if (source.encoding == ParameterSource::Encoding::Raw)
      return kernels::Tensor::fromBytes(type, arith, data);
    std::vector<unsigned char> bytes;
    Wire wire(data, uint64_t(source.bytes));
    for (uint64_t at = 0; at < uint64_t(source.bytes);) {
      uint64_t bits = wire.varint(at, uint64_t(source.bytes));
      bytes.push_back(bits & 0xff);
      bytes.push_back((bits >> 8) & 0xff);
    }
    if (int64_t(bytes.size()) != 2 * kernels::numElements(source.shape))
      return fail("its data has changed since the import");
    return kernels::Tensor::fromBytes(type, arith, bytes.data());
  } catch (const std::runtime_error &error) {
    return fail(error.what());
  }
}

} // namespace tbc::frontend
