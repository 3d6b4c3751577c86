//===- cuda_graphs_test.cpp - Steps as graphs on fake GPUs ------------------===//
//
// Replays compute the same bits as executed steps, with other inputs and rates each time. Steps
// that cannot be recorded give a message or an error.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/SimulatedWorld.h"
#include "tests/codegen/FakeGpuRanks.h"
#include "tests/runtime/cuda/FakeCublasLt.h"

#include <gmock/gmock.h>

namespace tbc::test {
namespace {

using cuda::DriverCode;
using cuda::GraphUse;
using kernels::Tensor;
using program::MlpOptions;
using program::Program;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class CudaGraphsTest : public FakeGpuRanks {
protected:
  Setting recorded(GraphUse use = GraphUse::Auto) {
    Setting setting;
    setting.graphs = use;
    setting.numSteps = 5;
    setting.say = [this](const std::string &what) { said.push_back(what); };
    return setting;
  }

  std::vector<std::string> said;
};

TEST_F(CudaGraphsTest, ReplaysTrainAsTheReferenceDoes) {
  std::vector<MlpOptions> family(5, mlp());
  family[1].dp = 2;
  family[2].dp = 2, family[2].zero = 1;
  family[3].dp = 3, family[3].zero = 3, family[3].samples = 9, family[3].width = 5;
  family[4].tp = 2, family[4].numLayers = 4;
  for (const MlpOptions &o : family)
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("dp " + std::to_string(o.dp) + " tp " + std::to_string(o.tp) + " zero " +
                   std::to_string(o.zero));
      Program program = programOf(o);
      auto gpus = gpusFor(program, seed);
      said.clear();
      Setting setting = recorded(GraphUse::On);
      expectEqual(onGpus(program, o, setting), trainReference(program, o, setting.numSteps));
      EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
      EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
      EXPECT_EQ(gpus->nccl.numAlive(), 0);
      EXPECT_THAT(said, ElementsAre(HasSubstr("each step is one CUDA graph of ")));
      int numRanks = int(program.mesh.numRanks());
      EXPECT_EQ(gpus->driver.numCalls("cuGraphInstantiateWithFlags"), numRanks);
      EXPECT_EQ(gpus->driver.numCalls("cuGraphLaunch"), 4 * numRanks); // all steps but the first
    }
}

TEST_F(CudaGraphsTest, AGraphHoldsTheFastestMatmuls) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  FakeCublasLt cublas(gpus->driver);
  cublas.hasWays({3e-3, 1e-3, 2e-3});
  Setting setting = recorded(GraphUse::On);
  setting.cublas = FakeCublasLt::table();
  setting.isBenchmark = true;
  expectEqual(onGpus(program, o, setting), trainReference(program, o, setting.numSteps));
  EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
  EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
  EXPECT_EQ(cublas.numAlive(), 0);
  // Both ranks time every algorithm of a shape four times.
  int numShapes = cublas.numMatmulsBy(0) / (2 * 4);
  EXPECT_GT(numShapes, 0);
  EXPECT_EQ(cublas.numMatmulsBy(0), numShapes * 2 * 4);
  EXPECT_EQ(cublas.numMatmulsBy(2), numShapes * 2 * 4);
  EXPECT_GT(cublas.numMatmulsBy(1), numShapes * 2 * 4);
  std::string number = std::to_string(numShapes);
  EXPECT_THAT(
      said, ElementsAre(HasSubstr("matmuls: "),
                        HasSubstr("of " + number + " shapes of matmuls " + number + " are faster"),
                        HasSubstr("each step is one CUDA graph of ")));
}

TEST_F(CudaGraphsTest, AReplayLaunchesNothingByItself) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  Setting setting = recorded();
  std::vector<std::string> ofStep;
  setting.body = [&](int64_t rank, comm::Communicator &communicator,
                     const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
    auto executor = executorOf(program, o, rank, maker);
    if (!executor)
      return executor.error();
    runtime::CollectiveCounts counts;
    for (int step = 0; step < 3; ++step) {
      size_t begin = gpus->driver.calls().size();
      if (Status status = executor->runStep(communicator, stepInputs(o, step)); !status)
        return status.error();
      ofStep = gpus->driver.calls();
      ofStep.erase(ofStep.begin(), ofStep.begin() + std::ptrdiff_t(begin));
    }
    return std::vector<Tensor>{executor->loss()};
  };
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_TRUE(outcome[0]) << outcome[0].error().message;
  EXPECT_THAT(ofStep, Contains("cuGraphLaunch").Times(1));
  for (const char *alone : {"cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
                            "cuStreamWaitEvent", "cuMemsetD8Async"})
    EXPECT_THAT(ofStep, ::testing::Not(Contains(alone)));
}

