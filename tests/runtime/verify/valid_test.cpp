//===- valid_test.cpp - No false alarm -------------------------------------===//

#include "runtime/exec/SimulatedCluster.h"
#include "runtime/verify/Verify.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/support/HostSlots.h"
#include "tests/runtime/support/RandomProgram.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using kernels::Arith;
using kernels::Tensor;

TEST(Verify, AcceptsRandomValidPrograms) {
  int64_t numInstructions = 0;
  int numWithChunks = 0, numParted = 0, numOnHost = 0;
  int n = test::sampleSize(2000, 5000);
  for (int seed = 0; seed < n; ++seed) {
    RandomProgramOptions options;
    options.seed = unsigned(seed);
    Program program = randomProgram(options);
    std::mt19937 random{unsigned(seed)};
    numOnHost += seed % 2 ? moveToHost(program, random) : 0;
    Status status = verifyProgram(program);
    ASSERT_TRUE(status) << "seed " << seed << ": " << status.error().message << "\n"
                        << show(program);
    for (const Stage &stage : program.stages)
      for (BlockId id : stage.blocks())
        numInstructions += int64_t(stage.block(id).instructions.size());
    numWithChunks += !program.schedule.chunkStage.empty();
    numParted += std::any_of(program.stages.begin(), program.stages.end(), [](const Stage &stage) {
      return !stage.chunks[0].weight.instructions.empty();
    });
  }
  std::printf("%d programs of %lld instructions on average, %d with virtual stages, %d with weight "
              "parts\n",
              n, (long long)numInstructions / n, numWithChunks, numParted);
  EXPECT_GT(numWithChunks, n / 10);
  EXPECT_GT(numParted, n / 10);
  EXPECT_GT(numOnHost, n);
}

/// Returns small integers, so that sums are exact.
Tensor someTensor(const kernels::TensorType &type, unsigned seed, Arith arith) {
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    values.push_back(double(int((seed * 7 + unsigned(i) * 13) % 5)) - 2);
  return Tensor::fromDoubles(type, arith, values);
}

/// Checks that random programs are valid: they run to the end, and the replicas of every tensor are
/// equal after two steps in residues.
TEST(Verify, RandomValidProgramsRun) {
  int n = test::sampleSize(60, 500);
  for (int seed = 0; seed < n; ++seed) {
    RandomProgramOptions options;
    options.seed = unsigned(seed), options.maxRanks = 12;
    Program program = randomProgram(options);
    std::mt19937 random{unsigned(seed)};
    if (seed % 2)
      moveToHost(program, random);
    auto cluster = runtime::SimulatedCluster::create(program, {Arith::Residue61});
    ASSERT_TRUE(cluster) << cluster.error().message;
    Status loaded = cluster->load([&](const std::string &name) {
      return someTensor(program.tensors[program.tensorIndex(name)].type, unsigned(name.size()) + 1,
                        Arith::Residue61);
    });
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (int step = 1; step <= 2; ++step) {
      runtime::StepInputs inputs;
      inputs.learningRate = 0.5;
      for (int64_t m = 0; m < program.microBatches; ++m) {
        auto &batch = inputs.microBatches.emplace_back();
        for (const char *name : {"x", "t"})
          batch[name] = someTensor(program.tensors[program.tensorIndex(name)].type, unsigned(m) + 3,
                                   Arith::Residue61);
      }
      auto loss = cluster->step(inputs);
      ASSERT_TRUE(loss) << "seed " << seed << ": " << loss.error().message << "\n" << show(program);
    }
    for (const GlobalTensor &tensor : program.tensors) {
      if (tensor.role == Role::Input)
        continue;
      auto gathered = cluster->gather(tensor.name);
      ASSERT_TRUE(gathered) << "seed " << seed << ": " << gathered.error().message;
    }
  }
}

} // namespace
} // namespace tbc::verify
