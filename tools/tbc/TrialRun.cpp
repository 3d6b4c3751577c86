//===- TrialRun.cpp - Measure the memory of a plan in a trial run ----------------===//

#include "planner/devices/StageDevices.h"
#include "planner/plan/PlanDevices.h"
#include "planner/plan/PlanFile.h"
#include "planner/report/Summary.h"
#include "planner/support/Format.h"
#include "runtime/abi/TemporaryFolder.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/FindBatch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tbc::cli {

namespace fs = std::filesystem;
using planner::formatBytes;

/// Returns the value, in bytes, of a line "NAME: NUMBER kB" of the file; 0 if it is missing.
static int64_t kibibytesIn(const std::string &file, const std::string &name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + ":", 0) == 0)
      return 1024 * std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  return 0;
}

/// Peak memory and limit of a run's ranks, by rank.
class RankMemory {
public:
  explicit RankMemory(const planner::Plan &plan) {
    const planner::StageDevices devices = planner::stageDevices(plan);
    const size_t perStage = size_t(plan.mesh.numRanks() / plan.mesh.pp);
    for (int stage = 0; stage < int(plan.mesh.pp); ++stage) {
      TrialOutcome rank;
      rank.limitBytes = plan.limitBytes(devices.of(stage));
      rank.predictedBytes = plan.prediction.stages[size_t(stage)].totalBytes();
      ranks.insert(ranks.end(), perStage, rank);
    }
  }

  /// The sum over all ranks.
  double predictedBytes() const {
    double bytes = 0;
    for (const TrialOutcome &rank : ranks)
      bytes += double(rank.predictedBytes);
    return bytes;
  }
  /// Samples the children of `launcher`. It starts them in the order of ranks.
  void look(pid_t launcher) {
    std::string id = std::to_string(launcher);
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    for (pid_t child = 0; children >> child;) {
      size_t rank = size_t(std::find(pids.begin(), pids.end(), child) - pids.begin());
      if (rank == ranks.size())
        continue; // not a rank
      if (rank == pids.size())
        pids.push_back(child);
      ranks[rank].peakBytes =
          std::max(ranks[rank].peakBytes,
                   kibibytesIn("/proc/" + std::to_string(child) + "/status", "VmHWM"));
    }
  }
  /// Returns the rank with the least headroom, or the largest excess.
  const TrialOutcome &fullest() const {
    return *std::max_element(ranks.begin(), ranks.end(), [](const auto &a, const auto &b) {
      return a.peakBytes - a.limitBytes < b.peakBytes - b.limitBytes;
    });
  }

private:
  std::vector<TrialOutcome> ranks;
  std::vector<pid_t> pids;
};

static std::string &trialProgram() {
  static std::string path = "/proc/self/exe";
  return path;
}

void setTrialProgram(const std::string &path) { trialProgram() = path; }

/// Starts tbc with `arguments`, in a process group of its own, with its output in
/// `output`.
static pid_t start(const std::vector<std::string> &arguments, const std::string &output) {
  std::vector<std::string> words = {"tbc"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> list;
  for (std::string &word : words)
    list.push_back(word.data());
  list.push_back(nullptr);
  const std::string program = trialProgram();
  pid_t child = fork();
  if (child != 0)
    return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL); // ends the trial if this process is killed
  int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv(program.c_str(), list.data());
  _exit(127);
}

static std::string textOf(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

static Error failed(const std::string &what, const std::string &output) {
  return {ErrorCode::Other, "--trial: " + what + ":\n" + textOf(output)};
}

static bool isBeyond(const TrialOutcome &rank) { return rank.peakBytes > rank.limitBytes; }

/// Waits for the run and ends it when a rank exceeds its limit. Returns the wait status.
static int watch(pid_t run, RankMemory &memory) {
  int status = 0;
  bool isEnded = false;
  while (waitpid(run, &status, WNOHANG) == 0) {
    memory.look(run);
    if (isBeyond(memory.fullest()) && !isEnded) {
      kill(-run, SIGKILL);
      isEnded = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return status;
}

Result<TrialOutcome> tryPlan(const planner::Plan &plan, const std::string &modelFile) {
  int64_t ranks = plan.mesh.numRanks();
  RankMemory memory(plan);
  double needed = memory.predictedBytes();
  double available = double(kibibytesIn("/proc/meminfo", "MemAvailable"));
  if (needed > available)
    return Error{ErrorCode::Usage,
                 "--trial runs all " + std::to_string(ranks) + " ranks here, which take " +
                     formatBytes(needed) + " as predicted; this machine has " +
                     formatBytes(available) +
                     " left. Plan for this machine (--cluster cpu-local, or a file of tbc "
                     "calibrate), or set --memory-limit"};
  auto folder = TemporaryFolder::make("tbc-trial");
  if (!folder)
    return folder.error();
  std::string planFile = folder->file("plan.json"), program = folder->file("program"),
              output = folder->file("output");
  if (Status status = writeFile(planFile, planner::writePlan(plan)); !status)
    return status.error();
  std::error_code ignored;
  std::string model = fs::absolute(modelFile, ignored).string();
  int status = 0;
  pid_t compile = start({"compile", planFile, "--model", model, "-o", program}, output);
  if (compile < 0 || waitpid(compile, &status, 0) < 0 || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0)
    return failed("the plan could not be compiled", output);
  pid_t run = start({"run", program, "--nproc", std::to_string(ranks), "--steps", "2",
                     "--init-weights", "1", "--data", "synthetic"},
                    output);
  if (run < 0)
    return failed("the run could not be started", output);
  status = watch(run, memory);
  TrialOutcome outcome = memory.fullest();
  bool isDone = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  outcome.fits = isDone && !isBeyond(outcome);
  // A rank killed by the system, or out of memory, is a valid result of a trial.
  std::string said = textOf(output);
  bool ranOut = isBeyond(outcome) || said.find("out of memory") != std::string::npos ||
                said.find("signal 9") != std::string::npos;
  if (!isDone && !ranOut)
    return failed("the run failed", output);
  return outcome;
}

} // namespace tbc::cli
