//===- Sources.cpp - Locate the data of initializers -----------------------===//

#include "frontend/onnx/Sources.h"

#include "frontend/onnx/Value.h"
#include "frontend/onnx/Wire.h"
#include "runtime/kernels/Tensor.h"

#include <algorithm>
#include <cstring>

namespace tbc::frontend {

static std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Sources::Sources(const Model &model, const ImportOptions &options)
    : model(model), folder(folderOf(model.path())), root(options.externalDataRoot),
      ledger(folder, root) {}

ParameterSource Sources::describe(const onnx::TensorProto &tensor) const {
  ParameterSource source;
  source.name = tensor.name();
  source.dtype = dtypeOfOnnx(tensor.data_type(), "initializer '" + tensor.name() + "'");
  source.shape = shapeOfTensor(tensor);
  source.bytes = kernels::numElements(source.shape) * kernels::byteWidth(source.dtype);
  return source;
}

ParameterSource Sources::external(const onnx::TensorProto &tensor) {
  // A second lookup claims no bytes.
  if (auto it = located.find(&tensor); it != located.end())
    return it->second;
  ParameterSource source = describe(tensor);
  std::vector<std::pair<std::string, std::string>> entries;
  for (const onnx::StringStringEntryProto &entry : tensor.external_data())
    entries.push_back({entry.key(), entry.value()});
  Result<ExternalRange> range = parseExternalData(tensor.name(), entries);
  if (!range)
    throw ImportError(range.error().message);
  // A part of a merged initializer has the data of the whole.
  auto whole = model.splitFrom.find(tensor.name());
  Result<std::optional<data::MappedFile>> file =
      whole != model.splitFrom.end() ? ledger.open(tensor.name(), *range)
                                     : ledger.claim(tensor.name(), *range, source.bytes);
  if (!file)
    throw ImportError(file.error().message);
  source.isExternal = true;
  source.location = range->location;
  source.file = folder + "/" + range->location;
  source.offset = range->offset;
  source.directory = folder;
  source.externalDataRoot = root;
  source.present = file->has_value();
  source.opened = *file;
  return located[&tensor] = source;
}

std::string Sources::findInside(const onnx::TensorProto &tensor, ParameterSource &source) const {
  source.file = model.path();
  if (!tensor.has_segment())
    return source.bytes == 0 ? " has no elements" : " has no data, or data that is not packed";
  const Payload &payload = model.scanned.payloads.at(uint64_t(tensor.segment().begin()));
  source.offset = int64_t(payload.offset);
  bool isRaw = payload.field == 9 || (payload.field == 4 && source.dtype == DType::F32) ||
               (payload.field == 10 && source.dtype == DType::F64);
  bool isVarint = payload.field == 5 && kernels::byteWidth(source.dtype) == 2;
  if (!isRaw && !isVarint)
    return " has data in a field that is not for its element type";
  if (isRaw && int64_t(payload.bytes) != source.bytes)
    return " has " + std::to_string(payload.bytes) + " bytes of data for shape " +
           kernels::toString({source.dtype, source.shape});
  if (isVarint) {
    source.encoding = ParameterSource::Encoding::Varint;
    const uint8_t *data = model.scanned.file.data() + payload.offset;
    int64_t count = std::count_if(data, data + payload.bytes, [](uint8_t b) { return b < 0x80; });
    if (count != kernels::numElements(source.shape))
      return " has data for " + std::to_string(count) + " elements";
    source.bytes = int64_t(payload.bytes);
  }
  source.present = true;
  source.opened = model.scanned.file;
  return "";
}

ParameterSource Sources::locate(const onnx::TensorProto &tensor) {
  if (isExternal(tensor))
    return external(tensor);
  ParameterSource source = describe(tensor);
  if (std::string problem = findInside(tensor, source); !problem.empty())
    throw ImportError("initializer '" + tensor.name() + "'" + problem);
  return source;
}

ParameterSource Sources::locateIfPacked(const onnx::TensorProto &tensor) {
  if (isExternal(tensor))
    return external(tensor);
  ParameterSource source = describe(tensor);
  return findInside(tensor, source).empty() ? source : describe(tensor);
}

void Sources::finish() {
  if (Status status = ledger.checkOverlaps(); !status)
    throw ImportError(status.error().message);
}

const uint8_t *bytesOf(const ParameterSource &source) {
  bool fits = source.present && source.opened && source.offset >= 0 && source.bytes >= 0 &&
              uint64_t(source.offset) + uint64_t(source.bytes) <= source.opened->size();
  return fits ? source.opened->data() + source.offset : nullptr;
}

Known readSource(const ParameterSource &source) {
  const uint8_t *data = bytesOf(source);
  int64_t elements = kernels::numElements(source.shape);
  if (!data || source.encoding != ParameterSource::Encoding::Raw)
    throw ImportError("tensor '" + source.name + "' is needed at import, but its data in " +
                      source.file +
                      " is not there; put the file there, or store the tensor inside the model");
  if (elements > kMaxStoredElements)
    throw ImportError("tensor '" + source.name + "' has " + std::to_string(elements) +
                      " elements, too many for a constant");
  kernels::Tensor read =
      kernels::Tensor::fromBytes({source.dtype, source.shape}, kernels::Arith::F64, data);
  return kernels::isFloat(source.dtype) ? Known::ofReals(source.shape, read.data<double>())
                                        : Known::ofInts(source.shape, read.data<int64_t>());
}

bool forEachElement(const ParameterSource &source, const std::function<bool(double)> &visit) {
  const uint8_t *data = bytesOf(source);
  if (!data)
    return false;
  auto decode16 = [&](uint16_t bits) {
    return double(source.dtype == DType::BF16 ? kernels::decodeBF16(bits)
                                              : kernels::decodeF16(bits));
  };
  if (source.encoding == ParameterSource::Encoding::Varint) {
    Wire wire(data, uint64_t(source.bytes));
    for (uint64_t at = 0; at < uint64_t(source.bytes);)
      if (!visit(decode16(uint16_t(wire.varint(at, uint64_t(source.bytes))))))
        return false;
    return true;
  }
  auto visitAs = [&](auto element, auto convert) {
    for (int64_t at = 0; at < source.bytes; at += int64_t(sizeof(element))) {
      std::memcpy(&element, data + at, sizeof(element));
      if (!visit(convert(element)))
        return false;
    }
    return true;
  };
  auto asIs = [](auto element) { return double(element); };
  switch (source.dtype) {
  case DType::F64:
    return visitAs(double(), asIs);
  case DType::F32:
    return visitAs(float(), asIs);
  case DType::F16:
  case DType::BF16:
    return visitAs(uint16_t(), decode16);
  case DType::Bool:
    return visitAs(uint8_t(), [](uint8_t element) { return double(element != 0); });
  default:
    return false; // integers have no role
  }
}

} // namespace tbc::frontend
