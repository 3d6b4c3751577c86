//===- plan_memory_test.cpp - Memory plans: valid, used, and checked --------===//

#include "codegen/AssignStreams.h"
#include "codegen/PlanMemory.h"
#include "runtime/cpu/NativeMachine.h"
#include "runtime/exec/SimulatedCluster.h"
#include "runtime/memory/Arena.h"
#include "runtime/verify/Verify.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/support/HostSlots.h"
#include "tests/runtime/support/MlpProgram.h"
#include "tests/runtime/support/RandomProgram.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tbc {
namespace {

using namespace tbc::program;
using kernels::Arith;
using kernels::Tensor;

Program plannedProgram(unsigned seed, int64_t maxRanks = 48, bool usesHost = false) {
  RandomProgramOptions options;
  options.seed = seed;
  options.maxRanks = maxRanks;
  Program program = randomProgram(options);
  std::mt19937 random(seed);
  if (usesHost)
    moveToHost(program, random);
  if (seed / 2 % 2 != 0) // half of the programs with host slots, and half of the others
    assignStreams(program);
  planMemory(program);
  return program;
}

//===----------------------------------------------------------------------===//
// The checker
//===----------------------------------------------------------------------===//

TEST(PlanMemory, PlansOfRandomProgramsAreValid) {
  int n = test::sampleSize(500, 5000);
  for (int seed = 0; seed < n; ++seed) {
    Program program = plannedProgram(unsigned(seed), 48, seed % 2);
    ASSERT_FALSE(program.stages[0].memory.isEmpty());
    Status status = verify::verifyProgram(program);
    ASSERT_TRUE(status) << "seed " << seed << ": " << status.error().message << "\n"
                        << show(program);
  }
}

TEST(PlanMemory, SurvivesWritingAndReading) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Program program = plannedProgram(seed, 48, seed % 2);
    std::string text = writeProgram(program);
    auto read = readProgram(text);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(writeProgram(*read), text);
    for (size_t s = 0; s < program.stages.size(); ++s) {
      EXPECT_EQ(read->stages[s].memory.arenaBytes, program.stages[s].memory.arenaBytes);
      EXPECT_EQ(read->stages[s].memory.hostArenaBytes, program.stages[s].memory.hostArenaBytes);
      for (size_t i = 0; i < program.stages[s].slots.size(); ++i)
        EXPECT_EQ(read->stages[s].slots[i].location, program.stages[s].slots[i].location);
      EXPECT_EQ(read->stages[s].memory.slots, program.stages[s].memory.slots);
      EXPECT_EQ(read->stages[s].memory.values, program.stages[s].memory.values);
    }
  }
}

/// One kind of damage at a random place. Returns false if the program has no suitable place. The
/// rejection must contain one of `what`.
struct Damage {
  const char *name;
  bool (*apply)(Program &program, std::mt19937 &random, std::vector<std::string> &what);
};
void PrintTo(const Damage &damage, std::ostream *out) { *out << damage.name; }

Stage &someStage(Program &program, std::mt19937 &random) {
  return program.stages[random() % program.stages.size()];
}

std::string inQuotes(const std::string &name) { return "\"" + name + "\""; }

/// Returns the values of a block outside of slots, with the index of their instruction.
std::vector<std::pair<ValueId, size_t>> ownValues(const Stage &stage, const Block &block) {
  std::vector<std::pair<ValueId, size_t>> values;
  for (size_t i = 0; i < block.instructions.size(); ++i)
    for (ValueId value : block.instructions[i].results)
      if (stage.memory.values[value].slot < 0 && sizeBytes(stage.values[value]) > 0)
        values.push_back({value, i});
  return values;
}

BlockId someBlock(const Stage &stage, std::mt19937 &random) {
  std::vector<BlockId> ids = stage.blocks();
  return ids[random() % ids.size()];
}

