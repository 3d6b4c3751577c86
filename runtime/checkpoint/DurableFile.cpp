//===- DurableFile.cpp - Files and folders that survive a crash ------------===//

#include "runtime/checkpoint/DurableFile.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace tbc::checkpoint {

static Error failed(const std::string &what, const std::string &path) {
  return {ErrorCode::Other, "cannot " + what + " " + path + ": " + strerror(errno)};
}

Result<DurableFile> DurableFile::create(const std::string &path, const std::string &shown) {
  const std::string &name = shown.empty() ? path : shown;
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return failed("create", name);
  return DurableFile(fd, name);
}

DurableFile::DurableFile(DurableFile &&o) noexcept
    : fd(std::exchange(o.fd, -1)), shown(std::move(o.shown)) {}

DurableFile::~DurableFile() {
  if (fd >= 0)
    ::close(fd);
}

Status DurableFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return failed("write", shown);
    bytes.remove_prefix(size_t(count));
  }
  return Status::ok();
}

Status DurableFile::finish() {
  bool isSynced = fsync(fd) == 0;
  int reason = errno;
  bool isClosed = ::close(std::exchange(fd, -1)) == 0;
  if (!isSynced)
    errno = reason;
  return isSynced && isClosed ? Status::ok() : Status(failed("write", shown));
}

Status writeDurably(const std::string &path, std::string_view text) {
  Result<DurableFile> file = DurableFile::create(path);
  if (!file)
    return file.error();
  if (Status status = file->write(text); !status)
    return status;
  return file->finish();
}

Status syncFolder(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return failed("open", path);
  bool isSynced = fsync(fd) == 0;
  int reason = errno;
  ::close(fd);
  errno = reason;
  return isSynced ? Status::ok() : Status(failed("write", path));
}

Status renameDurably(const std::string &from, const std::string &to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    return failed("rename " + from + " to", to);
  return Status::ok();
}

void reach(const char *point, long rank) {
  const char *wanted = std::getenv("TBC_KILL_AT");
  if (wanted && std::string(point) + ":" + std::to_string(rank) == wanted)
    raise(SIGKILL);
}

} // namespace tbc::checkpoint
