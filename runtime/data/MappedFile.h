//===- MappedFile.h - A file's bytes in memory, read as they are touched ---===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_MAPPEDFILE_H
#define TBC_RUNTIME_DATA_MAPPEDFILE_H

#include "runtime/abi/Status.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tbc::data {

/// Read-only; copies share the mapping.
class MappedFile {
public:
  /// Errors: `code`, naming the path and the system's reason; what is no regular file is refused.
  static Result<MappedFile> open(const std::string &path, ErrorCode code);

  const unsigned char *data() const { return bytes.get(); }
  size_t size() const { return numBytes; }
  std::string_view text() const { return {reinterpret_cast<const char *>(bytes.get()), numBytes}; }
  const std::string &path() const { return filePath; }

private:
  std::string filePath;
  std::shared_ptr<const unsigned char> bytes;
  size_t numBytes = 0;
};

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_MAPPEDFILE_H
