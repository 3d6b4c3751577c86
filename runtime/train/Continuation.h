//===- Continuation.h - Writing checkpoints and resuming from them --------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_CONTINUATION_H
#define TBC_RUNTIME_TRAIN_CONTINUATION_H

#include "runtime/checkpoint/Folder.h"
#include "runtime/comm/Communicator.h"

#include <functional>
#include <optional>

namespace tbc::train {

/// Receives warnings for the user, as sentences.
using WarnFn = std::function<void(const std::string &sentence)>;

/// Checks that a run may write its checkpoints into `folder`. Errors: Usage, if it holds
/// checkpoints and `resumes` is false, or is a checkpoint itself.
Status checkFolder(const std::string &folder, bool resumes);

/// Rank 0 claims the folder for this run. It locks the folder, calls `checkFolder` and checks that
/// there is space for a checkpoint of `bytes` bytes. All ranks call it and get the same error; only
/// rank 0 gets the lock. `warn` is called if the file system has no locks.
Result<std::optional<checkpoint::FolderLock>> claimFolder(comm::Communicator &communicator,
                                                          const std::string &folder, bool resumes,
                                                          int64_t bytes, const WarnFn &warn);

/// Loads the newest checkpoint of `folder` that all ranks can load with `load(path, step)`. Returns
/// its step, or 0 if there is no checkpoint. If one is damaged for any rank (CheckpointUnreadable),
/// it calls `warn` and tries the one before. All ranks call it. Errors, the same on all ranks: that
/// of the newest, if all are damaged; any other error of `load`.
Result<int64_t> loadNewest(comm::Communicator &communicator, const std::string &folder,
                           const std::function<Status(const std::string &path, int64_t step)> &load,
                           const WarnFn &warn);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_CONTINUATION_H
