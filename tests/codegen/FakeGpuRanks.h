//===- FakeGpuRanks.h - Multi-rank programs on fake GPUs --------------------===//

#ifndef TBC_TESTS_CODEGEN_FAKEGPURANKS_H
#define TBC_TESTS_CODEGEN_FAKEGPURANKS_H

#include "codegen/AssignStreams.h"
#include "codegen/PlanMemory.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/exec/Peers.h"
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
#include <mutex>
#include <numeric>
#include <thread>

namespace tbc::test {

/// Ranks that train an MLP. Each has a device of its own, and they communicate by NCCL.
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
  /// Returns GPUs with the program's kernels, of up to `mostInstructions` instructions each.
  std::unique_ptr<Gpus> gpusFor(program::Program &program, const FakeOptions &options,
                                int mostInstructions = 1) {
    auto gpus = std::make_unique<Gpus>(options);
    writeKernels(addProgramKernels(gpus->driver, program, mostInstructions), folder, hash);
    return gpus;
  }
  /// `seed` is the seed of the operation order and the largest number of instructions per kernel.
  std::unique_ptr<Gpus> gpusFor(program::Program &program, uint64_t seed = 1) {
    return gpusFor(program, optionsFor(program, seed), int(seed));
  }

  /// Returns the executor of a rank, with loaded initial values.
  static Result<runtime::Executor> executorOf(const program::Program &program,
                                              const program::MlpOptions &o, int64_t rank,
                                              const runtime::MachineMaker &maker) {
    auto executor = runtime::Executor::create(program, rank, {kernels::Arith::Native}, maker);
    if (!executor)
      return executor.error();
    Status status = executor->load([&](const std::string &name) { return initialValue(o, name); });
    return status ? std::move(executor) : Result<runtime::Executor>(status.error());
  }
  /// Returns the loss of the last step, or `status` if the step was not begun.
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
    /// How long given-up work may take to end.
    std::chrono::milliseconds patience = std::chrono::milliseconds(500);
    cuda::GraphUse graphs = cuda::GraphUse::Off;
    int numSteps = 2;
    bool registersMemory = false, isBenchmark = false;
    std::optional<cuda::CublasLt> cublas = {};
    kernels::Arith arith = kernels::Arith::Native;
    std::function<void(const std::string &)> say = {};
    /// Returns the store used by a rank in place of its own. If empty: its own.
    std::function<comm::Store &(int64_t rank, comm::Store &)> wrap = {};
    /// Called when a rank has finished.
    std::function<void()> ended = {};
    /// The work of a rank. If empty: training.
    std::function<Result<std::vector<kernels::Tensor>>(int64_t rank, comm::Communicator &,
                                                       const runtime::MachineMaker &)>
        body = {};
  };

  /// Runs every rank on a device of its own, with NCCL.
  Outcome onGpus(const program::Program &program, const program::MlpOptions &o,
                 const Setting &setting) {
    std::string store = folder + "/" + std::to_string(numRuns++);
    std::filesystem::create_directory(store);
    Outcome outcome(size_t(program.mesh.numRanks()), std::vector<kernels::Tensor>{});
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank)
      threads.emplace_back([&, rank] {
        outcome[size_t(rank)] = runRank(program, o, rank, store, setting);
        if (setting.ended)
          setting.ended();
      });
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
    cuda::WatchOptions watched;
    watched.timeout = setting.timeout;
    watched.connectTimeout = std::chrono::minutes(2); // the machine may be busy
    watched.patience = setting.patience;
    watched.report = [&, rank](const Error &error) {
      std::lock_guard<std::mutex> lock(reportMutex);
      reports.push_back({rank, error});
    };
    cuda::NcclOptions options;
    options.timeout = setting.timeout;
    options.watch = std::make_shared<cuda::HostWatch>(*device, watched);
    runtime::Peers peers = runtime::peersOf(program);
    options.partitions = peers.partitions;
    options.messages = peers.messages;
    comm::Store &own = setting.wrap ? setting.wrap(rank, **store) : **store;
    auto communicator =
        cuda::connectNccl(rank, program.mesh.numRanks(), own, FakeNccl::table(), *device, options);
    if (!communicator)
      return communicator.error();
    auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), hash);
    if (!kernels)
      return kernels.error();
    cuda::CudaOptions machine;
    machine.device = *device;
    machine.kernels = *kernels;
    machine.timeout = setting.timeout;
    machine.watch = options.watch;
    machine.graphs = setting.graphs;
    machine.cublas = setting.cublas;
    machine.isBenchmark = setting.isBenchmark;
    if (setting.registersMemory)
      machine.registrar = &FakeNccl::table();
    if (rank == 0)
      machine.say = setting.say;
    runtime::MachineMaker maker = cuda::cudaMachine(machine);
    auto result = setting.body ? setting.body(rank, **communicator, maker)
                               : trainRank(program, o, rank, **communicator, maker,
                                           setting.numSteps, setting.arith);
    // As in a run: other ranks do not wait for a failed rank.
    if (!result && setting.wrap)
      return options.watch->fail(result.error());
    return result;
  }

  /// From the second step on the kernel never ends, on one device or with -1 on all. The second
  /// step is the first with a time-out.
  void hangAfterFirst(const program::Program &program, const program::MlpOptions &o, Gpus &gpus,
                      Setting &setting, const std::string &kernel, int device) {
    setting.timeout = std::chrono::seconds(3);
    setting.body = [&, kernel, device](
                       int64_t rank, comm::Communicator &communicator,
                       const runtime::MachineMaker &maker) -> Result<std::vector<kernels::Tensor>> {
      auto executor = executorOf(program, o, rank, maker);
      if (!executor)
        return executor.error();
      Status status = executor->runStep(communicator, stepInputs(o, 0));
      comm::Group all(static_cast<size_t>(communicator.numRanks()));
      std::iota(all.begin(), all.end(), int64_t(0));
      if (status && all.size() > 1) // every rank has done its first step
        if (auto met = communicator.barrier(all, "after the first step")->wait(); !met)
          status = met.error();
      gpus.driver.hangKernel(kernel, device);
      for (int step = 1; status && step < 4; ++step)
        status = executor->runStep(communicator, stepInputs(o, step));
      return lossOf(*executor, status);
    };
  }

  /// Rank 1 stays away after `steps` steps. The others must name it, and the collective.
  void expectAbsenceIsNamed(const program::Program &program, const program::MlpOptions &o,
                            Setting setting, int steps) {
    std::atomic<bool> isOver = false;
    setting.timeout = std::chrono::milliseconds(3000);
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
                                 HasSubstr("no answer from rank 1 for 3000 ms, though it is "
                                           "alive")));
    ASSERT_FALSE(reports.empty());
    EXPECT_EQ(reports[0].error.message, outcome[0].error().message);
  }

  /// The reports of ranks, in order.
  struct Report {
    int64_t rank;
    Error error;
  };
  std::mutex reportMutex;
  std::vector<Report> reports;
  std::string folder;
  int numRuns = 0;
};

} // namespace tbc::test

#endif // TBC_TESTS_CODEGEN_FAKEGPURANKS_H
