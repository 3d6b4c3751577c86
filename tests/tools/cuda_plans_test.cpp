//===- cuda_plans_test.cpp - Plans on fake GPUs equal the serial program --===//
//
// Plans are compiled for GPUs, with every kernel in its form for the host, and run on the fake
// driver. Regions, memory plan, launches, streams, copies and the code of each thread are those of
// a GPU. Ranks talk over a fake NCCL. Warp shuffles and PTX are not covered.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CompileCudaKernels.h"
#include "codegen/cuda/EmitFp8Kernels.h"
#include "codegen/cuda/EmitSparseKernels.h"
#include "runtime/abi/Region.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/exec/Peers.h"
#include "runtime/launch/Stores.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/FakeCudnn.h"
#include "tests/runtime/cuda/FakeNccl.h"
#include "tests/runtime/cuda/OptionKernels.h"
#include "tests/runtime/cuda/ProgramKernels.h"
#include "tests/tools/PlanSupport.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <utility>

using namespace tbc;
using kernels::Arith;
using kernels::Tensor;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

constexpr const char *programHash = "of the program";

/// Gives the fake driver a kernel `symbol`, which does the work of a launch of a region's compiled
/// kernel.
void addLaunch(test::FakeDriver &driver, const program::Stage &stage, const program::Block &block,
               const program::Region &region, const std::string &symbol, int64_t workspaceBytes,
               program::CompiledKernel compiled) {
  program::RegionValues values = regionValues(block, region);
  std::vector<size_t> reads, writes;
  for (program::ValueId value : values.operands)
    reads.push_back(size_t(program::sizeBytes(stage.values[size_t(value)])));
  for (program::ValueId value : values.results)
    writes.push_back(size_t(program::sizeBytes(stage.values[size_t(value)])));
  if (workspaceBytes > 0)
    writes.push_back(size_t(workspaceBytes));
  test::FakeKernel kernel;
  kernel.argumentBytes.assign(reads.size() + writes.size(), sizeof(cuda::DeviceAddress));
  kernel.run = [=](test::FakeLaunch &launch) {
    std::vector<void *> buffers;
    for (size_t i = 0; i < reads.size(); ++i)
      buffers.push_back(const_cast<char *>(
          launch.memory.read<char>(launch.argument<cuda::DeviceAddress>(i), reads[i])));
    for (size_t i = 0; i < writes.size(); ++i)
      buffers.push_back(launch.memory.write<char>(
          launch.argument<cuda::DeviceAddress>(reads.size() + i), writes[i]));
    compiled(buffers.data(), 0, int64_t(launch.gridX));
  };
  driver.addKernel(symbol, kernel);
}

/// Gives the fake driver all launches of a region.
void addRegion(test::FakeDriver &driver, const program::Stage &stage, const program::Block &block,
               const program::Region &region, const program::CudaKernels &list,
               const KernelLibrary &library) {
  auto found = std::find_if(list.kernels.begin(), list.kernels.end(),
                            [&](const auto &kernel) { return kernel.symbol == region.symbol; });
  ASSERT_NE(found, list.kernels.end());
  for (const program::CudaLaunch &launch : found->launches())
    addLaunch(driver, stage, block, region, launch.symbol, found->workspaceBytes,
              library.find(launch.symbol));
}

/// A rank whose machine uses NCCL, independent of the executor's communicator.
///
/// The machines of all ranks are made one after the other, but connecting needs all ranks. So each
/// rank connects in its own thread, when its first step begins.
class OverNccl : public runtime::Machine {
public:
  using Connection = Result<std::unique_ptr<comm::Communicator>>;

  OverNccl(std::unique_ptr<comm::Store> store, std::function<Connection(comm::Store &)> connect,
           std::unique_ptr<Machine> inner)
      : store(std::move(store)), connect(std::move(connect)), inner(std::move(inner)) {}

