//===- ExecutorStreams.cpp - Two streams of a block, side by side -----------===//

#include "runtime/exec/Executor.h"

namespace tbc::runtime {

using program::Block;
using program::InstructionKind;
using schedule::Action;

/// Runs communication on a separate thread. If one side fails, the other stops at its next wait. A
/// running collective ends before this returns: either with its peers, which have everything they
/// need for it, or with the error of a failed peer.
Status Executor::runSideBySide(comm::Communicator &communicator, const Action &action) {
  StreamProgress progress;
  if (!communicationThread)
    communicationThread = std::make_unique<StreamThread>();
  auto run = [&](auto side) {
    try {
      Status status = (this->*side)(communicator, action, progress);
      if (!status)
        progress.fail(status.error());
      return status;
    } catch (const std::exception &error) { // e.g., out of memory
      Error failure{ErrorCode::RankFailed,
                    describe(*program, stageIndex, action) + ": " + error.what()};
      progress.fail(failure);
      return Status(failure);
    }
  };
  communicationThread->start([&] { (void)run(&Executor::runCommunication); });
  Status status = run(&Executor::runKernels);
  communicationThread->finish();
  return status;
}

Status Executor::runCommunication(comm::Communicator &communicator, const Action &action,
                                  StreamProgress &progress) {
  const Block &block = stageCode->block(action);
  for (int i : prepared.at(action).streams[int(program::Stream::Communication)]) {
    for (int wait : block.instructions[i].waits)
      if (Status status = progress.waitFor(program::Stream::Compute, wait); !status)
        return status;
    auto begin = std::chrono::steady_clock::now();
    if (Result<int> next = runInstructions(communicator, action, i); !next)
      return next.error();
    {
      std::lock_guard lock(progress.observers);
      if (Status status = tell(action, i, i + 1, begin); !status)
        return status;
    }
    // Only the machine writes to slots. Instructions without results for slots need not wait for a
    // running kernel.
    std::unique_lock lock(progress.machine, std::defer_lock);
    if (!prepared.at(action).instructions[i].results.empty())
      lock.lock();
    if (Status status = settle(action, i, nullptr); !status)
      return status;
    if (lock.owns_lock())
      lock.unlock();
    progress.finish(program::Stream::Communication, i);
  }
  return Status::ok();
}

/// Runs the kernels (and slices, which need no peer).
Status Executor::runKernels(comm::Communicator &communicator, const Action &action,
                            StreamProgress &progress) {
  const Block &block = stageCode->block(action);
  const PreparedBlock &ready = prepared.at(action);
  const std::vector<int> &kernels = ready.streams[int(program::Stream::Compute)];
  for (auto i = kernels.begin(); i != kernels.end();) {
    bool isKernel = block.instructions[*i].kind == InstructionKind::Kernel;
    int next = *i + (isKernel ? machine->numAtOnce(action, *i) : 1);
    for (int k = *i; k < next; ++k)
      for (int wait : block.instructions[k].waits)
        if (Status status = progress.waitFor(program::Stream::Communication, wait); !status)
          return status;
    {
      std::lock_guard lock(progress.machine);
      auto begin = std::chrono::steady_clock::now();
      if (Result<int> ran = runInstructions(communicator, action, *i); !ran)
        return ran.error();
      {
        std::lock_guard observing(progress.observers);
        if (Status status = tell(action, *i, next, begin); !status)
          return status;
      }
      for (; i != kernels.end() && *i < next; ++i)
        if (Status status = settle(action, *i, nullptr); !status)
          return status;
    }
    progress.finish(program::Stream::Compute, next - 1);
  }
  return progress.waitFor(program::Stream::Communication,
                          ready.streams[int(program::Stream::Communication)].back());
}

} // namespace tbc::runtime
