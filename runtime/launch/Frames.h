//===- Frames.h - Lists of texts over a socket -----------------------------===//
//
// Part of tbc. Internal to the stores. A frame is its length in 4 bytes, little-endian, followed by
// its fields. Each field is its length in 4 bytes and its bytes. Example: the one field "get" gives
// a frame of 4 + 4 + 3 bytes with length 7.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_FRAMES_H
#define TBC_RUNTIME_LAUNCH_FRAMES_H

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace tbc::launch {

using Fields = std::vector<std::string>;

/// No key or value is longer than this, so a longer frame is invalid.
inline constexpr uint32_t maxFrameBytes = 1 << 20;
/// The limit for a client without a proven token.
inline constexpr uint32_t maxGreetingBytes = 512;

inline void appendLength(std::string &text, size_t length) {
  for (int i = 0; i < 4; ++i)
    text += char(length >> (8 * i) & 0xff);
}

inline uint32_t lengthAt(const std::string &text, size_t position) {
  uint32_t length = 0;
  for (int i = 0; i < 4; ++i)
    length |= uint32_t(static_cast<unsigned char>(text[position + i])) << (8 * i);
  return length;
}

inline std::string frameOf(const Fields &fields) {
  std::string body;
  for (const std::string &field : fields) {
    appendLength(body, field.size());
    body += field;
  }
  std::string frame;
  appendLength(frame, body.size());
  return frame + body;
}

/// Returns the fields of a frame without its length; nullopt if they do not fill it exactly.
inline std::optional<Fields> fieldsOf(const std::string &body) {
  Fields fields;
  size_t position = 0;
  while (position < body.size()) {
    if (body.size() - position < 4)
      return std::nullopt;
    uint32_t length = lengthAt(body, position);
    position += 4;
    if (body.size() - position < length)
      return std::nullopt;
    fields.push_back(body.substr(position, length));
    position += length;
  }
  return fields;
}

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_FRAMES_H
