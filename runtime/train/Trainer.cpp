//===- Trainer.cpp - One rank of a training run ----------------------------===//

#include "runtime/train/Trainer.h"
#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/exec/Failed.h"
#include "runtime/kernels/Finite.h"
#include "runtime/train/Agreement.h"
#include "runtime/train/Anomaly.h"
#include "runtime/train/Continuation.h"
#include "runtime/train/GradientNorm.h"
#include "runtime/train/OptimizerName.h"
#include "runtime/train/SkippedSteps.h"
#include "runtime/train/StartValues.h"
#include "runtime/train/Trace.h"
#include "runtime/train/Weights.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>

namespace tbc::train {

using kernels::Tensor;

Result<LoadedProgram> loadProgram(const std::string &folder) {
  auto path = [&](const char *name) { return (std::filesystem::path(folder) / name).string(); };
  Result<program::SealedFolder> files = program::SealedFolder::open(folder);
  if (!files)
    return files.error();
  Result<std::string> text = files->text(programFile);
  Result<std::string> manifestText = files->text(manifestFile);
  if (!text || !manifestText)
    return text ? manifestText.error() : text.error();
  if (Status status = files->checkAll(); !status)
    return status.error();
  auto program = program::readProgram(*text);
  if (!program)
    return Error{program.error().code, path(programFile) + ": " + program.error().message};
  auto manifest = readManifest(*manifestText);
  if (!manifest)
    return Error{ErrorCode::Usage, path(manifestFile) + ": " + manifest.error().message};
  if (manifest->programHash != sha256Hex(*text))
    return Error{ErrorCode::Usage,
                 path(manifestFile) + " belongs to another " + programFile + "; compile again"};
  size_t numNamed = manifest->stageDevices.size();
  if (numNamed != 0 && numNamed != program->stages.size())
    return Error{ErrorCode::Usage, path(manifestFile) + " names the devices of " +
                                       std::to_string(numNamed) + " stages, the program has " +
                                       std::to_string(program->stages.size()) + "; compile again"};
  if (Status status = verify::verifyProgram(*program); !status)
    return Error{ErrorCode::Usage, path(programFile) +
                                       " is no valid Program, so nothing was run: " +
                                       status.error().message + "; compile again"};
  return LoadedProgram{std::move(*program), std::move(*manifest), std::move(*files), folder};
}

namespace {

/// One rank's run.
class Run {
public:
  Run(const LoadedProgram &loaded, const TrainOptions &options, comm::Communicator &communicator,
      const TrainCallbacks &callbacks, runtime::Executor executor, Feed feed)
      : loaded(loaded), options(options), communicator(communicator), callbacks(callbacks),
        executor(std::move(executor)), feed(std::move(feed)),
        rate(options.learningRate.forBatch(this->feed.globalBatch())), lastStep(options.steps),
        skipped(loaded.program), norm(loaded.manifest.gradientNorm),
        trace(loaded.program, communicator.rank()) {
    this->feed.useThreads(options.threads);
  }

  Status start(bool checksHashes);
  Status steps();
  /// Sets separate data for evaluation.
  void evaluateOn(Feed evaluation) {
    evaluation.useThreads(options.threads);
    evaluationFeed.emplace(std::move(evaluation));
  }

private:
  Status resume(const std::string &path, int64_t step);
  Status takeFolder();
  Status resumeResiduals(checkpoint::Checkpoint &checkpoint, const std::string &path);
  void warn(const std::string &sentence) const {
    if (callbacks.warn)
      callbacks.warn(sentence);
  }
  Status initialize(bool checksHashes);
  Result<bool> step(int64_t step);
  Status runStep(int64_t step, bool &isApplied);
  Status countSteps();
  Status observe();
  Status afterStep(int64_t step, bool isLast);
  Status checkMemory();
  Status evaluate(int64_t step);
  Status save(int64_t step, bool isLast);
  Status finishSave();
  checkpoint::Progress progressAt(int64_t step) const;

