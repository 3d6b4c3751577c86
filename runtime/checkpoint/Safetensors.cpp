//===- Safetensors.cpp - Tensors in a file ---------------------------------===//

#include "runtime/checkpoint/Safetensors.h"
#include "runtime/checkpoint/DurableFile.h"
#include "runtime/comm/Wire.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tbc::checkpoint {

using Json = nlohmann::ordered_json;
using kernels::Arith;
using kernels::DType;

std::string storedType(DType dtype, Arith arith) {
  if (kernels::isFloat(dtype) && arith == Arith::F64)
    return "F64";
  if (kernels::isFloat(dtype) && arith == Arith::Residue61)
    return "U64";
  std::string name(kernels::name(dtype));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return toupper(c); });
  return name;
}

/// Returns the bytes per element, or 0 for an unknown type.
static int64_t widthOf(const std::string &stored) {
  static const std::map<std::string, int64_t> widths = {
      {"F64", 8}, {"F32", 4}, {"BF16", 2},    {"F16", 2},     {"I64", 8},    {"U64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},      {"U8", 1},      {"BOOL", 1},   {"U32", 4},
      {"U16", 2}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  auto found = widths.find(stored);
  return found == widths.end() ? 0 : found->second;
}

static std::string lengthText(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += char(length >> (8 * i) & 0xff);
  return text;
}

/// Returns a checksum that detects any single damaged byte: FNV-1a over words of 8 bytes, the last
/// word padded with zeros.
static std::string sumOf(const unsigned char *bytes, size_t size) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<size_t>(8, size - i));
    sum = (sum ^ word) * 1099511628211u;
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

static std::string sumKey(const std::string &tensor) { return "sum of " + tensor; }

Status writeSafetensors(const std::string &path, std::vector<Entry> entries,
                        const std::map<std::string, std::string> &metadata,
                        const std::function<Result<std::vector<unsigned char>>(size_t)> &content,
                        Sums sums, const std::string &shown) {
  Json header = Json::object();
  Json about = metadata;
  for (size_t i = 0; sums == Sums::PerTensor && i < entries.size(); ++i) {
    Result<std::vector<unsigned char>> bytes = content(i);
    if (!bytes)
      return bytes.error();
    about[sumKey(entries[i].name)] = sumOf(bytes->data(), bytes->size());
  }
  if (!about.empty())
    header["__metadata__"] = about;
  int64_t end = 0;
  for (Entry &entry : entries) {
    entry.bytes = kernels::numElements(entry.shape) * widthOf(entry.dtype);
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {end, end + entry.bytes}}};
    end += entry.bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' '); // elements begin at a multiple of 8

  Result<DurableFile> file = DurableFile::create(path, shown);
  if (!file)
    return file.error();
  if (Status status = file->write(lengthText(text.size()) + text); !status)
    return status;
  for (size_t i = 0; i < entries.size(); ++i) {
    Result<std::vector<unsigned char>> bytes = content(i);
    if (!bytes)
      return bytes.error();
    if (int64_t(bytes->size()) != entries[i].bytes)
      return Error{ErrorCode::Other, path + ": \"" + entries[i].name + "\" has " +
                                         std::to_string(bytes->size()) + " bytes, not " +
                                         std::to_string(entries[i].bytes)};
    if (Status status = file->write({reinterpret_cast<const char *>(bytes->data()), bytes->size()});
        !status)
      return status;
  }
  return file->finish();
}

