//===- Trainer.h - One rank of a training run ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_TRAINER_H
#define TBC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/abi/Seal.h"
#include "runtime/train/Feed.h"
#include "runtime/train/LearningRate.h"
#include "runtime/train/MemoryCheck.h"

#include "runtime/abi/RunCodes.h"

#include <functional>
#include <optional>

namespace tbc::train {

struct CheckpointOptions {
  std::string folder;   // empty: none are written
  int64_t every = 0;    // steps; 0: at the end and when stopped only
  int64_t keep = 2;     // 0: all
  bool resumes = false; // from the latest in `folder`, if there is one
  bool isAsync = false; // written while the next steps run
};

/// What a run does about a step whose loss, or one of whose gradients, is NaN or infinite.
enum class OnNotFinite {
  Stop, // end with notFiniteCode
  Skip, // leave its update out, on all ranks
};

/// The loss over other data, by forward blocks alone.
struct EvaluationOptions {
  std::vector<std::string> sources; // see data::openDataset; empty: none
  int64_t every = 0;                // steps; 0: after the last one only
  int64_t batches = 0;              // global batches; 0: all that the data fills
};

struct ProfileOptions {
  std::string file; // empty: none
  int64_t step = 0; // 0: the second of this run, when memory is warm, or the only one
};

struct TrainOptions {
  kernels::Arith arith = kernels::Arith::Native;
  bool sumsGradientsInBF16 = false; // see Executor::sumGradientsInBF16
  double gradientShare = 0; // that travels, of gradients; 0: all. See Executor::compressGradients
  runtime::MachineMaker machine = runtime::makeReferenceMachine; // what executes kernels
  int64_t steps = 1;                                             // the number of the last one
  int64_t epochs = 0; // else: as many steps as so many epochs have
  LearningRate learningRate;
  DataOptions data;
  std::optional<uint64_t> initSeed; // weights drawn, not read
  std::string initPath;             // of safetensors (see Pretrained); empty: the model's weights
  std::string logFile;              // one JSON object per step; empty: none
  std::string eventFolder;          // of TensorBoard; empty: none
  CheckpointOptions checkpoint;
  EvaluationOptions evaluation;
  ProfileOptions profile;
  OnNotFinite onNotFinite = OnNotFinite::Stop;
  bool detectsAnomalies = false; // see AnomalyDetector
  /// Whether the plan may be for the devices that compute: else its peak says nothing of the run
  /// (StepReport::mfu is 0), and its memory beside the program's own neither.
  bool isOnPlannedDevices = true;
  bool checksMemory = false; // calls TrainCallbacks::memory after the last step
};

/// A compiled program, as read from its folder.
struct LoadedProgram {
  program::Program program;
  Manifest manifest;
  program::SealedFolder files;
  std::string folder;
};

/// Opens the folder's files, compares all of them with its seal, reads program.json and run.json,
/// and has the checkers of runtime/verify look at the Program. Errors: Usage, naming the file.
Result<LoadedProgram> loadProgram(const std::string &folder);

/// What rank 0 learns of a step.
struct StepReport {
  int64_t step = 0, epoch = 0;
  kernels::Tensor loss; // a scalar of the run's arithmetic
  double learningRate = 0, seconds = 0;
  double tokensPerSecond = 0; // or samples, where samples have no tokens
  /// Of all gradients before they are clipped; only where the step clips by norm, and not in
  /// residues.
  std::optional<double> gradientNorm;
  /// Model FLOPs per second and those that the plan's cluster could; 0 where that is not known.
  double mfu = 0;
  /// Of the rank that has most: what the process takes, and what the Program's arena does.
  int64_t residentBytes = 0, plannedBytes = 0;
  /// Whether the step changed nothing, because its loss or a gradient is NaN or infinite.
  bool isSkipped = false;
};

/// And of an evaluation after it.
struct EvaluationReport {
  int64_t step = 0, batches = 0;
  double loss = 0; // the mean over the batches
  double seconds = 0;
};

/// Who is told of, and asked about, a run; on every rank.
struct TrainCallbacks {
  /// Before the first step; `done` is the last step of the checkpoint that the run goes on from, 0
  /// without one; `steps` that of the run.
  std::function<Status(int64_t done, int64_t steps)> begin;
  /// What whoever started the run should know, a sentence. May be empty.
  std::function<void(const std::string &)> warn;
  /// After each step.
  std::function<void(const StepReport &)> report;
  std::function<void(const EvaluationReport &)> evaluated;
  /// After each step; when it says so on any rank, all stop after the same step.
  std::function<bool()> stopRequested;
  /// After the last step: the memory of all ranks. May be empty.
  std::function<void(const std::vector<RankMemoryUse> &)> memory;
  /// Of all steps, once they are done: what the kernels took. May be empty.
  std::function<void(const std::vector<runtime::KernelShare> &)> end;
};

/// Opens the data as `train` will, of training and of evaluation, without reading its numbers.
/// Errors: Usage, for data that is not there, or does not fit the Program's inputs or the flags.
Status checkData(const LoadedProgram &loaded, const TrainOptions &options);

/// Trains. `isLocalFirst`: this rank checks the files that all ranks of its host read.
///
/// Errors: as of Executor, the communicator and checkpoints; StoppedOnRequest, after a checkpoint
/// where they are written; notFiniteCode, on all ranks alike, where the loss is not finite and such
/// steps are not skipped, or too many in a row are.
Status train(const LoadedProgram &loaded, const TrainOptions &options,
             comm::Communicator &communicator, bool isLocalFirst, const TrainCallbacks &callbacks);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_TRAINER_H
