//===- Outputs.cpp - Check that outputs can be written -------------------------===//

#include "tools/tbc-run/Outputs.h"

#include "runtime/train/Continuation.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace tbc::cli {

namespace fs = std::filesystem;

/// Creates a test file in `folder`. Access rights alone miss full disks and read-only mounts.
static Status tryFolder(const std::string &flag, const fs::path &folder) {
  std::string probe = (folder / ".tbc-XXXXXX").string();
  int file = mkstemp(probe.data());
  if (file < 0)
    return Error{ErrorCode::Other,
                 flag + ": cannot write into " + folder.string() + ": " + std::strerror(errno)};
  close(file);
  unlink(probe.c_str());
  return Status::ok();
}

static Status makeFolder(const std::string &flag, const std::string &folder) {
  if (folder.empty())
    return Status::ok();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error && !fs::is_directory(folder))
    return Error{ErrorCode::Other,
                 flag + ": cannot make the folder " + folder + ": " + error.message()};
  return tryFolder(flag, folder);
}

static Status tryFile(const std::string &flag, const std::string &file) {
  if (file.empty())
    return Status::ok();
  if (fs::is_directory(file))
    return Error{ErrorCode::Other, flag + " " + file + " is a folder; name a file"};
  fs::path folder = fs::path(file).parent_path();
  return tryFolder(flag, folder.empty() ? fs::path(".") : folder);
}

Status checkOutputs(const train::TrainOptions &options) {
  if (Status status = makeFolder("--checkpoint", options.checkpoint.folder); !status)
    return status;
  if (!options.checkpoint.folder.empty())
    if (Status status = train::checkFolder(options.checkpoint.folder, options.checkpoint.resumes);
        !status)
      return status;
  if (Status status = makeFolder("--tensorboard", options.eventFolder); !status)
    return status;
  if (Status status = tryFile("--log", options.logFile); !status)
    return status;
  return tryFile("--profile", options.profile.file);
}

} // namespace tbc::cli