/// Moves a value onto an operand of its own instruction.
bool overlapOperand(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  const Block &block = stage.block(someBlock(stage, random));
  std::vector<std::pair<ValueId, ValueId>> pairs;
  for (auto [value, index] : ownValues(stage, block))
    for (ValueId operand : block.instructions[index].operands)
      if (stage.memory.values[operand].slot < 0 && sizeBytes(stage.values[operand]) > 0)
        pairs.push_back({value, operand});
  if (pairs.empty())
    return false;
  auto [value, operand] = pairs[random() % pairs.size()];
  stage.memory.values[value].offset = stage.memory.values[operand].offset;
  stage.memory.arenaBytes *= 2; // keeps every offset within the arena
  what = {"%" + std::to_string(value) + " "};
  return true;
}

/// Moves a value onto a permanent slot.
bool overlapSlot(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  auto values = ownValues(stage, stage.block(someBlock(stage, random)));
  std::vector<int> slots;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame < 0)
      slots.push_back(int(i));
  if (values.empty() || slots.empty())
    return false;
  ValueId value = values[random() % values.size()].first;
  int slot = slots[random() % slots.size()];
  stage.memory.values[value].offset = stage.memory.slots[slot].offset;
  stage.memory.arenaBytes *= 2;
  what = {"%" + std::to_string(value) + " ", inQuotes(stage.slots[slot].name)};
  return true;
}

/// Moves a permanent slot onto another.
bool overlapSlots(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  std::vector<int> slots;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame < 0)
      slots.push_back(int(i));
  std::shuffle(slots.begin(), slots.end(), random);
  if (slots.size() < 2)
    return false;
  stage.memory.slots[slots[0]].offset = stage.memory.slots[slots[1]].offset;
  stage.memory.arenaBytes *= 2;
  what = {inQuotes(stage.slots[slots[0]].name), inQuotes(stage.slots[slots[1]].name)};
  return true;
}

/// Moves a permanent host slot onto another.
bool overlapOnHost(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  program = plannedProgram(unsigned(random()), 48, /*usesHost=*/true);
  Stage &stage = someStage(program, random);
  std::vector<int> slots;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame < 0 && stage.slots[i].location == Location::Host)
      slots.push_back(int(i));
  if (slots.size() < 2)
    return false;
  stage.memory.slots[slots[0]].offset = stage.memory.slots[slots[1]].offset;
  stage.memory.hostArenaBytes *= 2;
  what = {inQuotes(stage.slots[slots[0]].name), inQuotes(stage.slots[slots[1]].name)};
  return true;
}

/// Moves a frame on the host onto a permanent slot.
bool overlapFrameOnHost(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  program = plannedProgram(unsigned(random()), 48, /*usesHost=*/true);
  Stage &stage = someStage(program, random);
  int lasting = -1, inFrame = -1;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.slots[i].location == Location::Host)
      (stage.memory.slots[i].frame < 0 ? lasting : inFrame) = int(i);
  if (lasting < 0 || inFrame < 0)
    return false;
  Frame &frame = stage.memory.frames[stage.memory.slots[inFrame].frame];
  std::fill(frame.offsets.begin(), frame.offsets.end(), stage.memory.slots[lasting].offset);
  stage.memory.hostArenaBytes *= 4;
  what = {inQuotes(stage.slots[lasting].name)};
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame == stage.memory.slots[inFrame].frame)
      what.push_back(inQuotes(stage.slots[i].name));
  return true;
}

/// Moves a slot of a frame onto another of the same frame.
bool overlapInFrame(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  std::map<int, std::vector<int>> byFrame;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame >= 0)
      byFrame[stage.memory.slots[i].frame].push_back(int(i));
  for (auto &[frame, slots] : byFrame) {
    if (slots.size() < 2)
      continue;
    std::shuffle(slots.begin(), slots.end(), random);
    stage.memory.slots[slots[0]].offset = stage.memory.slots[slots[1]].offset;
    stage.memory.frames[frame].bytes *= 2;
    what = {inQuotes(stage.slots[slots[0]].name), inQuotes(stage.slots[slots[1]].name)};
    stage.memory.arenaBytes *= 4;
    return true;
  }
  return false;
}

