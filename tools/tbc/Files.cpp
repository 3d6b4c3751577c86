//===- Files.cpp - Read and write whole files ---------------------------------===//

#include "runtime/abi/Problem.h"
#include "tools/tbc/Command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

namespace tbc::cli {

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
  std::string temporary = temporaryFor(path);
  auto fail = [&](const char *what) {
    int code = errno;
    std::remove(temporary.c_str());
    return problem(Problem::CannotWrite,
                   std::string("cannot ") + what + " " + path + ": " + strerror(code));
  };
  FILE *file = std::fopen(temporary.c_str(), "wb");
  if (!file)
    return fail("create");
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fflush(file) == 0 && written;
  written = fsync(fileno(file)) == 0 && written;
  int code = errno;
  if (std::fclose(file) != 0 || !written) {
    errno = code;
    return fail("write");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    return fail("replace");
  return Status::ok();
}

Status checkWritable(const std::string &path) {
  if (path.empty() || path == "-")
    return Status::ok();
  std::string temporary = temporaryFor(path);
  FILE *file = std::fopen(temporary.c_str(), "wb");
  if (!file)
    return problem(Problem::CannotWrite, "cannot create " + path + ": " + strerror(errno));
  std::fclose(file);
  std::remove(temporary.c_str());
  return Status::ok();
}

Result<std::string> readFile(const std::string &path, ErrorCode code) {
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
