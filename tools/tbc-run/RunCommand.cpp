//===- RunCommand.cpp - tbc run and tbc-run ----------------------------------===//

#include "tools/tbc-run/RunCommand.h"

#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "runtime/exec/GradientReductions.h"
#include "runtime/launch/LocalJob.h"
#include "tools/tbc-run/GpuChoice.h"
#include "tools/tbc-run/Outputs.h"
#include "tools/tbc-run/PhaseLine.h"
#include "tools/tbc-run/RankRun.h"
#include "tools/tbc-run/TrainFlags.h"

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

Result<int> launchHere(const train::LoadedProgram &loaded, const RunOptions &options,
                       int64_t numRanks, std::optional<PhaseLine> &phase) {
  if (phase)
    phase->setPhase("checking data and weights");
  // Checked once here, so that not every rank prints the error.
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  if (Status status = train::checkData(loaded, *train); !status)
    return status.error();
  if (Status status = checkOutputs(*train); !status)
    return status.error();
  phase.reset(); // its thread would not be in the ranks
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

/// Matmuls are as the plan was made for. Exact numbers are of the operands' types.
static void setMatmulPrecision(const train::LoadedProgram &loaded, RunOptions &options) {
  const bool isPlanned =
      loaded.manifest.multipliesInFp8 && usesGpus(loaded, options) && options.arith == "native";
  if (options.matmulPrecision.empty())
    options.matmulPrecision = isPlanned ? "fp8" : "own";
}

Status checkRunFlags(const RunOptions &options) {
  Result<train::TrainOptions> train = trainOptions(options);
  return train ? Status::ok() : Status(ofKind(Problem::BadRunFlag, train.error()));
}

/// Whether flags say which rank this is.
static bool hasRank(const RunOptions &options) {
  return options.rank >= 0 || options.numRanks >= 0;
}

/// Returns the place of --rank, which needs --init.
static Result<launch::RankPlace> placeOfFlags(const RunOptions &options) {
  if (options.rank < 0 || options.numRanks < 1 || options.rank >= options.numRanks)
    return Error{ErrorCode::Usage, "--rank and --ranks go together, --rank from 0 to --ranks - 1"};
  if (options.init.empty())
    return Error{ErrorCode::Usage, "--rank needs --init tcp://HOST:PORT or file://PATH"};
  launch::RankPlace place;
  place.rank = options.rank;
  place.numRanks = options.numRanks;
  place.localRank = 0;
  place.launcher = "";
  return place;
}

/// Returns the place of this rank by flags or a launcher; empty if this process starts the ranks.
static Result<std::optional<launch::RankPlace>> placeOf(const RunOptions &options) {
  std::optional<MeetingPoint> point;
  if (!options.init.empty()) {
    auto parsed = launch::parseMeetingPoint(options.init);
    if (!parsed)
      return parsed.error();
    point = *parsed;
  }
  std::optional<launch::RankPlace> place;
  if (hasRank(options)) {
    Result<launch::RankPlace> given = placeOfFlags(options);
    if (!given)
      return given.error();
    place = *given;
  } else {
    auto found = launch::placeFromEnvironment(launch::systemVariable);
    if (!found)
      return found.error();
    place = *found;
  }
  if (!place && point)
    return Error{ErrorCode::Usage, "--init " + options.init +
                                       ": no launcher says which rank this is; give --rank and "
                                       "--ranks, or RANK and WORLD_SIZE in the environment"};
  if (place && point)
    place->meeting = point;
  return place;
}

Result<int> runProgram(const RunOptions &given) {
  RunOptions options = given;
  // Checked before anything starts.
  if (Status status = checkRunFlags(options); !status)
    return status.error();
  const Result<std::optional<launch::RankPlace>> place = placeOf(options);
  const bool isSilent = place && *place && (*place)->rank != 0; // of several, one speaks
  std::optional<PhaseLine> phase;
  if (!isSilent)
    phase.emplace("reading the program");
  Result<train::LoadedProgram> loaded = train::loadProgram(options.program);
  if (!loaded)
    return ofKind(Problem::BadProgram, loaded.error());
  Result<train::TrainOptions> train = trainOptions(options);
  if (!train)
    return train.error();
  if (Status status = checkFilesAreKept(*loaded, *train); !status)
    return status.error();
  setTimeouts(*loaded, options);
  setMatmulPrecision(*loaded, options);
  int64_t numRanks = loaded->program.mesh.numRanks();
  if (Status status = checkGpuOptions(*loaded, options); !status)
    return status.error();
  if (usesGpus(*loaded, options))
    if (Status status = checkGpuLibraries(numRanks, options); !status)
      return status.error();
  if (!options.compression.empty())
    if (std::string why = runtime::whyNotCompressed(loaded->program); !why.empty())
      return Error{ErrorCode::Usage, "--compress-gradients: " + why};
  if (options.numProcesses > 0) {
    if (hasRank(options) || !options.init.empty())
      return Error{ErrorCode::Usage, "--nproc starts the ranks itself; leave out --init, --rank "
                                     "and --ranks"};
    if (Status status = checkWorldSize(loaded->program, options.numProcesses, "--nproc says");
        !status)
      return status.error();
    return launchHere(*loaded, options, numRanks, phase);
  }
  if (!place)
    return place.error();
  if (!*place)
    return launchHere(*loaded, options, numRanks, phase);
  phase.reset();
  return runAsRank(*loaded, options, **place);
}

} // namespace tbc::cli
