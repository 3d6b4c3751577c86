//===- run_faults_test.cpp - tbc run: faults, checkpoints -----------------===//

#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <sys/resource.h>
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
using testing::Not;

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
  fs::remove(job.out); // of an earlier job
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

/// Returns the processes started by `parent`, in order, once there are `count`.
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
  EXPECT_THAT(readAll(job.err), HasSubstr("rank 2 was killed by signal 9 (Killed); the system "
                                          "does so when memory runs out"));
  for (pid_t rank : ranks)
    EXPECT_FALSE(isThere(rank));
}

TEST_F(Run, AStackThatMayNotGrowIsSaid) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limited{std::min<rlim_t>(rlim_t(64) << 30, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  Job job = start(folder, mlp(), {"--steps", "1000000"});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  waitForText(job.out, "step 3/");
  std::vector<pid_t> ranks = childrenOf(job.pid, 4);
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[1], SIGSEGV);
  EXPECT_EQ(job.wait(), 6);
  EXPECT_THAT(readAll(job.err), HasSubstr("rank 1 was killed by signal 11 (Segmentation fault); a "
                                          "stack cannot grow beyond the limit on memory of 65536 "
                                          "MiB (ulimit -v)"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // they take more addresses
TEST_F(Run, ThreadsThatCannotStartAreAnError) {
  const std::string path = mlpOnTwo();
  Outcome outcome = shell("ulimit -v 2000000; " TBC_RUN_PROGRAM " '" + path + "' --threads 4096");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("a thread cannot be started: raise the limits on threads"));
}
#endif

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

/// Returns the ranks that messages accuse: after "no answer from", or before "is gone" or "gives
/// no".
std::set<std::string> accusedIn(const std::string &text) {
  std::set<std::string> accused;
  std::regex words("no answer from (rank [0-9]+)|(rank [0-9]+) is gone|(rank [0-9]+) gives no");
  for (auto found = std::sregex_iterator(text.begin(), text.end(), words);
       found != std::sregex_iterator(); ++found)
    for (size_t group = 1; group < found->size(); ++group)
      if ((*found)[group].matched)
        accused.insert((*found)[group]);
  return accused;
}

/// A run with one rank stopped or killed.
struct FaultyJob {
  std::string name;
  size_t culprit;
  int signal;
  Job job;
};

void expectOneAccused(const FaultyJob &faulty) {
  SCOPED_TRACE(faulty.name + (faulty.signal == SIGSTOP ? ", stopped" : ", killed"));
  EXPECT_EQ(faulty.job.wait(), faulty.signal == SIGSTOP ? 7 : 6);
  std::string err = readAll(faulty.job.err);
  EXPECT_EQ(accusedIn(err), std::set<std::string>{"rank " + std::to_string(faulty.culprit)}) << err;
  if (faulty.signal == SIGSTOP) {
    EXPECT_THAT(err, HasSubstr("where ranks stand:"));
  }
  EXPECT_THAT(err, HasSubstr("its last calls are in "));
  for (size_t at = err.find("/tbc-rank-"); at != std::string::npos;
       at = err.find("/tbc-rank-", at + 1)) {
    size_t begin = err.rfind(' ', at) + 1;
    std::string file = err.substr(begin, err.find_first_of(" \n", at) - begin);
    EXPECT_THAT(readAll(file), HasSubstr("\"event\":\"begin\"")) << file;
    fs::remove(file);
  }
}

TEST_F(Run, TheCulpritAloneIsAccused) {
  struct Case {
    const char *model, *flags;
    size_t ranks, culprit;
  };
  // The next run starts while the ranks of those before only wait for the one that is stopped.
  std::vector<FaultyJob> jobs;
  for (const Case &tried :
       {Case{"tiny-mlp", "--gpus 2 --mesh fsdp=2", 2, 0},
        Case{"tiny-mlp", "--gpus 4 --mesh dp=2,tp=2", 4, 3},
        Case{"tiny-mlp", "--gpus 8 --mesh pp=2,dp=2,tp=2 --micro-batch 2", 8, 5}})
    for (int signal : {SIGSTOP, SIGKILL}) {
      const std::string path = program(tried.model, tried.flags);
      const std::string own = folder + "/job" + std::to_string(jobs.size());
      fs::create_directory(own);
      Job job = start(own, path, {"--steps", "1000000", "--timeout", "6", "--threads", "1"});
      waitForText(job.out, "step 2/");
      std::vector<pid_t> ranks = childrenOf(job.pid, tried.ranks);
      ASSERT_EQ(ranks.size(), tried.ranks);
      kill(ranks[tried.culprit], signal);
      jobs.push_back({tried.flags, tried.culprit, signal, job});
    }
  for (const FaultyJob &faulty : jobs)
    expectOneAccused(faulty);
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
      // The resumed run is not killed and has the losses of an uninterrupted run.
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
  // The last checkpoint and the one before it are complete.
  for (const char *step : {"4", "6"})
    EXPECT_TRUE(fs::exists(folder + "/later/step-0000000" + step + "/index.json"));
}

TEST_F(Run, AFullDiskLosesNothing) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  for (const char *async : {"", " --async-checkpoint --every 3"}) {
    // A limit on file sizes replaces a full disk.
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

TEST_F(Run, ADamagedCheckpointIsNamedAndTheOneBeforeItTaken) {
  ASSERT_EQ(run(mlp(), "--steps 6 --log whole").code, 0);
  ASSERT_EQ(run(mlp(), "--steps 4 --checkpoint saved --every 2 --log log").code, 0);
  // Ranks 2 and 3 hold the same tensors as 0 and 1, which wrote this checkpoint.
  fs::resize_file(folder + "/saved/step-00000004/rank-00001.safetensors", 5000);
  Outcome joined = shell(TBC_PROGRAM " checkpoint consolidate saved -o all.safetensors");
  EXPECT_EQ(joined.code, 0) << joined.err;
  EXPECT_THAT(joined.out, HasSubstr("from saved/step-00000002"));
  Outcome outcome = run(mlp(), "--steps 6 --checkpoint saved --resume --log log");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("saved/step-00000004/rank-00001.safetensors is damaged"));
  EXPECT_THAT(outcome.err, HasSubstr(", in \"fc"));
  EXPECT_THAT(outcome.err, HasSubstr("going on from saved/step-00000002"));
  EXPECT_EQ(losses("log"), losses("whole"));
  // All checkpoints.
  for (const auto &entry : fs::directory_iterator(folder + "/saved"))
    fs::resize_file(entry.path() / "index.json", 100);
  EXPECT_EQ(run(mlp(), "--steps 8 --checkpoint saved --resume").code, 9);
}

TEST_F(Run, ACheckpointUnderAnotherNameIsNotTaken) {
  ASSERT_EQ(run(mlp(), "--steps 6 --log whole").code, 0);
  ASSERT_EQ(run(mlp(), "--steps 4 --checkpoint saved --every 2 --log log").code, 0);
  fs::remove_all(folder + "/saved/step-00000004");
  fs::copy(folder + "/saved/step-00000002", folder + "/saved/step-00000004");
  // No names of checkpoints: a digit too many, and no number of 64 bits.
  fs::create_directory(folder + "/saved/step-000000009");
  fs::create_directory(folder + "/saved/step-99999999999999999999");
  Outcome outcome = run(mlp(), "--steps 6 --checkpoint saved --resume --log log");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("saved/step-00000004 holds the checkpoint of step 2, and its "
                                     "name says step 4"));
  EXPECT_THAT(outcome.err, HasSubstr("going on from saved/step-00000002"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("is there for rank 0")));
  EXPECT_EQ(losses("log"), losses("whole"));
}

TEST_F(Run, ACheckpointIsNoFolderOfCheckpoints) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  Outcome outcome = run(mlp(), "--steps 4 --checkpoint saved/step-00000002 --resume");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--checkpoint saved/step-00000002 is one checkpoint itself; "
                                     "name the folder that holds it"));
  EXPECT_FALSE(fs::exists(folder + "/saved/step-00000002/step-00000004"));
}