  Status prepare(program::BlockId block) override { return inner->prepare(block); }
  int numAtOnce(program::BlockId block, int index) const override {
    return inner->numAtOnce(block, index);
  }
  void run(program::BlockId block, int index) override { inner->run(block, index); }
  void write(const std::vector<runtime::SlotWrite> &writes) override { inner->write(writes); }
  void beginBlock(program::BlockId block) override { inner->beginBlock(block); }
  void endBlock(program::BlockId block) override {
    inner->endBlock(block);
    if (block.kind == schedule::Action::Kind::Update && way == runtime::StepWay::Execute)
      meet();
  }
  runtime::StepWay beginStep(bool mayBeWhole) override {
    EXPECT_TRUE(connected());
    return way = inner->beginStep(mayBeWhole);
  }
  Result<bool> endRecording(comm::Communicator &, const Status &walked) override {
    if (Status status = connected(); !status)
      return status.error();
    Result<bool> isRecorded = inner->endRecording(*nccl, walked);
    way = runtime::StepWay::Execute;
    if (isRecorded && *isRecorded)
      meet();
    return isRecorded;
  }
  void replay() override {
    inner->replay();
    meet();
  }
  Result<bool> communicate(comm::Communicator &, program::BlockId block, int index,
                           const runtime::GroupPlace &group, const runtime::MemoryLayout &layout,
                           const std::string &place) override {
    if (Status status = connected(); !status)
      return status.error();
    Result<bool> isDone = inner->communicate(*nccl, block, index, group, layout, place);
    EXPECT_TRUE(!isDone || *isDone) << place << " goes by way of the host";
    return isDone;
  }

private:
  Status connected() {
    if (auto begin = std::exchange(connect, nullptr)) {
      Connection made = begin(*store);
      if (!made)
        failure = made.error();
      else
        nccl = std::move(*made);
    }
    return failure;
  }
  /// Ranks meet after every step, as in a run.
  void meet() {
    Status status = connected();
    ASSERT_TRUE(status) << status.error().message;
    comm::Group all(static_cast<size_t>(nccl->numRanks()));
    std::iota(all.begin(), all.end(), int64_t(0));
    auto met = nccl->barrier(all, "the end of a step")->wait();
    EXPECT_TRUE(met);
  }

  std::unique_ptr<comm::Store> store;
  std::function<Connection(comm::Store &)> connect; // empty once connected
  Status failure;
  std::unique_ptr<comm::Communicator> nccl;
  std::unique_ptr<Machine> inner;
  runtime::StepWay way = runtime::StepWay::Execute;
};

