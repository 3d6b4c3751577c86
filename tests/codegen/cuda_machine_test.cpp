//===- cuda_machine_test.cpp - Programs on a fake GPU ----------------------===//
//
// Results must equal the reference machine's bit for bit, for every order in which streams may
// execute. Nondeterminism is an error (FakeDriver).
//
//===----------------------------------------------------------------------===//

#include "codegen/PlanMemory.h"
#include "runtime/comm/SimulatedWorld.h"
#include "runtime/cuda/CudaMachine.h"
#include "tests/codegen/CudaTraining.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/ProgramKernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tbc::test {
namespace {

using cuda::CudaOptions;
using cuda::DriverCode;
using kernels::Arith;
using kernels::DType;
using program::MlpOptions;
using program::Program;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char *hash = "of the program";

class CudaMachineTest : public testing::Test {
protected:
  CudaMachineTest() {
    folder = (std::filesystem::temp_directory_path() / "tbc-cuda-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~CudaMachineTest() override { std::filesystem::remove_all(folder); }

  static MlpOptions mlp() {
    MlpOptions o;
    o.microBatches = 2;
    return o;
  }
  static Program programOf(const MlpOptions &o) {
    Program program = program::mlpProgram(o);
    planMemory(program);
    return program;
  }

  /// Returns a maker for a machine on the rank's own device.
  Result<runtime::MachineMaker> machineOf(int64_t rank, bool waitForEach = false) const {
    auto device = cuda::Device::open(FakeDriver::table(), int(rank));
    if (!device)
      return device.error();
    auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), hash);
    if (!kernels)
      return kernels.error();
    CudaOptions options;
    options.device = *device;
    options.kernels = *kernels;
    options.waitForEach = waitForEach;
    return cuda::cudaMachine(options);
  }
  /// Runs every rank on a device of its own.
  Outcome onGpus(const Program &program, const MlpOptions &o, bool waitForEach = false) {
    return trainAll(program, o, [&](int64_t rank) { return machineOf(rank, waitForEach); });
  }
  /// Runs one rank and returns its error.
  Error failureOf(FakeDriver &driver, bool waitForEach = false) {
    Program program = programOf(mlp());
    writeKernels(addProgramKernels(driver, program, 1), folder, hash);
    Outcome outcome = onGpus(program, mlp(), waitForEach);
    EXPECT_FALSE(outcome[0]);
    return outcome[0] ? Error() : outcome[0].error();
  }

  std::string folder;
};

TEST_F(CudaMachineTest, TrainsAsTheReferenceDoesInAnyOrder) {
  std::vector<MlpOptions> family(4, mlp());
  family[1].dp = 2, family[1].zero = 3;
  family[2].pp = 2, family[2].tp = 2;
  family[3].isTied = true;
  for (const MlpOptions &o : family)
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Program program = programOf(o);
      FakeOptions options;
      options.seed = seed;
      options.numDevices = int(program.mesh.numRanks());
      FakeDriver driver(options);
      writeKernels(addProgramKernels(driver, program, int(seed)), folder, hash);
      ASSERT_TRUE(checkWellFormed(program));
      expectEqual(onGpus(program, o), trainReference(program, o));
      EXPECT_THAT(driver.complaints(), IsEmpty());
      EXPECT_THAT(driver.leaks(), IsEmpty());
      EXPECT_GT(driver.numCalls("cuLaunchKernel"), 0);
      // One allocation for each rank's memory plan, and one for scratch if values swap places.
      EXPECT_LE(driver.numCalls("cuMemAlloc_v2"), 2 * program.mesh.numRanks());
    }
}