/// `isCut`: elements beyond the end of the file are no error.
static Result<SafetensorsFile> read(const std::string &path, bool isCut) {
  auto damaged = [&](const std::string &why) {
    return Error{ErrorCode::CheckpointUnreadable, path + " is damaged: " + why};
  };
  SafetensorsFile result;
  auto opened = data::MappedFile::open(path, ErrorCode::CheckpointUnreadable);
  if (!opened)
    return opened.error();
  result.file = *opened;
  std::string_view text = result.file.text();
  uint64_t length = 0;
  for (size_t i = 0; i < 8 && i < text.size(); ++i)
    length |= uint64_t(static_cast<unsigned char>(text[i])) << (8 * i);
  if (text.size() < 8 || length > text.size() - 8 || length > 100000000)
    return damaged("its header is cut off at byte " + std::to_string(text.size()));
  Json header = Json::parse(text.substr(8, length), nullptr, false);
  if (!header.is_object())
    return damaged("its header is no JSON object");
  int64_t begin = int64_t(8 + length), size = int64_t(text.size()) - begin, covered = 0;
  for (const auto &[name, json] : header.items()) {
    if (name == "__metadata__") {
      for (const auto &[key, value] : json.items())
        result.metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
      continue;
    }
    Entry entry;
    entry.name = name;
    bool isWell = json.is_object() && json.contains("dtype") && json["dtype"].is_string() &&
                  json.contains("shape") && json["shape"].is_array() &&
                  json.contains("data_offsets") && json["data_offsets"].is_array() &&
                  json["data_offsets"].size() == 2 && json["data_offsets"][0].is_number_integer() &&
                  json["data_offsets"][1].is_number_integer();
    if (!isWell)
      return damaged("its entry \"" + name + "\" is malformed");
    entry.dtype = json["dtype"].get<std::string>();
    int64_t bytes = widthOf(entry.dtype);
    if (bytes == 0)
      return Error{ErrorCode::CheckpointUnreadable,
                   path + ": its entry \"" + name + "\" has elements of type " + entry.dtype +
                       ", which tbc does not know; convert the file"};
    bool fits = true;
    for (const Json &dim : json["shape"]) {
      fits = fits && dim.is_number_integer() && dim.get<int64_t>() >= 0 &&
             !__builtin_mul_overflow(bytes, dim.get<int64_t>(), &bytes);
      if (fits)
        entry.shape.push_back(dim.get<int64_t>());
    }
    int64_t from = json["data_offsets"][0].get<int64_t>();
    int64_t to = json["data_offsets"][1].get<int64_t>();
    if (!fits || from < 0 || to < from || (to > size && !isCut) || to - from != bytes)
      return damaged("its entry \"" + name + "\" does not fit its " + std::to_string(text.size()) +
                     " bytes");
    entry.offset = begin + from;
    entry.bytes = bytes;
    covered += bytes;
    result.entries[name] = std::move(entry);
  }
  // In file order, each entry must begin at the end of the previous one. Without this check,
  // overlapping entries could make up for a gap.
  std::vector<const Entry *> order;
  for (const auto &[name, entry] : result.entries)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry *a, const Entry *b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  int64_t end = begin;
  for (const Entry *entry : order) {
    if (entry->offset != end)
      return damaged("its entry \"" + entry->name + "\" begins at byte " +
                     std::to_string(entry->offset) + ", where the one before ends at " +
                     std::to_string(end));
    end += entry->bytes;
  }
  if (covered != size && !isCut)
    return damaged("its entries take " + std::to_string(covered) + " of " + std::to_string(size) +
                   " bytes");
  return result;
}

Result<SafetensorsFile> readSafetensors(const std::string &path) {
  return read(path, /*isCut=*/false);
}

std::string damagedTensors(const std::string &path) {
  Result<SafetensorsFile> content = read(path, /*isCut=*/true);
  if (!content)
    return "";
  std::string first;
  size_t count = 0;
  for (const auto &[name, entry] : content->entries) {
    auto sum = content->metadata.find(sumKey(name));
    if (sum == content->metadata.end())
      continue;
    auto size = int64_t(content->file.size());
    bool isThere = entry.bytes <= size && entry.offset <= size - entry.bytes;
    if (isThere && sumOf(content->elements(entry), size_t(entry.bytes)) == sum->second)
      continue;
    if (count++ == 0)
      first = "\"" + name + "\"";
  }
  if (count > 1)
    first += " and " + std::to_string(count - 1) + (count == 2 ? " more tensor" : " more tensors");
  return first;
}

} // namespace tbc::checkpoint