TEST_F(Run, AFolderWithCheckpointsIsResumedOrRefused) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  Outcome again = run(mlp(), "--steps 4 --checkpoint saved");
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("--checkpoint saved holds checkpoints already, the newest of "
                                   "step 2; give --resume"));
  // Ranks without a common launcher detect it by themselves.
  std::string ranks = TBC_RUN_PROGRAM " '" + mlpOnTwo() +
                      "' --steps 4 --checkpoint saved --ranks 2 "
                      "--init file://" +
                      folder + "/meet --rank ";
  Outcome apart = shell(ranks + "1 & " + ranks + "0; code=$?; wait $!; test $? = 2 && exit $code");
  EXPECT_EQ(apart.code, 2) << apart.err;
  EXPECT_EQ(run(mlp(), "--steps 4 --checkpoint saved --resume").code, 0);
  Outcome over = run(mlp(), "--steps 3 --checkpoint saved --resume");
  EXPECT_EQ(over.code, 0) << over.err;
  EXPECT_THAT(over.err, HasSubstr("checkpoint is of step 4, so no step of 3 is left: --steps "));
}

TEST_F(Run, TwoRunsDoNotWriteToOneFolder) {
  Job job = start(folder, mlp(), {"--steps", "1000000", "--checkpoint", "saved"});
  waitForText(job.out, "step 2/");
  Outcome other = run(mlpOnTwo(), "--steps 2 --checkpoint saved --resume");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("saved is in use by another run ("));
  kill(job.pid, SIGTERM);
  EXPECT_EQ(job.wait(), 8);
  Outcome resumed = run(mlpOnTwo(), "--steps 2 --checkpoint saved --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST_F(Run, TwoRunsDoNotWriteToOneLog) {
  Job job = start(folder, mlp(), {"--steps", "1000000", "--log", "log"});
  waitForText(job.out, "step 2/");
  Outcome other = run(mlpOnTwo(), "--steps 2 --log log");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("--log log is in use by another run; wait until it ends"));
  kill(job.pid, SIGTERM);
  EXPECT_EQ(job.wait(), 8);
  EXPECT_THAT(readAll(folder + "/log"), HasSubstr("{\"step\":2,"));
  EXPECT_EQ(run(mlpOnTwo(), "--steps 2 --log log").code, 0);
}

