//===- TrialRun.cpp - What a plan takes in truth ---------------------------------===//

#include "planner/core/Summary.h"
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

namespace {

/// A folder that is gone with this.
class TemporaryFolder {
public:
  static Result<TemporaryFolder> make() {
    std::string pattern = (fs::temp_directory_path() / "tbc-trial-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      return Error{ErrorCode::Other, "cannot make a folder for a trial like " + pattern};
    return TemporaryFolder(pattern);
  }
  TemporaryFolder(TemporaryFolder &&other) noexcept : path(std::move(other.path)) {
    other.path.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty())
      fs::remove_all(path, ignored);
  }
  fs::path path;

private:
  explicit TemporaryFolder(const std::string &path) : path(path) {}
};

} // namespace

/// A number of KiB in a file of lines "NAME: NUMBER kB", in bytes; 0 where it is not there.
static int64_t kibibytesIn(const std::string &file, const std::string &name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + ":", 0) == 0)
      return 1024 * std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  return 0;
}

/// The most that any child of `process` has held in memory so far.
static int64_t peakOfChildren(pid_t process) {
  std::string id = std::to_string(process);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  int64_t peak = 0;
  for (pid_t child = 0; children >> child;)
    peak = std::max(peak, kibibytesIn("/proc/" + std::to_string(child) + "/status", "VmHWM"));
  return peak;
}

/// Starts this program again with `arguments`, in a group of its own; what it says goes to
/// `output`.
static pid_t start(const std::vector<std::string> &arguments, const std::string &output) {
  std::vector<std::string> words = {"tbc"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> list;
  for (std::string &word : words)
    list.push_back(word.data());
  list.push_back(nullptr);
  pid_t child = fork();
  if (child != 0)
    return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL); // nothing is left of a trial that is interrupted
  int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv("/proc/self/exe", list.data());
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

/// Waits for the run, ends it when a rank takes more than `limitBytes`, and sets `peakBytes`. The
/// status that wait gives.
static int watch(pid_t run, int64_t limitBytes, int64_t &peakBytes) {
  int status = 0;
  bool isEnded = false;
  while (waitpid(run, &status, WNOHANG) == 0) {
    peakBytes = std::max(peakBytes, peakOfChildren(run));
    if (peakBytes > limitBytes && !isEnded) {
      kill(-run, SIGKILL);
      isEnded = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return status;
}

Result<TrialOutcome> tryPlan(const planner::Plan &plan, const std::string &modelFile,
                             int64_t limitBytes) {
  int64_t ranks = plan.mesh.numRanks();
  double needed = double(ranks) * double(plan.prediction.peakBytes);
  double available = double(kibibytesIn("/proc/meminfo", "MemAvailable"));
  if (needed > available)
    return Error{ErrorCode::Usage,
                 "--trial runs all " + std::to_string(ranks) + " ranks here, which take " +
                     formatBytes(needed) + " as predicted; this machine has " +
                     formatBytes(available) +
                     " left. Plan for this machine (--cluster cpu-local, or a file of tbc "
                     "calibrate), or set --memory-limit"};
  auto folder = TemporaryFolder::make();
  if (!folder)
    return folder.error();
  std::string planFile = folder->path / "plan.json", program = folder->path / "program",
              output = folder->path / "output";
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
  TrialOutcome outcome;
  status = watch(run, limitBytes, outcome.peakBytes);
  bool isDone = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  outcome.fits = isDone && outcome.peakBytes <= limitBytes;
  // A rank that the system ended, or that could get no more memory, is what a trial is to find out.
  std::string said = textOf(output);
  bool ranOut = outcome.peakBytes > limitBytes || said.find("bad_alloc") != std::string::npos ||
                said.find("signal 9") != std::string::npos;
  if (!isDone && !ranOut)
    return failed("the run failed", output);
  return outcome;
}

} // namespace tbc::cli