/// Returns whether a ring of `count` instances is too short: two micro-batches in flight at once,
/// with reads of `frame`, are equal mod `count`. Example: 0 and 2 collide for `count` = 2.
bool meetsItself(const Program &program, int stageIndex, int frame, int64_t count) {
  const Stage &stage = program.stages[stageIndex];
  std::map<int64_t, std::pair<int64_t, int64_t>> spans; // first action and last reading action
  int64_t time = 0;
  for (const schedule::Action &action : actionsOf(program, stageIndex)) {
    const Block &block = stage.block(BlockId(action));
    auto isIn = [&](const auto &end) { return stage.memory.slots[end.slot].frame == frame; };
    bool reads = std::any_of(block.arguments.begin(), block.arguments.end(), isIn);
    bool writes = std::any_of(block.results.begin(), block.results.end(), isIn);
    if ((reads || writes) && action.kind != schedule::Action::Kind::Update) {
      auto &span = spans.emplace(action.microBatch, std::make_pair(time, -1)).first->second;
      span.second = reads ? time : span.second;
    }
    ++time;
  }
  for (const auto &[a, one] : spans)
    for (const auto &[b, other] : spans)
      if (a < b && a % count == b % count && one.first < other.second && other.first < one.second)
        return true;
  return false;
}

/// Gives a ring one instance less than the micro-batches in flight.
bool shortenRing(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  int stageIndex = int(&stage - program.stages.data());
  std::vector<size_t> rings;
  for (size_t f = 0; f < stage.memory.frames.size(); ++f)
    if (stage.memory.frames[f].offsets.size() > 1 && stage.memory.frames[f].bytes > 0 &&
        meetsItself(program, stageIndex, int(f),
                    int64_t(stage.memory.frames[f].offsets.size()) - 1))
      rings.push_back(f);
  if (rings.empty())
    return false;
  size_t frame = rings[random() % rings.size()];
  stage.memory.frames[frame].offsets.pop_back();
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame == int(frame))
      what.push_back(inQuotes(stage.slots[i].name));
  return true;
}

/// Moves an instance of a frame onto values.
bool moveInstance(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  if (stage.memory.frames.empty())
    return false;
  size_t frame = random() % stage.memory.frames.size();
  std::vector<int> slots;
  for (size_t i = 0; i < stage.slots.size(); ++i)
    if (stage.memory.slots[i].frame == int(frame))
      slots.push_back(int(i));
  if (slots.empty() || stage.memory.frames[frame].bytes == 0)
    return false;
  // The frame is live while a block with its slots runs.
  for (BlockId id : stage.blocks()) {
    const Block &block = stage.block(id);
    bool uses = false;
    for (const Argument &argument : block.arguments)
      uses |= std::count(slots.begin(), slots.end(), argument.slot) > 0;
    auto values = ownValues(stage, block);
    if (!uses || values.empty())
      continue;
    ValueId value = values[random() % values.size()].first;
    std::vector<int64_t> &offsets = stage.memory.frames[frame].offsets;
    offsets[random() % offsets.size()] = stage.memory.values[value].offset;
    stage.memory.arenaBytes += stage.memory.frames[frame].bytes;
    for (int slot : slots)
      what.push_back(inQuotes(stage.slots[slot].name));
    return true;
  }
  return false;
}

