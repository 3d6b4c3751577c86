//===- cuda_compression_test.cpp - Compressed gradients on fake GPUs ------===//
//
// Programs with reference kernels on the fake driver, with ranks over a fake NCCL. With compressed
// gradients their state equals the one on CPUs bit for bit.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitSparseKernels.h"
#include "runtime/abi/SparseKernels.h"
#include "runtime/comm/SimulatedWorld.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/exec/Executor.h"
#include "runtime/launch/Stores.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/runtime/cuda/FakeNccl.h"
#include "tests/runtime/cuda/OptionKernels.h"
#include "tests/runtime/cuda/ProgramKernels.h"
#include "tests/tools/PlanSupport.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

using namespace tbc;
using kernels::Arith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

constexpr const char *programHash = "of the program";
constexpr double share = 0.02;
constexpr int numSteps = 3; // with graphs: executed, recorded, replayed

/// The final state of a rank: the bytes of all its tensors and its gradient residuals, by name.
using Held = std::map<std::string, std::vector<unsigned char>>;

class CompressedOnDevices : public testing::Test {
protected:
  CompressedOnDevices() {
    folder = (std::filesystem::temp_directory_path() / "tbc-cuda-compression-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~CompressedOnDevices() override { std::filesystem::remove_all(folder); }

  void compile(const std::string &name, const std::string &mesh) {
    model = test::loadModel(name, "sgd", {{"momentum", 0.5}});
    test::PlanRequest request;
    request.mesh = mesh;
    request.globalBatch = 6;
    auto plan = test::makePlan(model, request);
    ASSERT_TRUE(plan) << plan.error().message;
    auto compiled = driver::compilePlan(*model.step, *plan);
    ASSERT_TRUE(compiled) << compiled.error().message;
    program = std::move(compiled->program);
    auto made = driver::makeRunData(*model.step, *plan, numSteps, Arith::Native, 1);
    ASSERT_TRUE(made) << made.error().message;
    data = std::move(*made);
  }

  Status runStep(comm::Communicator &communicator, runtime::Executor &executor, int step) {
    runtime::StepInputs inputs;
    inputs.microBatches = data.steps[size_t(step)];
    inputs.learningRate = data.learningRate;
    return executor.runStep(communicator, inputs);
  }

  /// Trains on a rank. Halfway, the gradient residuals are taken out and put in again.
  Held train(comm::Communicator &communicator, const program::Program &program,
             const runtime::MachineMaker &machine) {
    Held held;
    auto executor =
        runtime::Executor::create(program, communicator.rank(), {Arith::Native}, machine);
    EXPECT_TRUE(executor) << executor.error().message;
    Status status = executor->load([&](const std::string &name) { return data.initial.at(name); });
    if (status)
      status = executor->compressGradients(share);
    EXPECT_TRUE(status) << status.error().message;
    for (int step = 0; status && step < numSteps; ++step) {
      status = runStep(communicator, *executor, step);
      EXPECT_TRUE(status) << status.error().message;
      for (const auto &[place, count] : executor->gradientResiduals()) {
        std::vector<float> residual = executor->gradientResidual(place);
        EXPECT_EQ(residual.size(), count);
        auto *bytes = reinterpret_cast<const unsigned char *>(residual.data());
        held[place + " in step " + std::to_string(step)].assign(bytes, bytes + count * 4);
        if (step == numSteps / 2)
          executor->setGradientResidual(place, std::move(residual));
      }
    }
    EXPECT_FALSE(executor->gradientResiduals().empty());
    for (size_t t = 0; t < program.tensors.size() && status; ++t)
      if (program.tensors[t].role != program::Role::Input)
        if (kernels::Tensor tensor = executor->held(int(t)))
          held[program.tensors[t].name] = tensor.toBytes();
    return held;
  }

  std::vector<Held> onHosts() {
    int64_t numRanks = program.mesh.numRanks();
    comm::SimulatedWorld world(numRanks, std::chrono::minutes(5));
    return onThreads([&](int64_t rank) {
      Held held = train(world.communicator(rank), program, runtime::makeReferenceMachine);
      world.finish(rank);
      return held;
    });
  }

  using RankFn = std::function<Held(comm::Communicator &, const program::Program &,
                                    const runtime::MachineMaker &)>;
  std::vector<Held> onDevices(const RankFn &runRank) {
    test::FakeOptions options;
    options.numDevices = int(program.mesh.numRanks());
    test::FakeDriver driver(options);
    test::FakeNccl nccl(driver);
    program::Program onDevice = program;
    program::CudaKernels list = test::addProgramKernels(driver, onDevice, 3);
    cuda::prepareContext(*model.context);
    std::vector<region::KernelSource> sources;
    for (auto &[symbol, kernel] : cuda::emitSparseKernels(*model.context, cuda::Form::Host)) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      kernel.module->print(stream);
      sources.push_back({symbol, text});
      list.kernels.push_back({symbol, kernel.extent, 256, 0});
    }
    auto target = cpu::findCpuTarget("native");
    EXPECT_TRUE(target);
    KernelLibrary library(sources, *target);
    EXPECT_TRUE(library.isOpen());
    test::addSparseKernels(
        driver, [&](const std::string &symbol) { return library.find(symbol); },
        cuda::sparseThreadsOnHost);
    test::writeKernels(list, folder, programHash);
    std::string store = folder + "/store" + std::to_string(numStores++);
    std::filesystem::create_directory(store);
    std::vector<Held> all = onThreads([&](int64_t rank) {
      auto shared = launch::openFileStore(store, "shared");
      auto device = cuda::Device::open(test::FakeDriver::table(), int(rank));
      auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), programHash);
      EXPECT_TRUE(kernels) << kernels.error().message;
      cuda::NcclOptions patient;
      patient.timeout = std::chrono::minutes(5);
      auto communicator = cuda::connectNccl(rank, program.mesh.numRanks(), **shared,
                                            test::FakeNccl::table(), *device, patient);
      EXPECT_TRUE(communicator) << communicator.error().message;
      cuda::CudaOptions machine;
      machine.device = *device;
      machine.kernels = *kernels;
      machine.graphs = cuda::GraphUse::On;
      return runRank(**communicator, onDevice, cuda::cudaMachine(machine));
    });
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_THAT(driver.leaks(), IsEmpty());
    EXPECT_GT(driver.numCalls("cuGraphLaunch"), 0);
    numCaptures = driver.numCalls("cuStreamEndCapture");
    return all;
  }

  template <typename RunFn> std::vector<Held> onThreads(RunFn run) {
    std::vector<Held> all(size_t(program.mesh.numRanks()));
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < all.size(); ++rank)
      threads.emplace_back([&, rank] { all[rank] = run(int64_t(rank)); });
    for (std::thread &thread : threads)
      thread.join();
    return all;
  }

  void check(const std::string &name, const std::string &mesh) {
    SCOPED_TRACE(name + " " + mesh);
    compile(name, mesh);
    std::vector<Held> expected = onHosts();
    std::vector<Held> found =
        onDevices([&](auto &communicator, const auto &program, const auto &machine) {
          return train(communicator, program, machine);
        });
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_EQ(found[rank].size(), expected[rank].size());
      for (const auto &[what, bytes] : expected[rank])
        EXPECT_TRUE(found[rank][what] == bytes) << what << " of rank " << rank;
    }
  }

  std::string folder;
  int numStores = 0, numCaptures = 0;
  test::Model model;
  program::Program program;
  driver::RunData data;
};