  const LoadedProgram &loaded;
  const TrainOptions &options;
  comm::Communicator &communicator;
  const TrainCallbacks &callbacks;
  runtime::Executor executor;
  Feed feed;
  std::optional<Feed> evaluationFeed;
  LearningRate rate;
  int64_t lastStep, numDone = 0, lastSaved = -1;
  SkippedSteps skipped;
  std::optional<checkpoint::FolderLock> lock; // on rank 0, if checkpoints are written
  std::string runId;
  std::set<std::string> infinite; // tensors that were not finite at the start
  StartValues startValues;
  std::optional<checkpoint::PendingSave> pending;
  GradientNorm norm;
  AnomalyDetector anomalies;
  Trace trace;
  int64_t profiledStep = 0;
  std::vector<double> clocks; // of the ranks, for the profile
};

/// Identifies the gradient residuals of this run (compressed gradients); "" if it has no residuals.
static std::string residualsOf(const LoadedProgram &loaded, const TrainOptions &options) {
  if (options.gradientShare == 0)
    return "";
  char share[32];
  std::snprintf(share, sizeof share, "topk:%.17g", options.gradientShare);
  return share + (" of program " + loaded.manifest.programHash);
}

checkpoint::Progress Run::progressAt(int64_t step) const {
  checkpoint::Progress progress;
  progress.step = step;
  progress.globalBatch = feed.globalBatch();
  progress.stepsBefore = feed.origin().steps;
  progress.epochsBefore = feed.origin().epochs;
  progress.samplesBefore = feed.origin().samples;
  progress.dataSeed = options.data.seed;
  progress.isShuffled = options.data.isShuffled;
  progress.residualsOf = residualsOf(loaded, options);
  progress.run = runId;
  progress.model = loaded.manifest.model;
  progress.optimizer = optimizerName(loaded.program);
  return progress;
}

/// Loads the checkpoint of `step` at `path`.
Status Run::resume(const std::string &path, int64_t step) {
  auto opened = checkpoint::Checkpoint::open(path);
  if (!opened)
    return opened.error();
  const checkpoint::Progress &was = opened->progress();
  if (was.step != step) // e.g., a folder that was copied or renamed
    return Error{ErrorCode::CheckpointUnreadable,
                 path + " holds the checkpoint of step " + std::to_string(was.step) +
                     ", and its name says step " + std::to_string(step)};
  auto refuse = [&](const std::string &what, const std::string &then, const std::string &now) {
    return Error{ErrorCode::Usage,
                 path + " was made with " + what + " " + then + ", this run has " + now};
  };
  if (!was.model.empty() && !loaded.manifest.model.empty() && was.model != loaded.manifest.model)
    return Error{ErrorCode::Usage,
                 path +
                     " is of another model than the Program: their graphs or the shapes of their "
                     "parameters differ (" +
                     was.model.substr(0, 12) + ", here " + loaded.manifest.model.substr(0, 12) +
                     "); name that model's folder, or give this run a folder of its own"};
  const std::string optimizer = optimizerName(loaded.program);
  if (!was.optimizer.empty() && was.optimizer != optimizer)
    return Error{ErrorCode::Usage,
                 path + " has the states of " + was.optimizer + ", and the Program steps by " +
                     optimizer +
                     "; to begin anew from its weights, join them by tbc checkpoint consolidate "
                     "and give the file to --init-weights"};
  if (was.dataSeed != options.data.seed)
    return refuse("--data-seed", std::to_string(was.dataSeed), std::to_string(options.data.seed));
  if (was.isShuffled != options.data.isShuffled)
    return refuse("samples", was.isShuffled ? "shuffled" : "in order",
                  options.data.isShuffled ? "them shuffled" : "them in order");
  const data::BatchOrigin origin{was.stepsBefore, was.epochsBefore, was.samplesBefore};
  if (was.globalBatch == feed.globalBatch())
    feed.beginAt(origin);
  else if (Status changed = feed.changeBatchAfter(step, was.globalBatch, origin); !changed)
    return Error{changed.error().code, refuse("a global batch of", std::to_string(was.globalBatch),
                                              std::to_string(feed.globalBatch()))
                                               .message +
                                           ": " + changed.error().message};
  if (Status status = checkpoint::load(*opened, loaded.program, executor, options.arith); !status)
    return status;
  runId = was.run;
  return resumeResiduals(*opened, path);
}

/// Loads the gradient residuals. They belong to one program and one share; a run with another share
/// starts without them.
Status Run::resumeResiduals(checkpoint::Checkpoint &checkpoint, const std::string &path) {
  const std::string &was = checkpoint.progress().residualsOf, now = residualsOf(loaded, options);
  if (was == now)
    return now.empty() ? Status::ok() : checkpoint::loadResiduals(checkpoint, executor);
  auto told = [](const std::string &what) {
    return what.empty() ? "gradients that are not compressed" : what;
  };
  warn(path + " is of " + told(was) + ", this run of " + told(now) +
       (was.empty() ? ": the residuals of compression begin at 0"
                    : ": the checkpoint's residuals of compression are dropped"));
  return Status::ok();
}

/// Opens the initial weights of `options`. Sets `unused` to the tensors of --init-weights for which
/// the model has no parameter.
static Result<Weights> openWeights(const LoadedProgram &loaded, const TrainOptions &options,
                                   bool checksHashes, std::vector<std::string> &unused) {
  if (options.initSeed)
    return Weights::draw(loaded.manifest, options.arith, *options.initSeed);
  std::shared_ptr<const Pretrained> pretrained;
  if (!options.initPath.empty()) {
    Result<Pretrained> opened = Pretrained::open(options.initPath, loaded.manifest);
    if (!opened)
      return opened.error();
    unused = opened->unused();
    pretrained = std::make_shared<const Pretrained>(std::move(*opened));
  }
  return Weights::open(loaded.manifest, loaded.folder, options.arith, checksHashes, pretrained);
}

Status Run::initialize(bool checksHashes) {
  std::vector<std::string> unused;
  Result<Weights> weights = openWeights(loaded, options, checksHashes, unused);
  if (!weights)
    return weights.error();
  if (executor.rank() == 0 && !unused.empty())
    warn("--init-weights: the model has no parameter for " + std::to_string(unused.size()) +
         " of the file's tensors, the first of them " + unused.front());
  return executor.loadPieces(
      [&](const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
          const kernels::TensorType &local) {
        Result<Tensor> piece = weights->piece(tensor, indices, local);
        if (piece)
          startValues.look(loaded.program, tensor, *piece);
        return piece;
      },
      options.threads);
}

/// Claims the checkpoint folder, and resumes from the newest checkpoint if requested.
Status Run::takeFolder() {
  const CheckpointOptions &to = options.checkpoint;
  if (to.folder.empty())
    return Status::ok();
  auto warnAll = [this](const std::string &sentence) { warn(sentence); };
  auto claimed = claimFolder(communicator, to.folder, to.resumes,
                             checkpoint::sizeOf(loaded.program, options.arith), warnAll);
  if (!claimed)
    return claimed.error();
  lock = std::move(*claimed);
  if (to.resumes) {
    auto load = [this](const std::string &path, int64_t step) { return resume(path, step); };
    Result<int64_t> step = loadNewest(communicator, to.folder, load, warnAll);
    if (!step)
      return step.error();
    numDone = lastSaved = *step;
  }
  if (!runId.empty())
    return Status::ok();
  Result<std::string> drawn = checkpoint::newRunId(); // all ranks use the id of rank 0
  if (!drawn)
    return drawn.error();
  runId = *drawn;
  return Status::ok();
}

Status Run::start(bool checksHashes) {
  if (Status taken = takeFolder(); !taken)
    return taken;
  if (numDone == 0)
    if (Status started = initialize(checksHashes); !started)
      return started;
  if (!options.checkpoint.folder.empty() && !kernels::isModular(options.arith))
    infinite = checkpoint::infiniteTensors(loaded.program, executor);
  if (Status counted = countSteps(); !counted)
    return counted;
  if (options.gradientShare > 0 && executor.gradientResiduals().empty())
    warn("--compress-gradients: at this share no gradient of rank " +
         std::to_string(executor.rank()) + " is smaller compressed than whole; all are sent whole");
  if (Status observed = observe(); !observed)
    return observed;
  return callbacks.begin(numDone, lastStep);
}

static Error stepOutside(int64_t step, int64_t first, int64_t last) {
  return {ErrorCode::Usage, "--profile-step " + std::to_string(step) + ": this run has the steps " +
                                std::to_string(first) + " to " + std::to_string(last)};
}

Error dataWithoutEnd() {
  return {ErrorCode::Usage, "--epochs: this data has no end; give --steps"};
}

/// Determines the last step.
Status Run::countSteps() {
  if (options.epochs > 0) {
    if (feed.stepsPerEpoch() == 0)
      return dataWithoutEnd();
    lastStep = feed.lastStepOf(options.epochs);
    if (lastStep == std::numeric_limits<int64_t>::max())
      return Error{ErrorCode::Usage, "--epochs: these are too many steps"};
  }
  if (rate.totalSteps == 0)
    rate.totalSteps = lastStep;
  return Status::ok();
}

/// Registers the observers of executed instructions.
Status Run::observe() {
  executor.observe(norm);
  if (skipped.scalesLoss())
    executor.observe(skipped);
  if (options.detectsAnomalies)
    executor.observe(anomalies);
  if (!options.profile.isWanted())
    return Status::ok();
  int64_t first = numDone + 1;
  profiledStep = options.profile.step > 0 ? options.profile.step : std::min(first + 1, lastStep);
  if (options.profile.file.empty() && first > lastStep)
    return Status::ok(); // a resumed run that is at its end has no step to time
  if (profiledStep < first || profiledStep > lastStep)
    return stepOutside(profiledStep, first, lastStep);
  executor.observe(trace);
  if (options.profile.file.empty())
    return Status::ok();
  Result<std::vector<double>> offsets = clockOffsets(communicator);
  if (!offsets)
    return offsets.error();
  clocks = std::move(*offsets);
  return Status::ok();
}

/// Runs a step; returns whether the run is to stop after it.
Result<bool> Run::step(int64_t step) {
  auto begin = std::chrono::steady_clock::now();
  trace.isOn = step == profiledStep;
  bool isApplied = true;
  skipped.beginStep();
  if (Status status = runStep(step, isApplied); !status)
    return status.error();
  if (trace.isOn)
    if (Status status = trace.finish(); !status)
      return status.error();
  Verdict mine;
  mine.stops = callbacks.stopRequested();
  mine.isWritten = !pending || pending->isWritten();
  mine.loss = executor.loss();
  mine.residentBytes = residentBytes();
  mine.overflows = skipped.overflows();
  mine.brokenTensor = startValues.tensor();
  Result<Verdict> verdict = agree(communicator, mine, options.arith);
  if (!verdict)
    return verdict.error();
  StepReport line;
  line.step = step;
  line.epoch = feed.epoch(step);
  line.loss = verdict->loss;
  line.learningRate = rate.at(step);
  line.gradientNorm = norm.value();
  line.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  line.tokensPerSecond = double(feed.globalBatch()) *
                         double(std::max<int64_t>(1, loaded.manifest.tokensPerSample)) /
                         line.seconds;
  if (loaded.manifest.peakFlopsPerSecond > 0 && options.isOnPlannedDevices)
    line.mfu = loaded.manifest.modelFlops / (line.seconds * loaded.manifest.peakFlopsPerSecond);
  line.residentBytes = verdict->residentBytes;
  for (const program::Stage &stage : loaded.program.stages)
    line.plannedBytes = std::max(line.plannedBytes, stage.memory.arenaBytes);
  bool isFinite = kernels::isFinite(verdict->loss);
  // A step that scales its loss skips overflows by itself.
  line.isSkipped = !isApplied || verdict->overflows || (!isFinite && skipped.scalesLoss());
  callbacks.report(line);
  if (pending && verdict->isWritten)
    if (Status finished = finishSave(); !finished)
      return finished.error();
  auto cause = [&] { return startOfNan(loaded.program, verdict->brokenTensor); };
  if (Status status = skipped.check(line.isSkipped, isFinite, cause, lastSaved); !status)
    return status.error();
  return verdict->stops;
}

/// Runs one training step. If requested, the update is left out when the step is not finite.
Status Run::runStep(int64_t step, bool &isApplied) {
  runtime::StepInputs inputs = feed.inputs(step, rate.at(step));
  if (options.onNotFinite == OnNotFinite::Stop || skipped.scalesLoss() ||
      kernels::isModular(options.arith))
    return executor.runStep(communicator, inputs);
  return executor.runGatedStep(communicator, inputs, [&](const Tensor &loss) -> Result<bool> {
    Verdict mine;
    mine.stops = !kernels::isFinite(loss) || !executor.areGradientsFinite();
    Result<Verdict> verdict = agree(communicator, mine, options.arith);
    if (!verdict)
      return verdict.error();
    isApplied = !verdict->stops; // if any rank stops
    return isApplied;
  });
}

Status Run::save(int64_t step, bool isLast) {
  if (options.checkpoint.folder.empty() || step == lastSaved)
    return Status::ok();
  if (Status finished = finishSave(); !finished)
    return finished;
  lastSaved = step;
  auto begun =
      checkpoint::PendingSave::begin(options.checkpoint.folder, loaded.program, executor,
                                     options.arith, progressAt(step), communicator, infinite);
  if (!begun)
    return begun.error();
  pending.emplace(std::move(*begun));
  return options.checkpoint.isAsync && !isLast ? Status::ok() : finishSave();
}

/// Waits for the checkpoint that is being written, if any.
Status Run::finishSave() {
  if (!pending)
    return Status::ok();
  Status finished = pending->finish(options.checkpoint.keep);
  pending.reset();
  return finished;
}

/// Computes the mean loss over the global batches of the evaluation data.
Status Run::evaluate(int64_t step) {
  auto begin = std::chrono::steady_clock::now();
  EvaluationReport report;
  report.step = step;
  report.batches = options.evaluation.batches;
  if (int64_t all = evaluationFeed->stepsPerEpoch(); report.batches == 0)
    report.batches = all;
  else if (all > 0)
    report.batches = std::min(report.batches, all);
  for (int64_t batch = 1; batch <= report.batches; ++batch) {
    if (Status done = executor.runForward(communicator, evaluationFeed->evaluationInputs(batch));
        !done)
      return done;
    Verdict mine;
    mine.loss = executor.loss();
    Result<Verdict> verdict = agree(communicator, mine, options.arith);
    if (!verdict)
      return verdict.error();
    if (verdict->loss)
      report.loss += verdict->loss.toDoubles()[0] / double(report.batches);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  callbacks.evaluated(report);
  return Status::ok();
}

/// Does the work that is due after a step; `isLast`: after the last one.
Status Run::afterStep(int64_t step, bool isLast) {
  auto isDue = [&](int64_t every) { return isLast || (every > 0 && step % every == 0); };
  if (step == profiledStep && !options.profile.file.empty())
    if (Status written = trace.write(communicator, clocks, options.profile.file); !written)
      return written;
  if (evaluationFeed && isDue(options.evaluation.every))
    if (Status evaluated = evaluate(step); !evaluated)
      return Error{evaluated.error().code, "evaluation after step " + std::to_string(step) + ", " +
                                               evaluated.error().message};
  return isDue(options.checkpoint.every) ? save(step, isLast) : Status::ok();
}

/// Gathers the predicted, planned and real memory of all ranks.
Status Run::checkMemory() {
  const program::Program &program = loaded.program;
  RankMemoryUse mine;
  mine.stage = program.stageOf(program.mesh.coordinates(communicator.rank()));
  mine.planned = program.stages[size_t(mine.stage)].memory.arenaBytes;
  if (size_t(mine.stage) < loaded.manifest.memory.size())
    mine.predicted = loaded.manifest.memory[size_t(mine.stage)];
  mine.real = executor.deviceBytesTaken();
  mine.isOfDevice = mine.real >= 0;
  mine.isAsPlanned = options.isOnPlannedDevices;
  if (!mine.isOfDevice)
    mine.real = peakResidentBytes();
  Result<std::vector<RankMemoryUse>> all = gatherMemory(communicator, mine);
  if (!all)
    return all.error();
  if (callbacks.memory)
    callbacks.memory(*all);
  return Status::ok();
}

Status Run::steps() {
  for (int64_t number = numDone + 1; number <= lastStep; ++number) {
    Result<bool> stops = step(number);
    if (!stops && stops.error().code == ErrorCode::NotFinite)
      if (Status finished = finishSave(); !finished) // of an earlier step
        return finished;
    if (!stops)
      return Error{stops.error().code,
                   "step " + std::to_string(number) + ", " + stops.error().message};
    if (Status done = afterStep(number, *stops || number == lastStep); !done)
      return done;
    if (*stops && number < lastStep)
      return Error{ErrorCode::StoppedOnRequest,
                   "stopped on request after step " + std::to_string(number)};
  }
  try { // a device may fail while it is asked
    if (options.checksMemory)
      if (Status checked = checkMemory(); !checked)
        return checked;
    if (callbacks.end)
      callbacks.end(executor.kernelShares());
  } catch (const kernels::KernelError &error) {
    return runtime::failed("the end of the run", error);
  }
  // All ranks leave together, because others may still read sent data.
  auto done = communicator.barrier(everyoneOf(communicator), "the end of the run")->wait();
  return done ? Status::ok() : Status(done.error());
}

} // namespace

/// Opens the data of evaluation, in its order. Errors: Usage; in residues, which have no mean, and
/// for endless data without a number of batches.
static Result<Feed> openEvaluation(const LoadedProgram &loaded, const TrainOptions &options) {
  auto failed = [](const std::string &why) {
    return Error{ErrorCode::Usage, "--eval-data: " + why};
  };
  if (kernels::isModular(options.arith))
    return failed("residues have no mean");
  DataOptions data = options.data;
  data.sources = options.evaluation.sources;
  data.isShuffled = false;
  auto feed = Feed::open(loaded.program, loaded.manifest, data, options.arith);
  if (!feed)
    return Error{feed.error().code, "--eval-data: " + feed.error().message};
  if (feed->stepsPerEpoch() == 0 && options.evaluation.batches == 0)
    return failed("this data has no end; give --eval-batches");
  return feed;
}

Status checkData(const LoadedProgram &loaded, const TrainOptions &options) {
  auto feed = Feed::open(loaded.program, loaded.manifest, options.data, options.arith);
  if (!feed)
    return feed.error();
  if (options.epochs > 0 && feed->stepsPerEpoch() == 0)
    return dataWithoutEnd();
  if (options.epochs == 0 && options.profile.step > options.steps)
    return stepOutside(options.profile.step, 1, options.steps);
  std::vector<std::string> unused;
  if (!options.checkpoint.resumes)
    if (auto weights = openWeights(loaded, options, /*checksHashes=*/true, unused); !weights)
      return weights.error();
  if (options.evaluation.sources.empty())
    return Status::ok();
  Result<Feed> evaluation = openEvaluation(loaded, options);
  return evaluation ? Status::ok() : Status(evaluation.error());
}

Status train(const LoadedProgram &loaded, const TrainOptions &options,
             comm::Communicator &communicator, bool checksHashes, const TrainCallbacks &callbacks) {
  auto executor = runtime::Executor::create(loaded.program, communicator.rank(), options.arith,
                                            options.machine);
  if (!executor)
    return executor.error();
  if (options.sumsGradientsInBF16)
    if (Status status = executor->sumGradientsInBF16(); !status)
      return Error{status.error().code, "--comm-dtype bf16: " + status.error().message};
  if (options.gradientShare > 0)
    if (Status status = executor->compressGradients(options.gradientShare); !status)
      return Error{status.error().code, "--compress-gradients: " + status.error().message};
  auto feed = Feed::open(loaded.program, loaded.manifest, options.data, options.arith);
  if (!feed)
    return feed.error();
  Run run(loaded, options, communicator, callbacks, std::move(*executor), std::move(*feed));
  if (!options.evaluation.sources.empty()) {
    Result<Feed> evaluation = openEvaluation(loaded, options);
    if (!evaluation)
      return evaluation.error();
    run.evaluateOn(std::move(*evaluation));
  }
  if (Status started = run.start(checksHashes); !started)
    return started;
  return run.steps();
}

} // namespace tbc::train
