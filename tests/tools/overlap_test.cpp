//===- overlap_test.cpp - Overlap of communication with kernels -----------===//
//
// Compiled Programs begin gathers ahead of their use and reduce gradients beside the backward. The
// checkers refuse a use before its wait. sweep_test and random_graphs_test check that results stay
// the same.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Order.h"
#include "runtime/verify/Verify.h"
#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;
using program::Block;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;
using Kind = schedule::Action::Kind;

namespace {

driver::CompiledPlan compiled(const test::Model &model, const test::PlanRequest &request) {
  auto plan = test::makePlan(model, request);
  EXPECT_TRUE(plan) << plan.error().message;
  auto result = driver::compilePlan(*model.step, *plan);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(driver::countInstructions(result->program), result->predicted);
  return std::move(*result);
}

/// Parameters are gathered one by one unless there is a `gatherSize`.
test::PlanRequest overlapping(const char *mesh, const char *strategy, const char *bucketSize,
                              const char *prefetch, int64_t microBatch = 1,
                              const char *gatherSize = "none") {
  test::PlanRequest request{mesh, strategy, "", "none", microBatch};
  request.bucketSize = bucketSize;
  request.prefetch = prefetch;
  request.gatherSize = gatherSize;
  return request;
}

bool reads(const Instruction &reader, const Instruction &maker) {
  return std::any_of(maker.results.begin(), maker.results.end(), [&](program::ValueId made) {
    return std::count(reader.operands.begin(), reader.operands.end(), made) > 0;
  });
}

/// Returns the number of kernels of `block` that may run while its instruction `index` is in
/// flight.
int kernelsBeside(const Block &block, size_t index) {
  memory::StreamOrder order(streamStepsOf(block));
  int count = 0;
  for (size_t i = index + 1; i < block.instructions.size(); ++i)
    count += block.instructions[i].kind == InstructionKind::Kernel &&
             !order.isBefore(int(index), int(i));
  return count;
}

/// Returns, per gather of a forward block, the number of kernels that may run beside it.
std::vector<int> besideGathers(const program::Program &program) {
  std::vector<int> beside;
  const Block &block = program.stages[0].block({Kind::Forward, 0});
  for (size_t i = 0; i < block.instructions.size(); ++i)
    if (block.instructions[i].kind == InstructionKind::AllGather)
      beside.push_back(kernelsBeside(block, i));
  return beside;
}

TEST(Overlap, GathersRunBesideTheKernelsBefore) {
  test::Model model = test::loadModel("tiny-gpt2");
  int64_t before = 0;
  for (const char *prefetch : {"none", "1", "3"}) {
    std::vector<int> beside =
        besideGathers(compiled(model, overlapping("fsdp=2", "zero3", "auto", prefetch)).program);
    ASSERT_GT(beside.size(), 8u);
    auto hidden = std::count_if(beside.begin(), beside.end(), [](int n) { return n > 0; });
    int64_t kernels = 0;
    for (int n : beside)
      kernels += n;
    // The first gather of a block has no kernel before it, and two may be of one op.
    if (std::string(prefetch) == "none")
      EXPECT_LT(hidden, int64_t(beside.size()) / 4) << "a gather right before its use";
    else
      EXPECT_GT(hidden, int64_t(beside.size()) * 3 / 4) << prefetch;
    EXPECT_GE(kernels, 2 * before) << prefetch;
    before = kernels;
  }
}

TEST(Overlap, JointGathersRunBesideTheKernelsOfTheBlockBefore) {
  test::Model model = test::loadModel("tiny-gpt2");
  size_t before = 1000;
  // Of 471 KiB of parameters, 195 KiB in a layer: small ones, a part of a layer, all.
  for (const char *gatherSize : {"8KiB", "48KiB", "1GiB"}) {
    const program::Program program =
        compiled(model, overlapping("fsdp=2", "zero3", "auto", "1", 1, gatherSize)).program;
    Status valid = verify::verifyProgram(program);
    ASSERT_TRUE(valid) << valid.error().message;
    std::vector<int> beside = besideGathers(program);
    EXPECT_LT(beside.size(), before) << gatherSize;
    before = beside.size();
    // All but the first of the block have kernels before them.
    EXPECT_EQ(std::count(beside.begin(), beside.end(), 0), 1) << gatherSize;
  }
  EXPECT_EQ(before, 1u);
}

class GatherWaits : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GatherWaits, testing::Values("none", "8KiB"));

