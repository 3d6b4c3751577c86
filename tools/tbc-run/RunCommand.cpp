//===- RunCommand.cpp - tbc run and tbc-run ----------------------------------===//

#include "tools/tbc-run/RunCommand.h"

#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "runtime/comm/Gloo.h"
#include "runtime/comm/SharedStore.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/exec/GradientReductions.h"
#include "runtime/exec/Machine.h"
#include "runtime/exec/Peers.h"
#include "runtime/launch/LocalJob.h"
#include "tools/tbc-run/CpuPeak.h"
#include "tools/tbc-run/GpuChoice.h"
#include "tools/tbc-run/KernelChoice.h"
#include "tools/tbc-run/Outputs.h"
#include "tools/tbc-run/RankReport.h"
#include "tools/tbc-run/StepOutput.h"
#include "tools/tbc-run/Terminal.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <thread>
#include <unistd.h>

namespace tbc::cli {

using launch::MeetingPoint;
using std::chrono::milliseconds;

namespace {

/// The start parameters of a rank, from its launcher.
struct RankStart {
  int64_t rank = 0, localRank = 0, numLocalRanks = 1;
  bool isStartedHere = false;  // by this program, not by a launcher
  bool isStoreOfRank0 = false; // this process serves the job's store
  std::string token, host = "127.0.0.1";
  /// Opens the job's store in the rank's own process.
  std::function<Result<launch::JobStore>()> openStore;
};

std::string meshOf(const program::Program &program) {
  std::string text;
  for (const program::MeshAxis &axis : program.mesh.axes)
    if (axis.size > 1)
      text += (text.empty() ? "" : ", ") + axis.name + "=" + std::to_string(axis.size);
  return text.empty() ? "no parallel axis" : text;
}

Status checkWorldSize(const program::Program &program, int64_t numRanks, const std::string &who) {
  if (program.mesh.numRanks() == numRanks)
    return Status::ok();
  return problem(Problem::WrongRanks,
                 "the program is for " + std::to_string(program.mesh.numRanks()) + " ranks (" +
                     meshOf(program) + "); " + who + " " + std::to_string(numRanks));
}

Result<kernels::Arith> parseArith(const std::string &text) {
  if (text == "native")
    return kernels::Arith::Native;
  if (text == "f64")
    return kernels::Arith::F64;
  if (text == "residue")
    return kernels::Arith::Residue61;
  if (text == "residue251")
    return kernels::Arith::Residue251;
  return Error{ErrorCode::Usage,
               "--arith " + text + ": there are native, f64, residue and residue251"};
}

/// Parses "topk:SHARE" and returns the share of elements; 0 for empty text. Example: "topk:0.01"
/// gives 0.01.
Result<double> parseCompression(const std::string &text) {
  if (text.empty())
    return 0.0;
  const std::string prefix = "topk:";
  char *end = nullptr;
  double share = std::strtod(text.c_str() + std::min(prefix.size(), text.size()), &end);
  if (text.rfind(prefix, 0) != 0 || text.size() == prefix.size() || *end != 0 ||
      !(share > 0 && share <= 1))
    return Error{ErrorCode::Usage, "--compress-gradients " + text +
                                       ": it wants topk:SHARE, as topk:0.01, with a share above 0 "
                                       "and up to 1"};
  return share;
}

/// Sets the options of gradient communication.
Status setGradients(const RunOptions &options, train::TrainOptions &train) {
  Result<double> share = parseCompression(options.compression);
  if (!share)
    return share.error();
  train.gradientShare = *share;
  train.sumsGradientsInBF16 = options.commDtype == "bf16";
  if (train.sumsGradientsInBF16 && train.arith != kernels::Arith::Native)
    return Error{ErrorCode::Usage, "--comm-dtype bf16 rounds what --arith " + options.arith +
                                       " keeps; it goes with --arith native"};
  if (train.gradientShare > 0 && train.arith != kernels::Arith::Native)
    return Error{ErrorCode::Usage, "--compress-gradients leaves out what --arith " + options.arith +
                                       " keeps; it goes with --arith native"};
  if (train.gradientShare > 0 && train.sumsGradientsInBF16)
    return Error{ErrorCode::Usage, "--compress-gradients sends values of f32; leave out "
                                   "--comm-dtype bf16"};
  return Status::ok();
}

/// Sets the initial weights: digits are a seed, other text is a path.
Status setInitialWeights(const std::string &text, train::TrainOptions &train) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    train.initPath = text;
    return Status::ok();
  }
  errno = 0;
  train.initSeed = std::strtoull(text.c_str(), nullptr, 10);
  if (errno == ERANGE)
    return Error{ErrorCode::Usage, "--init-weights " + text + ": a seed is below 2^64"};
  return Status::ok();
}

