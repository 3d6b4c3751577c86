//===- Continuation.h - The checkpoints that a run writes and goes on from ---===//
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

/// Where sentences for whoever started the run go.
using WarnFn = std::function<void(const std::string &sentence)>;

/// Whether a run may write its checkpoints into `folder`. Errors: Usage, it holds checkpoints and
/// `resumes` is false.
Status checkFolder(const std::string &folder, bool resumes);

/// Rank 0 takes the folder for this run: locks it, does what checkFolder does, and sees that a
/// checkpoint of `bytes` bytes has room there. All ranks call it and get the same error; the lock
/// is rank 0's. `warn`: told where the file system has no locks.
Result<std::optional<checkpoint::FolderLock>> claimFolder(comm::Communicator &communicator,
                                                          const std::string &folder, bool resumes,
                                                          int64_t bytes, const WarnFn &warn);

/// Loads the newest checkpoint of `folder` that all ranks can load by `load(path, step)`, and
/// returns its step; 0 where there is none. One that is damaged for any rank (CheckpointUnreadable)
/// is told by `warn`, and the one before it is tried. All ranks call it. Errors, on all ranks
/// alike: that of the newest, if all are damaged; any other that `load` gives.
Result<int64_t> loadNewest(comm::Communicator &communicator, const std::string &folder,
                           const std::function<Status(const std::string &path, int64_t step)> &load,
                           const WarnFn &warn);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_CONTINUATION_H
