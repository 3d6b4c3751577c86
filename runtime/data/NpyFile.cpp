//===- NpyFile.cpp - Arrays in NumPy's format -----------------------------===//
//
// Format: numpy.lib.format, versions 1.0 and 2.0: "\x93NUMPY", two bytes of version, the length of
// the header (2 or 4 bytes), a Python dict in text, the elements.
//
//===----------------------------------------------------------------------===//

#include "runtime/data/Dataset.h"
#include "runtime/data/MappedFile.h"
#include "runtime/kernels/DType.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tbc::data {

namespace {

struct Array {
  MappedFile file;
  std::string type; // "<f4"
  std::vector<int64_t> shape;
  size_t begin = 0; // of the elements
  int64_t width() const { return type[2] - '0'; }
};

Error wrong(const std::string &path, const std::string &why) {
  return {ErrorCode::Usage, path + ": " + why};
}

/// Returns the text after 'key': in a header, up to `end`.
std::string entry(const std::string &header, const std::string &key, const std::string &end) {
  size_t at = header.find("'" + key + "':");
  if (at == std::string::npos)
    return "";
  at = header.find_first_not_of(' ', at + key.size() + 3);
  if (at == std::string::npos)
    return "";
  return header.substr(at, header.find_first_of(end, at) - at);
}

bool parseShape(const std::string &text, std::vector<int64_t> &shape) {
  size_t at = 1; // behind the parenthesis
  while (at < text.size()) {
    at = text.find_first_not_of(" ,", at);
    if (at == std::string::npos)
      return true;
    size_t end = text.find_first_not_of("0123456789", at);
    if (end == at || (end == std::string::npos ? text.size() : end) - at > 15)
      return false;
    shape.push_back(std::strtoll(text.c_str() + at, nullptr, 10));
    at = end == std::string::npos ? text.size() : end;
  }
  return true;
}

Result<Array> openArray(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path, ErrorCode::Usage);
  if (!file)
    return file.error();
  Array array;
  array.file = *file;
  std::string_view text = file->text();
  if (text.size() < 12 || text.substr(0, 6) != "\x93NUMPY" || text[6] < 1 || text[6] > 2)
    return wrong(path, "it is no .npy file of version 1 or 2");
  bool isLong = text[6] == 2;
  size_t length = 0;
  std::memcpy(&length, text.data() + 8, isLong ? 4 : 2);
  array.begin = (isLong ? 12 : 10) + length;
  if (array.begin > text.size())
    return wrong(path, "its header is cut off at byte " + std::to_string(text.size()));
  std::string header(text.substr(isLong ? 12 : 10, length));
  array.type = entry(header, "descr", ",}");
  if (array.type.size() > 2 && array.type.front() == '\'')
    array.type = array.type.substr(1, array.type.size() - 2);
  static const char *const known[] = {"<f8", "<f4", "<f2", "<i8", "<i4", "<i2",
                                      "|i1", "<u8", "<u4", "<u2", "|u1", "|b1"};
  bool isKnown = false;
  for (const char *type : known)
    isKnown |= array.type == type;
  if (!isKnown)
    return wrong(path, "elements of type " + array.type +
                           " are not read; convert them with .astype('float32'), whole numbers "
                           "with .astype('int64')");
  if (entry(header, "fortran_order", ",}") != "False")
    return wrong(path, "it is in Fortran order; write numpy.ascontiguousarray of it");
  if (!parseShape(entry(header, "shape", ")"), array.shape) || array.shape.empty())
    return wrong(path, "its shape cannot be read, or it has no dims");
  int64_t bytes = array.width();
  bool isEmpty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
  for (int64_t size : array.shape)
    if (!isEmpty && __builtin_mul_overflow(bytes, size, &bytes))
      return wrong(path, "its shape needs more than 2^63 bytes of elements; it has " +
                             std::to_string(text.size() - array.begin));
  bytes = isEmpty ? 0 : bytes;
  if (text.size() - array.begin != size_t(bytes))
    return wrong(path, "it has " + std::to_string(text.size() - array.begin) +
                           " bytes of elements from byte " + std::to_string(array.begin) +
                           " on where its shape needs " + std::to_string(bytes));
  return array;
}

class Arrays : public Dataset {
public:
  Arrays(std::vector<Array> arrays, std::vector<Field> fields)
      : arrays(std::move(arrays)), fields(std::move(fields)) {}
  int64_t numSamples() const override { return arrays[0].shape[0]; }

