//===- Npz.cpp - Reads NumPy's .npz and .npy files ------------------------===//
//
// Part of tbc. For tests.
//
// Sources: NumPy's format description (numpy.lib.format); PKWARE APPNOTE.TXT 6.3.10,
// sections 4.3.12 (central directory) and 4.3.16 (its end).
//
//===----------------------------------------------------------------------===//

#include "tests/support/Npz.h"

#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tbc::test {

[[noreturn]] static void fail(const std::string &name, const std::string &what) {
  throw std::runtime_error(name + ": " + what);
}

static std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    fail(path, "cannot be opened");
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

/// Returns the little-endian T at `offset`.
template <typename T>
static T load(const std::string &bytes, size_t offset, const std::string &name) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T))
    fail(name, "is truncated");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

static std::string slice(const std::string &bytes, size_t offset, size_t size,
                         const std::string &name) {
  if (offset > bytes.size() || bytes.size() - offset < size)
    fail(name, "is truncated");
  return bytes.substr(offset, size);
}

int64_t NpyArray::numElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

//===----------------------------------------------------------------------===//
// .npy
//===----------------------------------------------------------------------===//

/// Returns the text after `key` in the header, a Python dictionary in NumPy's fixed spelling.
static std::string headerValue(const std::string &header, const std::string &key,
                               const std::string &name) {
  size_t at = header.find("'" + key + "':");
  if (at == std::string::npos)
    fail(name, "has no '" + key + "' in its header");
  at = header.find_first_not_of(' ', at + key.size() + 3);
  return at == std::string::npos ? "" : header.substr(at);
}

static std::vector<int64_t> parseShape(const std::string &text, const std::string &name) {
  std::vector<int64_t> shape;
  size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string::npos)
    fail(name, "has no shape in its header");
  std::istringstream dims(text.substr(1, end - 1));
  for (std::string dim; std::getline(dims, dim, ',');)
    if (dim.find_first_not_of(' ') != std::string::npos)
      shape.push_back(std::stoll(dim));
  return shape;
}

static double halfToDouble(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  double fraction = bits & 1023;
  double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                     : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <typename T, typename To>
static void loadAll(const std::string &bytes, size_t offset, int64_t count, const std::string &name,
                    std::vector<To> &to) {
  if (count < 0 || offset + static_cast<uint64_t>(count) * sizeof(T) != bytes.size())
    fail(name, "holds another number of bytes than its shape says");
  to.reserve(count);
  for (int64_t i = 0; i < count; ++i)
    to.push_back(static_cast<To>(load<T>(bytes, offset + i * sizeof(T), name)));
}

static void loadElements(const std::string &bytes, size_t offset, const std::string &name,
                         NpyArray &array) {
  int64_t count = array.numElements();
  const std::string &dtype = array.dtype;
  if (dtype == "f4")
    return loadAll<float>(bytes, offset, count, name, array.values);
  if (dtype == "f8")
    return loadAll<double>(bytes, offset, count, name, array.values);
  if (dtype == "i8")
    return loadAll<int64_t>(bytes, offset, count, name, array.ints);
  if (dtype == "i4")
    return loadAll<int32_t>(bytes, offset, count, name, array.ints);
  if (dtype == "i2")
    return loadAll<int16_t>(bytes, offset, count, name, array.ints);
  if (dtype == "i1")
    return loadAll<int8_t>(bytes, offset, count, name, array.ints);
  if (dtype == "u4")
    return loadAll<uint32_t>(bytes, offset, count, name, array.ints);
  if (dtype == "u2")
    return loadAll<uint16_t>(bytes, offset, count, name, array.ints);
  if (dtype == "u1" || dtype == "b1")
    return loadAll<uint8_t>(bytes, offset, count, name, array.ints);
  if (dtype == "f2") {
    std::vector<uint16_t> halves;
    loadAll<uint16_t>(bytes, offset, count, name, halves);
    for (uint16_t half : halves)
      array.values.push_back(halfToDouble(half));
    return;
  }
  fail(name, "has the unsupported dtype '" + dtype + "'");
}

NpyArray parseNpy(const std::string &bytes, const std::string &name) {
  if (slice(bytes, 0, 6, name) != "\x93NUMPY")
    fail(name, "is not an .npy file");
  bool shortHeader = load<uint8_t>(bytes, 6, name) == 1;
  size_t headerOffset = shortHeader ? 10 : 12;
  size_t headerSize = shortHeader ? load<uint16_t>(bytes, 8, name) : load<uint32_t>(bytes, 8, name);
  std::string header = slice(bytes, headerOffset, headerSize, name);

  NpyArray array;
  std::string descr = headerValue(header, "descr", name); // '<f4', ...
  size_t quote = descr.find('\'', 1);
  if (descr.size() < 4 || descr[0] != '\'' || quote == std::string::npos)
    fail(name, "has an unsupported dtype");
  if (descr[1] == '>')
    fail(name, "is big-endian");
  array.dtype = descr.substr(2, quote - 2);
  if (headerValue(header, "fortran_order", name).rfind("False", 0) != 0)
    fail(name, "is in Fortran order; write it with numpy.ascontiguousarray");
  array.shape = parseShape(headerValue(header, "shape", name), name);
  loadElements(bytes, headerOffset + headerSize, name, array);
  return array;
}

//===----------------------------------------------------------------------===//
// .npz
//===----------------------------------------------------------------------===//

static std::string inflateRaw(const std::string &deflated, size_t size, const std::string &name) {
  std::string bytes(size, '\0');
  z_stream stream = {};
  // Negative window bits: no zlib header around the data.
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    fail(name, "zlib cannot start");
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(deflated.data()));
  stream.avail_in = static_cast<uInt>(deflated.size());
  stream.next_out = reinterpret_cast<Bytef *>(bytes.data());
  stream.avail_out = static_cast<uInt>(size);
  int code = inflate(&stream, Z_FINISH);
  bool complete = code == Z_STREAM_END && stream.total_out == size;
  inflateEnd(&stream);
  if (!complete)
    fail(name, "is damaged: its compressed data does not give the size it states");
  return bytes;
}