TEST_F(CudaGraphsTest, CountsAndEvaluationsAreThoseOfStepsThatAreExecuted) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  std::vector<runtime::CollectiveCounts> counts(2);
  std::vector<double> losses[2];
  for (bool isRecorded : {false, true}) {
    auto gpus = gpusFor(program);
    Setting setting = recorded(isRecorded ? GraphUse::On : GraphUse::Off);
    setting.body = [&](int64_t rank, comm::Communicator &communicator,
                       const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
      auto executor = executorOf(program, o, rank, maker);
      if (!executor)
        return executor.error();
      for (int step = 0; step < 5; ++step) {
        Status status = executor->runStep(communicator, stepInputs(o, step));
        if (status && rank == 0)
          losses[isRecorded].push_back(executor->loss().toDoubles()[0]);
        // Between steps: only forward blocks, with other inputs.
        if (status && step > 0)
          status = executor->runForward(communicator, stepInputs(o, 100 + step));
        if (!status)
          return status.error();
        if (rank == 0)
          losses[isRecorded].push_back(executor->loss().toDoubles()[0]);
      }
      if (rank == 0)
        counts[isRecorded] = executor->collectives();
      return std::vector<Tensor>{};
    };
    for (const auto &rank : onGpus(program, o, setting))
      ASSERT_TRUE(rank) << rank.error().message;
    EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
    EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(counts[0], counts[1]);
}

/// Stores the sum of squares of an instruction's results.
class Watcher : public runtime::Observer {
public:
  Watcher(bool isAtOnce, std::string id) : isAtOnce(isAtOnce), id(std::move(id)) {}
  Status executed(const runtime::Executed &executed) override {
    for (int i = executed.first; i < executed.end; ++i)
      if (executed.instruction(i).id == id)
        for (double x : executed.value(executed.instruction(i).results[0]).toDoubles())
          sums.back() += x * x;
    return Status::ok();
  }
  bool looksAtOnce() const override { return isAtOnce; }
  bool looksAt(schedule::Action::Kind, const program::Instruction &instruction) const override {
    return instruction.id == id;
  }
  bool isAtOnce;
  std::vector<double> sums;

private:
  const std::string id;
};

TEST_F(CudaGraphsTest, WhoLooksAtAValueSeesThatOfEachReplay) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  const std::string id = program.stages[0].update.instructions.back().id;
  std::vector<double> sums[3]; // executed; replayed; executed with an immediate observer
  for (int way = 0; way < 3; ++way) {
    auto gpus = gpusFor(program);
    Setting setting = recorded(way == 0 ? GraphUse::Off : GraphUse::On);
    setting.body = [&](int64_t rank, comm::Communicator &communicator,
                       const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
      auto executor = executorOf(program, o, rank, maker);
      if (!executor)
        return executor.error();
      Watcher watcher(false, id);
      executor->observe(watcher);
      for (int step = 0; step < 5; ++step) {
        watcher.isAtOnce = way == 2 && step == 3; // as a profile of this step does
        watcher.sums.push_back(0);
        if (Status status = executor->runStep(communicator, stepInputs(o, step)); !status)
          return status.error();
      }
      if (rank == 0)
        sums[way] = watcher.sums;
      return std::vector<Tensor>{};
    };
    for (const auto &rank : onGpus(program, o, setting))
      ASSERT_TRUE(rank) << rank.error().message;
    EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
    EXPECT_EQ(gpus->driver.numCalls("cuGraphLaunch"), way == 0 ? 0 : way == 1 ? 8 : 6);
  }
  EXPECT_NE(sums[0][3], sums[0][4]);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

//===----------------------------------------------------------------------===//
// Unrecordable steps
//===----------------------------------------------------------------------===//

TEST_F(CudaGraphsTest, MessagesBetweenStagesAreNotRecorded) {
  MlpOptions o = mlp();
  o.pp = 2;
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  expectEqual(onGpus(program, o, recorded()), trainReference(program, o, 5));
  EXPECT_THAT(said, ElementsAre("steps are not CUDA graphs: stages send messages to each other"));
  EXPECT_EQ(gpus->driver.numCalls("cuGraphLaunch"), 0);
  Outcome outcome = onGpus(program, o, recorded(GraphUse::On));
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::Usage);
  EXPECT_THAT(outcome[0].error().message, AllOf(HasSubstr("--cuda-graphs on"),
                                                HasSubstr("stages send messages to each other")));
}

TEST_F(CudaGraphsTest, CollectivesOfTheHostAreNotRecorded) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  for (GraphUse use : {GraphUse::Auto, GraphUse::On}) {
    auto gpus = gpusFor(program);
    said.clear();
    auto machineOf = [&](int64_t rank) -> Result<runtime::MachineMaker> {
      cuda::CudaOptions options;
      options.device = *cuda::Device::open(FakeDriver::table(), int(rank));
      options.kernels = *cuda::KernelModule::load(options.device, test::filesIn(folder), hash);
      options.graphs = use;
      if (rank == 0)
        options.say = [&](const std::string &what) { said.push_back(what); };
      return cuda::cudaMachine(options);
    };
    Outcome outcome = trainAll(program, o, machineOf, 4);
    if (use == GraphUse::On) {
      ASSERT_FALSE(outcome[0]);
      EXPECT_THAT(outcome[0].error().message, HasSubstr("--cuda-graphs on asks for it"));
      continue;
    }
    expectEqual(outcome, trainReference(program, o, 4));
    EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("steps are not CUDA graphs: "),
                                        HasSubstr("all_reduce"), HasSubstr("the host"))));
    EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
    EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
  }
}

