//===- FakeGpuRanks.h - Programs of several ranks on fake GPUs --------------===//

#ifndef TBC_TESTS_CODEGEN_FAKEGPURANKS_H
#define TBC_TESTS_CODEGEN_FAKEGPURANKS_H

#include "codegen/AssignStreams.h"
#include "codegen/PlanMemory.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/launch/Stores.h"
#include "tests/codegen/CudaTraining.h"
#include "tests/runtime/cuda/FakeNccl.h"
#include "tests/runtime/cuda/ProgramKernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

namespace tbc::test {

/// Ranks that train an MLP, each on a device of its own, talking over NCCL.
class FakeGpuRanks : public testing::Test {
protected:
  static constexpr const char *hash = "of the program";

  FakeGpuRanks() {
    folder = (std::filesystem::temp_directory_path() / "tbc-ranks-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~FakeGpuRanks() override { std::filesystem::remove_all(folder); }

  static program::MlpOptions mlp() {
    program::MlpOptions o;
    o.microBatches = 2;
    o.numLayers = 3;
    return o;
  }
  static program::Program programOf(const program::MlpOptions &o) {
    program::Program program = program::mlpProgram(o);
    assignStreams(program);
    planMemory(program);
    return program;
  }
  static FakeOptions optionsFor(const program::Program &program, uint64_t seed) {
    FakeOptions options;
    options.seed = seed;
    options.numDevices = int(program.mesh.numRanks());
    return options;
  }

  /// The devices, and NCCL between them.
  struct Gpus {
    FakeDriver driver;
    FakeNccl nccl;
    explicit Gpus(const FakeOptions &options) : driver(options), nccl(driver) {}
  };
  /// With the program's kernels, of so many instructions at most.
  std::unique_ptr<Gpus> gpusFor(program::Program &program, const FakeOptions &options,
                                int mostInstructions = 1) {
    auto gpus = std::make_unique<Gpus>(options);
    writeKernels(addProgramKernels(gpus->driver, program, mostInstructions), folder, hash);
    return gpus;
  }
  /// The seed is that of the schedule, and says how many instructions a kernel has too.
  std::unique_ptr<Gpus> gpusFor(program::Program &program, uint64_t seed = 1) {
    return gpusFor(program, optionsFor(program, seed), int(seed));
  }

  /// A rank that is trained step by step.
  static Result<runtime::Executor> executorOf(const program::Program &program,
                                              const program::MlpOptions &o, int64_t rank,
                                              const runtime::MachineMaker &maker) {
    auto executor = runtime::Executor::create(program, rank, {kernels::Arith::Native}, maker);
    if (!executor)
      return executor.error();
    Status status = executor->load([&](const std::string &name) { return initialValue(o, name); });
    return status ? std::move(executor) : Result<runtime::Executor>(status.error());
  }
  /// What the last step gives where `status` says that it was begun.
  static Result<std::vector<kernels::Tensor>> lossOf(runtime::Executor &executor,
                                                     const Status &status) {
    if (!status)
      return status.error();
    try {
      return std::vector<kernels::Tensor>{executor.loss()};
    } catch (const runtime::MachineError &error) {
      return Error{error.code(), error.what()};
    }
  }

  struct Setting {
    std::chrono::milliseconds timeout = std::chrono::seconds(30);
    cuda::GraphUse graphs = cuda::GraphUse::Off;
    int numSteps = 2;
    bool registersMemory = false, isBenchmark = false;
    std::optional<cuda::CublasLt> cublas = {};
    kernels::Arith arith = kernels::Arith::Native;
    std::function<void(const std::string &)> say = {};
    /// What the rank does; nothing: it trains.
    std::function<Result<std::vector<kernels::Tensor>>(int64_t rank, comm::Communicator &,
                                                       const runtime::MachineMaker &)>
        body = {};
  };

  /// Every rank on a device of its own, talking over NCCL.
  Outcome onGpus(const program::Program &program, const program::MlpOptions &o,
                 const Setting &setting) {
    std::string store = folder + "/" + std::to_string(numRuns++);
    std::filesystem::create_directory(store);
    Outcome outcome(size_t(program.mesh.numRanks()), std::vector<kernels::Tensor>{});
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank)
      threads.emplace_back(
          [&, rank] { outcome[size_t(rank)] = runRank(program, o, rank, store, setting); });
    for (std::thread &thread : threads)
      thread.join();
    return outcome;
  }
  Outcome onGpus(const program::Program &program, const program::MlpOptions &o) {
    return onGpus(program, o, Setting());
  }
  Result<std::vector<kernels::Tensor>> runRank(const program::Program &program,
                                               const program::MlpOptions &o, int64_t rank,
                                               const std::string &storeFolder,
                                               const Setting &setting) {
    auto store = launch::openFileStore(storeFolder, "shared");
    auto device = cuda::Device::open(FakeDriver::table(), int(rank));
    if (!store || !device)
      return Error{ErrorCode::Other, "no store or device"};
    cuda::NcclOptions options;
    options.timeout = setting.timeout;
    auto communicator = cuda::connectNccl(rank, program.mesh.numRanks(), **store, FakeNccl::table(),
                                          *device, options);
    if (!communicator)
      return communicator.error();
    auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), hash);
    if (!kernels)
      return kernels.error();
    cuda::CudaOptions machine;
    machine.device = *device;
    machine.kernels = *kernels;
    machine.timeout = setting.timeout;
    machine.graphs = setting.graphs;
    machine.cublas = setting.cublas;
    machine.isBenchmark = setting.isBenchmark;
    if (setting.registersMemory)
      machine.registrar = &FakeNccl::table();
    if (rank == 0)
      machine.say = setting.say;
    runtime::MachineMaker maker = cuda::cudaMachine(machine);
    return setting.body ? setting.body(rank, **communicator, maker)
                        : trainRank(program, o, rank, **communicator, maker, setting.numSteps,
                                    setting.arith);
  }

  /// Rank 1 stays away after so many steps: the others name it, and the collective.
  void expectAbsenceIsNamed(const program::Program &program, const program::MlpOptions &o,
                            Setting setting, int steps) {
    std::atomic<bool> isOver = false;
    setting.timeout = std::chrono::milliseconds(400);
    setting.body = [&](int64_t rank, comm::Communicator &communicator,
                       const runtime::MachineMaker &maker) -> Result<std::vector<kernels::Tensor>> {
      auto executor = executorOf(program, o, rank, maker);
      if (!executor)
        return executor.error();
      Status status;
      for (int step = 0; status && step < steps; ++step)
        status = executor->runStep(communicator, stepInputs(o, step));
      if (status && rank == 1) {
        while (!isOver)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::vector<kernels::Tensor>{};
      }
      if (status)
        status = executor->runStep(communicator, stepInputs(o, steps));
      Result<std::vector<kernels::Tensor>> result = lossOf(*executor, status);
      isOver = true;
      return result;
    };
    Outcome outcome = onGpus(program, o, setting);
    ASSERT_FALSE(outcome[0]);
    EXPECT_EQ(outcome[0].error().code, ErrorCode::HangDetected);
    using ::testing::HasSubstr;
    EXPECT_THAT(outcome[0].error().message,
                ::testing::AllOf(HasSubstr("stage 0, update block, instruction"),
                                 HasSubstr("all_reduce sum of"),
                                 HasSubstr("waited 400 ms for rank 1")));
  }

  std::string folder;
  int numRuns = 0;
};

} // namespace tbc::test

#endif // TBC_TESTS_CODEGEN_FAKEGPURANKS_H