/// Computes a value that is not a result of the block in a slot of its type.
bool computeInSlot(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  const Block &block = stage.block(someBlock(stage, random));
  std::vector<std::pair<ValueId, int>> pairs;
  for (auto [value, index] : ownValues(stage, block)) {
    (void)index;
    bool isResult = std::any_of(block.results.begin(), block.results.end(),
                                [&, v = value](const BlockResult &r) { return r.value == v; });
    for (size_t slot = 0; !isResult && slot < stage.slots.size(); ++slot)
      if (stage.slots[slot].type == stage.values[value])
        pairs.push_back({value, int(slot)});
  }
  if (pairs.empty())
    return false;
  auto [value, slot] = pairs[random() % pairs.size()];
  stage.memory.values[value].slot = slot;
  what = {"%" + std::to_string(value) + " ", inQuotes(stage.slots[slot].name)};
  return true;
}

/// Computes an update result in its slot before the last read of the old value.
bool computeTooSoon(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  std::map<int, size_t> lastRead; // by slot
  for (size_t i = 0; i < stage.update.instructions.size(); ++i)
    for (ValueId operand : stage.update.instructions[i].operands)
      for (const Argument &argument : stage.update.arguments)
        if (argument.value == operand)
          lastRead[argument.slot] = i;
  std::vector<std::pair<ValueId, int>> pairs;
  for (const BlockResult &result : stage.update.results)
    for (size_t i = 0; i < stage.update.instructions.size(); ++i)
      for (ValueId value : stage.update.instructions[i].results)
        if (value == result.value && !result.accumulate && lastRead.count(result.slot) &&
            (lastRead[result.slot] > i ||
             (lastRead[result.slot] == i && !mayOverwriteOperands(stage.update.instructions[i]))))
          pairs.push_back({value, result.slot});
  if (pairs.empty())
    return false;
  auto [value, slot] = pairs[random() % pairs.size()];
  stage.memory.values[value].slot = slot;
  what = {"%" + std::to_string(value) + " "};
  return true;
}

/// Moves an argument away from its slot.
bool moveArgument(Program &program, std::mt19937 &random, std::vector<std::string> &what) {
  Stage &stage = someStage(program, random);
  const Block &block = stage.block(someBlock(stage, random));
  if (block.arguments.empty())
    return false;
  const Argument &argument = block.arguments[random() % block.arguments.size()];
  stage.memory.values[argument.value].slot = -1;
  what = {inQuotes(stage.slots[argument.slot].name)};
  return true;
}

class DamagedPlan : public testing::TestWithParam<Damage> {};

TEST_P(DamagedPlan, IsRejectedWithItsPlace) {
  std::mt19937 random(3);
  int count = 0, wanted = test::sampleSize(60, 250);
  for (int i = 0; i < 60 * wanted && count < wanted && !HasFailure(); ++i) {
    Program program = plannedProgram(unsigned(random()));
    std::vector<std::string> what;
    if (!GetParam().apply(program, random, what))
      continue;
    ++count;
    Status formed = checkWellFormed(program);
    ASSERT_TRUE(formed) << "the damage is not the checker's to find: " << formed.error().message;
    Status status = verify::checkMemory(program);
    ASSERT_FALSE(status) << "survived: " << testing::PrintToString(what) << "\n" << show(program);
    const std::string &message = status.error().message;
    bool isNamed = std::any_of(what.begin(), what.end(), [&](const std::string &name) {
      return message.find(name) != std::string::npos;
    });
    EXPECT_TRUE(isNamed) << message << "\nnames none of " << testing::PrintToString(what);
  }
  EXPECT_EQ(count, wanted);
}

const Damage damages[] = {{"OverlapOperand", overlapOperand},
                          {"OverlapSlot", overlapSlot},
                          {"OverlapSlots", overlapSlots},
                          {"OverlapInFrame", overlapInFrame},
                          {"ShortenRing", shortenRing},
                          {"MoveInstance", moveInstance},
                          {"ComputeInSlot", computeInSlot},
                          {"ComputeTooSoon", computeTooSoon},
                          {"MoveArgument", moveArgument},
                          {"OverlapOnHost", overlapOnHost},
                          {"OverlapFrameOnHost", overlapFrameOnHost}};