class CudaPlans : public testing::Test {
protected:
  CudaPlans() {
    folder = (std::filesystem::temp_directory_path() / "tbc-cuda-plans-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~CudaPlans() override { std::filesystem::remove_all(folder); }

  /// Compiles the plan, runs it on fake GPUs, and compares with the serial program in f64 and
  /// natively, within the bound of docs/design.md, section 4.
  void check(const std::string &name, const std::string &mesh, const std::string &optimizer,
             const std::map<std::string, double> &settings = {},
             const std::string &precision = "f32", bool hasLibraries = false) {
    SCOPED_TRACE(name + " " + mesh + " " + precision);
    test::Model model = test::loadModel(name, optimizer, settings, "", precision);
    test::PlanRequest request;
    request.mesh = mesh;
    request.offload = offload;
    request.schedule = schedule;
    auto plan = test::makePlan(model, request);
    ASSERT_TRUE(plan) << plan.error().message;
    cuda::CudaTarget target;
    target.architectures = {80};
    target.form = cuda::Form::Host;
    auto compiled = driver::compilePlan(*model.step, *plan, nullptr, &target);
    ASSERT_TRUE(compiled) << compiled.error().message;
    auto cpu = cpu::findCpuTarget("native");
    ASSERT_TRUE(cpu);
    KernelLibrary library(compiled->cudaKernels.sources, *cpu);
    ASSERT_TRUE(library.isOpen());

    test::FakeOptions options;
    options.numDevices = int(compiled->program.mesh.numRanks());
    test::FakeDriver driver(options);
    test::FakeNccl nccl(driver);
    std::optional<test::FakeCublasLt> cublas;
    std::optional<test::FakeCudnn> cudnn;
    if (hasLibraries) {
      cublas.emplace(driver);
      cublas->hasWays(isBenchmark ? std::vector<double>{2e-3, 1e-3} : std::vector<double>{0});
      cudnn.emplace(driver);
    }
    usesLibraries = hasLibraries;
    numUpdateKernels = int(compiled->program.stages[0].update.regions.size());
    numParameters = int(model.step->step.graph.parameters.size());
    for (const program::Stage &stage : compiled->program.stages)
      for (program::BlockId id : stage.blocks())
        for (const program::Region &region : stage.block(id).regions)
          addRegion(driver, stage, stage.block(id), region, compiled->cudaKernels.list, library);
    test::addAccumulators(driver, compiled->cudaKernels.list);
    test::addSparseKernels(
        driver, [&](const std::string &symbol) { return library.find(symbol); },
        cuda::sparseThreadsOnHost);
    test::addFp8Kernels(
        driver, [&](const std::string &symbol) { return library.find(symbol); },
        cuda::fp8ThreadsOnHost);
    test::writeKernels(test::withFakeImage(compiled->cudaKernels.list), folder, programHash);
    compare(*model.step, *plan, compiled->program);
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_GT(driver.numCalls("cuLaunchKernel"), 0);
    ran = driver.ran();
    if (!hasLibraries)
      return;
    if (isBenchmark)
      EXPECT_GT(cublas->numMatmulsBy(1), cublas->numMatmulsBy(0));
    for (auto [epilogue, count] : cublas->matmulsByEpilogue())
      products[epilogue] += count;
    for (cuda::CudnnKind kind :
         {cuda::CudnnKind::OperationMatmul, cuda::CudnnKind::ConvolutionForward,
          cuda::CudnnKind::ConvolutionBackwardData, cuda::CudnnKind::ConvolutionBackwardFilter})
      operations[kind] += cudnn->numOperations(kind);
  }

  void compare(driver::TrainingStep &step, const planner::Plan &plan,
               const program::Program &program) {
    // AdamW takes full steps of noise where gradients are zero. So only one step, its loss and its
    // gradients are comparable.
    bool isAdaptive = step.options.optimizer == planner::Optimizer::AdamW;
    std::vector<driver::RunRecord> native, exact;
    for (uint64_t seed = 1; seed <= 3; ++seed)
      for (auto [arith, records] :
           {std::pair(Arith::Native, &native), std::pair(Arith::F64, &exact)}) {
        auto data = driver::makeRunData(step, plan, isAdaptive ? 1 : 2, arith, seed);
        ASSERT_TRUE(data) << data.error().message;
        auto record = driver::runSerial(step, plan, *data, arith);
        ASSERT_TRUE(record) << record.error().message;
        records->push_back(*record);
      }
    auto data = driver::makeRunData(step, plan, isAdaptive ? 1 : 2, Arith::Native, 1);
    ASSERT_TRUE(data) << data.error().message;
    auto made = driver::runParallel(program, *data, Arith::Native,
                                    [&](int64_t rank) { return machineOf(rank, program); });
    ASSERT_TRUE(made) << made.error().message;
    for (const driver::Comparison &line :
         driver::compareFloats(program, exact[0], native, exact, *made)) {
      int index = program.tensorIndex(line.name);
      bool isNoise = isAdaptive && index >= 0 &&
                     program.tensors[size_t(index)].role != program::Role::Gradient;
      EXPECT_TRUE(line.equal || isNoise) << line.name << ": " << line.error << " of " << line.bound;
    }
  }

  /// Several ranks use NCCL.
  Result<runtime::MachineMaker> machineOf(int64_t rank, const program::Program &program) const {
    auto device = cuda::Device::open(test::FakeDriver::table(), int(rank));
    if (!device)
      return device.error();
    auto kernels = cuda::KernelModule::load(*device, test::filesIn(folder), programHash);
    if (!kernels)
      return kernels.error();
    cuda::CudaOptions options;
    options.device = *device;
    options.kernels = *kernels;
    if (usesLibraries) {
      options.cublas = test::FakeCublasLt::table();
      options.cudnn = test::FakeCudnn::table();
    }
    options.isBenchmark = isBenchmark;
    options.graphs = cuda::GraphUse::Auto; // of a second step
    runtime::MachineMaker alone = cuda::cudaMachine(options);
    int64_t numRanks = program.mesh.numRanks();
    if (numRanks == 1)
      return alone;
    return runtime::MachineMaker(
        [=, device = *device, folder = folder, peers = runtime::peersOf(program)](
            const runtime::MachineSetting &setting) -> Result<std::unique_ptr<runtime::Machine>> {
          auto store = launch::openFileStore(folder, "shared");
          if (!store)
            return store.error();
          auto inner = alone(setting);
          if (!inner)
            return inner.error();
          auto connect = [=](comm::Store &to) {
            cuda::NcclOptions given; // as in a run
            given.partitions = peers.partitions;
            given.messages = peers.messages;
            return cuda::connectNccl(rank, numRanks, to, test::FakeNccl::table(), device, given);
          };
          return std::unique_ptr<runtime::Machine>(
              std::make_unique<OverNccl>(std::move(*store), connect, std::move(*inner)));
        });
  }

  std::string folder;
  std::string offload = "none";
  std::string schedule = "";              // of pipelines; open
  std::vector<test::FakeDriver::Ran> ran; // of the last check
  int numUpdateKernels = 0, numParameters = 0;
  bool usesLibraries = false, isBenchmark = false;
  /// Of all checks with libraries: matmuls by epilogue and whether a matrix was added; operations
  /// of cuDNN's graphs.
  std::map<std::pair<cuda::CublasEpilogue, bool>, int> products;
  std::map<cuda::CudnnKind, int> operations;
};

TEST_F(CudaPlans, TinyMlp) { check("tiny-mlp", "dp=2,tp=2", "sgd"); }

TEST_F(CudaPlans, TinyGpt2) { check("tiny-gpt2", "dp=1", "sgd", {{"clip_norm", 1.0}}); }

TEST_F(CudaPlans, TinyGpt2WithAdam) {
  check("tiny-gpt2", "dp=1", "adamw");
  // One kernel for all parameters, beside those of scalars.
  EXPECT_GE(numParameters, 20);
  EXPECT_LE(numUpdateKernels, 3);
}

TEST_F(CudaPlans, TinyGpt2WithLibraries) {
  for (const char *mesh : {"fsdp=2", "tp=2"})
    check("tiny-gpt2", mesh, "sgd", {}, "f32", /*hasLibraries=*/true);
  check("tiny-gpt2", "dp=1", "sgd", {}, "bf16", /*hasLibraries=*/true);
  // Sums for biases wait, so the gradient of gelu stands alone behind its matmul.
  schedule = "zero-bubble";
  check("tiny-gpt2", "pp=2", "sgd", {}, "f32", /*hasLibraries=*/true);
  using cuda::CublasEpilogue;
  EXPECT_GT((products[{CublasEpilogue::Default, false}]), 0);
  EXPECT_GT((products[{CublasEpilogue::Bias, false}]), 0);
  EXPECT_GT((products[{CublasEpilogue::Bias, true}]), 0);
  EXPECT_GT((products[{CublasEpilogue::GeluAuxiliaryBias, false}]), 0);
  EXPECT_GT((products[{CublasEpilogue::GeluGradient, false}]), 0);
}

TEST_F(CudaPlans, TinyGpt2WithTheFastestMatmuls) {
  isBenchmark = true;
  check("tiny-gpt2", "fsdp=2", "sgd", {}, "f32", /*hasLibraries=*/true);
  check("tiny-gpt2", "pp=2", "sgd", {}, "bf16", /*hasLibraries=*/true);
  EXPECT_GT((products[{cuda::CublasEpilogue::Bias, true}]), 0);
}

TEST_F(CudaPlans, AttentionAndConvolutionByALibrary) {
  using cuda::CudnnKind;
  check("tiny-gpt2", "dp=2", "sgd", {}, "bf16", /*hasLibraries=*/true);
  EXPECT_GT(operations[CudnnKind::OperationMatmul], 0);
  check("tiny-llama", "tp=2", "sgd", {}, "bf16", /*hasLibraries=*/true);
  check("tiny-resnet", "dp=2", "sgd", {}, "f32", /*hasLibraries=*/true);
  EXPECT_GT(operations[CudnnKind::ConvolutionForward], 0);
  EXPECT_GT(operations[CudnnKind::ConvolutionBackwardData], 0);
  EXPECT_GT(operations[CudnnKind::ConvolutionBackwardFilter], 0);
}

TEST_F(CudaPlans, TinyLlamaOverFourRanks) { check("tiny-llama", "fsdp=2,tp=2", "sgd"); }

TEST_F(CudaPlans, TinyLlamaInBFloat16InStages) { check("tiny-llama", "pp=2", "sgd", {}, "bf16"); }

TEST_F(CudaPlans, TinyLlamaWithItsSequenceInParts) { check("tiny-llama", "cp=2", "sgd"); }

TEST_F(CudaPlans, TinyResnetOverTwoRanks) { check("tiny-resnet", "dp=2", "sgd"); }

TEST_F(CudaPlans, ExpertsOverTwoRanks) { check("moe-8l", "ep=2", "sgd"); }

TEST_F(CudaPlans, ExpertsWithACapacityOverTwoRanks) {
  check("moe-8l", "ep=2", "sgd", {{"capacity_factor", 0.75}});
}

TEST_F(CudaPlans, ExpertsInPartsOverTwoRanks) { check("moe-8l", "tp=2", "sgd"); }

TEST_F(CudaPlans, CopiesToTheHostAndBackGoOnBesideKernels) {
  for (const char *what : {"optimizer", "residuals", "all"}) {
    SCOPED_TRACE(what);
    offload = what;
    check("tiny-gpt2", "dp=1", "sgd", {{"momentum", 0.5}});
    check("tiny-mlp", "dp=2", "sgd", {{"momentum", 0.5}}, "f32", /*hasLibraries=*/true);
    check("tiny-gpt2", "fsdp=2", "adamw");
  }
  // Counts copies to the host that run after a kernel enqueued later.
  int64_t latest = 0;
  int numBeside = 0;
  for (const test::FakeDriver::Ran &one : ran) {
    if (one.name.rfind("kernel ", 0) == 0)
      latest = std::max(latest, one.number);
    numBeside += one.name.rfind("copy to host", 0) == 0 && latest > one.number;
  }
  EXPECT_GT(numBeside, 0);
}

/// In residues the host executes kernels, after their operands were offloaded and fetched.
TEST_F(CudaPlans, ResiduesGoToTheHostAndComeBack) {
  test::Model model = test::loadModel("tiny-mlp", "sgd", {{"momentum", 0.5}});
  test::PlanRequest request;
  request.mesh = "dp=1";
  request.offload = "all";
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto data = driver::makeRunData(*model.step, *plan, 2, Arith::Residue251, 1);
  ASSERT_TRUE(data) << data.error().message;
  auto expected = driver::runParallel(compiled->program, *data, Arith::Residue251);
  ASSERT_TRUE(expected) << expected.error().message;

  test::FakeDriver driver;
  program::Program onDevice = compiled->program;
  test::writeKernels(test::addProgramKernels(driver, onDevice, 1), folder, programHash);
  auto found = driver::runParallel(onDevice, *data, Arith::Residue251,
                                   [&](int64_t rank) { return machineOf(rank, onDevice); });
  ASSERT_TRUE(found) << found.error().message;
  for (const driver::Comparison &line : driver::compareExactly(*expected, *found))
    EXPECT_TRUE(line.equal) << line.name;
  int numOffloaded = 0, numFetched = 0;
  for (const program::Stage &stage : onDevice.stages)
    for (program::BlockId id : stage.blocks())
      for (const program::Instruction &instruction : stage.block(id).instructions) {
        numOffloaded += instruction.kind == program::InstructionKind::Offload;
        numFetched += instruction.kind == program::InstructionKind::Fetch;
      }
  EXPECT_GT(numOffloaded, 0);
  EXPECT_GT(numFetched, 0);
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(CudaPlans, OpsWithoutAKernelAreNamed) {
  // Fully masked rows: queries whose keys are all padding.
  test::Model model = test::loadModel("masked-bert", "sgd", {}, "attention_mask");
  test::PlanRequest request;
  request.mesh = "dp=1";
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  cuda::CudaTarget target;
  target.architectures = {80};
  auto compiled = driver::compilePlan(*model.step, *plan, nullptr, &target);
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code, ErrorCode::Usage);
  EXPECT_THAT(compiled.error().message, HasSubstr("attention: "));
  EXPECT_THAT(compiled.error().message, HasSubstr("the first is stage 0, forward block"));
  EXPECT_THAT(compiled.error().message, HasSubstr("--host-ops"));
  target.allowsHostOps = true;
  auto allowed = driver::compilePlan(*model.step, *plan, nullptr, &target);
  ASSERT_TRUE(allowed) << allowed.error().message;
  EXPECT_THAT(allowed->cudaKernels.list.hostOps, ::testing::Contains("attention"));
  EXPECT_THAT(allowed->cudaKernels.list.hostOps, ::testing::Not(::testing::Contains("einsum")));
}

} // namespace
