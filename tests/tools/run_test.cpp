//===- run_test.cpp - tbc run: training, kernels, start -------------------===//

#include "tests/tools/Reseal.h"
#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;
using tbc::test::Outcome;
using tbc::test::readAll;
using tbc::test::resealFolder;
using tbc::test::Run;
using testing::HasSubstr;
using testing::Not;

namespace {

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

TEST_F(Run, EveryPlanTrainsAlike) {
  std::string reference;
  for (const char *flags :
       {"--gpus 1", "--gpus 2 --mesh dp=2", "--gpus 2 --mesh pp=2 --micro-batch 2",
        "--gpus 4 --mesh fsdp=2,tp=2"}) {
    std::string plan = program("tiny-gpt2", "--seq 16 " + std::string(flags));
    Outcome exact = run(plan, "--steps 2 --arith residue --log residue");
    ASSERT_EQ(exact.code, 0) << exact.err;
    Outcome drawn = run(plan, "--steps 2 --arith residue --init-weights 3 --log drawn");
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    Outcome small = run(plan, "--steps 6 --arith residue251 --log small");
    ASSERT_EQ(small.code, 0) << small.err;
    std::string all = losses("residue") + losses("drawn") + losses("small");
    EXPECT_THAT(all, HasSubstr("loss_residue"));
    if (reference.empty())
      reference = all;
    EXPECT_EQ(all, reference) << flags;
  }
}

/// The token table has more elements than one thread makes at once.
TEST_F(Run, ThreadsDoNotChangeInitialWeightsAndInputs) {
  Outcome made = shell(
      TBC_PROGRAM
      " new gpt2 --layers 1 --hidden 32 --ffn 64 --heads 2 --vocab 40000 --seq 8 -o wide.onnx "
      "&& " TBC_PROGRAM
      " plan wide.onnx --gpus 1 --batch 2 --seq 8 --precision bf16 -o wide.json && " TBC_PROGRAM
      " compile wide.json --no-kernels -o wide");
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(run("wide", "--steps 2 --init-weights 3 --threads 1 --log one").code, 0);
  ASSERT_EQ(run("wide", "--steps 2 --init-weights 3 --threads 4 --log four").code, 0);
  EXPECT_THAT(losses("one"), HasSubstr("loss"));
  EXPECT_EQ(losses("four"), losses("one"));
}

TEST_F(Run, SafetensorsGiveTheInitialWeights) {
  std::string replicas = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  std::string shards = program("tiny-gpt2", "--seq 16 --gpus 4 --mesh fsdp=2,tp=2");
  ASSERT_EQ(run(replicas, "--steps 1 --lr 0 --init-weights 3 --log drawn --checkpoint saved").code,
            0);
  ASSERT_EQ(shell(TBC_PROGRAM " checkpoint consolidate saved -o w.safetensors").code, 0);
  for (const std::string &plan : {replicas, shards}) {
    Outcome drawn = run(plan, "--steps 2 --arith residue --init-weights 3 --log drawn");
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    Outcome read = run(plan, "--steps 2 --arith residue --init-weights w.safetensors --log read");
    ASSERT_EQ(read.code, 0) << read.err;
    EXPECT_EQ(losses("read"), losses("drawn"));
  }
  Outcome missing = run(replicas, "--steps 1 --init-weights w.json");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--init-weights: "));
}

TEST_F(Run, ResiduesInBytesAreResumedByAnotherPlan) {
  std::string replicas = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  std::string shards = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh pp=2 --micro-batch 2");
  ASSERT_EQ(run(replicas, "--steps 6 --arith residue251 --log whole").code, 0);
  ASSERT_EQ(run(replicas, "--steps 3 --arith residue251 --checkpoint saved --log parts").code, 0);
  Outcome resumed = run(shards, "--steps 6 --arith residue251 --checkpoint saved --resume "
                                "--log parts");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(losses("parts"), losses("whole"));
  Outcome mixed = run(replicas, "--steps 8 --checkpoint saved --resume");
  EXPECT_EQ(mixed.code, 2) << mixed.err;
}

TEST_F(Run, GradientsMayTravelAsBF16) {
  std::string plan = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  auto lossesOf = [&](const std::string &log, const std::string &flags) {
    Outcome outcome = run(plan, "--steps 5 --lr 0.01 --log " + log + " " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream lines(losses(log));
    std::string line;
    std::vector<double> list;
    while (std::getline(lines, line))
      list.push_back(std::strtod(line.c_str() + line.find("\"loss\":") + 7, nullptr));
    return list;
  };
  std::vector<double> exact = lossesOf("exact", ""),
                      narrow = lossesOf("narrow", "--comm-dtype bf16");
  EXPECT_EQ(narrow, lossesOf("again", "--comm-dtype bf16"));
  ASSERT_EQ(narrow.size(), 5u);
  ASSERT_EQ(exact.size(), 5u);
  EXPECT_EQ(narrow[0], exact[0]); // before the first sum
  EXPECT_NE(narrow, exact);
  // The gain of training so far differs by less than a tenth (comm_dtype_test has the bound of a
  // step).
  for (size_t i = 1; i < 5; ++i)
    EXPECT_LT(std::fabs(narrow[i] - exact[i]), 0.1 * std::fabs(exact[0] - exact[i])) << i;
}

TEST_F(Run, WhatARankReportsIsOneLinePerStep) {
  Outcome outcome = run(mlp(), "--nproc 4 --data synthetic --steps 3 --log log.jsonl --lr 0.5 "
                               "--lr-schedule linear");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  EXPECT_THAT(outcome.out, HasSubstr("step 3/3  loss "));
  EXPECT_THAT(outcome.out, HasSubstr("samples/s"));
  EXPECT_THAT(readAll(folder + "/log.jsonl"), HasSubstr("\"lr\":0.333333"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Run, TokensAreLearnt) {
  // A text of period four: the next token follows from the last.
  std::ofstream file(folder + "/tokens.bin", std::ios::binary);
  for (int i = 0; i < 2000; ++i) {
    uint16_t token = uint16_t(10 + i % 4);
    file.write(reinterpret_cast<const char *>(&token), 2);
  }
  file.close();
  std::string plan = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  Outcome outcome = run(plan, "--data tokens.bin --steps 30 --lr 0.01 --warmup-steps 3 "
                              "--lr-schedule cosine --init-weights 1 --log log");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::string log = readAll(folder + "/log");
  auto lossAt = [&](int step) {
    size_t at = log.find("\"step\":" + std::to_string(step) + ",\"loss\":");
    return std::strtod(log.c_str() + log.find("loss", at) + 6, nullptr);
  };
  EXPECT_GT(lossAt(1), 5);
  EXPECT_LT(lossAt(30), 1);
}

TEST_F(Run, DataThatDoesNotFitIsRefused) {
  std::ofstream(folder + "/odd") << "123";
  std::string plan = program("tiny-gpt2", "--seq 16 --gpus 2 --mesh dp=2");
  Outcome odd = run(plan, "--data odd");
  EXPECT_EQ(odd.code, 2);
  EXPECT_THAT(odd.err, HasSubstr("3 bytes"));
  std::ofstream file(folder + "/large", std::ios::binary);
  for (int i = 0; i < 400; ++i)
    file.write("\xff\x7f", 2);
  file.close();
  Outcome large = run(plan, "--data large");
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, HasSubstr("token 32767 at byte "));
}

TEST_F(Run, FlagsThatCannotBe) {
  for (auto [flags, word] :
       {std::pair("--nproc 2", "the program is for 4 ranks (dp=2, tp=2); --nproc says 2"),
        std::pair("--steps 0", "--steps"), std::pair("--lr-schedule cosin", "cosin"),
        std::pair("--resume", "--resume needs --checkpoint"),
        std::pair("--lr 1 --lr-min 2", "--lr-min is above --lr"),
        std::pair("--init tcp://x", "it has no port"),
        std::pair("--init tcp://127.0.0.1:1", "no launcher says which rank"),
        std::pair("--rank 0 --ranks 4", "--rank needs --init"),
        std::pair("--nproc 4 --init file:///x", "leave out --init"),
        std::pair("--comm-dtype bf16 --arith residue251", "it goes with --arith native"),
        std::pair("--comm-dtype bf16 --arith f64", "it goes with --arith native"),
        std::pair("--comm-dtype f16", "--comm-dtype"), std::pair("--gpus 3", "--gpus")}) {
    Outcome outcome = run(mlp(), flags);
    EXPECT_EQ(outcome.code, 2) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(word));
  }
  Outcome none = run(folder + "/none", "");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("none is no Program: there is no such folder"));
}

TEST_F(Run, OutputsReplaceNoInput) {
  fs::copy(mlp(), folder + "/copy");
  std::ofstream(folder + "/data.bin") << std::string(64, 'x');
  fs::create_hard_link(folder + "/copy/run.json", folder + "/link");
  for (const char *flags :
       {"--log copy/program.json", "--log copy/seal.json", "--profile ./copy/plan.json",
        "--profile copy/kernels.so", "--log link", "--log data.bin --data data.bin",
        "--profile data.bin --eval-data data.bin", "--log w.npy --data x=w.npy"}) {
    std::ofstream(folder + "/w.npy") << "w";
    Outcome outcome = run("copy", flags);
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_THAT(outcome.err, HasSubstr("it is an input, and would be lost; name another")) << flags;
  }
  const std::string model = TBC_SOURCE_DIR "/models/tiny-mlp.onnx";
  EXPECT_THAT(run("copy", "--log " + model).err, HasSubstr("would be lost"));
  Outcome both = run("copy", "--log one --profile ./one");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--log and --profile both name one"));
  EXPECT_EQ(run("copy", "--log copy/log.jsonl").code, 0) << "a new file beside the Program";
}

TEST_F(Run, AProgramThatIsNotWholeIsRefused) {
  fs::copy(mlp(), folder + "/copy");
  std::ofstream(folder + "/copy/run.json") << readAll(mlpOnTwo() + "/run.json");
  Outcome changed = run(folder + "/copy", "");
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err, HasSubstr("run.json is not what tbc compile wrote"));
  resealFolder(folder + "/copy");
  Outcome other = run(folder + "/copy", "");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("belongs to another program.json"));
  fs::remove(folder + "/copy/run.json");
  EXPECT_EQ(run(folder + "/copy", "").code, 2);
}

