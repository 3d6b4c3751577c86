//===- Trainer.h - One rank of a training run ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_TRAINER_H
#define TBC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/abi/Seal.h"
#include "runtime/abi/Status.h"
#include "runtime/train/Feed.h"
#include "runtime/train/LearningRate.h"
#include "runtime/train/MemoryCheck.h"

#include <functional>
#include <optional>

namespace tbc::train {

struct CheckpointOptions {
  std::string folder;   // empty: no checkpoints
  int64_t every = 0;    // steps; 0: at the end and when stopped only
  int64_t keep = 2;     // 0: all
  bool resumes = false; // from the latest one in `folder`, if any
  bool isAsync = false; // written while the next steps run
};

/// The reaction to a step with a NaN or infinite loss or gradient.
enum class OnNotFinite {
  Stop, // end with NotFinite
  Skip, // leave out its update, on all ranks
};

/// The mean loss over other data, by forward blocks only.
struct EvaluationOptions {
  std::vector<std::string> sources; // see data::openDataset; empty: no evaluation
  int64_t every = 0;                // steps; 0: after the last one only
  int64_t batches = 0;              // global batches; 0: as many as the data fills
};

struct ProfileOptions {
  std::string file; // empty: no profile
  int64_t step = 0; // 0: the second of this run, when memory is warm, or the only one
  /// Whether a device is to time the instructions of that step in any case, for
  /// `TrainCallbacks::end`.
  bool timesDevice = false;
  bool isWanted() const { return !file.empty() || timesDevice; }
};

struct TrainOptions {
  kernels::Arith arith = kernels::Arith::Native;
  bool sumsGradientsInBF16 = false; // see Executor::sumGradientsInBF16
  double gradientShare = 0; // sent share of gradients; 0: all. See Executor::compressGradients
  runtime::MachineMaker machine = runtime::makeReferenceMachine; // executes the kernels
  int threads = 1;                                               // for initial weights, inputs
  int64_t steps = 1;                                             // the number of the last one
  int64_t epochs = 0; // if not 0: the steps of so many epochs
  LearningRate learningRate;
  DataOptions data;
  std::optional<uint64_t> initSeed; // weights drawn, not read
  std::string initPath;             // folder or file (see Pretrained); empty: the model's weights
  std::string logFile;              // one JSON object per step; empty: no log
  std::string eventFolder;          // of TensorBoard; empty: no events
  CheckpointOptions checkpoint;
  EvaluationOptions evaluation;
  ProfileOptions profile;
  OnNotFinite onNotFinite = OnNotFinite::Stop;
  bool detectsAnomalies = false; // see AnomalyDetector
  /// Whether the run is on the devices of the plan. If not, the plan's peak FLOP/s does not apply
  /// (`StepReport::mfu` is 0), and its predicted total memory is not compared.
  bool isOnPlannedDevices = true;
  bool checksMemory = false; // calls TrainCallbacks::memory after the last step
};

/// A compiled program as read from its folder.
struct LoadedProgram {
  program::Program program;
  Manifest manifest;
  program::SealedFolder files;
  std::string folder;
};

/// Opens the folder's files, compares all of them with the seal, reads program.json and run.json,
/// and checks the Program with runtime/verify. Errors: Usage, naming the file.
Result<LoadedProgram> loadProgram(const std::string &folder);

/// The report of a step on rank 0.
struct StepReport {
  int64_t step = 0, epoch = 0;
  kernels::Tensor loss; // a scalar of the run's arithmetic
  double learningRate = 0, seconds = 0;
  double tokensPerSecond = 0; // or samples, if samples have no tokens
  /// The norm of all gradients before clipping. It has a value only if the step clips by norm, and
  /// not in residues.
  std::optional<double> gradientNorm;
  /// Model FLOPs utilization: the model FLOP/s over the peak of the plan's cluster; 0 if unknown.
  /// Example: 4e14 of 1e15 FLOP/s is 0.4.
  double mfu = 0;
  /// The largest resident memory of a rank's process, and the largest arena of a rank's Program, in
  /// bytes.
  int64_t residentBytes = 0, plannedBytes = 0;
  /// Whether the step changed nothing, because its loss or a gradient is NaN or infinite.
  bool isSkipped = false;
};

/// The report of an evaluation on rank 0.
struct EvaluationReport {
  int64_t step = 0, batches = 0;
  double loss = 0; // the mean over the batches
  double seconds = 0;
};

/// Callbacks of a run, on every rank.
struct TrainCallbacks {
  /// Before the first step. `done` is the last step of the loaded checkpoint, or 0 without one;
  /// `steps` is the last step of the run.
  std::function<Status(int64_t done, int64_t steps)> begin;
  /// A warning for the user, as a sentence. May be empty.
  std::function<void(const std::string &)> warn;
  /// After each step.
  std::function<void(const StepReport &)> report;
  std::function<void(const EvaluationReport &)> evaluated;
  /// After each step. If it returns true on any rank, all ranks stop after the same step.
  std::function<bool()> stopRequested;
  /// After the last step, with the memory of all ranks. May be empty.
  std::function<void(const std::vector<RankMemoryUse> &)> memory;
  /// After the last step, with the time of each kernel over all steps. May be empty.
  std::function<void(const std::vector<runtime::KernelShare> &)> end;
};

/// Opens the data and the initial weights like `train`, without reading samples, and compares files
/// of weights with their hashes, so that not every rank says the same. Errors: Usage, for data or
/// weights that are missing, have changed, or do not fit the Program's inputs or the flags.
Status checkData(const LoadedProgram &loaded, const TrainOptions &options);

/// Trains. `checksHashes`: this rank checks the hashes of files that all ranks of its host read.
///
/// Errors:
///
/// - those of Executor, the communicator and checkpoints;
/// - StoppedOnRequest, after a checkpoint if they are enabled;
/// - NotFinite, on all ranks: the loss is not finite and such steps are not skipped, or 10
///   steps in a row were skipped.
Status train(const LoadedProgram &loaded, const TrainOptions &options,
             comm::Communicator &communicator, bool checksHashes, const TrainCallbacks &callbacks);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_TRAINER_H