/// Every rank learns why rank 0 cannot begin; it is said once.
TEST_F(Run, RankZeroSpeaksForAll) {
  Outcome full = shell("mkdir small && mount -t tmpfs -o size=8k tmpfs small 2> /dev/null");
  if (full.code != 0)
    GTEST_SKIP() << "no right to mount";
  Outcome outcome = run(mlp(), "--checkpoint small/saved");
  shell("umount small");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank 0: a checkpoint takes "));
  EXPECT_EQ(outcome.err.find("tbc: rank 1"), std::string::npos) << outcome.err;
}

/// The linker of compiled kernels says so, too, in place of ending by a signal.
TEST_F(Run, AFullDiskIsNamedByCompile) {
  ASSERT_EQ(shell(TBC_PROGRAM " plan " TBC_SOURCE_DIR "/models/tiny-mlp.onnx --gpus 2 --mesh dp=2 "
                              "--batch 8 --precision f32 -o plan.json")
                .code,
            0);
  if (shell("mkdir tiny && mount -t tmpfs -o size=8k tmpfs tiny 2> /dev/null").code != 0)
    GTEST_SKIP() << "no right to mount";
  Outcome outcome = shell(TBC_PROGRAM " compile plan.json -o tiny/program");
  shell("umount tiny");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
  EXPECT_EQ(outcome.err.find("Stack dump"), std::string::npos) << outcome.err;
}

TEST_F(Run, ACheckpointOfAnotherModelIsRefused) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  // The same parameters, but another function.
  std::string model = readAll(TBC_SOURCE_DIR "/models/tiny-mlp.onnx");
  for (size_t at = model.find("Relu"); at != std::string::npos; at = model.find("Relu", at))
    model.replace(at, 4, "Tanh");
  std::ofstream(folder + "/tanh.onnx", std::ios::binary) << model;
  Outcome made = shell(TBC_PROGRAM " plan tanh.onnx --gpus 2 --mesh dp=2 --batch 8 --precision f32 "
                                   "-o plan.json && " TBC_PROGRAM " compile plan.json -o tanh");
  ASSERT_EQ(made.code, 0) << made.err;
  Outcome outcome = run("tanh", "--steps 4 --checkpoint saved --resume");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("saved/step-00000002 is of another model than the Program"));
  Outcome joined = shell(TBC_PROGRAM " checkpoint consolidate saved --model tanh.onnx -o t.onnx");
  EXPECT_EQ(joined.code, 2);
  EXPECT_THAT(joined.err, HasSubstr("tanh.onnx is not the model that the checkpoint is of"));
}

TEST_F(Run, ACheckpointOfAnotherOptimizerIsRefused) {
  ASSERT_EQ(run(mlp(), "--steps 2 --checkpoint saved").code, 0);
  auto resumed = [&](const std::string &optimizer) {
    return run(program("tiny-mlp", "--gpus 2 --mesh dp=2 --optimizer " + optimizer),
               "--steps 4 --checkpoint saved --resume");
  };
  // The buffer of a momentum has the name and the shape of Adam's first moment.
  for (const char *other : {"sgd-momentum", "sgd", "muon"}) {
    Outcome outcome = resumed(other);
    EXPECT_EQ(outcome.code, 2) << other;
    EXPECT_THAT(outcome.err, HasSubstr(std::string("saved/step-00000002 has the states of adam, "
                                                   "and the Program steps by ") +
                                       other));
  }
  EXPECT_EQ(resumed("adam --weight-decay 0.1 --beta1 0.8").code, 0);
}