TEST_F(Run, AChangedModelIsReportedOnceByAllRanks) {
  const std::string model = folder + "/model.onnx";
  fs::copy_file(TBC_SOURCE_DIR "/models/tiny-mlp.onnx", model);
  ASSERT_EQ(shell(TBC_PROGRAM
                  " plan model.onnx --batch 8 --gpus 2 --mesh dp=2 -o plan.json && " TBC_PROGRAM
                  " compile plan.json -o program")
                .code,
            0);
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(std::streamoff(fs::file_size(model) / 2));
  file << "xyz"; // a file of the same size
  file.close();
  Outcome changed = run("program", "--steps 1");
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err,
              HasSubstr("has changed since the Program was compiled: another SHA-256"));
  EXPECT_EQ(std::count(changed.err.begin(), changed.err.end(), '\n'), 1) << changed.err;
}

TEST_F(Run, TheRunnerNeedsNoCompiler) {
  Outcome libraries = shell("ldd " TBC_RUN_PROGRAM);
  ASSERT_EQ(libraries.code, 0);
  for (const char *word : {"libgloo", "libdnnl"})
    EXPECT_THAT(libraries.out, HasSubstr(word));
  for (const char *word : {"LLVM", "MLIR", "proto", "onnx"})
    EXPECT_THAT(libraries.out, Not(HasSubstr(word)));
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

TEST_F(Run, TheNumberOfThreadsChangesNothing) {
  std::string gpt = program("tiny-gpt2", "--gpus 2 --mesh tp=2 --seq 64");
  EXPECT_EQ(run(gpt, "--steps 3 --threads 1 --log one").code, 0);
  EXPECT_EQ(run(gpt, "--steps 3 --threads 3 --log three").code, 0);
  EXPECT_THAT(losses("one"), HasSubstr("\"step\":3"));
  EXPECT_EQ(losses("one"), losses("three"));
}

TEST_F(Run, NativeKernelsGiveTheLossesOfTheReference) {
  auto lossesOf = [&](const std::string &log) {
    std::istringstream lines(readAll(folder + "/" + log));
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);)
      values.push_back(std::stod(line.substr(line.find("\"loss\":") + 7)));
    return values;
  };
  // Weights in bf16 differ by a rounding, one part in 256, in some elements.
  for (auto [precision, tolerance] : {std::pair("f32", 1e-5), {"bf16", 1e-2}}) {
    std::string gpt =
        program("tiny-gpt2", std::string("--gpus 1 --seq 32 --precision ") + precision);
    for (const char *kernels : {"native", "reference"}) {
      Outcome outcome =
          run(gpt, std::string("--steps 4 --kernels ") + kernels + " --log " + kernels);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
    }
    std::vector<double> native = lossesOf("native"), reference = lossesOf("reference");
    ASSERT_EQ(native.size(), 4u);
    ASSERT_EQ(reference.size(), 4u);
    for (size_t i = 0; i < native.size(); ++i)
      EXPECT_NEAR(native[i], reference[i], tolerance * reference[i]) << precision;
  }
}

