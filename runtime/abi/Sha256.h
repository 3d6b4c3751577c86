//===- Sha256.h - SHA-256 --------------------------------------------------===//
//
// Part of tbc. Plain C++ (std only).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_SHA256_H
#define TBC_RUNTIME_ABI_SHA256_H

#include <string>
#include <string_view>

namespace tbc {

/// The SHA-256 of `bytes` as 64 lower-case hexadecimal digits. Source: FIPS 180-4.
std::string sha256Hex(std::string_view bytes);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_SHA256_H
