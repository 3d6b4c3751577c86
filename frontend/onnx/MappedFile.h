//===- MappedFile.h - A file read in place ---------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_MAPPEDFILE_H
#define TBC_FRONTEND_ONNX_MAPPEDFILE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <memory>
#include <string>

namespace tbc::frontend {

/// A regular file mapped read-only; copies share the mapping.
class MappedFile {
public:
  /// Maps the file at `path`. Errors (Usage): no such file, not a regular file, not readable.
  static Result<MappedFile> open(const std::string &path);

  /// Maps an open regular file, and closes `descriptor` in any case. `path` is for messages.
  static Result<MappedFile> fromDescriptor(int descriptor, const std::string &path);

  const uint8_t *data() const { return static_cast<const uint8_t *>(mapping.get()); }
  uint64_t size() const { return bytes; }
  /// Time of the last change, since 1970.
  int64_t modifiedNanoseconds() const { return modified; }
  const std::string &path() const { return name; }

private:
  std::shared_ptr<const void> mapping;
  uint64_t bytes = 0;
  int64_t modified = 0;
  std::string name;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MAPPEDFILE_H
