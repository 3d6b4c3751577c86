//===- ProgramFile.h - The frame around a Program's text -------------------===//
//
// Part of tbc. Plain C++. A Program file is, byte for byte,
//   fileBegin VERSION fileHash SHA-256-OF-PAYLOAD filePayload PAYLOAD fileEnd
// It is one JSON object, and damage of any byte is found before anything is parsed.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_PROGRAMFILE_H
#define TBC_RUNTIME_ABI_PROGRAMFILE_H

#include <cstddef>
#include <string_view>

namespace tbc::program {

inline constexpr int fileVersion = 6;
inline constexpr std::string_view fileBegin = "{\"format\":\"tbc-program\",\"version\":";
inline constexpr std::string_view fileHash = ",\"sha256\":\"";
inline constexpr std::string_view filePayload = "\",\"program\":\n";
inline constexpr std::string_view fileEnd = "}\n";

inline constexpr size_t maxFileBytes = size_t(1) << 30;
inline constexpr int maxFileNesting = 16;

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_PROGRAMFILE_H
