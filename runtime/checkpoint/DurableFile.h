//===- DurableFile.h - Files and folders that survive a crash --------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CHECKPOINT_DURABLEFILE_H
#define TBC_RUNTIME_CHECKPOINT_DURABLEFILE_H

#include "runtime/abi/Status.h"

#include <string>
#include <string_view>

namespace tbc::checkpoint {

/// A file being written. Errors: Other, naming path and the system's reason.
class DurableFile {
public:
  /// Replaces an existing file. Errors name `shown`, by default `path`.
  static Result<DurableFile> create(const std::string &path, const std::string &shown = "");
  DurableFile(DurableFile &&o) noexcept;
  DurableFile &operator=(DurableFile &&) = delete;
  ~DurableFile();

  Status write(std::string_view bytes);
  /// Flushes the file to the disk and closes it. The content of an unfinished file is undefined.
  Status finish();

private:
  DurableFile(int fd, std::string shown) : fd(fd), shown(std::move(shown)) {}
  int fd;
  std::string shown;
};

Status writeDurably(const std::string &path, std::string_view text);
/// Flushes a folder's entries to the disk.
Status syncFolder(const std::string &path);
Status renameDurably(const std::string &from, const std::string &to);

/// Kills this process if the environment has TBC_KILL_AT=POINT:RANK, so that tests can interrupt a
/// checkpoint. Points: "shard-begun", "shard-written", "index-written", "renamed", "pruned".
void reach(const char *point, long rank);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_DURABLEFILE_H
