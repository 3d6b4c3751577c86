//===- RunCommand.cpp - tbc run and tbc-run ----------------------------------===//

#include "tools/tbc-run/RunCommand.h"

#include "runtime/abi/Sha256.h"
#include "runtime/comm/Gloo.h"
#include "runtime/launch/Launcher.h"
#include "runtime/launch/Rendezvous.h"
#include "runtime/train/StepLog.h"

#include <filesystem>
#include <iostream>
#include <thread>
#include <unistd.h>

namespace tbc::cli {

using launch::MeetingPoint;
using std::chrono::milliseconds;

namespace {

/// What a rank is told by whoever starts it.
struct RankStart {
  int64_t rank = 0, localRank = 0;
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
  return Error{ErrorCode::Usage, "the program is for " + std::to_string(program.mesh.numRanks()) +
                                     " ranks (" + meshOf(program) + "); " + who + " " +
                                     std::to_string(numRanks)};
}

Result<kernels::Arith> parseArith(const std::string &text) {
  if (text == "native")
    return kernels::Arith::Native;
  if (text == "f64")
    return kernels::Arith::F64;
  if (text == "residue")
    return kernels::Arith::Residue61;
  return Error{ErrorCode::Usage, "--arith " + text + ": there are native, f64 and residue"};
}

/// The flags as the trainer wants them.
Result<train::TrainOptions> trainOptions(const RunOptions &options) {
  train::TrainOptions train = options.train;
  Result<kernels::Arith> arith = parseArith(options.arith);
  if (!arith)
    return arith.error();
  train.arith = *arith;
  auto schedule = train::parseSchedule(options.schedule);
  if (!schedule)
    return schedule.error();
  train.learningRate.schedule = *schedule;
  train.learningRate.totalSteps = options.lrSteps ? options.lrSteps : train.steps;
  if (train.learningRate.least > train.learningRate.peak)
    return Error{ErrorCode::Usage, "--lr-min is above --lr"};
  train.data.wideTokens = options.tokenBits == 32;
  train.data.isShuffled = !options.isOrdered;
  train.initSeed = options.initSeed;
  if (train.checkpoint.folder.empty() && (train.checkpoint.resumes || train.checkpoint.every > 0))
    return Error{ErrorCode::Usage, std::string(train.checkpoint.resumes ? "--resume" : "--every") +
                                       " needs --checkpoint DIR"};
  return train;
}

/// What all ranks must have alike, in words.
launch::Facts factsOf(const train::LoadedProgram &loaded, const RunOptions &options) {
  const train::TrainOptions &train = options.train;
  std::string data;
  for (const std::string &source : train.data.sources)
    data += (data.empty() ? "" : " ") + source;
  auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  return {
      {"world size", std::to_string(loaded.program.mesh.numRanks())},
      {"program", loaded.manifest.programHash.substr(0, 16)},
      {"arithmetic", options.arith},
      {"number of steps", std::to_string(train.steps)},
      {"learning rate", number(train.learningRate.peak) + " " + options.schedule + " " +
                            number(train.learningRate.least) + " " +
                            std::to_string(train.learningRate.warmupSteps) + " " +
                            std::to_string(options.lrSteps)},
      {"data",
       data + " seed " + std::to_string(train.data.seed) + (options.isOrdered ? " in order" : "")},
      {"checkpoints", train.checkpoint.folder + " every " + std::to_string(train.checkpoint.every) +
                          (train.checkpoint.resumes ? ", resumed" : "")},
      {"initial weights", options.initSeed ? "seed " + std::to_string(*options.initSeed)
                                           : std::string("the model's")}};
}

/// Everything a rank does, in its own process.
Status runRank(const train::LoadedProgram &loaded, const RunOptions &options,
               const RankStart &start) {
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  auto timeout = milliseconds(options.timeoutSeconds * 1000);
  Result<launch::JobStore> job = start.openStore();
  if (!job)
    return job.error();
  int64_t numRanks = loaded.program.mesh.numRanks();
  if (Status status =
          launch::checkIn(*job->store, start.rank, numRanks, factsOf(loaded, options), timeout);
      !status)
    return status;
  comm::GlooOptions gloo;
  gloo.host = start.host;
  gloo.timeout = timeout;
  gloo.token = start.token;
  auto communicator = comm::connectGloo(start.rank, numRanks, *job->store, gloo);
  if (!communicator)
    return communicator.error();

  bool isFirst = start.rank == 0, hasTokens = loaded.manifest.tokensPerSample > 0;
  train::JsonLog log;
  bool isLogFull = false;
  train::TrainCallbacks callbacks;
  callbacks.begin = [&](int64_t done) -> Status {
    if (isFirst && done > 0)
      std::cerr << "tbc: going on after step " << done << "\n";
    else if (isFirst && train->checkpoint.resumes)
      std::cerr << "tbc: no checkpoint in " << train->checkpoint.folder
                << ", beginning at step 1\n";
    if (!isFirst || train->logFile.empty())
      return Status::ok();
    auto opened = train::JsonLog::open(train->logFile, done);
    if (!opened)
      return opened.error();
    log = std::move(*opened);
    return Status::ok();
  };
  callbacks.report = [&](const train::StepReport &line) {
    if (!isFirst)
      return;
    std::cout << train::lineOf(line, train->steps, hasTokens) << std::endl;
    if (log && !log.write(train::jsonOf(line, hasTokens)))
      isLogFull = true;
  };
  callbacks.stopRequested = launch::stopRequested;
  Status status = train::train(loaded, *train, **communicator, start.localRank == 0, callbacks);
  if (status && isLogFull)
    return Error{ErrorCode::Other, "could not write all of --log " + train->logFile};
  return status;
}

/// Runs a rank and prints its error, if there is one.
int rankCode(const train::LoadedProgram &loaded, const RunOptions &options,
             const RankStart &start) {
  Error error;
  try {
    Status status = runRank(loaded, options, start);
    if (status)
      return 0;
    error = status.error();
  } catch (const std::exception &exception) {
    error = {ErrorCode::Other, exception.what()};
  }
  // One line, so that those of several ranks do not mix. All ranks stop alike on request.
  bool isSaid = error.code == ErrorCode::StoppedOnRequest && start.rank != 0;
  if (!isSaid)
    std::cerr << "tbc: rank " + std::to_string(start.rank) + ": " + error.message + "\n"
              << std::flush;
  return int(error.code);
}

Result<int> launchHere(const train::LoadedProgram &loaded, const RunOptions &options,
                       int64_t numRanks) {
  Result<std::string> token = launch::randomToken();
  if (!token)
    return token.error();
  // The port is bound before anybody is told of it.
  auto server = launch::StoreServer::listen("127.0.0.1", 0, *token);
  if (!server)
    return server.error();
  int port = (*server)->port();
  auto timeout = milliseconds(options.timeoutSeconds * 1000);
  auto body = [&](int64_t rank) {
    (*server)->forget();
    RankStart start;
    start.rank = start.localRank = rank;
    start.token = *token;
    start.openStore = [&]() -> Result<launch::JobStore> {
      auto store = launch::connectStore("127.0.0.1", port, *token, timeout);
      if (!store)
        return store.error();
      launch::JobStore job;
      job.store = std::move(*store);
      return job;
    };
    return rankCode(loaded, options, start);
  };
  launch::LaunchOptions launching;
  launching.numRanks = numRanks;
  return launch::launch(launching, body, [&] { (*server)->start(); });
}

/// The token that ranks of a launcher share: TBC_JOB_TOKEN, or on one machine the job's name, which
/// keeps jobs apart but is no secret to other users of the machine.
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
  start.token = *token;
  start.host = options.host;
  if (start.host.empty()) {
    Result<std::string> address = launch::ownAddress(point);
    if (!address)
      return address.error();
    start.host = *address;
  }
  start.openStore = [&] {
    return launch::openJobStore(point, place.rank, *token,
                                milliseconds(options.timeoutSeconds * 1000));
  };
  launch::listenForStop();
  int code = rankCode(loaded, options, start);
  if (point.isOurs && place.rank == 0) {
    std::error_code ignored;
    if (code != 0) // the others still read why
      std::this_thread::sleep_for(std::chrono::seconds(1));
    std::filesystem::remove_all(point.path, ignored);
  }
  return code;
}

} // namespace

Result<int> runProgram(const RunOptions &options) {
  // Before anything is started.
  if (Result<train::TrainOptions> train = trainOptions(options); !train)
    return train.error();
  Result<train::LoadedProgram> loaded = train::loadProgram(options.program);
  if (!loaded)
    return loaded.error();
  int64_t numRanks = loaded->program.mesh.numRanks();
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