/// Sets up one step and one batch of evaluation, without outputs.
void makeDevRun(train::TrainOptions &train) {
  train.steps = 1;
  train.epochs = 0;
  train.logFile.clear();
  train.eventFolder.clear();
  train.checkpoint = {};
  if (!train.evaluation.sources.empty())
    train.evaluation.batches = 1;
}

/// Converts the flags to the trainer's options.
Result<train::TrainOptions> trainOptions(const RunOptions &options) {
  train::TrainOptions train = options.train;
  Result<kernels::Arith> arith = parseArith(options.arith);
  if (!arith)
    return arith.error();
  train.arith = *arith;
  if (Status status = setGradients(options, train); !status)
    return status.error();
  auto schedule = train::parseSchedule(options.schedule);
  if (!schedule)
    return schedule.error();
  train.learningRate.schedule = *schedule;
  train.learningRate.totalSteps = options.lrSteps;
  if (!options.lrGrowth.empty())
    if (Status status = train::parseGrowth(options.lrGrowth, train.learningRate); !status)
      return status.error();
  if (train.learningRate.least > train.learningRate.peak)
    return Error{ErrorCode::Usage, "--lr-min is above --lr"};
  train.onNotFinite = options.onNan == "skip" ? train::OnNotFinite::Skip : train::OnNotFinite::Stop;
  train.data.wideTokens = options.tokenBits == 32;
  train.data.isShuffled = !options.isOrdered;
  if (Status status = setInitialWeights(options.initWeights, train); !status)
    return status.error();
  const train::CheckpointOptions &checkpoint = train.checkpoint;
  if (checkpoint.folder.empty() &&
      (checkpoint.resumes || checkpoint.every > 0 || checkpoint.isAsync))
    return Error{ErrorCode::Usage, std::string(checkpoint.resumes     ? "--resume"
                                               : checkpoint.every > 0 ? "--every"
                                                                      : "--async-checkpoint") +
                                       " needs --checkpoint DIR"};
  if (train.evaluation.sources.empty() &&
      (train.evaluation.every > 0 || train.evaluation.batches > 0))
    return Error{ErrorCode::Usage, "--eval-every and --eval-batches need --eval-data"};
  if (train.profile.file.empty() && train.profile.step > 0)
    return Error{ErrorCode::Usage, "--profile-step needs --profile FILE"};
  if (options.isDevRun)
    makeDevRun(train);
  return train;
}

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
    std::cerr << "tbc: warning: rank " << start.rank
              << " and the others of its host exchange bytes over sockets, which are slower than "
                 "shared memory: "
              << why << "\n";
  };
  return comm::connectGloo(start.rank, program.mesh.numRanks(), parts.store, gloo);
}

/// Returns the final status of a rank that ends by itself, and publishes its error so that other
/// ranks do not wait.
Status ended(const Status &status, cuda::HostWatch *watch, const comm::FlightRecorder &recorder) {
  if (status)
    return status;
  Error error = status.error();
  bool isOfAll = error.code == ErrorCode::StoppedOnRequest || error.code == ErrorCode::NotFinite;
  if (watch && !isOfAll)
    return watch->fail(error);
  return watch ? error : withCalls(error, recorder);
}

