//===- MappedFile.h - A file's bytes in memory, read as they are touched ---===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_MAPPEDFILE_H
#define TBC_RUNTIME_DATA_MAPPEDFILE_H

#include "runtime/abi/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tbc::data {

/// A read-only mapping of a file; copies share it.
///
/// If the file is truncated while it is mapped, the first read of a missing page ends the process.
/// A handler of SIGBUS writes the file's path to stderr and exits with the `code` passed to `open`.
class MappedFile {
public:
  /// Errors: `code`, naming the path and the system's reason. Folders, pipes, sockets and devices
  /// are refused, without waiting for their other end.
  static Result<MappedFile> open(const std::string &path, ErrorCode code);
  /// Maps an open file, and closes `descriptor` in any case. `path` is for messages. Errors: as
  /// those of `open`.
  static Result<MappedFile> fromDescriptor(int descriptor, const std::string &path, ErrorCode code);

  const unsigned char *data() const { return bytes.get(); }
  size_t size() const { return numBytes; }
  /// Time of the last change, since 1970.
  int64_t modifiedNanoseconds() const { return modified; }
  std::string_view text() const { return {reinterpret_cast<const char *>(bytes.get()), numBytes}; }
  const std::string &path() const { return filePath; }

private:
  std::string filePath;
  std::shared_ptr<const unsigned char> bytes;
  size_t numBytes = 0;
  int64_t modified = 0;
};

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_MAPPEDFILE_H