/// Returns the contents of the member whose central directory entry starts at `entry`.
static std::string readMember(const std::string &zip, size_t entry, const std::string &name) {
  auto method = load<uint16_t>(zip, entry + 10, name);
  auto crc = load<uint32_t>(zip, entry + 16, name);
  auto packedSize = load<uint32_t>(zip, entry + 20, name);
  auto size = load<uint32_t>(zip, entry + 24, name);
  size_t local = load<uint32_t>(zip, entry + 42, name);
  size_t data =
      local + 30 + load<uint16_t>(zip, local + 26, name) + load<uint16_t>(zip, local + 28, name);
  std::string packed = slice(zip, data, packedSize, name);
  if (method != 0 && method != 8)
    fail(name,
         "is packed by method " + std::to_string(method) + "; only stored and deflated are read");
  std::string bytes = method == 0 ? packed : inflateRaw(packed, size, name);
  if (crc32(0, reinterpret_cast<const Bytef *>(bytes.data()), static_cast<uInt>(bytes.size())) !=
      crc)
    fail(name, "is damaged: wrong checksum");
  return bytes;
}

std::map<std::string, NpyArray> readNpz(const std::string &path) {
  std::string zip = readFile(path);
  size_t end = zip.rfind("PK\x05\x06");
  if (end == std::string::npos)
    fail(path, "is not a zip file");
  auto count = load<uint16_t>(zip, end + 10, path);
  size_t entry = load<uint32_t>(zip, end + 16, path);

  std::map<std::string, NpyArray> arrays;
  for (int i = 0; i < count; ++i) {
    if (slice(zip, entry, 4, path) != "PK\x01\x02")
      fail(path, "has a damaged central directory");
    auto nameSize = load<uint16_t>(zip, entry + 28, path);
    std::string name = slice(zip, entry + 46, nameSize, path);
    std::string where = path + ": " + name;
    NpyArray array = parseNpy(readMember(zip, entry, where), where);
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0)
      name.resize(name.size() - 4);
    arrays.emplace(name, std::move(array));
    entry += 46 + nameSize + load<uint16_t>(zip, entry + 30, path) +
             load<uint16_t>(zip, entry + 32, path);
  }
  return arrays;
}

//===----------------------------------------------------------------------===//
// .csv
//===----------------------------------------------------------------------===//

static std::vector<std::string> splitCommas(std::string line) {
  if (!line.empty() && line.back() == '\r')
    line.pop_back();
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    cells.push_back(cell);
  return cells;
}

std::map<std::string, std::vector<double>> readCsv(const std::string &path) {
  std::istringstream lines(readFile(path));
  std::string line;
  if (!std::getline(lines, line))
    fail(path, "is empty");
  std::vector<std::string> names = splitCommas(line);
  std::map<std::string, std::vector<double>> columns;
  while (std::getline(lines, line)) {
    std::vector<std::string> cells = splitCommas(line);
    if (cells.size() != names.size())
      fail(path, "has the line '" + line + "' where " + std::to_string(names.size()) +
                     " numbers were expected");
    for (size_t i = 0; i < cells.size(); ++i) {
      char *end = nullptr;
      columns[names[i]].push_back(std::strtod(cells[i].c_str(), &end));
      if (cells[i].empty() || *end != '\0')
        fail(path, "has '" + cells[i] + "' where a number was expected");
    }
  }
  return columns;
}

} // namespace tbc::test