  Result<double> value(size_t number, int64_t sample, int64_t element) const override {
    const Field &field = fields[number];
    const Array &array = arrays[number];
    size_t at = array.begin + size_t((sample * field.elements + element) * array.width());
    double value = read(array, array.file.data() + at);
    if (!kernels::isFloat(field.dtype) && value >= 0x1p63)
      return wrong(array.file.path(), "the value at byte " + std::to_string(at) +
                                          " is 2^63 or more; input \"" + field.name + "\" is " +
                                          std::string(kernels::name(field.dtype)));
    bool isIgnored = field.ignored && value == double(*field.ignored);
    if (field.below && !isIgnored && !(value >= 0 && value < double(field.below)))
      return wrong(array.file.path(), "value " + std::to_string(int64_t(value)) + " at byte " +
                                          std::to_string(at) + " is not in 0 .. " +
                                          std::to_string(field.below - 1) + " of input \"" +
                                          field.name + "\"");
    return value;
  }

private:
  template <typename T> static double as(const unsigned char *bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return double(value);
  }
  static double read(const Array &array, const unsigned char *bytes) {
    switch (array.type[1]) {
    case 'f':
      if (array.width() == 2) {
        uint16_t bits;
        std::memcpy(&bits, bytes, 2);
        return double(kernels::decodeF16(bits));
      }
      return array.width() == 8 ? as<double>(bytes) : as<float>(bytes);
    case 'i':
      return array.width() == 8   ? as<int64_t>(bytes)
             : array.width() == 4 ? as<int32_t>(bytes)
             : array.width() == 2 ? as<int16_t>(bytes)
                                  : as<int8_t>(bytes);
    case 'b':
      return *bytes != 0;
    default:
      return array.width() == 8   ? as<uint64_t>(bytes)
             : array.width() == 4 ? as<uint32_t>(bytes)
             : array.width() == 2 ? as<uint16_t>(bytes)
                                  : as<uint8_t>(bytes);
    }
  }

  std::vector<Array> arrays;
  std::vector<Field> fields;
};

/// Whether elements of one shape, in order, are those of the other: they differ by dims of size 1,
/// or one of them is a row of numbers. Example: [3, 8, 8] and [192], but not [8, 8, 3].
bool isSameSample(std::vector<int64_t> a, std::vector<int64_t> b) {
  for (std::vector<int64_t> *shape : {&a, &b})
    shape->erase(std::remove(shape->begin(), shape->end(), 1), shape->end());
  return a == b || a.size() <= 1 || b.size() <= 1;
}

/// Example: "[3, 8, 8]".
std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

} // namespace

Result<std::unique_ptr<Dataset>> openArrays(const std::vector<std::string> &paths,
                                            const std::vector<Field> &fields) {
  std::vector<Array> arrays;
  for (size_t i = 0; i < fields.size(); ++i) {
    Result<Array> array = openArray(paths[i]);
    if (!array)
      return array.error();
    const Field &field = fields[i];
    int64_t elements = 1;
    for (size_t d = 1; d < array->shape.size(); ++d)
      elements *= array->shape[d];
    if (elements != field.elements)
      return wrong(paths[i], "a sample has " + std::to_string(elements) + " elements; input \"" +
                                 field.name + "\" has " + std::to_string(field.elements));
    const std::vector<int64_t> sample(array->shape.begin() + 1, array->shape.end());
    if (!isSameSample(sample, field.shape))
      return wrong(paths[i], "a sample has shape " + shapeText(sample) + "; input \"" + field.name +
                                 "\" has " + shapeText(field.shape) +
                                 "; transpose the array, or save its samples as rows of numbers");
    bool isFloatFile = array->type[1] == 'f';
    if (isFloatFile != kernels::isFloat(field.dtype))
      return wrong(paths[i], "its type is " + array->type + "; input \"" + field.name + "\" is " +
                                 std::string(kernels::name(field.dtype)));
    if (!arrays.empty() && array->shape[0] != arrays[0].shape[0])
      return wrong(paths[i], "it has " + std::to_string(array->shape[0]) + " samples, " + paths[0] +
                                 " has " + std::to_string(arrays[0].shape[0]));
    arrays.push_back(std::move(*array));
  }
  return std::unique_ptr<Dataset>(std::make_unique<Arrays>(std::move(arrays), fields));
}

} // namespace tbc::data
