//===- RankRun.cpp - One rank of a run ---------------------------------------===//

#include "tools/tbc-run/RankRun.h"

#include "runtime/comm/Gloo.h"
#include "runtime/comm/SharedStore.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/exec/Machine.h"
#include "runtime/exec/Peers.h"
#include "runtime/launch/Say.h"
#include "tools/tbc-run/CpuPeak.h"
#include "tools/tbc-run/GpuChoice.h"
#include "tools/tbc-run/KernelChoice.h"
#include "tools/tbc-run/RankReport.h"
#include "tools/tbc-run/Shell.h"
#include "tools/tbc-run/StepOutput.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc-run/TrainFlags.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

using std::chrono::milliseconds;

namespace {

std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Returns the settings that all ranks must agree on, in words. `device`: the device model.
launch::Facts factsOf(const train::LoadedProgram &loaded, const RunOptions &options,
                      const std::string &device) {
  const train::TrainOptions &train = options.train;
  auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  return {{"world size", std::to_string(loaded.program.mesh.numRanks())},
          {"program", loaded.manifest.programHash.substr(0, 16)},
          {"seal of the program's folder", loaded.files.sealHash().substr(0, 16)},
          {"arithmetic", options.arith},
          {"kernels", options.kernels + (options.checksItself ? ", checked" : "")},
          {"type of communicated gradients", options.commDtype},
          {"compression of gradients", options.compression.empty() ? "none" : options.compression},
          {"device", device},
          {"CUDA graphs", options.cudaGraphs},
          {"determinism", options.isDeterministic ? "asked for" : "not asked for"},
          {"memory registered with NCCL", registersMemory() ? "yes" : "no"},
          {"communicator", options.communicator},
          {"number of steps", std::to_string(train.steps) + " or " + std::to_string(train.epochs) +
                                  " epochs" + (options.isDevRun ? ", --fast-dev-run" : "")},
          {"learning rate", number(train.learningRate.peak) + " " + options.schedule + " " +
                                number(train.learningRate.least) + " " +
                                std::to_string(train.learningRate.warmupSteps) + " " +
                                std::to_string(options.lrSteps) + " " + options.lrGrowth},
          {"data", joined(train.data.sources) + " seed " + std::to_string(train.data.seed) +
                       (options.isOrdered ? " in order" : "")},
          {"evaluation", joined(train.evaluation.sources) + " every " +
                             std::to_string(train.evaluation.every) + ", batches " +
                             std::to_string(train.evaluation.batches)},
          {"check of memory", train.checksMemory ? "yes" : "no"},
          {"answer to NaN", options.onNan},
          {"profile", train.profile.file + " " + std::to_string(train.profile.step)},
          {"checkpoints", train.checkpoint.folder + " every " +
                              std::to_string(train.checkpoint.every) +
                              (train.checkpoint.resumes ? ", resumed" : "")},
          {"initial weights", options.initWeights.empty() ? "the model's" : options.initWeights}};
}

/// The parts of a rank's connection to the others.
struct RankParts {
  comm::Store &store;
  comm::FlightRecorder &recorder;
  comm::Diagnosis &diagnosis;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::HostWatch> watch;
  const cuda::Nccl *nccl = nullptr;
};

/// Connects GPUs, with all communicators of the Program.
Result<std::unique_ptr<comm::Communicator>>
connectGpus(const RankStart &start, const program::Program &program, const RankParts &parts) {
  cuda::NcclOptions options;
  options.watch = parts.watch;
  options.recorder = &parts.recorder;
  options.diagnosis = &parts.diagnosis;
  runtime::Peers peers = runtime::peersOf(program);
  options.partitions = std::move(peers.partitions);
  options.messages = std::move(peers.messages);
  parts.diagnosis.start();
  return cuda::connectNccl(start.rank, program.mesh.numRanks(), parts.store, *parts.nccl,
                           parts.device, options);
}

/// Connects over NCCL between GPUs if `parts` have it, else over Gloo.
Result<std::unique_ptr<comm::Communicator>> connect(const RankStart &start,
                                                    const program::Program &program,
                                                    milliseconds timeout, const RankParts &parts) {
  if (parts.nccl)
    return connectGpus(start, program, parts);
  comm::GlooOptions gloo;
  gloo.host = start.host;
  gloo.timeout = timeout;
  gloo.token = start.token;
  gloo.recorder = &parts.recorder;
  gloo.diagnosis = &parts.diagnosis;
  gloo.warn = [&](const std::string &why) {
    launch::say("warning: rank " + std::to_string(start.rank) +
                " and the others of its host exchange bytes over sockets, which are slower than "
                "shared memory: " +
                why);
  };
  return comm::connectGloo(start.rank, program.mesh.numRanks(), parts.store, gloo);
}

/// Returns the final status of a rank that ends by itself, and publishes its error so that other
/// ranks do not wait.
Status ended(const Status &status, cuda::HostWatch *watch, const comm::FlightRecorder &recorder) {
  if (status)
    return status;
  const Error &error = status.error();
  bool isOfAll = error.code == ErrorCode::StoppedOnRequest || error.code == ErrorCode::NotFinite;
  if (watch && !isOfAll)
    return watch->fail(error);
  return watch ? error : withCalls(error, recorder);
}

/// The GPU of a rank, and NCCL if its ranks talk over it.
struct RankGpu {
  cuda::DevicePtr device;
  std::optional<cuda::Nccl> nccl;
};

/// Opens the rank's GPU, if the run is on GPUs.
Result<RankGpu> openRankGpu(const train::LoadedProgram &loaded, const RunOptions &options,
                            const RankStart &start) {
  RankGpu gpu;
  if (!usesGpus(loaded, options))
    return gpu;
  preparePipelines(loaded.program);
  auto opened = openGpu(start.localRank, start.isStartedHere);
  if (!opened)
    return opened.error();
  gpu.device = *opened;
  if (loaded.program.mesh.numRanks() == 1 || options.communicator == "gloo")
    return gpu;
  if (options.isDeterministic)
    fixNcclAlgorithms();
  auto library = cuda::loadNccl();
  if (!library)
    return library.error();
  gpu.nccl = *library;
  return gpu;
}

/// Begins a phase on the line of rank 0; `line` is null on the others.
void say(PhaseLine *line, const std::string &phase) {
  if (line)
    line->setPhase(phase);
}

/// Waits for all ranks, and compares the settings that they must agree on. `device`: null on CPUs.
Status checkInWithOthers(const train::LoadedProgram &loaded, const RunOptions &options,
                         const RankStart &start, const cuda::DevicePtr &device,
                         launch::JobStore &job, PhaseLine *phase) {
  const program::Program &program = loaded.program;
  // Several GPU models are allowed only by a plan for them, and each stage must then have its
  // planned model.
  const std::vector<std::string> &kinds = loaded.manifest.stageDevices;
  const bool isByStage = device && !kinds.empty();
  launch::Facts factsOfSome;
  if (isByStage) {
    const int stage = program.stageOf(program.mesh.coordinates(start.rank));
    factsOfSome = {{"device that the plan calls " + kinds[size_t(stage)], device->model()}};
  }
  auto waitsFor = [=](int64_t rank) { say(phase, "waiting for rank " + std::to_string(rank)); };
  return launch::checkIn(*job.store, start.rank, program.mesh.numRanks(),
                         factsOf(loaded, options,
                                 isByStage ? "as planned by stage"
                                 : device  ? device->model()
                                           : "CPU"),
                         milliseconds(options.connectTimeoutSeconds * 1000), factsOfSome, waitsFor);
}

/// Returns the callbacks of a rank. `output` is null but on rank 0, which alone prints.
train::TrainCallbacks callbacksOf(StepOutput *output, const RunOptions &options,
                                  const cpu::KernelComparisons &comparisons) {
  train::TrainCallbacks callbacks;
  callbacks.stopRequested = launch::stopRequested;
  if (!output) {
    callbacks.begin = [](int64_t, int64_t) { return Status::ok(); };
    callbacks.report = [](const train::StepReport &) {};
    callbacks.evaluated = [](const train::EvaluationReport &) {};
    return callbacks;
  }
  callbacks.stopRequested = [=] { return launch::stopRequested() || output->hasFailed(); };
  callbacks.begin = [=](int64_t done, int64_t steps) { return output->begin(done, steps); };
  callbacks.warn = [](const std::string &sentence) { launch::say("warning: " + sentence); };
  callbacks.report = [=](const train::StepReport &report) { output->report(report); };
  callbacks.evaluated = [=](const train::EvaluationReport &report) { output->report(report); };
  callbacks.memory = [=, &options](const std::vector<train::RankMemoryUse> &ranks) {
    output->clear();
    FittedOutput fitted;
    (options.printsJson ? std::cerr : std::cout) << train::memoryTable(ranks) << std::flush;
  };
  callbacks.end = [=, &options, &comparisons](const std::vector<runtime::KernelShare> &shares) {
    output->clear();
    reportKernels(shares, options.isVerbose);
    if (options.checksItself)
      reportSelfCheck(comparisons);
  };
  return callbacks;
}

/// Runs a rank from start to end, in its own process.
Status runRank(const train::LoadedProgram &loaded, const RunOptions &options,
               const RankStart &start, RankReport &report) {
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  const int64_t numRanks = loaded.program.mesh.numRanks();
  std::optional<PhaseLine> line;
  if (start.rank == 0)
    line.emplace("loading kernels");
  PhaseLine *phase = line ? &*line : nullptr;
  Result<RankGpu> gpu = openRankGpu(loaded, options, start); // outlives the communicator
  if (!gpu)
    return gpu.error();
  const cuda::DevicePtr &device = gpu->device;
  const cuda::Nccl *nccl = gpu->nccl ? &*gpu->nccl : nullptr;
  std::shared_ptr<cuda::HostWatch> watch;
  if (device)
    watch = watchOf(device, options, report, start.isStoreOfRank0 && start.rank == 0);
  auto comparisons = std::make_shared<cpu::KernelComparisons>();
  auto machine = device ? gpuMachine(loaded, options, device, watch, nccl, start.rank == 0)
                        : machineOf(loaded, options, start.numLocalRanks, comparisons);
  if (!machine)
    return machine.error();
  train->machine = *machine;
  train->threads = numThreads(options, start.numLocalRanks);
  train->profile.timesDevice = device && options.isVerbose;
  train->isOnPlannedDevices =
      device ||
      mayBePlanOfCpus(loaded.manifest.peakFlopsPerSecond / double(numRanks), start.numLocalRanks);
  say(phase, "opening the rendezvous");
  Result<launch::JobStore> job = start.openStore();
  if (!job)
    return job.error();
  if (Status status = checkInWithOthers(loaded, options, start, device, *job, phase); !status)
    return status;
  comm::FlightRecorder &recorder = report.calls();
  comm::SharedStore store(*job->store);
  comm::Diagnosis diagnosis(start.rank, numRanks, start.isStoreOfRank0 ? 0 : -1, store, recorder,
                            milliseconds(options.timeoutSeconds * 1000), launch::say);
  RankParts parts{store, recorder, diagnosis, device, watch, nccl};
  say(phase, "connecting all ranks");
  auto communicator =
      connect(start, loaded.program, milliseconds(options.connectTimeoutSeconds * 1000), parts);
  if (!communicator)
    return communicator.error();

  std::optional<StepOutput> output;
  if (start.rank == 0)
    output.emplace(*train, loaded.manifest.tokensPerSample > 0, options.printsJson, *phase);
  say(phase, train->checkpoint.resumes ? "loading the checkpoint" : "loading the weights");
  const bool hasBeenChecked = start.isStartedHere && !train->checkpoint.resumes; // by checkData()
  Status status =
      train::train(loaded, *train, **communicator, start.localRank == 0 && !hasBeenChecked,
                   callbacksOf(output ? &*output : nullptr, options, *comparisons));
  const Status written = output ? output->end() : Status::ok();
  // An output that failed ends the run as a request does.
  const bool ends = status || status.error().code == ErrorCode::StoppedOnRequest;
  return ended(ends && !written ? written : status, watch.get(), recorder);
}

} // namespace

int rankCode(const train::LoadedProgram &loaded, const RunOptions &options,
             const RankStart &start) {
  RankReport report(start.rank);
  Error error;
  try {
    Status status = runRank(loaded, options, start, report);
    if (status)
      return 0;
    error = status.error();
  } catch (const runtime::MachineError &exception) {
    error = {exception.code(), exception.what()};
  } catch (const std::exception &exception) {
    error = errorOf(exception);
  }
  report.say(error);
  return int(error.code);
}

} // namespace tbc::cli