TEST_F(CudaMachineTest, CublasMultipliesWhereItCan) {
  for (bool isAble : {true, false}) {
    Program program = programOf(mlp());
    FakeDriver driver;
    FakeCublasLt cublas(driver);
    if (!isAble)
      cublas.hasNoWay();
    writeKernels(addProgramKernels(driver, program, 1), folder, hash);
    std::vector<std::string> said;
    Outcome outcome = trainAll(program, mlp(), [&](int64_t) -> Result<runtime::MachineMaker> {
      CudaOptions options;
      options.device = *cuda::Device::open(FakeDriver::table(), 0);
      options.kernels = *cuda::KernelModule::load(options.device, test::filesIn(folder), hash);
      options.cublas = FakeCublasLt::table();
      options.say = [&](const std::string &what) { said.push_back(what); };
      return cuda::cudaMachine(options);
    });
    expectEqual(outcome, trainReference(program, mlp()));
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_THAT(driver.leaks(), IsEmpty());
    EXPECT_EQ(cublas.numAlive(), 0);
    EXPECT_EQ(cublas.numMatmuls() > 0, isAble);
    EXPECT_THAT(said, ElementsAre(isAble ? "matmuls: 5 by cuBLASLt"
                                         : "matmuls: 0 by cuBLASLt; by plain kernels 5 for the "
                                           "library has no way"));
  }
}

TEST_F(CudaMachineTest, WhatIsUnderWayAtTheEndIsDoneBeforeMemoryIsGivenBack) {
  FakeOptions options;
  options.keepsHostMemoryWhileBusy = true;
  FakeDriver driver(options);
  Program program = programOf(mlp());
  writeKernels(addProgramKernels(driver, program, 1), folder, hash);
  comm::SimulatedWorld world(1, std::chrono::seconds(30));
  {
    auto executor = runtime::Executor::create(program, 0, {Arith::Native}, *machineOf(0));
    ASSERT_TRUE(bool(executor)) << executor.error().message;
    ASSERT_TRUE(
        bool(executor->load([](const std::string &name) { return initialValue(mlp(), name); })));
    Status status = executor->runStep(world.communicator(0), stepInputs(mlp(), 0));
    ASSERT_TRUE(bool(status)) << status.error().message;
  } // nobody looks at what it made
  world.finish(0);
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(CudaMachineTest, WhatIsTimedIsNotTheSameEveryTime) {
  Program program = programOf(mlp());
  FakeDriver driver;
  writeKernels(addProgramKernels(driver, program, 1), folder, hash);
  Outcome outcome = trainAll(program, mlp(), [&](int64_t) -> Result<runtime::MachineMaker> {
    CudaOptions options;
    options.device = *cuda::Device::open(FakeDriver::table(), 0);
    options.isBenchmark = options.isDeterministic = true;
    return cuda::cudaMachine(options);
  });
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::Usage);
}

TEST_F(CudaMachineTest, WithoutEventsThereAreRaces) {
  FakeOptions options;
  options.ignoresWaits = true;
  FakeDriver driver(options);
  Program program = programOf(mlp());
  writeKernels(addProgramKernels(driver, program, 1), folder, hash);
  onGpus(program, mlp());
  EXPECT_THAT(driver.complaints(), Contains(HasSubstr("race: ")));
}

TEST_F(CudaMachineTest, WhatHasNoKernelIsRefusedOrExecutedOnTheHost) {
  FakeDriver driver;
  Program program = programOf(mlp());
  for (bool allowHost : {false, true}) {
    Outcome outcome = trainAll(program, mlp(), [&](int64_t) -> Result<runtime::MachineMaker> {
      CudaOptions options;
      options.device = *cuda::Device::open(FakeDriver::table(), 0);
      options.allowHost = allowHost;
      return cuda::cudaMachine(options);
    });
    if (allowHost) {
      expectEqual(outcome, trainReference(program, mlp()));
      continue;
    }
    ASSERT_FALSE(outcome[0]);
    EXPECT_EQ(outcome[0].error().code, ErrorCode::Usage);
    EXPECT_THAT(outcome[0].error().message,
                AllOf(HasSubstr("stage 0, forward block, instruction 0"),
                      HasSubstr("there is no kernel \"einsum\" for GPUs")));
  }
  EXPECT_EQ(driver.numCalls("cuLaunchKernel"), 0);
  EXPECT_THAT(driver.complaints(), IsEmpty());
  EXPECT_THAT(driver.leaks(), IsEmpty());
}

// -- Errors

TEST_F(CudaMachineTest, AFailedKernelIsNamedByItsInstruction) {
  FakeDriver driver;
  driver.failKernel("s0_b1_i0", DriverCode::LaunchFailed);
  Error error = failureOf(driver, /*waitForEach=*/true);
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("stage 0, backward block, instruction 0"), HasSubstr("micro-batch 0"),
                    HasSubstr("CUDA_ERROR_LAUNCH_FAILED"),
                    HasSubstr("launched since the last wait"), HasSubstr("kernel s0_b1_i0")));
}