TEST_F(Run, CompiledKernelsMustBeTheProgramsOwn) {
  std::string gpt = program("tiny-gpt2", "--gpus 1 --seq 32");
  std::string other = program("tiny-gpt2", "--gpus 2 --mesh tp=2 --seq 64");
  ASSERT_TRUE(fs::exists(gpt + "/kernels.so")) << "no regions were compiled";
  fs::copy(gpt, folder + "/copy");
  fs::remove(folder + "/copy/kernels.so");
  Outcome missing = run(folder + "/copy", "");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("kernels.so is missing"));
  resealFolder(folder + "/copy");
  EXPECT_THAT(run(folder + "/copy", "").err, HasSubstr("was sealed without kernels.so"));
  EXPECT_EQ(run(folder + "/copy", "--kernels reference").code, 0);
  fs::copy(other + "/kernels.so", folder + "/copy/kernels.so");
  EXPECT_THAT(run(folder + "/copy", "").err, HasSubstr("was sealed without kernels.so"));
  resealFolder(folder + "/copy");
  Outcome wrong = run(folder + "/copy", "");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("belongs to another program.json"));
  std::ofstream(folder + "/copy/kernels.so") << "no shared object";
  resealFolder(folder + "/copy");
  EXPECT_THAT(run(folder + "/copy", "").err, HasSubstr("cannot be loaded"));
}