/// Scaled gradients overflow while the loss is finite.
TEST_F(Run, StepsThatOverflowAreSaidToBeSkipped) {
  const std::string flags = "--gpus 2 --mesh dp=2 --precision f16 ";
  auto skipped = [&] {
    std::istringstream lines(readAll(folder + "/log"));
    std::string text;
    for (std::string line; std::getline(lines, line);)
      text += line.find("\"skipped\":true") != std::string::npos ? 's' : '.';
    return text;
  };
  Outcome fixed = run(program("tiny-mlp", flags + "--loss-scale 1e9"), "--steps 20 --log log");
  EXPECT_EQ(fixed.code, 11);
  EXPECT_THAT(fixed.err, AllOf(HasSubstr("10 steps in a row were skipped"),
                               HasSubstr("a lower --loss-scale")));
  EXPECT_EQ(skipped(), "ssssssssss");
  // A dynamic scale falls as long as it must, and then steps.
  Outcome dynamic =
      run(program("tiny-mlp", flags + "--loss-scale-init 1e9"), "--steps 30 --log log");
  EXPECT_EQ(dynamic.code, 0) << dynamic.err;
  const std::string steps = skipped();
  EXPECT_THAT(steps, AllOf(testing::StartsWith("ssssssssss"), testing::EndsWith("..")));
  EXPECT_EQ(steps.find("s", steps.find('.')), std::string::npos) << steps;
}

TEST_F(Run, ALossThatIsNoNumberEndsTheRunAndKeepsWhatWasGood) {
  for (const char *async : {"", " --async-checkpoint"}) {
    Outcome outcome =
        run(mlp(), "--steps 9 --every 1 --keep 1 --checkpoint saved --lr 1e36 --log log" +
                       std::string(async));
    EXPECT_EQ(outcome.code, 11) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("NaN or"));
    EXPECT_EQ(outcome.err.find("rank 1:"), std::string::npos) << "one rank says it";
    // Each remaining checkpoint was complete before.
    for (const auto &entry : fs::directory_iterator(folder + "/saved"))
      EXPECT_TRUE(fs::exists(entry.path() / "index.json"));
    fs::remove_all(folder + "/saved");
  }
}

TEST_F(Run, StepsThatAreNotFiniteAreLeftOut) {
  // In every other batch the samples are NaN.
  std::string plan = program("tiny-mlp", "--gpus 4 --mesh pp=2,dp=2 --micro-batch 2");
  std::string flags = " --no-shuffle --data input=x.npy labels=y.npy --lr 0.01 --steps 4 ";
  auto write = [&](const std::string &name, const std::string &type, const std::string &shape,
                   const std::string &bytes) {
    std::string header =
        "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(118, ' ');
    std::ofstream(folder + "/" + name, std::ios::binary)
        << std::string("\x93NUMPY\1\0\x76\0", 10) << header.substr(0, 117) << "\n"
        << bytes;
  };
  constexpr int samples = 32, width = 32, batch = 8;
  auto inputs = [&](bool isBroken) {
    std::string bytes;
    for (int i = 0; i < samples * width; ++i) {
      float value = float(i % 13) / 13 - 0.5F;
      if (isBroken && i / width / batch == 1 && i % (batch * width) == 50)
        value = INFINITY;
      bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    }
    return bytes;
  };
  std::string manifest = readAll(plan + "/run.json");
  ASSERT_THAT(manifest, HasSubstr("\"name\": \"input\""));
  write("y.npy", "<i8", "(32,)", std::string(size_t(samples) * 8, '\0'));
  write("x.npy", "<f4", "(32, 32)", inputs(true));
  // Damaged parameters are not saved, even if the loss shows it late.
  Outcome stopped = run(plan, flags + "--checkpoint stopped");
  EXPECT_EQ(stopped.code, 11) << stopped.err;
  EXPECT_EQ(readAll(folder + "/stopped/step-00000004/index.json"), "");
  Outcome skipped = run(plan, flags + "--on-nan skip --log skipped --checkpoint saved");
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(skipped.out, HasSubstr(" skipped"));
  std::istringstream lines(readAll(folder + "/skipped"));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    EXPECT_EQ(line.find("\"skipped\":true") != std::string::npos, number == 2) << line;
  }
  EXPECT_EQ(number, 4);
  // With finite data, --on-nan skip changes no step.
  write("x.npy", "<f4", "(32, 32)", inputs(false));
  ASSERT_EQ(run(plan, flags + "--log plain").code, 0);
  ASSERT_EQ(run(plan, flags + "--on-nan skip --log asked").code, 0);
  EXPECT_EQ(losses("plain"), losses("asked"));
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
