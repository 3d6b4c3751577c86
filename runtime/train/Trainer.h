//===- Trainer.h - One rank of a training run ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_TRAINER_H
#define TBC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/train/Feed.h"
#include "runtime/train/LearningRate.h"

#include <functional>
#include <optional>

namespace tbc::train {

struct CheckpointOptions {
  std::string folder;   // empty: none are written
  int64_t every = 0;    // steps; 0: at the end and when stopped only
  int64_t keep = 2;     // 0: all
  bool resumes = false; // from the latest in `folder`, if there is one
};

struct TrainOptions {
  kernels::Arith arith = kernels::Arith::Native;
  int64_t steps = 1; // the number of the last one
  LearningRate learningRate;
  DataOptions data;
  std::optional<uint64_t> initSeed; // weights drawn, not read
  std::string logFile;              // one JSON object per step; empty: none
  CheckpointOptions checkpoint;
};

/// A compiled program, as read from its folder.
struct LoadedProgram {
  program::Program program;
  Manifest manifest;
  std::string folder;
};

/// Reads and checks program.json and run.json. Errors: Usage, naming the file.
Result<LoadedProgram> loadProgram(const std::string &folder);

/// What rank 0 learns of a step.
struct StepReport {
  int64_t step = 0, epoch = 0;
  kernels::Tensor loss; // a scalar of the run's arithmetic
  double learningRate = 0, seconds = 0;
  double tokensPerSecond = 0; // or samples, where samples have no tokens
};

/// Who is told of, and asked about, a run; on every rank.
struct TrainCallbacks {
  /// Before the first step; `done` is the last step of the checkpoint that the run goes on from, 0
  /// without one.
  std::function<Status(int64_t done)> begin;
  /// After each step.
  std::function<void(const StepReport &)> report;
  /// After each step; when it says so on any rank, all stop after the same step.
  std::function<bool()> stopRequested;
};

/// Trains. `isLocalFirst`: this rank checks the files that all ranks of its host read.
///
/// Errors: as of Executor, the communicator and checkpoints; StoppedOnRequest, after a checkpoint
/// where they are written.
Status train(const LoadedProgram &loaded, const TrainOptions &options,
             comm::Communicator &communicator, bool isLocalFirst, const TrainCallbacks &callbacks);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_TRAINER_H
