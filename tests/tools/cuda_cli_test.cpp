//===- cuda_cli_test.cpp - Programs for GPUs from the command line --------===//

#include "tests/runtime/support/MlpProgram.h"
#include "tests/support/Shell.h"
#include "tools/tbc-run/GpuChoice.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fs = std::filesystem;
using tbc::ErrorCode;
using tbc::test::Outcome;
using tbc::test::readAll;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

class CudaCli : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-cuda-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder); }

  Outcome tbc(const std::string &arguments) {
    return tbc::test::shellIn(folder, TBC_PROGRAM " " + arguments);
  }
  /// Compiles a small model for a mesh.
  Outcome compile(const std::string &model, const std::string &mesh, const std::string &flags) {
    std::string file = std::string(TBC_SOURCE_DIR) + "/models/" + model + ".onnx";
    Outcome plan = tbc("plan " + file + " --batch 8 --precision f32 " + mesh + " -o plan.json");
    EXPECT_EQ(plan.code, 0) << plan.err;
    return tbc("compile plan.json -o program " + flags);
  }
  bool isThere(const std::string &file) const { return fs::exists(fs::path(folder) / file); }

  std::string folder;
};

TEST_F(CudaCli, CompilesImagesForEveryArchitecture) {
  Outcome made = compile("tiny-gpt2", "--gpus 1", "--target cuda --arch sm_90,sm_80");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("kernels.cuda.json"), HasSubstr("for sm_80")));
  EXPECT_THAT(made.out, Not(HasSubstr("on the host: ")));
  for (const char *file : {"program/kernels.sm_80.ptx", "program/kernels.sm_90.ptx",
                           "program/kernels.cuda.json", "program/run.json"})
    EXPECT_TRUE(isThere(file)) << file;
  EXPECT_THAT(readAll(folder + "/program/run.json"), HasSubstr("\"target\": \"cuda\""));
  // The same plan gives the same program; compiling for another target removes its files.
  std::string images = readAll(folder + "/program/kernels.cuda.json");
  ASSERT_EQ(tbc("compile plan.json -o program --target cuda").code, 0);
  EXPECT_EQ(readAll(folder + "/program/kernels.cuda.json"), images);
  ASSERT_EQ(tbc("compile plan.json -o program").code, 0);
  EXPECT_FALSE(isThere("program/kernels.sm_80.ptx"));
  EXPECT_FALSE(isThere("program/kernels.cuda.json"));
  EXPECT_TRUE(isThere("program/kernels.so"));
  EXPECT_THAT(readAll(folder + "/program/run.json"), Not(HasSubstr("target")));
}

/// Returns the numbers behind `key` in a text of JSON.
std::vector<int64_t> numbersOf(const std::string &text, const std::string &key) {
  std::vector<int64_t> numbers;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    numbers.push_back(std::stoll(text.substr(at + key.size())));
  return numbers;
}

TEST_F(CudaCli, TheWorkspaceOfExpertsIsPredicted) {
  std::string model = std::string(TBC_SOURCE_DIR) + "/models/moe-8l.onnx";
  for (const char *flags : {"--gpus 1 --batch 8", "--gpus 2 --batch 8 --mesh ep=2",
                            "--gpus 4 --batch 8 --mesh ep=2,tp=2 --precision f32"}) {
    Outcome plan = tbc("plan " + model + " " + flags + " -o plan.json");
    ASSERT_EQ(plan.code, 0) << plan.err;
    Outcome made = tbc("compile plan.json -o program --target cuda --arch sm_90");
    ASSERT_EQ(made.code, 0) << made.err;
    std::vector<int64_t> emitted =
        numbersOf(readAll(folder + "/program/kernels.cuda.json"), "\"workspace_bytes\": ");
    ASSERT_FALSE(emitted.empty());
    std::string text = readAll(folder + "/plan.json");
    size_t line = text.find("\"name\": \"kernel workspace\"");
    ASSERT_NE(line, std::string::npos) << flags;
    size_t bytes = text.rfind("\"bytes\": ", line);
    EXPECT_EQ(numbersOf(text.substr(bytes), "\"bytes\": ").at(0),
              *std::max_element(emitted.begin(), emitted.end()))
        << flags;
  }
}