TEST_F(CudaMachineTest, AFailureThatShowsLaterSaysSinceWhen) {
  FakeDriver driver;
  driver.failKernel("s0_b1_i0", DriverCode::LaunchFailed);
  Error error = failureOf(driver);
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message, AllOf(HasSubstr("CUDA_ERROR_LAUNCH_FAILED"),
                                   HasSubstr("kernels launched since the last wait, from "),
                                   HasSubstr("resume from the last checkpoint")));
}

TEST_F(CudaMachineTest, TooLittleMemoryIsSaidBeforeAnythingRuns) {
  FakeOptions options;
  options.deviceBytes = 4096;
  FakeDriver driver(options);
  Error error = failureOf(driver);
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("the memory plan of stage 0 takes 1 MiB"), HasSubstr("are free"),
                    HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"), HasSubstr("--memory-limit")));
  EXPECT_EQ(driver.numCalls("cuLaunchKernel"), 0);
  EXPECT_THAT(driver.leaks(), IsEmpty());
}

TEST_F(CudaMachineTest, ARefusedLaunchIsNamed) {
  FakeDriver driver;
  driver.failCall("cuLaunchKernel", DriverCode::OutOfMemory, 2);
  Error error = failureOf(driver);
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("stage 0, forward block, instruction 2"),
                    HasSubstr("launching kernel s0_b0_i2"), HasSubstr("GPU 0 (Fake, sm_90)")));
}

TEST_F(CudaMachineTest, EveryCallThatFailsIsAnErrorAndLeavesNothing) {
  // Each function with its least number of calls.
  const std::pair<const char *, int> calls[] = {
      {"cuDeviceGet", 1},          {"cuDevicePrimaryCtxRetain", 1},
      {"cuModuleLoadDataEx", 1},   {"cuModuleGetFunction", 2},
      {"cuStreamCreate", 2},       {"cuEventCreate", 2},
      {"cuMemHostAlloc", 2},       {"cuMemAlloc_v2", 1},
      {"cuEventRecord", 2},        {"cuStreamWaitEvent", 2},
      {"cuMemcpyHtoDAsync_v2", 2}, {"cuLaunchKernel", 2},
      {"cuMemcpyDtoHAsync_v2", 1}, {"cuMemcpyDtoDAsync_v2", 1},
  };
  for (auto [symbol, count] : calls)
    for (int skip = 0; skip < count; ++skip) {
      FakeDriver driver;
      driver.failCall(symbol, DriverCode::InvalidValue, skip);
      Error error = failureOf(driver);
      EXPECT_EQ(driver.leaks(), std::vector<std::string>()) << symbol << " " << skip;
      EXPECT_THAT(error.message, HasSubstr("CUDA error 1")) << symbol << " " << skip;
    }
}

// -- The list of kernels

class KernelModuleTest : public CudaMachineTest {
protected:
  Status load(const program::CudaKernels &kernels, int capability = 90,
              const std::string &programHash = hash) {
    FakeOptions options;
    options.capability = capability;
    FakeDriver driver(options);
    driver.addKernel("k", {{}, [](FakeLaunch &) {}, 512, 1024});
    for (DriverCode code : refusals)
      driver.failCall("cuModuleLoadDataEx", code);
    writeKernels(kernels, folder, hash);
    auto device = cuda::Device::open(FakeDriver::table(), 0);
    EXPECT_TRUE(device);
    auto module = cuda::KernelModule::load(*device, test::filesIn(folder), programHash);
    image = driver.images().empty() ? "" : driver.images()[0];
    numLoads = driver.numCalls("cuModuleLoadDataEx");
    return module ? Status::ok() : Status(module.error());
  }
  program::CudaKernels list(int64_t blocks = 1, int threads = 128, int sharedBytes = 0) {
    FakeDriver driver;
    Program program = programOf(mlp());
    program::CudaKernels kernels = addProgramKernels(driver, program, 1);
    kernels.kernels = {{"k", blocks, threads, sharedBytes}};
    kernels.accumulators.clear();
    return kernels;
  }
  void expectRefused(const Status &status, const std::string &why) {
    ASSERT_FALSE(status) << why;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_THAT(status.error().message, HasSubstr(why));
  }
  std::vector<DriverCode> refusals; // of the first images
  std::string image;
  int numLoads = 0;
};

