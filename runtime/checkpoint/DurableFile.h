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
  /// Replaces what is there.
  static Result<DurableFile> create(const std::string &path);
  DurableFile(DurableFile &&o) noexcept;
  DurableFile &operator=(DurableFile &&) = delete;
  ~DurableFile();

  Status write(std::string_view bytes);
  /// Brings it to the disk and closes it; a file that is not finished may hold anything.
  Status finish();

private:
  DurableFile(int fd, std::string path) : fd(fd), path(std::move(path)) {}
  int fd;
  std::string path;
};

Status writeDurably(const std::string &path, std::string_view text);
/// Brings a folder's entries to the disk.
Status syncFolder(const std::string &path);
Status renameDurably(const std::string &from, const std::string &to);

/// Kills this process where the environment has TBC_KILL_AT=POINT:RANK: how tests cut a checkpoint
/// short. Points: "shard-begun", "shard-written", "index-written", "renamed", "pruned".
void reach(const char *point, long rank);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_DURABLEFILE_H
