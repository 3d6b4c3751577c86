//===- Continuation.cpp - Writing checkpoints and resuming from them ------===//

#include "runtime/train/Continuation.h"

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/SharedStatus.h"
#include "runtime/train/Agreement.h"

#include <filesystem>

namespace tbc::train {

using kernels::Tensor;

Status checkFolder(const std::string &folder, bool resumes) {
  if (checkpoint::Checkpoint::open(folder))
    return Error{ErrorCode::Usage, "--checkpoint " + folder +
                                       " is one checkpoint itself; name the folder that holds it"};
  std::vector<int64_t> steps = checkpoint::stepsIn(folder);
  if (resumes || steps.empty())
    return Status::ok();
  return Error{ErrorCode::Usage, "--checkpoint " + folder +
                                     " holds checkpoints already, the newest of step " +
                                     std::to_string(steps.front()) +
                                     "; give --resume to go on from it, or name another folder"};
}

Result<std::optional<checkpoint::FolderLock>> claimFolder(comm::Communicator &communicator,
                                                          const std::string &folder, bool resumes,
                                                          int64_t bytes, const WarnFn &warn) {
  std::optional<checkpoint::FolderLock> lock;
  auto claim = [&]() -> Status {
    Result<checkpoint::FolderLock> taken = checkpoint::FolderLock::take(folder);
    if (!taken)
      return taken.error();
    lock = std::move(*taken);
    if (!lock->isReliable())
      warn("the file system of " + folder +
           " has no locks; see that no other run writes its checkpoints there");
    if (Status free = checkFolder(folder, resumes); !free)
      return free;
    return checkpoint::checkSpace(folder, bytes, "a checkpoint");
  };
  Status mine = communicator.rank() == 0 ? claim() : Status::ok();
  if (Status all = comm::shareStatus(communicator, mine, "the start"); !all)
    return all.error();
  return lock;
}

Result<int64_t> loadNewest(comm::Communicator &communicator, const std::string &folder,
                           const std::function<Status(const std::string &path, int64_t step)> &load,
                           const WarnFn &warn) {
  // The steps as rank 0 sees them. More damaged checkpoints in a row than this are not an accident.
  constexpr size_t most = 16;
  std::vector<int64_t> steps;
  if (communicator.rank() == 0)
    steps = checkpoint::stepsIn(folder);
  steps.resize(most, 0);
  auto told =
      communicator
          .broadcast(everyoneOf(communicator), 0,
                     Tensor::fromInts({kernels::DType::I64, {int64_t(most)}}, steps), "the start")
          ->wait();
  if (!told)
    return told.error();
  Status first;
  for (int64_t step : told->data<int64_t>()) {
    if (step == 0)
      break;
    std::string path = (std::filesystem::path(folder) / checkpoint::nameOf(step)).string();
    Status mine = std::filesystem::exists(path)
                      ? load(path, step)
                      : Status(Error{ErrorCode::CheckpointUnreadable,
                                     path + " is there for rank 0 and not for this rank; the "
                                            "folder must be the same for all"});
    Status all = comm::shareStatus(communicator, mine, "going on from a checkpoint");
    if (all) {
      if (!first)
        warn("going on from " + path + ", the newest checkpoint that is whole");
      return step;
    }
    if (all.error().code != ErrorCode::CheckpointUnreadable)
      return all.error();
    warn(all.error().message);
    if (first)
      first = all;
  }
  if (!first)
    return first.error();
  return int64_t(0);
}

} // namespace tbc::train