TEST_F(CudaCli, WhatHasNoKernelIsRefusedOrSaid) {
  // Fully masked rows: queries whose keys are all padding.
  Outcome refused = compile("masked-bert", "--gpus 1 --fix attention_mask=input", "--target cuda");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("no kernel for GPUs"), HasSubstr("attention: "),
                                 HasSubstr("--host-ops")));
  Outcome allowed = tbc("compile plan.json -o program --target cuda --host-ops");
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  EXPECT_THAT(allowed.out, AllOf(HasSubstr("on the host: "), HasSubstr("attention")));
}

TEST_F(CudaCli, FlagsOfAnotherTargetAreRefused) {
  EXPECT_EQ(compile("tiny-mlp", "--gpus 1", "--target cuda --cpu native").code, 2);
  for (const char *flags :
       {"--target cuda --no-kernels", "--arch sm_80", "--host-ops", "--target cuda --arch sm_70",
        "--target cuda --arch ,", "--target tpu"}) {
    Outcome made = tbc("compile plan.json -o program " + std::string(flags));
    EXPECT_EQ(made.code, 2) << flags << made.err;
  }
  ASSERT_EQ(tbc("compile plan.json -o program --no-kernels").code, 0);
  Outcome run = tbc("run program --steps 1 --communicator nccl");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--target cuda"));
  run = tbc("run program --steps 1 --cuda-graphs on");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("--cuda-graphs on is for GPUs"), HasSubstr("--target cuda")));
  EXPECT_EQ(tbc("run program --steps 1 --cuda-graphs auto").code, 0);
  run = tbc("run program --steps 1 --benchmark");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--benchmark times"), HasSubstr("this run uses none")));
}

TEST_F(CudaCli, FlagsThatExcludeEachOtherAreRefusedBeforeADeviceIsOpened) {
  ASSERT_EQ(compile("tiny-mlp", "--gpus 1", "--target cuda").code, 0);
  Outcome run = tbc("run program --steps 1 --cuda-graphs on --detect-anomaly");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--detect-anomaly"), HasSubstr("--cuda-graphs on")));
  run = tbc("run program --steps 1 --benchmark --deterministic");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--benchmark"), HasSubstr("--deterministic")));
  run = tbc("run program --steps 1 --benchmark --arith residue251");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--benchmark"), HasSubstr("--arith residue251")));
  run = tbc("run program --steps 1 --benchmark --kernels reference");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("this run uses none"));
}

TEST_F(CudaCli, Fp8IsForMatmulsOnGpus) {
  ASSERT_EQ(compile("tiny-mlp", "--gpus 1", "--target cuda").code, 0);
  EXPECT_THAT(readAll(folder + "/program/kernels.cuda.json"),
              AllOf(HasSubstr("tbc_fp8_scale_e4m3"), HasSubstr("tbc_fp8_quantise_e5m2_")));
  for (auto [flag, sentence] : {std::pair("--arith residue251", "--arith residue251"),
                                {"--kernels reference", "this run uses none"}}) {
    Outcome run = tbc(std::string("run program --steps 1 --matmul-precision fp8 ") + flag);
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, AllOf(HasSubstr("--matmul-precision fp8"), HasSubstr(sentence)));
  }
}

TEST_F(CudaCli, ARunMultipliesAsThePlanWasMadeFor) {
  EXPECT_EQ(compile("tiny-mlp", "--gpus 1 --matmul-precision fp8", "--target cuda").code, 0);
  EXPECT_THAT(readAll(folder + "/program/run.json"), HasSubstr("\"multiplies_in_fp8\": true"));
  // Exact numbers, and kernels of the host, are of the operands' types.
  Outcome exact = tbc("run program --steps 1 --kernels reference --arith residue251");
  EXPECT_EQ(exact.code, 0) << exact.err;
  Outcome onCpus = compile("tiny-mlp", "--gpus 1 --matmul-precision fp8", "--target cpu");
  EXPECT_EQ(onCpus.code, 2);
  EXPECT_THAT(onCpus.err, AllOf(HasSubstr("matmuls in fp8"), HasSubstr("--target cuda")));
  Outcome verified = tbc("verify plan.json");
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("matmuls in fp8: not rounded here"));
}