/// Runs a rank from start to end, in its own process.
Status runRank(const train::LoadedProgram &loaded, const RunOptions &options,
               const RankStart &start, RankReport &report) {
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  int64_t numRanks = loaded.program.mesh.numRanks();
  cuda::DevicePtr device;
  std::optional<cuda::Nccl> nccl; // outlives the communicator
  if (usesGpus(loaded, options)) {
    preparePipelines(loaded.program);
    auto opened = openGpu(start.localRank, start.isStartedHere);
    if (!opened)
      return opened.error();
    device = *opened;
    if (numRanks > 1 && options.communicator != "gloo") {
      if (options.isDeterministic)
        fixNcclAlgorithms();
      auto library = cuda::loadNccl();
      if (!library)
        return library.error();
      nccl = *library;
    }
  }
  auto timeout = milliseconds(options.timeoutSeconds * 1000);
  auto connectTimeout = milliseconds(options.connectTimeoutSeconds * 1000);
  std::shared_ptr<cuda::HostWatch> watch;
  if (device)
    watch = watchOf(device, options, report, start.isStoreOfRank0 && start.rank == 0);
  auto comparisons = std::make_shared<cpu::KernelComparisons>();
  auto machine =
      device ? gpuMachine(loaded, options, device, watch, nccl ? &*nccl : nullptr, start.rank == 0)
             : machineOf(loaded, options, start.numLocalRanks, comparisons);
  if (!machine)
    return machine.error();
  train->machine = *machine;
  train->threads = numThreads(options, start.numLocalRanks);
  train->profile.timesDevice = device && options.isVerbose;
  train->isOnPlannedDevices =
      device ||
      mayBePlanOfCpus(loaded.manifest.peakFlopsPerSecond / double(numRanks), start.numLocalRanks);
  Result<launch::JobStore> job = start.openStore();
  if (!job)
    return job.error();
  // Several GPU models are allowed only by a plan for them, and each stage must then have its
  // planned model.
  const std::vector<std::string> &kinds = loaded.manifest.stageDevices;
  bool isByStage = device && !kinds.empty();
  launch::Facts facts = factsOf(loaded, options,
                                isByStage ? "as planned by stage"
                                : device  ? device->model()
                                          : "CPU");
  launch::Facts factsOfSome;
  if (isByStage) {
    const program::Program &program = loaded.program;
    int stage = program.stageOf(program.mesh.coordinates(start.rank));
    factsOfSome = {{"device that the plan calls " + kinds[size_t(stage)], device->model()}};
  }
  if (Status status =
          launch::checkIn(*job->store, start.rank, numRanks, facts, connectTimeout, factsOfSome);
      !status)
    return status;
  comm::FlightRecorder &recorder = report.calls();
  comm::SharedStore store(*job->store);
  comm::Diagnosis diagnosis(start.rank, numRanks, start.isStoreOfRank0 ? 0 : -1, store, recorder,
                            timeout, [](const std::string &table) {
                              std::cerr << "tbc: " + table + "\n" << std::flush;
                            });
  RankParts parts{store, recorder, diagnosis, device, watch, nccl ? &*nccl : nullptr};
  auto communicator = connect(start, loaded.program, connectTimeout, parts);
  if (!communicator)
    return communicator.error();

  // Only rank 0 prints.
  std::optional<StepOutput> output;
  if (start.rank == 0)
    output.emplace(*train, loaded.manifest.tokensPerSample > 0, options.printsJson);
  train::TrainCallbacks callbacks;
  callbacks.begin = [&](int64_t done, int64_t steps) {
    return output ? output->begin(done, steps) : Status::ok();
  };
  if (start.rank == 0)
    callbacks.warn = [](const std::string &sentence) {
      std::cerr << "tbc: warning: " + sentence + "\n" << std::flush;
    };
  callbacks.report = [&](const train::StepReport &report) {
    if (output)
      output->report(report);
  };
  callbacks.evaluated = [&](const train::EvaluationReport &report) {
    if (output)
      output->report(report);
  };
  callbacks.stopRequested = launch::stopRequested;
  callbacks.memory = [&](const std::vector<train::RankMemoryUse> &ranks) {
    FittedOutput fitted;
    if (output)
      (options.printsJson ? std::cerr : std::cout) << train::memoryTable(ranks) << std::flush;
  };
  callbacks.end = [&](const std::vector<runtime::KernelShare> &shares) {
    if (output)
      reportKernels(shares, options.isVerbose);
    if (output && options.checksItself)
      reportSelfCheck(*comparisons);
  };
  Status status = train::train(loaded, *train, **communicator, start.localRank == 0, callbacks);
  Status written = output ? output->end() : Status::ok();
  return ended(status ? written : status, watch.get(), recorder);
}

