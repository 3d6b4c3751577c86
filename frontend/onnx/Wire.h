//===- Wire.h - Bounded reader of the protobuf wire format -----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_WIRE_H
#define TBC_FRONTEND_ONNX_WIRE_H

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tbc::frontend {

enum class WireType : unsigned { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

/// Thrown for malformed bytes; `offset` is the position in the file.
struct WireError : std::runtime_error {
  WireError(uint64_t offset, const std::string &message)
      : std::runtime_error(message), offset(offset) {}
  uint64_t offset;
};

/// One field: `begin` is its tag, `data` and `bytes` its content, `next` the following position.
struct WireField {
  unsigned number = 0;
  WireType type = WireType::Varint;
  uint64_t begin = 0, data = 0, bytes = 0, next = 0;
};

class Wire {
public:
  Wire(const uint8_t *data, uint64_t size) : data(data), size(size) {}

  /// Returns the field at `at` of a message that ends at `end`. Throws WireError if it does not
  /// fit.
  WireField field(uint64_t at, uint64_t end) const;

  /// Reads a varint at `at` and advances `at`.
  uint64_t varint(uint64_t &at, uint64_t end) const;

private:
  const uint8_t *data;
  uint64_t size;
};

void putVarint(std::string &out, uint64_t value);
void putTag(std::string &out, unsigned field, WireType type);

/// Returns why the bytes are no name, as the end of "a name in a node …", with the name; "" for
/// UTF-8 text without control characters, overlong forms or surrogates. Example: `has the control
/// character \x1b: "\x1b[2J"`.
std::string whyNoName(const uint8_t *bytes, uint64_t size);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_WIRE_H
