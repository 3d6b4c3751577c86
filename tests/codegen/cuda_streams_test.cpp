//===- cuda_streams_test.cpp - Streams and NCCL of programs on fake GPUs ----===//
//
// The Program's streams become device streams, and its waits become events. Each wait is needed:
// the tests leave one out and detect it. There are no more than needed: the tests check for
// overlap.
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/FakeGpuRanks.h"

#include <gmock/gmock.h>

#include <thread>

namespace tbc::test {
namespace {

using kernels::Tensor;
using program::Instruction;
using program::InstructionKind;
using program::MlpOptions;
using program::Program;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class CudaStreamsTest : public FakeGpuRanks {};

TEST_F(CudaStreamsTest, TrainsAsTheReferenceDoesWithoutHostCopies) {
  std::vector<MlpOptions> family(7, mlp());
  family[1].dp = 2;
  family[2].dp = 2, family[2].zero = 1;
  family[3].dp = 3, family[3].zero = 3, family[3].samples = 9; // 36 weights do not divide by 8
  family[3].width = 5;
  family[4].tp = 2, family[4].numLayers = 4;
  family[5].pp = 2, family[5].tp = 2, family[5].numLayers = 4, family[5].microBatches = 4;
  family[6].pp = 3, family[6].hasSkip = true, family[6].schedule = "gpipe";
  for (const MlpOptions &o : family)
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("dp " + std::to_string(o.dp) + " tp " + std::to_string(o.tp) + " pp " +
                   std::to_string(o.pp) + " zero " + std::to_string(o.zero));
      Program program = programOf(o);
      auto gpus = gpusFor(program, seed);
      Outcome reference = trainReference(program, o);
      expectEqual(onGpus(program, o), reference);
      EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
      EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
      EXPECT_EQ(gpus->nccl.numAlive(), 0);
    }
}

TEST_F(CudaStreamsTest, TheMemoryPlanIsRegistered) {
  std::vector<MlpOptions> family(4, mlp());
  family[0].dp = 3, family[0].zero = 3, family[0].samples = 9, family[0].width = 5;
  family[1].dp = 2, family[1].zero = 1;
  family[2].tp = 2, family[2].numLayers = 4;
  family[3].pp = 2, family[3].dp = 2, family[3].microBatches = 4;
  for (const MlpOptions &o : family)
    for (cuda::GraphUse graphs : {cuda::GraphUse::Off, cuda::GraphUse::Auto}) {
      SCOPED_TRACE("dp " + std::to_string(o.dp) + " pp " + std::to_string(o.pp));
      Program program = programOf(o);
      auto gpus = gpusFor(program);
      Setting setting;
      setting.registersMemory = true;
      setting.graphs = graphs;
      setting.numSteps = 3;
      expectEqual(onGpus(program, o, setting), trainReference(program, o, 3));
      // Mixed registration across ranks would also be a complaint.
      EXPECT_THAT(gpus->driver.complaints(), IsEmpty());
      EXPECT_THAT(gpus->driver.leaks(), IsEmpty());
      EXPECT_GT(gpus->nccl.numRegisteredCalls(), 0);
      EXPECT_EQ(gpus->nccl.numAlive(), 0);
    }
}

TEST_F(CudaStreamsTest, MemoryThatNcclCannotGiveIsAnError) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  FakeOptions options = optionsFor(program, 1);
  options.deviceBytes = 4096;
  auto gpus = gpusFor(program, options);
  Setting setting;
  setting.registersMemory = true;
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_THAT(outcome[0].error().message,
              AllOf(HasSubstr("the memory plan of stage 0 takes 1 MiB"), HasSubstr("are free")));
}

/// Returns whether a later instruction reads a result of an earlier one.
bool reads(const Instruction &later, const Instruction &earlier) {
  return std::any_of(later.operands.begin(), later.operands.end(), [&](program::ValueId value) {
    return std::count(earlier.results.begin(), earlier.results.end(), value) > 0;
  });
}

TEST_F(CudaStreamsTest, AnyWaitThatIsLeftOutIsARace) {
  MlpOptions o = mlp();
  o.dp = 2, o.zero = 3;
  const Program whole = programOf(o);
  int numTried = 0;
  for (program::BlockId id : whole.stages[0].blocks()) {
    const program::Block &block = whole.stages[0].block(id);
    for (size_t i = 0; i < block.instructions.size(); ++i)
      for (int wait : block.instructions[i].waits) {
        if (!reads(block.instructions[i], block.instructions[size_t(wait)]))
          continue; // other waits also order its results
        Program program = whole;
        std::vector<int> &waits = program.stages[0].block(id).instructions[i].waits;
        waits.erase(std::find(waits.begin(), waits.end(), wait));
        auto gpus = gpusFor(program);
        onGpus(program, o);
        EXPECT_THAT(gpus->driver.complaints(), Contains(HasSubstr("race: ")))
            << "instruction " << i << " does not wait for " << wait;
        ++numTried;
      }
  }
  EXPECT_GE(numTried, 6);
}

TEST_F(CudaStreamsTest, WorkIsDoneWhileCollectivesAreUnderWay) {
  MlpOptions o = mlp();
  o.dp = 2, o.zero = 1;  // a weight is sliced while the previous one is gathered
  bool isBeside = false; // an operation ran before an earlier collective
  for (uint64_t seed = 1; seed <= 20 && !isBeside; ++seed) {
    Program program = programOf(o);
    auto gpus = gpusFor(program, optionsFor(program, seed));
    onGpus(program, o);
    std::map<int, int64_t> latest; // latest executed, by device
    for (const FakeDriver::Ran &ran : gpus->driver.ran())
      if (ran.name.rfind("kernel ", 0) == 0 || ran.name.rfind("copy within device", 0) == 0)
        latest[ran.device] = std::max(latest[ran.device], ran.number);
      else if (ran.name.rfind("NCCL", 0) == 0)
        isBeside |= latest[ran.device] > ran.number;
  }
  EXPECT_TRUE(isBeside);
}

