//===- Sha256.h - SHA-256 --------------------------------------------------===//
//
// Part of tbc. Plain C++ (std only).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_SHA256_H
#define TBC_RUNTIME_ABI_SHA256_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tbc {

/// The SHA-256 of bytes added in parts. Source: FIPS 180-4.
class Sha256 {
public:
  /// `mayUseInstructions`: use the SHA extensions of x86-64 if the processor has them. The result
  /// is the same, about five times as fast.
  explicit Sha256(bool mayUseInstructions = true);
  void add(std::string_view bytes);
  /// The hash of all bytes so far, as 64 lower-case hexadecimal digits.
  std::string hex() const;

private:
  static constexpr size_t blockBytes = 64;
  std::array<uint32_t, 8> hash;
  std::string rest; // bytes after the last whole block
  uint64_t numBytes = 0;
  bool mayUseInstructions;
};

/// The SHA-256 of `bytes` as 64 lower-case hexadecimal digits. Source: FIPS 180-4.
std::string sha256Hex(std::string_view bytes);

/// The HMAC-SHA-256 of `message` under `key`, in the same form. Source: RFC 2104.
std::string hmacSha256Hex(std::string_view key, std::string_view message);

/// Whether two texts are equal. The time taken does not reveal the position of a difference.
bool equalInConstantTime(std::string_view a, std::string_view b);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_SHA256_H
