//===- TemporaryFolder.cpp - A folder for files of one call ----------------===//

#include "runtime/abi/TemporaryFolder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tbc {

namespace fs = std::filesystem;

Result<TemporaryFolder> TemporaryFolder::make(const std::string &name) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error)
    return Error{ErrorCode::Other, "there is no folder for temporary files: " + error.message() +
                                       "; set TMPDIR to one"};
  std::string pattern = (parent / (name + "-XXXXXX")).string();
  if (!mkdtemp(pattern.data()))
    return Error{ErrorCode::Other, "cannot make a folder like " + pattern + ": " +
                                       std::strerror(errno) + "; set TMPDIR to another"};
  return TemporaryFolder(std::move(pattern));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path.empty())
    fs::remove_all(path, ignored);
}

} // namespace tbc