TEST_F(CudaStreamsTest, TheHostDoesNotWaitForCollectives) {
  MlpOptions o = mlp();
  o.dp = 2, o.zero = 3;
  o.microBatches = 1; // its inputs come first
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  std::vector<std::string> ofStep; // calls of a later step than the first
  std::mutex mutex;
  std::condition_variable changed;
  int numReady = 0, numBegun = 0;
  Setting setting;
  setting.body = [&](int64_t rank, comm::Communicator &communicator,
                     const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
    auto executor = executorOf(program, o, rank, maker);
    if (!executor)
      return executor.error();
    Status status = executor->runStep(communicator, stepInputs(o, 0));
    if (!status)
      return status.error();
    // Runs one rank after the other, so that their calls do not mix. No rank may wait for another.
    {
      std::unique_lock lock(mutex);
      ++numBegun;
      changed.notify_all();
      changed.wait(lock, [&] { return numBegun == program.mesh.numRanks() && numReady == rank; });
      size_t begin = gpus->driver.calls().size();
      status = executor->runStep(communicator, stepInputs(o, 1));
      if (rank == 0) {
        ofStep = gpus->driver.calls();
        ofStep.erase(ofStep.begin(), ofStep.begin() + std::ptrdiff_t(begin));
      }
      ++numReady;
    }
    changed.notify_all();
    std::vector<Tensor> held = {executor->loss()};
    return status ? Result<std::vector<Tensor>>(held) : Result<std::vector<Tensor>>(status.error());
  };
  Outcome outcome = onGpus(program, o, setting);
  for (const auto &rank : outcome)
    ASSERT_TRUE(rank) << rank.error().message;
  auto first = std::find(ofStep.begin(), ofStep.end(), "NCCL of rank 0");
  ASSERT_NE(first, ofStep.end());
  std::vector<std::string> after(first, ofStep.end());
  EXPECT_THAT(after, Contains("NCCL of rank 0").Times(::testing::Ge(6)));
  EXPECT_THAT(after, Contains("cuLaunchKernel"));
  EXPECT_THAT(after, Contains("cuStreamWaitEvent"));
  for (const char *waiting : {"cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoHAsync_v2",
                              "cuMemcpyHtoDAsync_v2"})
    EXPECT_THAT(after, ::testing::Not(Contains(waiting)));
}

//===----------------------------------------------------------------------===//
// Endless kernels
//===----------------------------------------------------------------------===//

TEST_F(CudaStreamsTest, AKernelThatNeverEndsIsNamed) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  Setting setting;
  hangAfterFirst(program, o, *gpus, setting, "s0_b1_i2", -1);
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::HangDetected);
  EXPECT_THAT(outcome[0].error().message,
              AllOf(HasSubstr("waited 3000 ms for one of the "), HasSubstr("backward block"),
                    HasSubstr("GPU 0 (Fake, sm_90)"), HasSubstr("--timeout")));
  ASSERT_EQ(reports.size(), 1u); // after the waiting place: an input, or the loss
  EXPECT_THAT(outcome[0].error().message, HasSubstr(reports[0].error.message));
}

TEST_F(CudaStreamsTest, AHungKernelOfOneRankEndsAll) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  for (int device : {-1, 1}) { // on both ranks, or on rank 1 only
    SCOPED_TRACE(device);
    auto gpus = gpusFor(program);
    reports.clear();
    Setting setting;
    hangAfterFirst(program, o, *gpus, setting, "s0_b1_i2", device);
    for (const auto &rank : onGpus(program, o, setting)) {
      ASSERT_FALSE(rank);
      EXPECT_EQ(rank.error().code, ErrorCode::HangDetected) << rank.error().message;
    }
    // The first rank to notice names the kernel, or the rank with the kernel.
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_THAT(reports[0].error.message, HasSubstr("GPU "));
    if (device == 1)
      EXPECT_THAT(reports[0].error.message,
                  AnyOf(HasSubstr("no answer from rank 1"), HasSubstr("GPU 1 (Fake")));
  }
}

TEST_F(CudaStreamsTest, ARankThatStaysAwayIsNamedWithTheCollective) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  expectAbsenceIsNamed(program, o, Setting(), 1);
}

TEST_F(CudaStreamsTest, ALostConnectionIsSeenByWhoWaitsForAStream) {
  MlpOptions o = mlp();
  o.dp = 2;
  Program program = programOf(o);
  auto gpus = gpusFor(program);
  Setting setting;
  setting.body = [&](int64_t rank, comm::Communicator &communicator,
                     const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
    auto executor = executorOf(program, o, rank, maker);
    if (!executor)
      return executor.error();
    Status status = executor->runStep(communicator, stepInputs(o, 0));
    if (status && rank == 1) { // dies
      gpus->nccl.failAll(cuda::NcclCode::RemoteError);
      return std::vector<Tensor>{};
    }
    if (status)
      status = executor->runStep(communicator, stepInputs(o, 1));
    return lossOf(*executor, status);
  };
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::RankFailed);
  EXPECT_THAT(outcome[0].error().message, HasSubstr("remote process exited"));
}

} // namespace
} // namespace tbc::test
