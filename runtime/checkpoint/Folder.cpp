//===- Folder.cpp - The folder that holds a run's checkpoints ----------------===//

#include "runtime/checkpoint/Folder.h"

#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/checkpoint/DurableFile.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace tbc::checkpoint {

namespace fs = std::filesystem;

static Error failed(const std::string &what, const std::string &path) {
  return {ErrorCode::Other, "cannot " + what + " " + path + ": " + strerror(errno)};
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string nameOf(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

std::vector<int64_t> stepsIn(const std::string &folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("step-", 0) != 0 || name.find_first_not_of("0123456789", 5) != std::string::npos)
      continue;
    // Another number of zeros, or one beyond int64, is no name of a checkpoint.
    const int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
    if (nameOf(step) == name)
      steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<std::string> latest(const std::string &folder) {
  std::vector<int64_t> steps = stepsIn(folder);
  if (steps.empty())
    return std::nullopt;
  return (fs::path(folder) / nameOf(steps.front())).string();
}

Result<std::string> newRunId() {
  unsigned char bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != ssize_t(sizeof bytes))
    return failed("read", "random numbers of the system");
  std::string text;
  for (unsigned char byte : bytes)
    for (int digit : {byte >> 4, byte & 15})
      text += "0123456789abcdef"[digit];
  return text;
}

//===----------------------------------------------------------------------===//
// The lock
//===----------------------------------------------------------------------===//

/// "HOST, process 123, since 2026-11-23 12:00:00 UTC".
static std::string describeSelf() {
  char host[256] = {}, when[64] = {};
  if (gethostname(host, sizeof host - 1) != 0)
    std::strcpy(host, "an unnamed host");
  std::time_t now = std::time(nullptr);
  std::tm fields{};
  if (gmtime_r(&now, &fields))
    std::strftime(when, sizeof when, ", since %Y-%m-%d %H:%M:%S UTC", &fields);
  return host + (", process " + std::to_string(getpid())) + when;
}

static std::string ownerIn(int file) {
  char text[512] = {};
  ssize_t count = pread(file, text, sizeof text - 1, 0);
  std::string owner(text, count > 0 ? size_t(count) : 0);
  owner = owner.substr(0, owner.find('\n'));
  return owner.empty() ? "another process" : owner;
}

/// Returns whether `path` still names the open file; a previous holder may have removed it.
static bool isNamed(int file, const std::string &path) {
  struct stat open{}, named{};
  return fstat(file, &open) == 0 && stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

/// Restores checkpoints whose replacement was interrupted between two renames.
static Status putBack(const std::string &folder) {
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error)) {
    const fs::path &old = entry.path();
    fs::path finished = old;
    if (old.extension() != ".old" || old.filename().string().rfind("step-", 0) != 0)
      continue;
    finished.replace_extension();
    if (fs::exists(finished)) // the replacement succeeded
      fs::remove_all(old, error);
    else if (Status status = renameDurably(old, finished); !status)
      return status;
  }
  return Status::ok();
}

/// Removes checkpoints that a killed run was writing or removing. Only the holder of the lock may.
/// Example: "step-00000031.tmp".
static void removeLeftovers(const std::string &folder) {
  const std::string ending = ".tmp";
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool isStep = name.rfind("step-", 0) == 0 && entry.path().extension() == ending &&
                        name == nameOf(std::strtoll(name.c_str() + 5, nullptr, 10)) + ending;
    if (isStep && entry.is_directory(error))
      fs::remove_all(entry.path(), error);
  }
}