TEST_P(GatherWaits, AGatherIsNotUsedBeforeItsWait) {
  test::Model model = test::loadModel("tiny-gpt2");
  program::Program right =
      compiled(model, overlapping("fsdp=2", "zero3", "auto", "2", 1, GetParam())).program;
  Status valid = verify::verifyProgram(right);
  ASSERT_TRUE(valid) << valid.error().message;
  int mutants = 0;
  for (BlockId id : right.stages[0].blocks()) {
    const Block &block = right.stages[0].block(id);
    for (size_t i = 0; i < block.instructions.size(); ++i)
      for (size_t w = 0; w < block.instructions[i].waits.size(); ++w) {
        const Instruction &gather = block.instructions[size_t(block.instructions[i].waits[w])];
        if (gather.kind != InstructionKind::AllGather || !reads(block.instructions[i], gather))
          continue;
        program::Program wrong = right;
        Instruction &reader = wrong.stages[0].block(id).instructions[i];
        reader.waits.erase(reader.waits.begin() + long(w));
        Status formed = checkWellFormed(wrong);
        ASSERT_TRUE(formed) << formed.error().message;
        Status status = verify::verifyProgram(wrong);
        ASSERT_FALSE(status) << "survived: " << reader.id;
        EXPECT_THAT(status.error().message, testing::HasSubstr(reader.id));
        ++mutants;
      }
  }
  EXPECT_GT(mutants, 8);
}

/// Returns the number of collectives of a block with more than one tensor.
int numJoint(const Block &block) {
  return int(
      std::count_if(block.instructions.begin(), block.instructions.end(), [](const Instruction &i) {
        return i.kind != InstructionKind::Kernel && i.operands.size() > 1;
      }));
}

int numReductions(const Block &block) {
  return int(
      std::count_if(block.instructions.begin(), block.instructions.end(), [](const Instruction &i) {
        return i.kind == InstructionKind::AllReduce || i.kind == InstructionKind::ReduceScatter;
      }));
}

TEST(Overlap, OneMicroBatchIsReducedBesideItsBackward) {
  test::Model model = test::loadModel("tiny-gpt2");
  for (const char *strategy : {"ddp", "zero1"}) {
    program::Program program =
        compiled(model, overlapping("dp=2", strategy, "16KiB", "none", /*microBatch=*/4)).program;
    const Block &backward = program.stages[0].block({Kind::Backward, 0});
    EXPECT_GT(numJoint(backward), 2) << strategy;
    int beside = 0;
    for (size_t i = 0; i < backward.instructions.size(); ++i)
      if (backward.instructions[i].kind != InstructionKind::Kernel)
        beside += kernelsBeside(backward, i) > 0;
    EXPECT_GE(beside, numReductions(backward) - 2) << strategy << ": all but the last ones";
    // The embedding, tied to the last layer, and the scalars of the step.
    EXPECT_LE(numReductions(program.stages[0].update), 2) << strategy;
  }
}

TEST(Overlap, SeveralMicroBatchesAreReducedOnce) {
  test::Model model = test::loadModel("tiny-gpt2");
  for (const char *strategy : {"ddp", "zero1"}) {
    program::Program program =
        compiled(model, overlapping("dp=2", strategy, "16KiB", "none", /*microBatch=*/2)).program;
    EXPECT_EQ(numReductions(program.stages[0].block({Kind::Backward, 0})), 0) << strategy;
    const Block &last = program.stages[0].block({Kind::LastBackward, 0});
    EXPECT_GT(numJoint(last), 2) << strategy;
    int beside = 0;
    for (size_t i = 0; i < last.instructions.size(); ++i)
      if (last.instructions[i].kind != InstructionKind::Kernel)
        beside += kernelsBeside(last, i) > 0;
    EXPECT_GE(beside, numReductions(last) - 2) << strategy << ": all but the last ones";
    EXPECT_LE(numReductions(program.stages[0].update), 1) << strategy << ": the step's scalars";
  }
}

/// The first stage reduces in its last backward, the second one in its update: it waits there for
/// the first.
TEST(Overlap, StagesReduceBeforeTheStepEnds) {
  test::Model model = test::loadModel("tiny-gpt2");
  test::PlanRequest request = overlapping("dp=2,pp=2", "zero1", "16KiB", "none", /*microBatch=*/2);
  request.schedule = "1f1b";
  program::Program program = compiled(model, request).program;
  EXPECT_TRUE(program.stages[0].chunks[0].hasLastBackward());
  EXPECT_GT(numReductions(program.stages[0].block({Kind::LastBackward, 0})), 2);
  EXPECT_FALSE(program.stages[1].chunks[0].hasLastBackward());
  EXPECT_EQ(numReductions(program.stages[1].block({Kind::Backward, 0})), 0);
  EXPECT_GT(numReductions(program.stages[1].update), 2);
}

} // namespace
