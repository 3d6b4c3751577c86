//===- Outputs.cpp - Check that outputs can be written -------------------------===//

#include "tools/tbc-run/Outputs.h"

#include "runtime/abi/Problem.h"
#include "runtime/train/Continuation.h"
#include "runtime/train/StepLog.h"

#include <algorithm>
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
  if (file == "-")
    return problem(Problem::BadRunFlag,
                   flag + " -: it needs a file; --json prints steps to standard output");
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
  if (train::isLogInUse(options.logFile))
    return problem(Problem::CannotWrite,
                   "--log " + options.logFile +
                       " is in use by another run; wait until it ends, or name another file");
  return tryFile("--profile", options.profile.file);
}

Status keepInputs(const std::string &flag, const std::string &file,
                  const std::vector<std::string> &inputs) {
  auto isSame = [&](const std::string &input) {
    std::error_code isAbsent;
    return fs::equivalent(file, input, isAbsent);
  };
  if (file.empty() || std::none_of(inputs.begin(), inputs.end(), isSame))
    return Status::ok();
  return problem(Problem::CannotWrite, "cannot write " + flag + (flag.empty() ? "" : " ") + file +
                                           ": it is an input, and would be lost; name another");
}

/// Returns the files that a run reads.
static std::vector<std::string> inputsOf(const train::LoadedProgram &loaded,
                                         const train::TrainOptions &options) {
  const fs::path folder = loaded.folder;
  std::vector<std::string> inputs = {(folder / program::sealFile).string(), options.initPath};
  for (const auto *files : {&loaded.files.seal().files, &loaded.files.seal().sources})
    for (const program::FileSeal &file : *files)
      inputs.push_back((folder / file.path).string());
  for (const auto *sources : {&options.data.sources, &options.evaluation.sources})
    for (const std::string &source : *sources)
      inputs.push_back(source.substr(source.find('=') + 1)); // NAME=FILE, or FILE
  return inputs;
}

Status checkFilesAreKept(const train::LoadedProgram &loaded, const train::TrainOptions &options) {
  const std::vector<std::string> inputs = inputsOf(loaded, options);
  const std::string &log = options.logFile, &profile = options.profile.file;
  if (Status status = keepInputs("--log", log, inputs); !status)
    return status;
  if (Status status = keepInputs("--profile", profile, inputs); !status)
    return status;
  const bool areOne =
      !log.empty() && !profile.empty() &&
      fs::absolute(log).lexically_normal() == fs::absolute(profile).lexically_normal();
  if (areOne)
    return problem(Problem::BadRunFlag,
                   "--log and --profile both name " + log + "; give each a file of its own");
  return Status::ok();
}

} // namespace tbc::cli
