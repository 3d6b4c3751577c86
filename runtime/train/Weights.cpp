//===- Weights.cpp - Initial values of parameters -------------------------===//

#include "runtime/train/Weights.h"
#include "runtime/abi/Sha256.h"
#include "runtime/kernels/Random.h"
#include "runtime/train/Elements.h"
#include "runtime/train/Values.h"

#include <cmath>
#include <filesystem>
#include <set>

namespace tbc::train {

using kernels::DType;
using kernels::Shape;
using kernels::Tensor;

Weights::Weights(const Manifest &manifest, kernels::Arith arith)
    : manifest(manifest), arith(arith) {
  for (size_t i = 0; i < manifest.initializers.size(); ++i)
    byName[manifest.initializers[i].name] = i;
}

/// Decodes 16-bit floats, stored as varints of their bits.
static std::optional<std::vector<uint16_t>> decodeVarints(const unsigned char *bytes, int64_t size,
                                                          int64_t count) {
  std::vector<uint16_t> values;
  uint64_t value = 0;
  int shift = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (shift > 63)
      return std::nullopt;
    value |= uint64_t(bytes[i] & 0x7f) << shift;
    shift += 7;
    if (bytes[i] & 0x80)
      continue;
    values.push_back(uint16_t(value));
    value = 0;
    shift = 0;
  }
  if (shift != 0 || int64_t(values.size()) != count)
    return std::nullopt;
  return values;
}

Result<Weights> Weights::open(const Manifest &manifest, const std::string &folder,
                              kernels::Arith arith, bool checksHashes,
                              std::shared_ptr<const Pretrained> pretrained) {
  Weights weights(manifest, arith);
  weights.pretrained = pretrained;
  // Unused files may be missing.
  auto isRead = [&](size_t number) { return !(pretrained && pretrained->has(number)); };
  for (size_t i = 0; i < manifest.initializers.size(); ++i)
    if (const Initializer &initializer = manifest.initializers[i];
        initializer.file < 0 && isRead(i))
      return Error{
          ErrorCode::Usage,
          "the model has no data for \"" + initializer.name +
              "\"; start from random weights with --init-weights SEED, from others with "
              "--init-weights FILE.safetensors, or compile again where the model's weights are"};
  std::set<int> needed;
  for (size_t i = 0; i < manifest.initializers.size(); ++i)
    if (isRead(i))
      needed.insert(manifest.initializers[i].file);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const SourceFile &source = manifest.files[i];
    if (!needed.count(int(i))) {
      weights.files.emplace_back();
      continue;
    }
    std::string path = (std::filesystem::path(folder) / source.path).lexically_normal().string();
    Result<data::MappedFile> file = data::MappedFile::open(path, ErrorCode::Usage);
    if (!file)
      return Error{ErrorCode::Usage, file.error().message +
                                         " (it has the initial weights; compile again where it is, "
                                         "or start with --init-weights SEED)"};
    if (int64_t(file->size()) != source.bytes)
      return Error{ErrorCode::Usage, path + " has changed since the Program was compiled: " +
                                         std::to_string(file->size()) + " bytes, then " +
                                         std::to_string(source.bytes) + "; compile again"};
    if (!source.isHashed() && file->modifiedNanoseconds() != source.modifiedNanoseconds)
      return Error{ErrorCode::Usage, path + " has changed since the Program was compiled: it was "
                                            "written to (so large a file is not hashed); compile "
                                            "again"};
    if (source.isHashed() && checksHashes && sha256Hex(file->text()) != source.sha256)
      return Error{ErrorCode::Usage, path + " has changed since the Program was compiled: another "
                                            "SHA-256; compile again"};
    weights.files.push_back(std::move(*file));
  }
  for (size_t i = 0; i < manifest.initializers.size(); ++i) {
    const Initializer &initializer = manifest.initializers[i];
    if (!initializer.isVarint || !isRead(i))
      continue;
    auto values = decodeVarints(weights.files[initializer.file].data() + initializer.offset,
                                initializer.bytes, kernels::numElements(initializer.type.shape));
    if (!values)
      return Error{ErrorCode::Usage, "the data of \"" + initializer.name +
                                         "\" has changed since the Program was compiled"};
    weights.decoded[i] = std::move(*values);
  }
  return weights;
}

