//===- Folder.h - The folder that holds a run's checkpoints ------------------===//
//
// Part of tbc. Plain C++ on POSIX. The folder as rank 0 of a run uses it: locks it against other
// runs, lists its checkpoints, names new ones and removes old ones.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CHECKPOINT_FOLDER_H
#define TBC_RUNTIME_CHECKPOINT_FOLDER_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::checkpoint {

/// Returns the name of a checkpoint. Example: step 12 is "step-00000012".
std::string nameOf(int64_t step);

/// Returns the steps of the checkpoints in `folder`, the newest first; empty without a folder.
std::vector<int64_t> stepsIn(const std::string &folder);

/// Returns sixteen random hexadecimal digits, to distinguish the checkpoints of different runs.
Result<std::string> newRunId();

/// While it lives, only this process writes to the folder.
///
/// The lock is flock(2) on the file `.lock` in the folder; its content names the holder. The system
/// releases it when its process ends, so a lock is never stale. On NFS it works between hosts as
/// well as the server's lock service does; `isReliable` is false if the file system has no locks.
class FolderLock {
public:
  /// Makes a missing folder, and completes an interrupted replacement. Errors: Usage, if another
  /// process holds the lock, with its number, host and start time; Other, with the system's reason.
  static Result<FolderLock> take(const std::string &folder);
  FolderLock(FolderLock &&other) noexcept;
  FolderLock &operator=(FolderLock &&other) noexcept;
  ~FolderLock();

  bool isReliable() const { return hasLock; }

private:
  FolderLock(int file, std::string path, bool hasLock)
      : file(file), path(std::move(path)), hasLock(hasLock) {}
  int file = -1;
  std::string path;
  bool hasLock = false;
};

/// Gives `temporary`, complete and on the disk, the name `finished`. A checkpoint of this name
/// keeps it until the new one takes it (renameat2 with RENAME_EXCHANGE). If the file system cannot
/// exchange names, the old one is first renamed to "finished.old"; `FolderLock::take` restores it
/// if the process ends in between. Errors: Other.
Status replaceFolder(const std::string &temporary, const std::string &finished);

/// Removes the oldest checkpoints of run `run`, so that `keep` of it are left (0: all). Checkpoints
/// of other runs, or without a readable index, stay. Errors: Other.
Status prune(const std::string &folder, const std::string &run, int64_t keep);

/// Checks that `bytes` more fit on the disk of `folder`. `what` names their use in the error:
/// Other, with both numbers. Example: "a checkpoint takes 1.5 GiB, and saved has 310.0 MiB left".
Status checkSpace(const std::string &folder, int64_t bytes, const std::string &what);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_FOLDER_H