/// Runs a rank and prints its error, if there is one.
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
    error = {ErrorCode::Other, exception.what()};
  }
  report.say(error);
  return int(error.code);
}

Result<int> launchHere(const train::LoadedProgram &loaded, const RunOptions &options,
                       int64_t numRanks) {
  // Checked once here, so that not every rank prints the error.
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  if (Status status = train::checkData(loaded, *train); !status)
    return status.error();
  if (Status status = checkOutputs(*train); !status)
    return status.error();
  auto body = [&](const launch::LocalRank &local) {
    RankStart start;
    start.rank = start.localRank = local.rank;
    start.numLocalRanks = numRanks;
    start.isStartedHere = true;
    start.token = local.token;
    start.openStore = local.openStore;
    return rankCode(loaded, options, start);
  };
  return launch::launchLocalJob(numRanks, milliseconds(options.connectTimeoutSeconds * 1000), body);
}

/// Returns the token shared by ranks of a launcher: TBC_JOB_TOKEN, or on one machine the job's
/// name. The name keeps jobs apart but is no secret to other users of the machine.
Result<std::string> tokenOf(const launch::RankPlace &place, const MeetingPoint &point) {
  if (auto token = launch::systemVariable("TBC_JOB_TOKEN"))
    return *token;
  if (point.kind == MeetingPoint::Kind::File || launch::isLoopback(point.host))
    return sha256Hex("tbc " + place.job + " " + toString(point) + " " + std::to_string(getuid()));
  return Error{ErrorCode::Usage,
               "ranks that meet at " + toString(point) +
                   " need a secret: set TBC_JOB_TOKEN to the same random text for all of them"};
}