TEST_F(Run, KernelsAreListedWhereAsked) {
  Outcome outcome = run(mlp(), "--steps 1 -v");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("kernels of rank 0 took"));
  EXPECT_THAT(outcome.err, HasSubstr("einsum"));
  EXPECT_THAT(outcome.err, HasSubstr("compiled regions"));
  EXPECT_THAT(run(mlp(), "--kernels fast").err, HasSubstr("--kernels"));
}

//===----------------------------------------------------------------------===//
// Start
//===----------------------------------------------------------------------===//

/// Returns a port that was free just now.
int freePort() {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  bind(fd, reinterpret_cast<sockaddr *>(&address), length);
  getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

TEST_F(Run, EveryRankMayBeStartedByHand) {
  std::string tcp = "--init tcp://127.0.0.1:" + std::to_string(freePort());
  for (const std::string &init : {tcp, "--init file://" + folder + "/meet"}) {
    std::string other =
        TBC_RUN_PROGRAM " '" + mlpOnTwo() + "' --steps 2 --ranks 2 --rank 1 " + init;
    Outcome outcome =
        shell(other + " & " TBC_RUN_PROGRAM " '" + mlpOnTwo() + "' --steps 2 --ranks 2 --rank 0 " +
              init + "; code=$?; wait $! && exit $code");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2"));
  }
}

TEST_F(Run, TheEnvironmentOfLaunchersIsRead) {
  int port = freePort();
  std::string torch = "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port);
  std::string slurm = "SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=1 TMPDIR=" + folder;
  std::string open =
      "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=5 TMPDIR=" + folder;
  // MPICH gives the job no name; the shell that starts both ranks replaces its process manager.
  std::string mpich = "PMI_SIZE=2 MPI_LOCALNRANKS=2 TMPDIR=" + folder;
  for (auto [environment, rank] :
       {std::pair(torch, "RANK"), std::pair(slurm, "SLURM_PROCID"),
        std::pair(open, "OMPI_COMM_WORLD_RANK"), std::pair(mpich, "PMI_RANK")}) {
    auto line = [&, environment = environment, rank = rank](int number) {
      return environment + " " + rank + "=" + std::to_string(number) + " " TBC_RUN_PROGRAM " '" +
             mlpOnTwo() + "' --steps 2";
    };
    Outcome outcome = shell(line(1) + " & " + line(0) + "; code=$?; wait $! && exit $code");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2"));
  }
  Outcome wrong =
      shell("RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 " TBC_RUN_PROGRAM " '" +
            mlpOnTwo() + "'");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("the program is for 2 ranks (fsdp=2); torchrun started 3"));
  for (const auto &entry : fs::directory_iterator(folder))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tbc-")))
        << "the folder is removed";
}

TEST_F(Run, RanksOfAnotherProgramAreRefused) {
  std::string init =
      " --steps 2 --ranks 2 --timeout 10 --init tcp://127.0.0.1:" + std::to_string(freePort());
  std::string other = program("tiny-mlp", "--gpus 2 --mesh dp=2");
  Outcome outcome =
      shell(TBC_RUN_PROGRAM " '" + other + "' --rank 1" + init + " & " TBC_RUN_PROGRAM " '" +
            mlpOnTwo() + "' --rank 0" + init + "; code=$?; wait $!; test $? = 2 && exit $code");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ranks disagree on the program: rank "));
}