INSTANTIATE_TEST_SUITE_P(, DamagedPlan, testing::ValuesIn(damages),
                         [](const auto &info) { return std::string(info.param.name); });

/// The reader checks bounds.
TEST(PlanMemory, BoundsAreChecked) {
  Program program = plannedProgram(1);
  auto expectMalformed = [&](const char *what, auto damage) {
    Program bad = program;
    damage(bad.stages[0].memory);
    Status status = checkWellFormed(bad);
    ASSERT_FALSE(status) << what;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_NE(status.error().message.find("memory plan"), std::string::npos);
  };
  expectMalformed("short arena", [](MemoryPlan &plan) { plan.arenaBytes -= 256; });
  expectMalformed("short lists", [](MemoryPlan &plan) { plan.values.pop_back(); });
  expectMalformed("odd offset", [](MemoryPlan &plan) { plan.slots[0].offset += 1; });
  expectMalformed("negative offset", [](MemoryPlan &plan) { plan.slots[0].offset = -256; });
  expectMalformed("no such frame", [](MemoryPlan &plan) { plan.slots[0].frame = 99; });
  expectMalformed("no such slot", [](MemoryPlan &plan) { plan.values[0].slot = 9999; });
  expectMalformed("no offsets", [](MemoryPlan &plan) { plan.frames.at(0).offsets.clear(); });
  expectMalformed("huge", [](MemoryPlan &plan) { plan.arenaBytes = int64_t(1) << 60; });
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

Tensor someTensor(const kernels::TensorType &type, unsigned seed, Arith arith) {
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    values.push_back(double(int((seed * 7 + unsigned(i) * 13) % 5)) - 2);
  return Tensor::fromDoubles(type, arith, values);
}

/// Returns the state after two training steps, or the error.
Result<std::map<std::string, Tensor>>
train(const Program &program, Arith arith,
      const runtime::MachineMaker &machine = runtime::makeReferenceMachine) {
  auto cluster =
      runtime::SimulatedCluster::create(program, {arith, std::chrono::seconds(20), machine});
  if (!cluster)
    return cluster.error();
  Status loaded = cluster->load([&](const std::string &name) {
    return someTensor(program.tensors[program.tensorIndex(name)].type, unsigned(name.size()) + 1,
                      arith);
  });
  if (!loaded)
    return loaded.error();
  std::map<std::string, Tensor> outcome;
  for (int step = 1; step <= 2; ++step) {
    runtime::StepInputs inputs;
    inputs.learningRate = 0.5;
    for (int64_t m = 0; m < program.microBatches; ++m) {
      auto &batch = inputs.microBatches.emplace_back();
      for (const char *name : {"x", "t"})
        batch[name] =
            someTensor(program.tensors[program.tensorIndex(name)].type, unsigned(m) + 3, arith);
    }
    auto loss = cluster->step(inputs);
    if (!loss)
      return loss.error();
    outcome["loss " + std::to_string(step)] = *loss;
  }
  for (const GlobalTensor &tensor : program.tensors) {
    if (tensor.role == Role::Input)
      continue;
    auto gathered = cluster->gather(tensor.name);
    if (!gathered)
      return gathered.error();
    outcome[tensor.name] = *gathered;
  }
  return outcome;
}

bool areEqual(const std::map<std::string, Tensor> &a, const std::map<std::string, Tensor> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
    return x.first == y.first && bool(x.second) == bool(y.second) &&
           (!x.second || bitwiseEqual(x.second, y.second));
  });
}