TEST_F(CudaGraphsTest, WhatFailsOnOneRankIsExecutedOnAll) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  for (const char *symbol : {"cuStreamBeginCapture_v2", "cuStreamEndCapture",
                             "cuGraphInstantiateWithFlags", "cuGraphGetNodes"}) {
    SCOPED_TRACE(symbol);
    auto gpus = gpusFor(program);
    said.clear();
    gpus->driver.failCall(symbol, DriverCode::OutOfMemory); // for the first caller
    Outcome outcome = onGpus(program, o, recorded());
    // In the fake, a capture continues if its end fails, because no other call ends it.
    if (symbol == std::string("cuStreamEndCapture"))
      continue;
    expectEqual(outcome, trainReference(program, o, 5));
    EXPECT_THAT(said, ElementsAre(HasSubstr("steps are not CUDA graphs: ")));
    EXPECT_EQ(gpus->driver.numCalls("cuGraphLaunch"), 0);
    EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
    EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
  }
}

TEST_F(CudaGraphsTest, AnyWaitThatIsLeftOutIsARace) {
  MlpOptions o = mlp();
  o.dp = 2, o.zero = 3;
  Program whole = programOf(o);
  int numTried = 0;
  auto reads = [](const program::Instruction &later, const program::Instruction &earlier) {
    return std::any_of(later.operands.begin(), later.operands.end(), [&](program::ValueId value) {
      return std::count(earlier.results.begin(), earlier.results.end(), value) > 0;
    });
  };
  for (program::BlockId id : whole.stages[0].blocks())
    for (size_t i = 0; i < whole.stages[0].block(id).instructions.size(); ++i)
      for (int wait : whole.stages[0].block(id).instructions[i].waits) {
        const program::Block &block = whole.stages[0].block(id);
        if (!reads(block.instructions[i], block.instructions[size_t(wait)]))
          continue;
        Program program = whole;
        std::vector<int> &waits = program.stages[0].block(id).instructions[i].waits;
        waits.erase(std::find(waits.begin(), waits.end(), wait));
        auto gpus = gpusFor(program);
        onGpus(program, o, recorded(GraphUse::On));
        EXPECT_THAT(gpus->driver.complaints(),
                    Contains(AllOf(HasSubstr("race: "), HasSubstr("of a graph"))));
        ++numTried;
      }
  EXPECT_GE(numTried, 6);
}

//===----------------------------------------------------------------------===//
// Endless kernels
//===----------------------------------------------------------------------===//

TEST_F(CudaGraphsTest, AKernelOfAGraphThatNeverEndsIsNamed) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  Setting setting = recorded(GraphUse::On);
  setting.timeout = 3s;
  setting.body = [&](int64_t rank, comm::Communicator &communicator,
                     const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
    auto executor = executorOf(program, o, rank, maker);
    if (!executor)
      return executor.error();
    Status status = executor->runStep(communicator, stepInputs(o, 0));
    gpus->driver.hangKernel("s0_b1_i2"); // in launched graphs
    for (int step = 1; status && step < 4; ++step)
      status = executor->runStep(communicator, stepInputs(o, step));
    return status ? Result<std::vector<Tensor>>(std::vector<Tensor>{}) : status.error();
  };
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::HangDetected);
  EXPECT_THAT(outcome[0].error().message,
              AllOf(HasSubstr("waited 3000 ms for one of the "), HasSubstr("backward block"),
                    HasSubstr("in the graph of a step"), HasSubstr("--timeout")));
}

TEST_F(CudaGraphsTest, ARankThatStaysAwayIsNamedWithTheCollectiveOfAGraph) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  expectAbsenceIsNamed(program, o, recorded(GraphUse::On), 3);
}

/// Asks for the time of each kernel while it runs.
class Timer : public runtime::Observer {
public:
  bool timesDevices() const override { return true; }
  Status executed(const runtime::Executed &executed) override {
    if (!executed.onDevice)
      return Status::ok();
    auto times = executed.onDevice->times();
    return times ? Status::ok() : Status(times.error());
  }
};

TEST_F(CudaGraphsTest, TheTimeOfAKernelThatNeverEndsHasATimeOut) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  Setting setting;
  setting.timeout = 3s;
  setting.body = [&](int64_t rank, comm::Communicator &communicator,
                     const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
    auto executor = executorOf(program, o, rank, maker);
    if (!executor)
      return executor.error();
    Timer timer;
    executor->observe(timer);
    Status status = executor->runStep(communicator, stepInputs(o, 0));
    if (!status)
      return status.error();
    gpus->driver.hangKernel("s0_b1_i2");
    status = executor->runStep(communicator, stepInputs(o, 1));
    return status ? Result<std::vector<Tensor>>(std::vector<Tensor>{}) : status.error();
  };
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::HangDetected) << outcome[0].error().message;
  EXPECT_THAT(outcome[0].error().message, HasSubstr("waited 3000 ms for"));
}

} // namespace
} // namespace tbc::test
