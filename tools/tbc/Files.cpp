//===- Files.cpp - Read and write whole files ---------------------------------===//

#include "runtime/abi/Problem.h"
#include "tools/tbc-run/Outputs.h"
#include "tools/tbc/Command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

namespace tbc::cli {

namespace fs = std::filesystem;

/// Returns whether `path` is a device or a pipe. It is written into: to replace /dev/null by a file
/// would break the machine.
static bool isStream(const std::string &path) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

/// Returns the file that `path` means: a link stays a link to the file that is replaced.
static std::string behindLinks(const std::string &path) {
  std::error_code error;
  fs::path file = fs::canonical(path, error);
  return error ? path : file.string();
}

/// Returns the temporary path of a file that is being written.
static std::string temporaryFor(const std::string &path) {
  return path + ".tmp-" + std::to_string(getpid());
}

Status writeFile(const std::string &path, const std::string &text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return std::cout ? Status::ok()
                     : Status(problem(Problem::CannotPrint, "cannot write to stdout"));
  }
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

Status checkReplaceable(const std::string &path) {
  if (isStream(path))
    return problem(Problem::CannotWrite, "cannot create " + path + ": it is a device or a pipe");
  return Status::ok();
}

Status checkWritable(const std::string &path, const std::vector<std::string> &inputs) {
  if (path.empty() || path == "-" || isStream(path))
    return Status::ok();
  std::error_code error;
  if (fs::is_directory(path, error))
    return problem(Problem::CannotWrite, "cannot write " + path + ": it is a folder; name a file");
  if (Status status = keepInputs("", path, inputs); !status)
    return status;
  std::string temporary = temporaryFor(behindLinks(path));
  FILE *file = std::fopen(temporary.c_str(), "wb");
  if (!file)
    return problem(Problem::CannotWrite, "cannot create " + path + ": " + strerror(errno));
  std::fclose(file);
  std::remove(temporary.c_str());
  return Status::ok();
}

Result<std::string> readFile(const std::string &path, ErrorCode code) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return ofKind(Problem::CannotRead,
                  Error{code, "cannot read " + path + ": it is a folder; name a file"});
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file)
    text << file.rdbuf();
  if (!file || file.bad())
    return ofKind(Problem::CannotRead,
                  Error{code, "cannot read " + path + ": " + strerror(errno ? errno : EIO)});
  return text.str();
}

} // namespace tbc::cli
