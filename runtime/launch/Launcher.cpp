//===- Launcher.cpp - Starts the ranks of a job on this machine ------------===//

#include "runtime/launch/Launcher.h"
#include "runtime/launch/Say.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tbc::launch {

using Clock = std::chrono::steady_clock;

static std::atomic<bool> hasStopSignal{false};

/// Blocks `signals` in this thread and those that it starts, and waits for them in one of its own.
///
/// Why no handler: while a matmul of oneDNN for AVX2 runs, the stack pointer is in its scratch
/// memory (`mov(rsp, ARG_WS)` in src/cpu/x64/gemm/f32/jit_avx_gemm_f32.cpp), and the frame of a
/// handler overwrote what lies below.
static void waitFor(const std::vector<int> &signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals)
    sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set] {
    for (int signal = 0; sigwait(&set, &signal) == 0;)
      hasStopSignal = true;
  }).detach();
}

void listenForStop() { waitFor({SIGTERM, SIGINT, SIGUSR1, SIGUSR2}); }

bool stopRequested() { return hasStopSignal; }

/// Whether a signal has stopped the process, so that it cannot end by itself.
static bool isStopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t nameEnd = text.rfind(')'); // a name may hold anything
  return nameEnd != std::string::npos && text.compare(nameEnd, 3, ") T") == 0;
}

namespace {

struct Child {
  pid_t pid = -1;
  bool isRunning = false;
  int code = 0;
  bool wasKilled = false; // by a signal that the launcher did not send
};

class Family {
public:
  explicit Family(const LaunchOptions &options) : options(options), children(options.numRanks) {}

  bool start(const RankBody &body);
  int watch();

private:
  void signalAll(int signal) const {
    for (const Child &child : children)
      if (child.isRunning)
        kill(child.pid, signal);
  }
  bool onlyStoppedRun() const;
  void heed(int signal);
  void reap();
  void ended(int64_t rank, int status);
  int outcome() const;

  const LaunchOptions options;
  std::vector<Child> children;
  std::optional<Clock::time_point> killAt;
  int numStops = 0; // stop signals, without early warnings
  bool isStopping = false, hasKilled = false;
};

sigset_t watchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    sigaddset(&set, signal);
  return set;
}

bool Family::start(const RankBody &body) {
  pid_t parent = getpid();
  for (size_t rank = 0; rank < children.size(); ++rank) {
    pid_t pid = fork();
    if (pid < 0) {
      say("cannot start rank " + std::to_string(rank) + ": " + strerror(errno));
      signalAll(SIGKILL);
      return false;
    }
    if (pid == 0) {
      // The rank dies with its parent, however the parent ends.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent)
        _exit(int(ErrorCode::RankFailed));
      // A terminal sends Ctrl-C to all processes; only the launcher's SIGTERM shall count.
      std::signal(SIGINT, SIG_IGN);
      std::signal(SIGHUP, SIG_IGN);
      const std::vector<int> stops = {SIGTERM, SIGUSR1, SIGUSR2};
      sigset_t others = watchedSignals();
      for (int stop : stops) // one that is pending would end the rank
        sigdelset(&others, stop);
      sigprocmask(SIG_UNBLOCK, &others, nullptr);
      waitFor(stops);
      int code = body(int64_t(rank));
      std::cout.flush();
      std::fflush(nullptr);
      _exit(code);
    }
    children[rank].pid = pid;
    children[rank].isRunning = true;
  }
  return true;
}

/// Returns what may have sent `signal`, as the end of a sentence, or "".
static std::string causeOf(int signal) {
  if (signal == SIGKILL)
    return "; the system does so when memory runs out";
  rlimit limit{};
  const bool isLimited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!isLimited || (signal != SIGSEGV && signal != SIGBUS))
    return "";
  constexpr rlim_t mib = 1 << 20;
  return "; a stack cannot grow beyond the limit on memory of " +
         std::to_string(limit.rlim_cur / mib) + " MiB (ulimit -v)";
}

