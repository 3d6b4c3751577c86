//===- launcher_test.cpp - Ranks as processes of this machine --------------===//

#include "runtime/launch/Launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tbc::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Numbers written by ranks and read by the test.
struct Shared {
  volatile int64_t values[16] = {};
};
Shared *makeShared() {
  void *memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Shared;
}

LaunchOptions ranks(int64_t numRanks, milliseconds grace = milliseconds(300)) {
  LaunchOptions options;
  options.numRanks = numRanks;
  options.grace = grace;
  return options;
}

void sleepForever() {
  while (true)
    pause();
}

TEST(Launcher, RunsEveryRankInAProcessOfItsOwn) {
  Shared *shared = makeShared();
  bool hasStarted = false;
  int code = launch(
      ranks(3),
      [&](int64_t rank) {
        shared->values[rank] = getpid();
        return 0;
      },
      [&] { hasStarted = true; });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(hasStarted);
  std::set<int64_t> pids = {getpid(), shared->values[0], shared->values[1], shared->values[2]};
  EXPECT_EQ(pids.size(), 4u);
}

TEST(Launcher, AFailedRankEndsTheOthers) {
  Clock::time_point begin = Clock::now();
  int code = launch(ranks(3), [&](int64_t rank) {
    if (rank == 1)
      return int(ErrorCode::Usage);
    sleepForever();
    return 0;
  });
  EXPECT_EQ(code, int(ErrorCode::Usage));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

TEST(Launcher, AStoppedRankGetsNoGraceOnceTheOthersHaveEnded) {
  Clock::time_point begin = Clock::now();
  int code = launch(ranks(2, std::chrono::minutes(5)), [&](int64_t rank) {
    if (rank == 1)
      return int(ErrorCode::Usage);
    raise(SIGSTOP);
    sleepForever();
    return 0;
  });
  EXPECT_EQ(code, int(ErrorCode::Usage));
  EXPECT_LT(Clock::now() - begin, std::chrono::minutes(2));
}

TEST(Launcher, AKilledRankIsAFailedRank) {
  int code = launch(ranks(2), [&](int64_t rank) {
    if (rank == 1)
      raise(SIGKILL);
    sleepForever();
    return 0;
  });
  EXPECT_EQ(code, int(ErrorCode::RankFailed));
}

TEST(Launcher, TheCauseIsReportedRatherThanWhatFollowed) {
  // Rank 0 is told of the failure of rank 1, which found a hang.
  int code = launch(ranks(2, milliseconds(60000)), [&](int64_t rank) {
    usleep(rank == 1 ? 100000 : 0);
    return int(rank == 1 ? ErrorCode::HangDetected : ErrorCode::RankFailed);
  });
  EXPECT_EQ(code, int(ErrorCode::HangDetected));
}

TEST(Launcher, ASignalIsPassedOn) {
  for (int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    int code = launch(
        ranks(2, milliseconds(60000)),
        [&](int64_t) {
          while (!stopRequested())
            usleep(1000);
          return int(ErrorCode::StoppedOnRequest);
        },
        [&] { kill(getpid(), signal); });
    EXPECT_EQ(code, int(ErrorCode::StoppedOnRequest));
  }
}

TEST(Launcher, AWarningIsNotTheFirstOfTwoStops) {
  // Ranks still saving at the time limit are not killed by SIGTERM.
  Shared *shared = makeShared();
  int code = launch(
      ranks(2, milliseconds(60000)),
      [&](int64_t rank) {
        while (!stopRequested())
          usleep(1000);
        shared->values[rank] = 1;
        if (rank == 0)
          kill(getppid(), SIGTERM);
        usleep(300000);
        return int(ErrorCode::StoppedOnRequest);
      },
      [&] { kill(getpid(), SIGUSR1); });
  EXPECT_EQ(code, int(ErrorCode::StoppedOnRequest));
  EXPECT_EQ(shared->values[0] + shared->values[1], 2);
}

TEST(Launcher, AStopThatComesTooLateChangesNothing) {
  int code = launch(
      ranks(2, milliseconds(60000)),
      [&](int64_t) {
        while (!stopRequested())
          usleep(1000);
        return 0;
      },
      [&] { kill(getpid(), SIGTERM); });
  EXPECT_EQ(code, 0);
}

TEST(Launcher, NoRankOutlivesTheLauncher) {
  Shared *shared = makeShared();
  pid_t launcher = fork();
  if (launcher == 0) {
    launch(ranks(2), [&](int64_t rank) {
      shared->values[rank] = getpid();
      sleepForever();
      return 0;
    });
    _exit(0);
  }
  for (int i = 0; i < 5000 && (!shared->values[0] || !shared->values[1]); ++i)
    usleep(1000);
  ASSERT_NE(shared->values[1], 0);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  // The adopting process reaps orphans, so a zombie counts as gone.
  auto isGone = [](int64_t pid) {
    std::string state;
    if (FILE *file = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r")) {
      char text[256] = {};
      size_t count = fread(text, 1, sizeof text - 1, file);
      state.assign(text, count);
      fclose(file);
    }
    return state.empty() || state.find(") Z") != std::string::npos;
  };
  for (int rank : {0, 1}) {
    for (int i = 0; i < 5000 && !isGone(shared->values[rank]); ++i)
      usleep(1000);
    EXPECT_TRUE(isGone(shared->values[rank]));
  }
}

} // namespace
} // namespace tbc::launch
