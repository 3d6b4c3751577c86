//===- cuda_residues_test.cpp - Exact numbers on fake GPUs ------------------===//
//
// In residues modulo 251 the host executes all kernels. The device provides the rest: memory plan,
// streams, messages and communicators. Each rank's tensors must equal those of a run on CPUs, and
// an omitted step must be detected.
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/FakeGpuRanks.h"

#include <gmock/gmock.h>

namespace tbc::test {
namespace {

using cuda::GraphUse;
using kernels::Arith;
using program::MlpOptions;
using program::Program;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CudaResiduesTest : public FakeGpuRanks {
protected:
  static Setting residues() {
    Setting setting;
    setting.arith = Arith::Residue251;
    return setting;
  }
  /// Writes kernels as in a compiled program; they are not launched.
  void writeKernelsOf(FakeDriver &driver, Program &program) {
    writeKernels(addProgramKernels(driver, program, 1), folder, hash);
  }
};

TEST_F(CudaResiduesTest, RanksHoldWhatTheyHoldOnCpus) {
  std::vector<MlpOptions> family(7, mlp());
  family[1].dp = 2;
  family[2].dp = 2, family[2].zero = 1;
  family[3].dp = 3, family[3].zero = 3, family[3].samples = 9, family[3].width = 5;
  family[4].tp = 2, family[4].numLayers = 4;
  family[5].pp = 3;
  family[6].dp = 2, family[6].pp = 2, family[6].tp = 2, family[6].numLayers = 4;
  for (const MlpOptions &o : family) {
    SCOPED_TRACE("dp " + std::to_string(o.dp) + " tp " + std::to_string(o.tp) + " pp " +
                 std::to_string(o.pp) + " zero " + std::to_string(o.zero));
    Program program = programOf(o);
    FakeDriver driver(optionsFor(program, 1));
    FakeNccl nccl(driver);
    writeKernelsOf(driver, program);
    expectEqual(onGpus(program, o, residues()),
                trainReference(program, o, residues().numSteps, Arith::Residue251));
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_THAT(driver.leaks(), IsEmpty());
    EXPECT_EQ(nccl.numAlive(), 0);
    EXPECT_EQ(driver.numCalls("cuLaunchKernel"), 0);
    EXPECT_GT(driver.numCalls("cuMemcpyHtoDAsync_v2"), 0);
  }
}

TEST_F(CudaResiduesTest, AMissingEventShows) {
  MlpOptions o = mlp(); // one rank, because others would wait for a failed rank
  Program program = programOf(o);
  FakeOptions options = optionsFor(program, 1);
  options.ignoresWaits = true;
  FakeDriver driver(options);
  FakeNccl nccl(driver);
  writeKernelsOf(driver, program);
  onGpus(program, o, residues());
  EXPECT_THAT(driver.complaints(), Not(IsEmpty()));
}

TEST_F(CudaResiduesTest, TheyAreNoGraphs) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  FakeDriver driver(optionsFor(program, 1));
  FakeNccl nccl(driver);
  writeKernelsOf(driver, program);
  Setting setting = residues();
  setting.graphs = GraphUse::On;
  Outcome outcome = onGpus(program, o, setting);
  ASSERT_FALSE(outcome[0]);
  EXPECT_EQ(outcome[0].error().code, ErrorCode::Usage);
  EXPECT_THAT(outcome[0].error().message, HasSubstr("--cuda-graphs on"));
}

TEST_F(CudaResiduesTest, OtherArithmeticsAreRefused) {
  MlpOptions o = mlp();
  Program program = programOf(o);
  FakeDriver driver(optionsFor(program, 1));
  FakeNccl nccl(driver);
  writeKernelsOf(driver, program);
  for (Arith arith : {Arith::F64, Arith::Residue61}) {
    Setting setting;
    setting.arith = arith;
    Outcome outcome = onGpus(program, o, setting);
    ASSERT_FALSE(outcome[0]);
    EXPECT_EQ(outcome[0].error().code, ErrorCode::Usage);
  }
}

} // namespace
} // namespace tbc::test
