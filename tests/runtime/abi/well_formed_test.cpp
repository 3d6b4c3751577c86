//===- well_formed_test.cpp - The bounds of a Program ----------------------===//

#include "tests/runtime/support/MlpProgram.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::program {
namespace {

using ::testing::HasSubstr;

Program example() {
  MlpOptions options;
  options.numLayers = 4, options.pp = options.dp = 2, options.zero = 1, options.isTied = true;
  return mlpProgram(options);
}

Instruction &instruction(Program &program, int stage, schedule::Action::Kind kind,
                         InstructionKind wanted) {
  for (Instruction &i : program.stages[stage].block(kind).instructions)
    if (i.kind == wanted)
      return i;
  ADD_FAILURE() << "no such instruction";
  return program.stages[0].chunks[0].forward.instructions[0];
}

/// Returns the index of the first kernel of stage 0's update.
int kernelAt(const Program &program) {
  const std::vector<Instruction> &list = program.stages[0].update.instructions;
  int at = 0;
  while (list[at].kind != InstructionKind::Kernel)
    ++at;
  return at;
}

TEST(WellFormed, AcceptsWhatBuildersBuild) {
  Status status = checkWellFormed(example());
  EXPECT_TRUE(status) << status.error().message;
}

TEST(WellFormed, LastBackwardsAreOfTheLastOfSeveralMicroBatches) {
  using Kind = schedule::Action::Kind;
  MlpOptions options;
  options.dp = 2, options.microBatches = 2, options.reducesLast = true;
  const Program valid = mlpProgram(options);
  ASSERT_TRUE(checkWellFormed(valid));
  auto whyNot = [&](const std::function<void(Program &)> &change) {
    Program program = valid;
    change(program);
    Status status = checkWellFormed(program);
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(whyNot([](Program &p) { p.microBatches = 1; }), HasSubstr("its only micro-batch"));
  EXPECT_THAT(
      whyNot([](Program &p) { p.stages[0].chunks[0].weight = p.stages[0].chunks[0].backward; }),
      HasSubstr("wgrad in a block of its own"));
  EXPECT_THAT(whyNot([](Program &p) { p.schedule = {"table", {{{Kind::LastBackward, 1}}}, {}}; }),
              HasSubstr("the schedule table names a last backward"));
}

TEST(WellFormed, RejectsWhatCannotBeExecuted) {
  using Kind = schedule::Action::Kind;
  struct Case {
    const char *why;
    std::function<void(Program &)> change;
  };
  const Case cases[] = {
      {"1 to 16 axes", [](Program &p) { p.mesh.axes.clear(); }},
      {"is not a word", [](Program &p) { p.mesh.axes[1].name = "d+p"; }},
      {"2 stages, the program has 1", [](Program &p) { p.stages.pop_back(); }},
      {"no axis number 9", [](Program &p) { p.pipelineAxis = 9; }},
      {"micro-batch 5 of 1",
       [](Program &p) {
         p.schedule = {"table", {{{Kind::Forward, 5}}, {{Kind::Forward, 0}}}, {}};
       }},
      {"has a table as well", [](Program &p) { p.schedule.table.resize(2); }},
      {"tensor \"W1\"", [](Program &p) { p.tensors[p.tensorIndex("W1")].type.shape = {6, 7}; }},
      {"\"W1\" is there twice", [](Program &p) { p.tensors[p.tensorIndex("W2")].name = "W1"; }},
      {"only gradients", [](Program &p) { p.tensors[0].partial = {{1, 1, 2}}; }},
      {"from a file", [](Program &p) { p.tensors[0].initializer = "x"; }},
      {"it starts at 2.0", [](Program &p) { p.tensors[0].fill = 2; }},
      {"it starts at inf", [](Program &p) { p.tensors[p.tensorIndex("W0.buf")].fill = INFINITY; }},
      {"is for slots only", [](Program &p) { p.tensors[0].role = Role::Scalar; }},
      {"slot \"x\": its role", [](Program &p) { p.stages[0].slots[0].role = Role::State; }},
      {"its type is 7xf32", [](Program &p) { p.stages[0].slots[0].type.shape = {7}; }},
      {"piece of no tensor", [](Program &p) { p.stages[0].slots[0].tensor = -1; }},
      {"slot \"W0\" is there twice",
       [](Program &p) { p.stages[0].slots.push_back(p.stages[0].slots[1]); }},
      {"known: lr", [](Program &p) { p.stages[0].slots.back().name = "learning_rate"; }},
      {"without dims", [](Program &p) { p.stages[0].slots.back().type.shape = {1}; }},
      {"forward block, arguments",
       [](Program &p) { p.stages[0].chunks[0].forward.arguments[0].slot = 99; }},
      {"forward block, results",
       [](Program &p) { p.stages[0].chunks[0].forward.results[0].value = -3; }},
      {"slot \"x\" is",
       [](Program &p) {
         p.stages[0].chunks[0].forward.arguments[0].slot = 0;
         p.stages[0].values[0].shape = {1};
       }},
      {"no value %-1",
       [](Program &p) { p.stages[0].chunks[0].forward.instructions[0].operands[0] = -1; }},
      {"differ in another dim",
       [](Program &p) {
         Instruction &i = instruction(p, 1, Kind::Update, InstructionKind::AllGather);
         i.comm.dim = 0;
         i.comm.segments = {{1, 3, 1}};
         p.stages[1].values[i.operands[0]].shape = {3, 5};
       }},
      {"do not take dim 0",
       [](Program &p) {
         Instruction &i = instruction(p, 1, Kind::Update, InstructionKind::AllGather);
         i.comm.dim = 0;
         i.comm.segments = {{1, 4, 1}};
         p.stages[1].values[i.operands[0]].shape = {3, 6};
       }},
      {"a chunk of 6x6xf32 over 2 ranks has 18",
       [](Program &p) {
         Instruction &i = instruction(p, 1, Kind::Update, InstructionKind::AllGather);
         p.stages[1].values[i.operands[0]].shape = {17};
       }},
      {"its stages leave out its own",
       [](Program &p) {
         instruction(p, 1, Kind::Update, InstructionKind::AllReduce).comm.stages = {0};
       }},
      {"not ascending stages",
       [](Program &p) {
         instruction(p, 1, Kind::Update, InstructionKind::AllReduce).comm.stages = {1, 0};
       }},
      {"names stages but not the pipeline axis",
       [](Program &p) {
         instruction(p, 1, Kind::Update, InstructionKind::AllReduce).comm.axes = {{1, 1, 2}};
       }},
      {"its result 6x6xbf16",
       [](Program &p) {
         Instruction &i = instruction(p, 1, Kind::Update, InstructionKind::AllReduce);
         p.stages[1].values[i.results[0]].dtype = kernels::DType::BF16;
       }},
      {"no peer",
       [](Program &p) {
         instruction(p, 1, Kind::Forward, InstructionKind::Recv).comm.peerStage = 1;
       }},
      {"update block, region 1: it does not begin behind",
       [](Program &p) {
         p.stages[0].update.regions = {{kernelAt(p), 1, "a", 1}, {kernelAt(p), 1, "b", 1}};
       }},
      {"end within the block",
       [](Program &p) { p.stages[0].update.regions = {{kernelAt(p), 1 << 30, "a", 1}}; }},
      {"is communication",
       [](Program &p) {
         p.stages[0].update.regions = {{0, int(p.stages[0].update.instructions.size()), "a", 1}};
       }},
      {"\"a-b\" is no name of a function",
       [](Program &p) { p.stages[0].update.regions = {{kernelAt(p), 1, "a-b", 1}}; }},
      {"its extent is not between",
       [](Program &p) { p.stages[0].update.regions = {{kernelAt(p), 1, "a", -1}}; }},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(test.why);
    Program program = example();
    test.change(program);
    Status status = checkWellFormed(program);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_THAT(status.error().message, HasSubstr(test.why));
  }
}

} // namespace
} // namespace tbc::program