void Family::ended(int64_t rank, int status) {
  Child &child = children[rank];
  child.isRunning = false;
  child.code = WIFEXITED(status) ? WEXITSTATUS(status) : int(ErrorCode::RankFailed);
  if (child.code != 0 && !killAt)
    killAt = Clock::now() + options.grace;
  if (!WIFSIGNALED(status) || hasKilled)
    return;
  child.wasKilled = true;
  say("rank " + std::to_string(rank) + " was killed by signal " + std::to_string(WTERMSIG(status)) +
      " (" + strsignal(WTERMSIG(status)) + ")" + causeOf(WTERMSIG(status)));
}

void Family::reap() {
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    if (children[rank].isRunning && waitpid(children[rank].pid, &status, WNOHANG) > 0)
      ended(int64_t(rank), status);
  }
}

/// Whether ranks are left, and all of them are stopped.
bool Family::onlyStoppedRun() const {
  bool anyRuns = false;
  for (const Child &child : children) {
    if (child.isRunning && !isStopped(child.pid))
      return false;
    anyRuns |= child.isRunning;
  }
  return anyRuns;
}

int Family::outcome() const {
  // Reports the cause rather than its consequences, in this order: a rank killed by a signal; a
  // hang; the first other code that does not itself report another rank's failure.
  auto any = [&](auto has) {
    for (const Child &child : children)
      if (has(child))
        return true;
    return false;
  };
  auto anyCode = [&](ErrorCode code) {
    return any([&](const Child &child) { return child.code == int(code); });
  };
  if (any([](const Child &child) { return child.wasKilled; }))
    return int(ErrorCode::RankFailed);
  if (anyCode(ErrorCode::HangDetected))
    return int(ErrorCode::HangDetected);
  for (const Child &child : children)
    if (child.code != 0 && child.code != int(ErrorCode::RankFailed) &&
        child.code != int(ErrorCode::StoppedOnRequest))
      return child.code;
  if (anyCode(ErrorCode::RankFailed) && !(isStopping && hasKilled))
    return int(ErrorCode::RankFailed);
  // A stop that came too late changes nothing.
  bool isCutShort = anyCode(ErrorCode::StoppedOnRequest) || (isStopping && hasKilled);
  return isCutShort ? int(ErrorCode::StoppedOnRequest) : 0;
}

/// Handles a signal to stop the run. Schedulers send SIGUSR1 or SIGUSR2 as an early warning and
/// SIGTERM when the time is up, so a warning is not the first of two stops.
void Family::heed(int signal) {
  bool isWarning = signal == SIGUSR1 || signal == SIGUSR2;
  numStops += isWarning ? 0 : 1;
  if (numStops > 1) {
    hasKilled = true;
    signalAll(SIGKILL);
    return;
  }
  if (!isStopping) {
    std::string cause = isWarning ? signal == SIGUSR1 ? "SIGUSR1: " : "SIGUSR2: " : "";
    say(cause + "stopping all ranks after this step; " +
        (isWarning ? "SIGTERM twice" : "once more") + " kills them");
    signalAll(SIGTERM);
  }
  isStopping = true;
}

int Family::watch() {
  sigset_t watched = watchedSignals();
  auto anyRuns = [&] {
    for (const Child &child : children)
      if (child.isRunning)
        return true;
    return false;
  };
  while (anyRuns()) {
    timespec limit{0, 100000000};
    int signal = sigtimedwait(&watched, nullptr, &limit);
    if (signal > 0 && signal != SIGCHLD)
      heed(signal);
    reap();
    if (killAt && !hasKilled && (Clock::now() >= *killAt || onlyStoppedRun())) {
      for (size_t rank = 0; rank < children.size(); ++rank)
        if (children[rank].isRunning)
          say("rank " + std::to_string(rank) + " does not end by itself and is killed");
      hasKilled = true;
      signalAll(SIGKILL);
    }
  }
  return outcome();
}

} // namespace

int launch(const LaunchOptions &options, const RankBody &body,
           const std::function<void()> &started) {
  std::cout.flush();
  std::fflush(nullptr);
  sigset_t watched = watchedSignals(), before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  Family family(options);
  bool isStarted = family.start(body);
  if (isStarted && started)
    started();
  int code = family.watch();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return isStarted ? code : int(ErrorCode::RankFailed);
}

} // namespace tbc::launch