TEST_F(Run, AnotherTokenAndATakenPortAreRefused) {
  std::string init =
      " --steps 2 --ranks 2 --timeout 3 --init tcp://127.0.0.1:" + std::to_string(freePort());
  Outcome token = shell("TBC_JOB_TOKEN=a " TBC_RUN_PROGRAM " '" + mlpOnTwo() + "' --rank 1" + init +
                        " & TBC_JOB_TOKEN=b " TBC_RUN_PROGRAM " '" + mlpOnTwo() + "' --rank 0" +
                        init + "; wait $!; exit $?");
  EXPECT_EQ(token.code, 6) << token.err;
  EXPECT_THAT(token.err, HasSubstr("refuses the token"));

  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length);
  Outcome port = run(mlpOnTwo(), "--rank 0 --ranks 2 --init tcp://127.0.0.1:" +
                                     std::to_string(ntohs(address.sin_port)));
  close(fd);
  EXPECT_EQ(port.code, 1);
  EXPECT_THAT(port.err, HasSubstr("in use"));
}

/// Two network namespaces of this machine act as two hosts.
class TwoHosts : public Run {
protected:
  void SetUp() override {
    Run::SetUp();
    std::string id = std::to_string(getpid());
    first = "tbca" + id;
    second = "tbcb" + id;
    Outcome made =
        shell("ip netns add " + first + " && ip netns add " + second + " && ip link add " + first +
              " type veth peer name " + second + " && ip link set " + first + " netns " + first +
              " && ip link set " + second + " netns " + second + " && ip -n " + first +
              " addr add 10.199.7.1/24 dev " + first + " && ip -n " + second +
              " addr add 10.199.7.2/24 dev " + second + " && ip -n " + first + " link set " +
              first + " up && ip -n " + second + " link set " + second + " up && ip -n " + first +
              " link set lo up && ip -n " + second + " link set lo up");
    if (made.code != 0)
      GTEST_SKIP() << "this needs root and ip(8): " << made.err;
  }
  void TearDown() override {
    shell("ip netns del " + first + "; ip netns del " + second);
    Run::TearDown();
  }
  std::string first, second;
};

TEST_F(TwoHosts, TrainTogether) {
  std::string program = mlpOnTwo();
  auto rank = [&](const std::string &host, int number) {
    return "ip netns exec " + host + " env TBC_JOB_TOKEN=secret " TBC_RUN_PROGRAM " '" + program +
           "' --steps 3 --arith residue --ranks 2 --init tcp://10.199.7.1:4711 --rank " +
           std::to_string(number) + (number == 0 ? " --log far" : "");
  };
  Outcome outcome =
      shell(rank(second, 1) + " & " + rank(first, 0) + "; code=$?; wait $! && exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(run(program, "--steps 3 --arith residue --log near").code, 0);
  EXPECT_EQ(losses("far"), losses("near"));
  EXPECT_THAT(losses("far"), HasSubstr("\"step\":3"));
}

TEST_F(TwoHosts, SumFromHostToHostWithTheSameBits) {
  // Gradients of up to 64 KiB, over four ranks on each host.
  std::string plan = program("tiny-gpt2", "--seq 16 --gpus 8 --mesh dp=8");
  std::string all;
  for (int number : {7, 6, 5, 4, 3, 2, 1, 0})
    all += "ip netns exec " + (number < 4 ? first : second) +
           " env TBC_JOB_TOKEN=secret " TBC_RUN_PROGRAM " '" + plan +
           "' --steps 3 --threads 1 --ranks 8 --init tcp://10.199.7.1:4712 --rank " +
           std::to_string(number) + (number == 0 ? " --log far" : " & ");
  Outcome outcome = shell(all + "; code=$?; wait && exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(run(plan, "--steps 3 --threads 1 --log near").code, 0);
  EXPECT_EQ(losses("far"), losses("near"));
  EXPECT_THAT(losses("far"), HasSubstr("\"step\":3"));
}

TEST_F(Run, FarMeetingPointsNeedASecret) {
  Outcome outcome = run(mlpOnTwo(), "--rank 0 --ranks 2 --init tcp://192.0.2.1:4711");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("TBC_JOB_TOKEN"));
}

} // namespace