TEST_F(CudaCli, CompressedGradientsTravelOverNccl) {
  ASSERT_EQ(compile("tiny-mlp", "--gpus 2 --mesh dp=2", "--target cuda").code, 0);
  Outcome compressed =
      tbc("run program --steps 1 --compress-gradients topk:0.01 --communicator gloo");
  EXPECT_EQ(compressed.code, 2);
  EXPECT_THAT(compressed.err, AllOf(HasSubstr("over NCCL"), HasSubstr("--communicator gloo")));
  EXPECT_THAT(readAll(folder + "/program/kernels.cuda.json"), HasSubstr("tbc_sparse_take"));
}

TEST_F(CudaCli, AMachineWithoutADriverIsTold) {
  if (fs::exists("/proc/driver/nvidia/version"))
    GTEST_SKIP() << "this machine has NVIDIA's driver";
  ASSERT_EQ(compile("tiny-mlp", "--gpus 1", "--target cuda").code, 0);
  Outcome run = tbc("run program --steps 1");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("compiled for GPUs"), HasSubstr("the CUDA driver"),
                             HasSubstr("install NVIDIA's driver"), HasSubstr("--target cpu")));
  // Its instructions are those of any program.
  Outcome reference = tbc("run program --steps 1 --kernels reference");
  EXPECT_EQ(reference.code, 0) << reference.err;
  // Residues are also those of any program, but need --kernels reference here.
  run = tbc("run program --steps 1 --arith residue251");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("compiled for GPUs"), HasSubstr("--kernels reference")));
  reference = tbc("run program --steps 1 --arith residue251 --kernels reference");
  EXPECT_EQ(reference.code, 0) << reference.err;
}

TEST(FixNcclAlgorithms, LeavesWhatTheUserHasChosen) {
  setenv("NCCL_ALGO", "Tree", 1);
  unsetenv("NCCL_PROTO");
  tbc::cli::fixNcclAlgorithms();
  EXPECT_STREQ(getenv("NCCL_ALGO"), "Tree");
  EXPECT_STREQ(getenv("NCCL_PROTO"), "Simple");
  unsetenv("NCCL_ALGO");
  unsetenv("NCCL_PROTO");
}

TEST(PreparePipelines, SetsVariablesForMessagesAlone) {
  tbc::program::MlpOptions options;
  unsetenv("CUDA_MODULE_LOADING");
  unsetenv("NCCL_RUNTIME_CONNECT");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  tbc::cli::preparePipelines(tbc::program::mlpProgram(options));
  EXPECT_EQ(getenv("CUDA_MODULE_LOADING"), nullptr);
  options.pp = 2;
  tbc::cli::preparePipelines(tbc::program::mlpProgram(options));
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_STREQ(getenv("NCCL_RUNTIME_CONNECT"), "0");
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
  for (const char *name :
       {"CUDA_MODULE_LOADING", "NCCL_RUNTIME_CONNECT", "CUDA_DEVICE_MAX_CONNECTIONS"})
    unsetenv(name);
}

TEST(GpuOfRank, IsTheOneOfItsNumberOrTheOnlyOne) {
  auto gpu = [](int64_t rank, int count, bool mayBeOwn) {
    auto found = tbc::cli::gpuOfRank(rank, count, mayBeOwn);
    return found ? *found : -1;
  };
  EXPECT_EQ(gpu(0, 1, false), 0);
  EXPECT_EQ(gpu(3, 4, false), 3);
  EXPECT_EQ(gpu(3, 1, true), 0);
  EXPECT_EQ(gpu(3, 1, false), -1);
  EXPECT_EQ(gpu(3, 2, true), -1);
  auto refused = tbc::cli::gpuOfRank(2, 2, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::Usage);
  EXPECT_THAT(refused.error().message, HasSubstr("2 GPUs are visible"));
}

} // namespace