Result<int> runAsRank(const train::LoadedProgram &loaded, const RunOptions &options,
                      launch::RankPlace place) {
  if (Status status =
          checkWorldSize(loaded.program, place.numRanks,
                         (place.launcher.empty() ? "--ranks says" : place.launcher + " started"));
      !status)
    return status.error();
  if (!place.meeting)
    return Error{ErrorCode::Usage, place.launcher + " does not say where ranks meet: set "
                                                    "MASTER_ADDR and MASTER_PORT, or give --init"};
  const MeetingPoint point = *place.meeting;
  Result<std::string> token = tokenOf(place, point);
  if (!token)
    return token.error();
  RankStart start;
  start.rank = place.rank;
  start.localRank = place.localRank;
  start.numLocalRanks = launch::numLocalRanks(place, launch::systemVariable);
  start.token = *token;
  start.host = options.host;
  if (start.host.empty()) {
    Result<std::string> address = launch::ownAddress(point);
    if (!address)
      return address.error();
    start.host = *address;
  }
  start.isStoreOfRank0 = point.kind == MeetingPoint::Kind::Tcp;
  start.openStore = [&] {
    return launch::openJobStore(point, place.rank, *token,
                                milliseconds(options.connectTimeoutSeconds * 1000));
  };
  launch::listenForStop();
  int code = rankCode(loaded, options, start);
  if (point.isOurs && place.rank == 0) {
    std::error_code ignored;
    if (code != 0) // other ranks still read the error
      std::this_thread::sleep_for(std::chrono::seconds(1));
    std::filesystem::remove_all(point.path, ignored);
  }
  // Exits without destructors: the driver would wait for kernels that never end.
  if (code != 0 && usesGpus(loaded, options)) {
    std::cout.flush();
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

} // namespace

/// GPU runs have longer timeouts: kernels and libraries may come from slow file systems, and steps
/// may be long.
static void setTimeouts(const train::LoadedProgram &loaded, RunOptions &options) {
  bool isOnGpus = usesGpus(loaded, options);
  constexpr int64_t ofCpus = 30, ofGpus = 600;
  if (options.timeoutSeconds == 0)
    options.timeoutSeconds = isOnGpus ? ofGpus : ofCpus;
  if (options.connectTimeoutSeconds == 0)
    options.connectTimeoutSeconds =
        isOnGpus ? std::max(ofGpus, options.timeoutSeconds) : options.timeoutSeconds;
}

Status checkRunFlags(const RunOptions &options) {
  Result<train::TrainOptions> train = trainOptions(options);
  return train ? Status::ok() : Status(ofKind(Problem::BadRunFlag, train.error()));
}

Result<int> runProgram(const RunOptions &given) {
  RunOptions options = given;
  // Checked before anything starts.
  if (Status status = checkRunFlags(options); !status)
    return status.error();
  Result<train::LoadedProgram> loaded = train::loadProgram(options.program);
  if (!loaded)
    return ofKind(Problem::BadProgram, loaded.error());
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  if (Status status = checkFilesAreKept(*loaded, *train); !status)
    return status.error();
  setTimeouts(*loaded, options);
  int64_t numRanks = loaded->program.mesh.numRanks();
  if (Status status = checkGpuOptions(*loaded, options); !status)
    return status.error();
  if (usesGpus(*loaded, options))
    if (Status status = checkGpuLibraries(numRanks, options); !status)
      return status.error();
  if (!options.compression.empty())
    if (std::string why = runtime::whyNotCompressed(loaded->program); !why.empty())
      return Error{ErrorCode::Usage, "--compress-gradients: " + why};
  bool hasRank = options.rank >= 0 || options.numRanks >= 0;
  if (options.numProcesses > 0) {
    if (hasRank || !options.init.empty())
      return Error{ErrorCode::Usage, "--nproc starts the ranks itself; leave out --init, --rank "
                                     "and --ranks"};
    if (Status status = checkWorldSize(loaded->program, options.numProcesses, "--nproc says");
        !status)
      return status.error();
    return launchHere(*loaded, options, numRanks);
  }
  std::optional<MeetingPoint> point;
  if (!options.init.empty()) {
    auto parsed = launch::parseMeetingPoint(options.init);
    if (!parsed)
      return parsed.error();
    point = *parsed;
  }
  std::optional<launch::RankPlace> place;
  if (hasRank) {
    if (options.rank < 0 || options.numRanks < 1 || options.rank >= options.numRanks)
      return Error{ErrorCode::Usage,
                   "--rank and --ranks go together, --rank from 0 to --ranks - 1"};
    place.emplace();
    place->rank = options.rank;
    place->numRanks = options.numRanks;
    place->localRank = 0;
    place->launcher = "";
    if (!point)
      return Error{ErrorCode::Usage, "--rank needs --init tcp://HOST:PORT or file://PATH"};
  } else {
    auto found = launch::placeFromEnvironment(launch::systemVariable);
    if (!found)
      return found.error();
    place = *found;
    if (!place && !options.init.empty())
      return Error{ErrorCode::Usage, "--init " + options.init +
                                         ": no launcher says which rank this is; give --rank and "
                                         "--ranks, or RANK and WORLD_SIZE in the environment"};
  }
  if (!place)
    return launchHere(*loaded, options, numRanks);
  if (point)
    place->meeting = point;
  return runAsRank(*loaded, options, *place);
}

} // namespace tbc::cli