TEST(PlanMemory, ProgramsComputeTheSameInAnArena) {
  int n = test::sampleSize(30, 300);
  for (int seed = 0; seed < n; ++seed)
    for (Arith arith : {Arith::Native, Arith::F64, Arith::Residue61}) {
      Program planned = plannedProgram(unsigned(seed), 8, seed % 2), plain = planned;
      if (seed % 2) // values saved on the host are the same
        plain = plannedProgram(unsigned(seed), 8);
      for (Stage &stage : plain.stages)
        stage.memory = {};
      auto a = train(plain, arith), b = train(planned, arith);
      ASSERT_TRUE(a) << a.error().message;
      ASSERT_TRUE(b) << b.error().message;
      ASSERT_TRUE(areEqual(*a, *b)) << "seed " << seed << "\n" << show(planned);
    }
}

/// Concurrent communication, on its own thread, does not change the results of native kernels.
TEST(PlanMemory, NativeKernelsComputeTheSameBesideCommunication) {
  int n = test::sampleSize(30, 300);
  for (int seed = 0; seed < n; ++seed) {
    RandomProgramOptions options;
    options.seed = unsigned(seed);
    options.maxRanks = 8;
    Program inOrder = randomProgram(options), beside = inOrder;
    assignStreams(beside);
    planMemory(inOrder);
    planMemory(beside);
    auto a = train(inOrder, Arith::Native, cpu::nativeMachine({}));
    auto b = train(beside, Arith::Native, cpu::nativeMachine({}));
    ASSERT_TRUE(a) << a.error().message;
    ASSERT_TRUE(b) << b.error().message;
    ASSERT_TRUE(areEqual(*a, *b)) << "seed " << seed << "\n" << show(beside);
  }
}

/// If two live values share bytes, results differ or the run fails. So the arena is really used.
TEST(PlanMemory, AWrongPlanShowsInTheResults) {
  std::mt19937 random(11);
  int wrong = 0, shown = 0;
  for (int i = 0; i < 400 && wrong < 40; ++i) {
    Program good = plannedProgram(unsigned(random()), 8), bad = good;
    std::vector<std::string> what;
    if (!(i % 2 ? overlapOperand : shortenRing)(bad, random, what))
      continue;
    ++wrong;
    auto a = train(good, Arith::Residue61), b = train(bad, Arith::Residue61);
    ASSERT_TRUE(a) << a.error().message;
    shown += !b || !areEqual(*a, *b);
  }
  EXPECT_EQ(wrong, 40);
  // Overwriting an operand after its last read does no harm. So not every wrong plan shows.
  EXPECT_GE(shown, 10) << shown << " of " << wrong;
}

//===----------------------------------------------------------------------===//
// Quality of plans
//===----------------------------------------------------------------------===//

/// Under 1F1B stage p of P holds P - p micro-batches. Its frames are rings of this length. Example:
/// stage 1 of 4 has rings of 3.
TEST(PlanMemory, FramesAreRingsOfTheMicroBatchesInFlight) {
  MlpOptions options;
  options.numLayers = 4, options.pp = 4, options.microBatches = 8, options.schedule = "1f1b";
  Program program = mlpProgram(options);
  planMemory(program);
  ASSERT_TRUE(verify::verifyProgram(program));
  for (size_t stage = 0; stage < 4; ++stage) {
    size_t most = 0; // a frame of a single block has one instance
    for (const Frame &frame : program.stages[stage].memory.frames)
      most = std::max(most, frame.offsets.size());
    EXPECT_EQ(most, 4 - stage) << "stage " << stage;
  }
}

/// New parameters and moments overwrite the old ones.
TEST(PlanMemory, UpdatesHappenInPlace) {
  MlpOptions options;
  options.width = 64, options.samples = 8, options.microBatches = 1;
  Program program = mlpProgram(options);
  planMemory(program);
  ASSERT_TRUE(verify::verifyProgram(program));
  const Stage &stage = program.stages[0];
  int inPlace = 0;
  for (const BlockResult &result : stage.update.results)
    inPlace += stage.memory.values[result.value].slot == result.slot;
  EXPECT_GT(inPlace, 0) << show(program);
}

} // namespace
} // namespace tbc