Weights Weights::draw(const Manifest &manifest, kernels::Arith arith, uint64_t seed) {
  Weights weights(manifest, arith);
  weights.isDrawn = true;
  weights.seed = seed;
  return weights;
}

double Weights::fromFile(size_t number, int64_t element) const {
  if (pretrained && pretrained->has(number))
    return pretrained->at(number, element);
  const Initializer &initializer = manifest.initializers[number];
  DType dtype = initializer.type.dtype;
  if (initializer.isVarint) {
    uint16_t bits = decoded.at(number)[size_t(element)];
    return double(dtype == DType::BF16 ? kernels::decodeBF16(bits) : kernels::decodeF16(bits));
  }
  return elementAt(dtype, files[initializer.file].data() + initializer.offset +
                              element * kernels::byteWidth(dtype));
}

double Weights::deviationOf(const Initializer &initializer) const {
  const Shape &shape = initializer.type.shape;
  double first = shape.empty() ? 1 : double(shape[0]);
  double others = double(kernels::numElements(shape)) / std::max(first, 1.0);
  return std::sqrt(2 / (first + others));
}

float Weights::drawn(size_t number, int64_t element, double deviation) const {
  const Initializer &initializer = manifest.initializers[number];
  if (initializer.start != Start::Normal)
    return initializer.start == Start::Ones ? 1 : 0;
  // The Box-Muller transform, with one counter per element.
  std::array<uint32_t, 4> words = kernels::philox(
      {uint32_t(element), uint32_t(uint64_t(element) >> 32), uint32_t(number), 0x57656967},
      {uint32_t(seed), uint32_t(seed >> 32)});
  double u = (double(words[0]) + 1) / 4294967296.0; // in (0, 1]
  double v = double(words[1]) / 4294967296.0;
  return float(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
}

/// A tensor of `inner` shape is the corner of a tensor of `outer` shape. Returns the index in
/// the inner tensor of element `index` of the outer one, or -1 outside.
static int64_t within(int64_t index, const Shape &outer, const Shape &inner) {
  int64_t number = 0, stride = 1;
  for (size_t d = outer.size(); d-- > 0;) {
    int64_t at = index % outer[d];
    index /= outer[d];
    if (at >= inner[d])
      return -1;
    number += at * stride;
    stride *= inner[d];
  }
  return number;
}

Result<Tensor> Weights::piece(const program::GlobalTensor &tensor,
                              const std::vector<int64_t> &indices,
                              const kernels::TensorType &local) const {
  auto found = byName.find(tensor.initializer);
  if (found == byName.end())
    return Error{ErrorCode::Usage, "the Program's run.json does not have it; compile again"};
  const Initializer &initializer = manifest.initializers[found->second];
  const Shape &outer = tensor.type.shape, &inner = initializer.type.shape;
  bool fits = outer.size() == inner.size();
  for (size_t d = 0; fits && d < outer.size(); ++d)
    fits = inner[d] <= outer[d];
  if (!fits)
    return Error{ErrorCode::Usage, "the Program's run.json has it with another shape, " +
                                       toString(initializer.type) + "; compile again"};
  const bool isWhole = outer == inner;
  auto elementOf = [&](int64_t index) {
    return isWhole || index < 0 ? index : within(index, outer, inner);
  };
  const double deviation = deviationOf(initializer);
  if (isDrawn && arith == kernels::Arith::Native && kernels::isFloat(local.dtype) &&
      local.dtype != DType::F64) { // drawn numbers are floats
    std::vector<float> values(indices.size(), 0);
    for (size_t i = 0; i < indices.size(); ++i)
      if (int64_t element = elementOf(indices[i]); element >= 0)
        values[i] = drawn(found->second, element, deviation);
    return Tensor(local, std::move(values));
  }
  std::vector<double> values(indices.size(), 0);
  for (size_t i = 0; i < indices.size(); ++i)
    if (int64_t element = elementOf(indices[i]); element >= 0)
      values[i] =
          isDrawn ? drawn(found->second, element, deviation) : fromFile(found->second, element);
  return tensorOf(local, arith, values);
}

} // namespace tbc::train
