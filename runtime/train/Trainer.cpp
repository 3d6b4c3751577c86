//===- Trainer.cpp - One rank of a training run ----------------------------===//

#include "runtime/train/Trainer.h"
#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/data/MappedFile.h"
#include "runtime/train/Weights.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>

namespace tbc::train {

using kernels::Residue;
using kernels::Tensor;

Result<LoadedProgram> loadProgram(const std::string &folder) {
  LoadedProgram loaded;
  loaded.folder = folder;
  auto path = [&](const char *name) { return (std::filesystem::path(folder) / name).string(); };
  auto text = data::MappedFile::open(path(programFile), ErrorCode::Usage);
  if (!text)
    return text.error();
  auto program = program::readProgram(text->text());
  if (!program)
    return Error{program.error().code, path(programFile) + ": " + program.error().message};
  loaded.program = std::move(*program);
  auto manifestText = data::MappedFile::open(path(manifestFile), ErrorCode::Usage);
  if (!manifestText)
    return manifestText.error();
  auto manifest = readManifest(manifestText->text());
  if (!manifest)
    return Error{ErrorCode::Usage, path(manifestFile) + ": " + manifest.error().message};
  loaded.manifest = std::move(*manifest);
  if (loaded.manifest.programHash != sha256Hex(text->text()))
    return Error{ErrorCode::Usage,
                 path(manifestFile) + " belongs to another " + programFile + "; compile again"};
  return loaded;
}

namespace {

/// What ranks tell each other after a step, as 64-bit words.
struct Verdict {
  bool stops = false;
  bool hasLoss = false;
  Tensor loss;
};

int64_t bitsOf(const Tensor &loss) {
  if (loss.holds<Residue>())
    return int64_t(loss.data<Residue>()[0].v);
  double value = loss.toDoubles()[0];
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

Tensor fromBits(int64_t bits, kernels::Arith arith) {
  kernels::TensorType type{
      arith == kernels::Arith::Native ? kernels::DType::F64 : kernels::DType::F32, {}};
  if (arith == kernels::Arith::Residue61)
    return Tensor(type, std::vector<Residue>{{uint64_t(bits)}});
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return Tensor(type, std::vector<double>{value});
}

/// After a step, all ranks agree on its loss and on whether to go on.
Result<Verdict> agree(comm::Communicator &communicator, const Verdict &mine, kernels::Arith arith) {
  comm::Group everyone(size_t(communicator.numRanks()));
  std::iota(everyone.begin(), everyone.end(), int64_t(0));
  std::vector<int64_t> words = {mine.stops, mine.hasLoss, mine.hasLoss ? bitsOf(mine.loss) : 0};
  auto all = communicator
                 .allGather(everyone, Tensor::fromInts({kernels::DType::I64, {3}}, words),
                            "the end of a step")
                 ->wait();
  if (!all)
    return all.error();
  const std::vector<int64_t> &gathered = all->data<int64_t>();
  Verdict verdict;
  int64_t bits = 0, lossRank = -1;
  for (int64_t rank : everyone) {
    verdict.stops |= gathered[size_t(3 * rank)] != 0;
    if (!gathered[size_t(3 * rank + 1)])
      continue;
    int64_t theirs = gathered[size_t(3 * rank + 2)];
    if (verdict.hasLoss && theirs != bits)
      return Error{ErrorCode::VerificationFailed, "ranks " + std::to_string(lossRank) + " and " +
                                                      std::to_string(rank) +
                                                      " disagree on the loss"};
    verdict.hasLoss = true;
    bits = theirs;
    lossRank = rank;
  }
  if (verdict.hasLoss)
    verdict.loss = fromBits(bits, arith);
  return verdict;
}

comm::Group everyoneOf(const comm::Communicator &communicator) {
  comm::Group everyone(size_t(communicator.numRanks()));
  std::iota(everyone.begin(), everyone.end(), int64_t(0));
  return everyone;
}

/// One rank's run.
class Run {
public:
  Run(const LoadedProgram &loaded, const TrainOptions &options, comm::Communicator &communicator,
      const TrainCallbacks &callbacks, runtime::Executor executor, Feed feed)
      : loaded(loaded), options(options), communicator(communicator), callbacks(callbacks),
        executor(std::move(executor)), feed(std::move(feed)) {}

  Status start(bool isLocalFirst);
  Status steps();

private:
  Result<int64_t> latestStep();
  Status resume(int64_t step);
  Status initialize(bool isLocalFirst);
  Result<bool> step(int64_t step);
  Status save(int64_t step);
  checkpoint::Progress progressAt(int64_t step) const;

  const LoadedProgram &loaded;
  const TrainOptions &options;
  comm::Communicator &communicator;
  const TrainCallbacks &callbacks;
  runtime::Executor executor;
  Feed feed;
  int64_t numDone = 0, lastSaved = -1;
};

checkpoint::Progress Run::progressAt(int64_t step) const {
  checkpoint::Progress progress;
  progress.step = step;
  progress.globalBatch = feed.globalBatch();
  progress.dataSeed = options.data.seed;
  progress.isShuffled = options.data.isShuffled;
  return progress;
}

/// The step of the latest checkpoint as rank 0 sees it, 0 if there is none.
Result<int64_t> Run::latestStep() {
  int64_t step = 0;
  if (communicator.rank() == 0) {
    if (std::optional<std::string> path = checkpoint::latest(options.checkpoint.folder)) {
      auto opened = checkpoint::Checkpoint::open(*path);
      if (!opened)
        return opened.error();
      step = opened->progress().step;
    }
  }
  auto told = communicator
                  .broadcast(everyoneOf(communicator), 0,
                             Tensor::fromInts({kernels::DType::I64, {1}}, {step}), "the start")
                  ->wait();
  if (!told)
    return told.error();
  return told->data<int64_t>()[0];
}

Status Run::resume(int64_t step) {
  std::optional<std::string> path = checkpoint::latest(options.checkpoint.folder);
  if (!path)
    return Error{ErrorCode::CheckpointUnreadable,
                 "rank 0 has a checkpoint in " + options.checkpoint.folder +
                     ", this rank sees none there; the folder must be the same for all"};
  auto opened = checkpoint::Checkpoint::open(*path);
  if (!opened)
    return opened.error();
  const checkpoint::Progress &was = opened->progress();
  auto refuse = [&](const std::string &what, const std::string &then, const std::string &now) {
    return Error{ErrorCode::Usage,
                 *path + " was made with " + what + " " + then + ", this run has " + now};
  };
  if (was.step != step)
    return refuse("step", std::to_string(was.step), std::to_string(step) + " from rank 0");
  if (was.globalBatch != feed.globalBatch())
    return refuse("a global batch of", std::to_string(was.globalBatch),
                  std::to_string(feed.globalBatch()));
  if (was.dataSeed != options.data.seed)
    return refuse("--data-seed", std::to_string(was.dataSeed), std::to_string(options.data.seed));
  if (was.isShuffled != options.data.isShuffled)
    return refuse("samples", was.isShuffled ? "shuffled" : "in order",
                  options.data.isShuffled ? "them shuffled" : "them in order");
  return checkpoint::load(*opened, loaded.program, executor, options.arith);
}

Status Run::initialize(bool isLocalFirst) {
  Result<Weights> weights =
      options.initSeed ? Weights::draw(loaded.manifest, options.arith, *options.initSeed)
                       : Weights::open(loaded.manifest, loaded.folder, options.arith, isLocalFirst);
  if (!weights)
    return weights.error();
  return executor.loadPieces(
      [&](const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
          const kernels::TensorType &local) { return weights->piece(tensor, indices, local); });
}

Status Run::start(bool isLocalFirst) {
  if (options.checkpoint.resumes) {
    Result<int64_t> step = latestStep();
    if (!step)
      return step.error();
    numDone = lastSaved = *step;
  }
  Status started = numDone > 0 ? resume(numDone) : initialize(isLocalFirst);
  return started ? callbacks.begin(numDone) : started;
}

/// Whether the run is to stop after it.
Result<bool> Run::step(int64_t step) {
  auto begin = std::chrono::steady_clock::now();
  double rate = options.learningRate.at(step);
  if (Status status = executor.runStep(communicator, feed.inputs(step, rate)); !status)
    return status.error();
  Verdict mine;
  mine.stops = callbacks.stopRequested();
  mine.loss = executor.loss();
  mine.hasLoss = bool(mine.loss);
  Result<Verdict> verdict = agree(communicator, mine, options.arith);
  if (!verdict)
    return verdict.error();
  StepReport line;
  line.step = step;
  line.epoch = feed.epoch(step);
  line.loss = verdict->loss;
  line.learningRate = rate;
  line.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  line.tokensPerSecond = double(feed.globalBatch()) *
                         double(std::max<int64_t>(1, loaded.manifest.tokensPerSample)) /
                         line.seconds;
  callbacks.report(line);
  return verdict->stops;
}

Status Run::save(int64_t step) {
  if (options.checkpoint.folder.empty() || step == lastSaved)
    return Status::ok();
  lastSaved = step;
  return checkpoint::save(options.checkpoint.folder, loaded.program, executor, options.arith,
                          progressAt(step), options.checkpoint.keep, communicator);
}

Status Run::steps() {
  for (int64_t number = numDone + 1; number <= options.steps; ++number) {
    Result<bool> stops = step(number);
    if (!stops)
      return Error{stops.error().code,
                   "step " + std::to_string(number) + ", " + stops.error().message};
    bool isDue = options.checkpoint.every > 0 && number % options.checkpoint.every == 0;
    if (isDue || *stops || number == options.steps)
      if (Status saved = save(number); !saved)
        return saved;
    if (*stops && number < options.steps)
      return Error{ErrorCode::StoppedOnRequest,
                   "stopped on request after step " + std::to_string(number)};
  }
  // Nobody leaves while another still reads what it sent.
  auto done = communicator.barrier(everyoneOf(communicator), "the end of the run")->wait();
  return done ? Status::ok() : Status(done.error());
}

} // namespace

Status train(const LoadedProgram &loaded, const TrainOptions &options,
             comm::Communicator &communicator, bool isLocalFirst, const TrainCallbacks &callbacks) {
  auto executor = runtime::Executor::create(loaded.program, communicator.rank(), options.arith);
  if (!executor)
    return executor.error();
  auto feed = Feed::open(loaded.program, loaded.manifest, options.data, options.arith);
  if (!feed)
    return feed.error();
  Run run(loaded, options, communicator, callbacks, std::move(*executor), std::move(*feed));
  if (Status started = run.start(isLocalFirst); !started)
    return started;
  return run.steps();
}

} // namespace tbc::train
