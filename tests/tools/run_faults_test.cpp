//===- run_faults_test.cpp - tbc run: faults, checkpoints --------------------===//

#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;
using tbc::test::codeOf;
using tbc::test::Outcome;
using tbc::test::readAll;
using tbc::test::Run;
using testing::HasSubstr;

namespace {

/// A run in the background.
struct Job {
  pid_t pid = -1;
  std::string out, err;
  int wait() const {
    int status = 0;
    waitpid(pid, &status, 0);
    return codeOf(status);
  }
};

Job start(const std::string &folder, const std::string &program,
          const std::vector<std::string> &flags) {
  Job job;
  job.out = folder + "/job-out.txt";
  job.err = folder + "/job-err.txt";
  fs::remove(job.out); // of an earlier one
  job.pid = fork();
  if (job.pid == 0) {
    if (!freopen(job.out.c_str(), "w", stdout) || !freopen(job.err.c_str(), "w", stderr) ||
        chdir(folder.c_str()) != 0)
      _exit(99);
    std::vector<char *> arguments = {const_cast<char *>(TBC_RUN_PROGRAM),
                                     const_cast<char *>(program.c_str())};
    for (const std::string &flag : flags)
      arguments.push_back(const_cast<char *>(flag.c_str()));
    arguments.push_back(nullptr);
    execv(TBC_RUN_PROGRAM, arguments.data());
    _exit(98);
  }
  return job;
}

/// The processes that `parent` started, in order; once there are `count`.
std::vector<pid_t> childrenOf(pid_t parent, size_t count) {
  std::string path =
      "/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children";
  for (int i = 0; i < 12000; ++i) {
    std::istringstream text(readAll(path));
    std::vector<pid_t> children;
    for (pid_t pid = 0; text >> pid;)
      children.push_back(pid);
    if (children.size() == count)
      return children;
    usleep(5000);
  }
  return {};
}

void waitForText(const std::string &path, const std::string &word) {
  for (int i = 0; i < 12000 && readAll(path).find(word) == std::string::npos; ++i)
    usleep(5000);
  ASSERT_THAT(readAll(path), HasSubstr(word));
}

bool isThere(pid_t pid) {
  std::string state = readAll("/proc/" + std::to_string(pid) + "/stat");
  return !state.empty() && state.find(") Z") == std::string::npos;
}

TEST_F(Run, AKilledRankEndsTheRun) {
  Job job = start(folder, mlp(), {"--steps", "1000000"});
  waitForText(job.out, "step 3/");
  std::vector<pid_t> ranks = childrenOf(job.pid, 4);
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[2], SIGKILL);
  EXPECT_EQ(job.wait(), 6);
  EXPECT_THAT(readAll(job.err), HasSubstr("rank 2 was killed by signal 9"));
  for (pid_t rank : ranks)
    EXPECT_FALSE(isThere(rank));
}

TEST_F(Run, AStoppedRankIsAHang) {
  Job job = start(folder, mlp(), {"--steps", "1000000", "--timeout", "4"});
  waitForText(job.out, "step 3/");
  std::vector<pid_t> ranks = childrenOf(job.pid, 4);
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[1], SIGSTOP);
  EXPECT_EQ(job.wait(), 7);
  std::string err = readAll(job.err);
  EXPECT_THAT(err, HasSubstr("no answer from rank 1 for 4000 ms"));
  EXPECT_THAT(err, HasSubstr("rank 1 does not end by itself and is killed"));
  for (pid_t rank : ranks)
    EXPECT_FALSE(isThere(rank));
}

TEST_F(Run, AStopIsACheckpoint) {
  for (int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    Job job = start(folder, mlp(), {"--steps", "1000000", "--checkpoint", "stopped"});
    waitForText(job.out, "step 2/");
    kill(job.pid, signal);
    EXPECT_EQ(job.wait(), 8);
    EXPECT_THAT(readAll(job.err), HasSubstr("stopped on request after step"));
    int checkpoints = 0;
    for (const auto &entry : fs::directory_iterator(folder + "/stopped"))
      checkpoints += fs::exists(entry.path() / "index.json");
    EXPECT_EQ(checkpoints, 1);
    fs::remove_all(folder + "/stopped");
  }
}

TEST_F(Run, ADataFileThatIsTruncatedIsNamed) {
  std::string tokens(1 << 20, '\0');
  std::ofstream(folder + "/tokens.bin") << tokens;
  std::string plan = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  Job job = start(folder, plan, {"--data", "tokens.bin", "--steps", "1000000"});
  waitForText(job.out, "step 2/");
  fs::resize_file(folder + "/tokens.bin", 100);
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(readAll(job.err), HasSubstr("tbc: tokens.bin was truncated while it was read"));
}

