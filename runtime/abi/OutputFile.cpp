//===- OutputFile.cpp - Files that are written whole --------------------------===//

#include "runtime/abi/OutputFile.h"
#include "runtime/abi/Problem.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace tbc {

namespace fs = std::filesystem;

bool isStream(const std::string &path) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

std::string behindLinks(const std::string &path) {
  std::error_code error;
  fs::path file = fs::canonical(path, error);
  return error ? path : file.string();
}

std::string temporaryFor(const std::string &path) {
  return path + ".tmp-" + std::to_string(getpid());
}

Status writeWhole(const std::string &path, const std::string &text) {
  const bool replaces = !isStream(path);
  const std::string target = behindLinks(path);
  const std::string temporary = replaces ? temporaryFor(target) : path;
  auto fail = [&](const char *what) {
    int code = errno;
    if (replaces)
      std::remove(temporary.c_str());
    return problem(Problem::CannotWrite,
                   std::string("cannot ") + what + " " + path + ": " + strerror(code));
  };
  FILE *file = std::fopen(temporary.c_str(), "wb");
  if (!file)
    return fail("create");
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fflush(file) == 0 && written;
  // A pipe has nothing to flush to.
  written = (fsync(fileno(file)) == 0 || !replaces) && written;
  int code = errno;
  if (std::fclose(file) != 0 || !written) {
    errno = code;
    return fail("write");
  }
  if (replaces && std::rename(temporary.c_str(), target.c_str()) != 0)
    return fail("replace");
  return Status::ok();
}

} // namespace tbc