TEST_F(CompressedOnDevices, AllReducesAreThoseOfCpus) { check("tiny-mlp", "dp=3"); }

TEST_F(CompressedOnDevices, ReduceScattersAreThoseOfCpus) { check("tiny-mlp", "fsdp=2"); }

/// Requests executed steps while `isThere` is true.
struct Onlooker : runtime::Observer {
  bool isThere = false;
  Status executed(const runtime::Executed &) override { return Status::ok(); }
  bool looksAtOnce() const override { return isThere; }
  bool looksAt(schedule::Action::Kind, const program::Instruction &) const override {
    return false;
  }
};

/// Packing for a step between replays may need more memory than before. The graph keeps the memory
/// that it was recorded with, on every rank.
TEST_F(CompressedOnDevices, AGraphKeepsTheMemoryItWasRecordedWith) {
  compile("tiny-mlp", "dp=2");
  onDevices([&](comm::Communicator &communicator, const program::Program &program,
                const runtime::MachineMaker &machine) {
    Onlooker onlooker;
    auto executor =
        runtime::Executor::create(program, communicator.rank(), {Arith::Native}, machine);
    EXPECT_TRUE(executor) << executor.error().message;
    executor->observe(onlooker);
    Status status = executor->load([&](const std::string &name) { return data.initial.at(name); });
    // Executed, recorded, executed with messages to pack, replayed twice.
    for (int step = 0; status && step < 5; ++step) {
      onlooker.isThere = step == 2;
      if (onlooker.isThere)
        status = executor->compressGradients(share);
      if (status)
        status = runStep(communicator, *executor, step % numSteps);
      EXPECT_TRUE(status) << status.error().message;
    }
    EXPECT_TRUE(std::isfinite(executor->loss().toDoubles()[0]));
    return Held();
  });
  EXPECT_EQ(numCaptures, 2); // once per rank
}

TEST_F(CompressedOnDevices, AProgramWithoutTheKernelsIsRefused) {
  compile("tiny-mlp", "dp=2");
  test::FakeOptions options;
  options.numDevices = 1;
  test::FakeDriver driver(options);
  program::Program onDevice = program;
  test::writeKernels(test::addProgramKernels(driver, onDevice, 1), folder, programHash);
  auto device = cuda::Device::open(test::FakeDriver::table(), 0);
  auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), programHash);
  ASSERT_TRUE(kernels) << kernels.error().message;
  cuda::CudaOptions machine;
  machine.device = *device;
  machine.kernels = *kernels;
  auto executor =
      runtime::Executor::create(onDevice, 0, {Arith::Native}, cuda::cudaMachine(machine));
  ASSERT_TRUE(executor) << executor.error().message;
  Status status = executor->compressGradients(share);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::Usage);
  EXPECT_THAT(status.error().message, HasSubstr("compile it again"));
}

} // namespace
