//===- TemporaryFolder.h - A folder for files of one call ------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_TEMPORARYFOLDER_H
#define TBC_RUNTIME_ABI_TEMPORARYFOLDER_H

#include "runtime/abi/Status.h"

#include <string>

namespace tbc {

/// A folder that is removed with its content at the end of its scope.
class TemporaryFolder {
public:
  /// Makes a folder in TMPDIR, or /tmp. Example: "tbc-kernels" makes /tmp/tbc-kernels-a8Wx2f.
  static Result<TemporaryFolder> make(const std::string &name);
  TemporaryFolder(TemporaryFolder &&other) noexcept : path(std::move(other.path)) {
    other.path.clear();
  }
  ~TemporaryFolder();
  /// Returns the path of the file or folder `name` in it.
  std::string file(const std::string &name) const { return path + "/" + name; }

private:
  explicit TemporaryFolder(std::string path) : path(std::move(path)) {}

  std::string path; // empty: moved from
};

} // namespace tbc

#endif // TBC_RUNTIME_ABI_TEMPORARYFOLDER_H
