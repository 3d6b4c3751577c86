//===- Wire.cpp - Bounded reader of the protobuf wire format ---------------===//

#include "frontend/onnx/Wire.h"

#include <algorithm>

namespace tbc::frontend {

uint64_t Wire::varint(uint64_t &at, uint64_t end) const {
  uint64_t begin = at, value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at >= end)
      throw WireError(begin, end == size ? "the file is truncated in the middle of a number"
                                         : "not an ONNX model: a number runs over its message");
    uint8_t byte = data[at++];
    value |= uint64_t(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0)
      return value;
  }
  throw WireError(begin, "not an ONNX model: a number of more than 64 bits");
}

WireField Wire::field(uint64_t at, uint64_t end) const {
  WireField field;
  field.begin = at;
  uint64_t tag = varint(at, end);
  uint64_t number = tag >> 3;
  unsigned type = tag & 7;
  if (number == 0 || number > 536870911)
    throw WireError(field.begin, "not an ONNX model: field number " + std::to_string(number));
  field.number = unsigned(number);
  field.data = at;
  switch (type) {
  case 0:
    varint(at, end);
    field.bytes = at - field.data;
    break;
  case 1:
    field.bytes = 8;
    break;
  case 2:
    field.bytes = varint(at, end);
    field.data = at;
    break;
  case 5:
    field.bytes = 4;
    break;
  default:
    throw WireError(field.begin, "not an ONNX model: wire type " + std::to_string(type));
  }
  field.type = WireType(type);
  if (field.bytes > end - field.data)
    throw WireError(field.begin,
                    end == size ? "the file is truncated: field " + std::to_string(number) +
                                      " has " + std::to_string(field.bytes) + " bytes, but only " +
                                      std::to_string(end - field.data) + " are left"
                                : "not an ONNX model: field " + std::to_string(number) +
                                      " runs over the end of its message");
  field.next = field.data + field.bytes;
  return field;
}

void putVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += char(value | 0x80);
  out += char(value);
}

void putTag(std::string &out, unsigned field, WireType type) {
  putVarint(out, uint64_t(field) << 3 | unsigned(type));
}

static bool isControl(uint8_t byte) { return byte < 0x20 || byte == 0x7f; }

static bool isUtf8(const uint8_t *bytes, uint64_t size) {
  for (uint64_t i = 0; i < size;) {
    uint8_t lead = bytes[i];
    unsigned length = lead < 0x80       ? 1
                      : lead >> 5 == 6  ? 2
                      : lead >> 4 == 14 ? 3
                      : lead >> 3 == 30 ? 4
                                        : 0;
    if (length == 0 || length > size - i)
      return false;
    uint32_t point = length == 1 ? lead : lead & (0x7f >> length);
    for (unsigned j = 1; j < length; ++j) {
      if ((bytes[i + j] & 0xc0) != 0x80)
        return false;
      point = point << 6 | (bytes[i + j] & 0x3f);
    }
    constexpr uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return false;
    i += length;
  }
  return true;
}

static std::string escaped(uint8_t byte) {
  constexpr const char *digits = "0123456789abcdef";
  return std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
}

/// Returns the bytes in quotes, cut after 64. All that a terminal may not print is escaped.
static std::string quoted(const uint8_t *bytes, uint64_t size, bool isText) {
  constexpr uint64_t mostShown = 64;
  std::string text;
  for (uint64_t i = 0; i < std::min(size, mostShown); ++i) {
    const bool isPlain = !isControl(bytes[i]) && (isText || bytes[i] < 0x80);
    text += isPlain ? std::string(1, char(bytes[i])) : escaped(bytes[i]);
  }
  return "\"" + text + (size > mostShown ? "\" ..." : "\"");
}

std::string whyNoName(const uint8_t *bytes, uint64_t size) {
  if (!isUtf8(bytes, size))
    return "is not valid UTF-8 text: " + quoted(bytes, size, /*isText=*/false);
  const uint8_t *control = std::find_if(bytes, bytes + size, isControl);
  if (control == bytes + size)
    return "";
  // A cut may fall into a character.
  return "has the control character " + escaped(*control) + ": " +
         quoted(bytes, size, /*isText=*/size <= 64);
}

} // namespace tbc::frontend