TEST_F(KernelModuleTest, LaunchesBeyondTheLimitsAreRefused) {
  EXPECT_TRUE(load(list(1, 512, 200 << 10)));
  expectRefused(load(list(1, 513)), "kernel k takes 513 threads a block");
  expectRefused(load(list(1, 128, 232448)), "kernel k takes 233472 bytes of shared memory");
}

TEST_F(KernelModuleTest, TheLatestImageThatTheDeviceExecutesIsTaken) {
  EXPECT_TRUE(load(list(), 80));
  EXPECT_THAT(image, HasSubstr(".target sm_80"));
  expectRefused(load(list(), 75), "cannot execute the program's kernels, which are for sm_80");
}

/// A driver takes no machine code of a later CUDA than its own: "device kernel image is invalid".
TEST_F(KernelModuleTest, PtxIsTakenWhereTheDriverRefusesMachineCode) {
  program::CudaKernels kernels = list();
  kernels.images.push_back(kernels.images[0]);
  kernels.images[1].code = program::CudaCode::Cubin, kernels.images[1].file = "kernels.cubin";
  EXPECT_TRUE(load(kernels, 80));
  EXPECT_EQ(numLoads, 1);
  for (DriverCode refusal : {DriverCode::InvalidImage, DriverCode::NoBinaryForGpu}) {
    refusals = {refusal};
    EXPECT_TRUE(load(kernels, 80));
    EXPECT_EQ(numLoads, 2);
  }
  // Of both, the error is that of the PTX; others end the run at once.
  refusals = {DriverCode::InvalidImage, DriverCode::InvalidImage};
  Status status = load(kernels, 80);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("loading kernels.sm_80.ptx"));
  refusals = {DriverCode::OutOfMemory};
  EXPECT_FALSE(load(kernels, 80));
  EXPECT_EQ(numLoads, 1);
}

TEST_F(KernelModuleTest, FilesOfAnotherProgramOrDamagedAreRefused) {
  expectRefused(load(list(), 90, "another"), "belongs to another program.json");
  program::CudaKernels kernels = list();
  kernels.images[0].sha256 = "0";
  expectRefused(load(kernels), "is not what was compiled");
  kernels = list();
  kernels.images[0].file = "../kernels.ptx";
  EXPECT_FALSE(program::readCudaKernels(program::writeCudaKernels(kernels)));
}

TEST_F(KernelModuleTest, TheListComesBackAsItWasWritten) {
  program::CudaKernels kernels = list(7, 64, 32);
  kernels.accumulators = {{"add", DType::F32, DType::BF16, 128}};
  kernels.kernels[0].then = {{"k_2", 3, 32, 0}};
  kernels.kernels[0].workspaceBytes = 4096;
  std::string text = program::writeCudaKernels(kernels);
  auto back = program::readCudaKernels(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(program::writeCudaKernels(*back), text);
  EXPECT_EQ(back->kernels[0].blocks, 7);
  ASSERT_EQ(back->kernels[0].launches().size(), 2u);
  EXPECT_EQ(back->kernels[0].launches()[1].symbol, "k_2");
  EXPECT_EQ(back->kernels[0].launches()[1].blocks, 3);
  EXPECT_EQ(back->kernels[0].workspaceBytes, 4096);
  // Missing fields and fields of another kind are refused.
  for (const char *key :
       {"format", "version", "program", "images", "architecture", "symbol", "blocks", "threads",
        "shared_bytes", "slot", "sha256", "workspace_bytes", "then"}) {
    std::string broken = text;
    size_t at = broken.find("\"" + std::string(key) + "\"");
    ASSERT_NE(at, std::string::npos) << key;
    broken[at + 1] = '?';
    expectRefused(
        [&]() -> Status {
          auto read = program::readCudaKernels(broken);
          return read ? Status::ok() : Status(read.error());
        }(),
        "compile again");
  }
  EXPECT_FALSE(program::readCudaKernels("[1"));
}

} // namespace
} // namespace tbc::test