TEST_F(Run, APipeIsNoData) {
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  Outcome data = run(program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2"), "--data pipe");
  EXPECT_EQ(data.code, 2);
  EXPECT_THAT(data.err, HasSubstr("cannot read pipe: it is a pipe"));
  for (std::string file : {"program.json", "seal.json"}) {
    std::string copy = folder + "/" + file + ".copy";
    fs::copy(mlp(), copy);
    fs::remove(copy + "/" + file);
    ASSERT_EQ(mkfifo((copy + "/" + file).c_str(), 0600), 0);
    Outcome program = run(copy, "");
    EXPECT_EQ(program.code, 2);
    EXPECT_THAT(program.err, HasSubstr(file + ": it is no regular file"));
  }
}

TEST_F(Run, AKillAnywhereInACheckpointLosesNothing) {
  ASSERT_EQ(run(mlp(), "--steps 6 --log whole").code, 0);
  for (const char *async : {"", " --async-checkpoint"})
    for (const char *point :
         {"shard-begun:1", "shard-written:3", "index-written:0", "renamed:0", "pruned:0"}) {
      SCOPED_TRACE(std::string(point) + async);
      std::string flags =
          "--steps 6 --checkpoint saved --every 2 --keep 1 --resume --log log" + std::string(async);
      Outcome killed = run(mlp(), flags, "TBC_KILL_AT=" + std::string(point));
      EXPECT_EQ(killed.code, 6) << killed.err;
      // Until it is through; it may be killed at the same point of the next checkpoint again.
      Outcome resumed = run(mlp(), flags);
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_EQ(losses("log"), losses("whole"));
      std::set<std::string> names;
      for (const auto &entry : fs::directory_iterator(folder + "/saved"))
        names.insert(entry.path().filename().string());
      EXPECT_EQ(names, (std::set<std::string>{"step-00000006"}));
      fs::remove_all(folder + "/saved");
    }
}

TEST_F(Run, AnAsynchronousCheckpointIsWhatWasThereThen) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint now").code, 0);
  ASSERT_EQ(run(mlp(), "--steps 6 --checkpoint later --every 2 --keep 0 --async-checkpoint").code,
            0);
  for (int rank = 0; rank < 2; ++rank) {
    std::string name = "/step-00000002/rank-0000" + std::to_string(rank) + ".safetensors";
    std::string now = readAll(folder + "/now" + name);
    EXPECT_FALSE(now.empty());
    EXPECT_EQ(now, readAll(folder + "/later" + name));
  }
  // The one before the last is complete too, and so is the last.
  for (const char *step : {"4", "6"})
    EXPECT_TRUE(fs::exists(folder + "/later/step-0000000" + step + "/index.json"));
}

TEST_F(Run, AFullDiskLosesNothing) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  for (const char *async : {"", " --async-checkpoint --every 3"}) {
    // A limit on the size of files stands for it.
    Outcome full = shell("trap '' XFSZ; ulimit -f 16; " TBC_RUN_PROGRAM " '" + mlp() +
                         "' --steps 4 --checkpoint saved --resume" + async);
    EXPECT_EQ(full.code, 1);
    EXPECT_THAT(full.err, HasSubstr("cannot write saved/step-0000000"));
    EXPECT_FALSE(fs::exists(folder + "/saved/step-00000004"));
  }
  Outcome resumed = run(mlp(), "--steps 4 --checkpoint saved --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("going on after step 2"));
}

TEST_F(Run, ADamagedCheckpointIsNamed) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  // Ranks 2 and 3 hold the same as 0 and 1, which wrote it.
  fs::resize_file(folder + "/saved/step-00000002/rank-00001.safetensors", 5000);
  Outcome outcome = run(mlp(), "--steps 4 --checkpoint saved --resume");
  EXPECT_EQ(outcome.code, 9);
  EXPECT_THAT(outcome.err, HasSubstr("saved/step-00000002/rank-00001.safetensors is damaged"));
}

TEST_F(Run, ACheckpointFitsAnotherPlan) {
  ASSERT_EQ(run(mlp(), "--steps 4 --arith residue --log whole").code, 0);
  ASSERT_EQ(run(mlp(), "--steps 2 --arith residue --checkpoint saved").code, 0);
  for (const std::string &plan : {mlpOnTwo(), program("tiny-mlp", "--gpus 1"),
                                  program("tiny-mlp", "--gpus 2 --mesh pp=2 --micro-batch 4")}) {
    Outcome outcome = run(plan, "--steps 4 --arith residue --checkpoint saved --resume --log log");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::string whole = losses("whole");
    EXPECT_EQ(losses("log"), whole.substr(whole.find("{\"step\":3")));
    fs::remove_all(folder + "/saved/step-00000004");
  }
}

TEST_F(Run, PiecesAreJoinedToOneFile) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  Outcome joined = shell(TBC_PROGRAM " checkpoint consolidate saved -o all.safetensors");
  ASSERT_EQ(joined.code, 0) << joined.err;
  std::string file = readAll(folder + "/all.safetensors");
  EXPECT_THAT(file.substr(0, 2000),
              HasSubstr("\"fc3.weight\":{\"dtype\":\"F32\",\"shape\":[10,64]"));
  // 64 x 32 + 64 + 64 x 64 + 64 + 10 x 64 + 10 floats behind the header.
  size_t length = static_cast<unsigned char>(file[0]) + 256 * static_cast<unsigned char>(file[1]);
  EXPECT_EQ(file.size(), 8 + length + 4 * (64 * 32 + 64 + 64 * 64 + 64 + 10 * 64 + 10));
  EXPECT_EQ(shell(TBC_PROGRAM " checkpoint consolidate none -o x").code, 9);
}

} // namespace