Result<FolderLock> FolderLock::take(const std::string &folder) {
  std::error_code error;
  bool isNew = fs::create_directories(folder, error);
  if (error)
    return Error{ErrorCode::Other, "cannot create " + folder + ": " + error.message()};
  if (isNew) { // its own name must be on the disk too
    fs::path parent = fs::path(folder).lexically_normal().parent_path();
    if (parent == folder || fs::path(folder).filename().empty())
      parent = parent.parent_path();
    if (Status status = syncFolder(parent.empty() ? "." : parent.string()); !status)
      return status.error();
  }
  std::string path = (fs::path(folder) / ".lock").string();
  while (true) {
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644);
    if (file < 0)
      return failed("open", path);
    int refused = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    FolderLock lock(file, path, refused == 0);
    if (refused == EWOULDBLOCK) {
      lock.hasLock = false;
      return Error{ErrorCode::Usage,
                   folder + " is in use by another run (" + ownerIn(file) +
                       "); wait until it ends, or give this run a --checkpoint folder of its own"};
    }
    if (refused == 0 && !isNamed(file, path))
      continue;
    std::string owner = describeSelf() + "\n";
    if (refused == 0 && (ftruncate(file, 0) != 0 ||
                         pwrite(file, owner.data(), owner.size(), 0) != ssize_t(owner.size())))
      return failed("write", path);
    if (Status status = putBack(folder); !status)
      return status.error();
    if (refused == 0)
      removeLeftovers(folder);
    return lock;
  }
}

FolderLock::FolderLock(FolderLock &&other) noexcept
    : file(std::exchange(other.file, -1)), path(std::move(other.path)),
      hasLock(std::exchange(other.hasLock, false)) {}

FolderLock &FolderLock::operator=(FolderLock &&other) noexcept {
  std::swap(file, other.file);
  std::swap(path, other.path);
  std::swap(hasLock, other.hasLock);
  return *this;
}

FolderLock::~FolderLock() {
  if (hasLock && isNamed(file, path))
    unlink(path.c_str()); // while it is held, so that no other process's lock is removed
  if (file >= 0)
    ::close(file);
}

//===----------------------------------------------------------------------===//
// Replacing and removing
//===----------------------------------------------------------------------===//

static Status removeAll(const std::string &path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error)
    return Error{ErrorCode::Other, "cannot remove " + path + ": " + error.message()};
  return Status::ok();
}

Status replaceFolder(const std::string &temporary, const std::string &finished) {
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, finished.c_str(), RENAME_EXCHANGE) == 0)
    return removeAll(temporary); // now the old one
  if (errno == ENOENT)
    return renameDurably(temporary, finished);
  // E.g., NFS cannot exchange names.
  std::string old = finished + ".old";
  if (Status status = removeAll(old); !status)
    return status;
  if (Status status = renameDurably(finished, old); !status)
    return status;
  if (Status status = renameDurably(temporary, finished); !status)
    return status;
  return removeAll(old);
}

/// Returns the run id of a checkpoint; empty if it is unknown.
static std::string runOf(const std::string &path) {
  auto file = data::MappedFile::open(path + "/" + indexFile, ErrorCode::CheckpointUnreadable);
  if (!file)
    return "";
  Result<Index> index = readIndex(file->text());
  return index ? index->progress.run : "";
}

Status prune(const std::string &folder, const std::string &run, int64_t keep) {
  int64_t numOwn = 0;
  if (keep <= 0)
    return Status::ok();
  for (int64_t step : stepsIn(folder)) {
    std::string path = (fs::path(folder) / nameOf(step)).string();
    if (runOf(path) != run || ++numOwn <= keep)
      continue;
    // Its name goes first, so that a half-removed checkpoint never has a valid name.
    if (Status status = renameDurably(path, path + ".tmp"); !status)
      return status;
    if (Status status = removeAll(path + ".tmp"); !status)
      return status;
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Space
//===----------------------------------------------------------------------===//

static std::string sizeText(double bytes) {
  const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit)
    bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

Status checkSpace(const std::string &folder, int64_t bytes, const std::string &what) {
  struct statvfs disk{};
  if (statvfs(folder.c_str(), &disk) != 0)
    return failed("look at", folder);
  double left = double(disk.f_bavail) * double(disk.f_frsize);
  if (double(bytes) <= left)
    return Status::ok();
  return Error{ErrorCode::Other, what + " takes " + sizeText(double(bytes)) + ", and " + folder +
                                     " has " + sizeText(left) +
                                     " left; make room, lower --keep, or give --checkpoint another "
                                     "folder"};
}

} // namespace tbc::checkpoint
