//===- Files.cpp - Read and write whole files ---------------------------------===//

#include "runtime/abi/OutputFile.h"
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

Status writeFile(const std::string &path, const std::string &text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return std::cout ? Status::ok()
                     : Status(problem(Problem::CannotPrint, "cannot write to stdout"));
  }
  return writeWhole(path, text);
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
