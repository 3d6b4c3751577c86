//===- streams_test.cpp - Overlap and order of streams ---------------------===//

#include "codegen/AssignStreams.h"
#include "codegen/PlanMemory.h"
#include "runtime/abi/Order.h"
#include "runtime/memory/Streams.h"
#include "runtime/verify/Verify.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/support/RandomProgram.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tbc {
namespace {

using namespace tbc::program;
using memory::StreamOrder;
using memory::StreamStep;
using memory::StreamUse;

std::vector<StreamStep> randomSteps(std::mt19937 &random, int n, int streams) {
  std::vector<StreamStep> steps(n);
  for (int i = 0; i < n; ++i) {
    steps[i].stream = int(random() % unsigned(streams));
    for (int j = 0; j < i; ++j)
      if (steps[j].stream != steps[i].stream && random() % 6 == 0)
        steps[i].waits.push_back(j);
  }
  return steps;
}

/// The transitive closure of stream order and waits.
TEST(StreamOrder, IsTheTransitiveClosure) {
  std::mt19937 random(1);
  int unordered = 0;
  for (int round = 0; round < 200; ++round) {
    int n = 1 + int(random() % 14);
    std::vector<StreamStep> steps = randomSteps(random, n, 1 + int(random() % 3));
    std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < j; ++i) {
        bool isWaited = std::count(steps[j].waits.begin(), steps[j].waits.end(), i) > 0;
        if (steps[i].stream != steps[j].stream && !isWaited)
          continue;
        before[i][j] = true;
        for (int k = 0; k < i; ++k)
          before[k][j] = before[k][j] || before[k][i];
      }
    StreamOrder order(steps);
    for (int i = 0; i < n; ++i) {
      int settled = i + 1;
      for (int j = i + 1; j < n; ++j) {
        EXPECT_EQ(order.isBefore(i, j), before[i][j]) << i << " before " << j;
        if (!before[i][j])
          settled = j + 1, ++unordered;
      }
      EXPECT_EQ(order.settled(i), settled);
    }
  }
  EXPECT_GT(unordered, 1000);
}

TEST(OverlapCommunication, ReductionsRunBesideWhatFollows) {
  // Two kernels, each followed by an unread reduction of its result; then two more kernels.
  std::vector<StreamUse> uses = {{false, {}}, {true, {0}}, {false, {}},
                                 {true, {2}}, {false, {}}, {false, {4}}};
  std::vector<StreamStep> steps = memory::overlapCommunication(uses);
  EXPECT_EQ(steps[1].waits, std::vector<int>{0});
  EXPECT_TRUE(steps[2].waits.empty()) << "a kernel waits for a reduction";
  EXPECT_EQ(steps[3].waits, std::vector<int>{2});
  EXPECT_EQ(steps[4].waits, std::vector<int>{1}) << "one reduction under way beside the next";
  EXPECT_TRUE(steps[5].waits.empty());
  StreamOrder order(steps);
  EXPECT_EQ(order.settled(1), 3);
  EXPECT_EQ(order.settled(3), 6);
}

TEST(OverlapCommunication, KernelsWaitForWhatTheyRead) {
  // A gather, a kernel that does not read it, a kernel that does, and another one.
  std::vector<StreamUse> uses = {{true, {}}, {false, {}}, {false, {0}}, {false, {0}}};
  std::vector<StreamStep> steps = memory::overlapCommunication(uses);
  EXPECT_TRUE(steps[1].waits.empty());
  EXPECT_EQ(steps[2].waits, std::vector<int>{0});
  EXPECT_TRUE(steps[3].waits.empty()) << "it follows from the one before";
}

Program overlappedProgram(unsigned seed) {
  RandomProgramOptions options;
  options.seed = seed;
  Program program = randomProgram(options);
  assignStreams(program);
  planMemory(program);
  return program;
}

TEST(Streams, RandomProgramsAreValidSideBySide) {
  int n = test::sampleSize(500, 5000), numOverlapped = 0;
  for (int seed = 0; seed < n; ++seed) {
    Program program = overlappedProgram(unsigned(seed));
    Status status = checkWellFormed(program);
    if (status)
      status = verify::verifyProgram(program);
    ASSERT_TRUE(status) << "seed " << seed << ": " << status.error().message << "\n"
                        << show(program);
    for (const Stage &stage : program.stages)
      for (BlockId id : stage.blocks()) {
        StreamOrder order(streamStepsOf(stage.block(id)));
        for (int i = 0; i < int(stage.block(id).instructions.size()); ++i)
          numOverlapped += order.settled(i) > i + 1;
      }
    auto read = readProgram(writeProgram(program));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(writeProgram(*read), writeProgram(program));
  }
  EXPECT_GT(numOverlapped, n) << "nothing runs beside anything";
}

/// A damaged program, and the instruction or value named by the rejection.
struct Damaged {
  Program program;
  std::string name;
};

/// Removes the wait of an instruction for a value it reads.
bool dropWait(Damaged &damaged, std::mt19937 &random) {
  std::vector<std::pair<Instruction *, int>> sites; // with the index of the wait
  for (Stage &stage : damaged.program.stages)
    for (BlockId id : stage.blocks()) {
      Block &block = stage.block(id);
      for (Instruction &instruction : block.instructions)
        for (int w = 0; w < int(instruction.waits.size()); ++w)
          for (ValueId made : block.instructions[instruction.waits[w]].results)
            if (std::count(instruction.operands.begin(), instruction.operands.end(), made))
              sites.push_back({&instruction, w});
    }
  if (sites.empty())
    return false;
  auto [instruction, w] = sites[random() % sites.size()];
  damaged.name = "\"" + instruction->id + "\"";
  instruction->waits.erase(instruction->waits.begin() + w);
  return true;
}

/// Moves a kernel's result onto an operand of a collective still in progress.
bool reuseTooSoon(Damaged &damaged, std::mt19937 &random) {
  struct Place {
    Stage *stage;
    ValueId value, busy;
  };
  std::vector<Place> places;
  for (Stage &stage : damaged.program.stages)
    for (BlockId id : stage.blocks()) {
      const Block &block = stage.block(id);
      StreamOrder order(streamStepsOf(block));
      auto isOwn = [&](ValueId value) {
        return stage.memory.values[value].slot < 0 && sizeBytes(stage.values[value]) > 0;
      };
      for (int i = 0; i < int(block.instructions.size()); ++i)
        for (int j = i + 1; j < order.settled(i); ++j)
          for (ValueId busy : block.instructions[i].operands)
            for (ValueId value : block.instructions[j].results)
              if (isOwn(busy) && isOwn(value) && !order.isBefore(i, j))
                places.push_back({&stage, value, busy});
    }
  if (places.empty())
    return false;
  const Place &place = places[random() % places.size()];
  place.stage->memory.values[place.value].offset = place.stage->memory.values[place.busy].offset;
  place.stage->memory.arenaBytes *= 2;
  damaged.name = "%" + std::to_string(place.value) + " ";
  return true;
}

/// Replaces a wait by one for an earlier instruction of the same stream.
bool waitTooEarly(Damaged &damaged, std::mt19937 &random) {
  std::vector<Instruction *> sites;
  for (Stage &stage : damaged.program.stages)
    for (BlockId id : stage.blocks()) {
      Block &block = stage.block(id);
      for (Instruction &instruction : block.instructions) {
        if (instruction.waits.size() != 1)
          continue;
        const Instruction &made = block.instructions[instruction.waits[0]];
        bool isData = std::any_of(made.results.begin(), made.results.end(), [&](ValueId value) {
          return std::count(instruction.operands.begin(), instruction.operands.end(), value) > 0;
        });
        for (int i = instruction.waits[0] - 1; isData && i >= 0; --i)
          if (block.instructions[i].stream == made.stream) {
            sites.push_back(&instruction);
            break;
          }
      }
    }
  if (sites.empty())
    return false;
  Instruction &instruction = *sites[random() % sites.size()];
  for (Stage &stage : damaged.program.stages)
    for (BlockId id : stage.blocks()) {
      Block &block = stage.block(id);
      if (block.instructions.empty() || &instruction < &block.instructions.front() ||
          &instruction > &block.instructions.back())
        continue;
      Stream stream = block.instructions[instruction.waits[0]].stream;
      int earlier = instruction.waits[0] - 1;
      while (block.instructions[earlier].stream != stream)
        --earlier;
      instruction.waits = {earlier};
    }
  damaged.name = "\"" + instruction.id + "\"";
  return true;
}

/// Swaps a communication with the kernel that makes its operand.
bool runAhead(Damaged &damaged, std::mt19937 &random) {
  std::vector<std::pair<Block *, int>> sites;
  for (Stage &stage : damaged.program.stages)
    for (BlockId id : stage.blocks()) {
      std::vector<Instruction> &list = stage.block(id).instructions;
      for (int i = 0; i + 1 < int(list.size()); ++i) {
        auto isRead = [&](ValueId made) {
          return std::count(list[i + 1].operands.begin(), list[i + 1].operands.end(), made) > 0;
        };
        if (list[i].stream == Stream::Compute && list[i + 1].stream == Stream::Communication &&
            std::any_of(list[i].results.begin(), list[i].results.end(), isRead))
          sites.push_back({&stage.block(id), i});
      }
    }
  if (sites.empty())
    return false;
  auto [block, i] = sites[random() % sites.size()];
  std::vector<Instruction> &list = block->instructions;
  damaged.name = "\"" + list[i + 1].id + "\"";
  std::swap(list[i], list[i + 1]);
  for (int j = i; j < int(list.size()); ++j) {
    std::vector<int> &waits = list[j].waits;
    for (int &wait : waits)
      wait = wait == i ? i + 1 : wait == i + 1 ? i : wait;
    waits.erase(std::remove_if(waits.begin(), waits.end(), [&](int wait) { return wait >= j; }),
                waits.end());
    std::sort(waits.begin(), waits.end());
  }
  return true;
}

struct Damage {
  const char *name;
  bool (*apply)(Damaged &damaged, std::mt19937 &random);
};
void PrintTo(const Damage &damage, std::ostream *out) { *out << damage.name; }

class DamagedStreams : public testing::TestWithParam<Damage> {};

TEST_P(DamagedStreams, AreRejectedWithTheirPlace) {
  std::mt19937 random(9);
  int count = 0, wanted = test::sampleSize(60, 250);
  for (int i = 0; i < 60 * wanted && count < wanted && !HasFailure(); ++i) {
    Damaged damaged{overlappedProgram(unsigned(random())), ""};
    if (!GetParam().apply(damaged, random))
      continue;
    ++count;
    Status formed = checkWellFormed(damaged.program);
    ASSERT_TRUE(formed) << formed.error().message;
    Status status = verify::verifyProgram(damaged.program);
    ASSERT_FALSE(status) << "survived: " << damaged.name << "\n" << show(damaged.program);
    EXPECT_NE(status.error().message.find(damaged.name), std::string::npos)
        << status.error().message << "\ndoes not name " << damaged.name;
  }
  EXPECT_EQ(count, wanted);
}

const Damage damages[] = {{"DropWait", dropWait},
                          {"ReuseTooSoon", reuseTooSoon},
                          {"WaitTooEarly", waitTooEarly},
                          {"RunAhead", runAhead}};
INSTANTIATE_TEST_SUITE_P(, DamagedStreams, testing::ValuesIn(damages),
                         [](const auto &info) { return std::string(info.param.name); });

/// Waits refused by the reader.
TEST(Streams, WaitsAreForInstructionsBeforeOnOtherStreams) {
  Program program = overlappedProgram(1);
  Block &block = program.stages[0].update;
  ASSERT_GT(block.instructions.size(), 2u);
  auto expectMalformed = [&](const char *what, auto damage) {
    Program bad = program;
    damage(bad.stages[0].update.instructions);
    Status status = checkWellFormed(bad);
    ASSERT_FALSE(status) << what;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
  };
  using List = std::vector<Instruction>;
  expectMalformed("itself", [](List &list) { list[1].waits = {1}; });
  expectMalformed("what is not there", [](List &list) { list[1].waits = {-1}; });
  expectMalformed("twice", [](List &list) { list[2].waits = {0, 0}; });
  expectMalformed("kernel on the wrong stream", [](List &list) {
    for (Instruction &instruction : list)
      if (instruction.kind == InstructionKind::Kernel)
        instruction.stream = Stream::Communication;
  });
  expectMalformed("communication on both streams", [](List &list) {
    auto isSent = [](const Instruction &i) { return i.stream == Stream::Communication; };
    auto sent = std::find_if(list.begin(), list.end(), isSent);
    ASSERT_NE(sent, list.end());
    ASSERT_NE(std::find_if(sent + 1, list.end(), isSent), list.end()) << "one alone";
    sent->stream = Stream::Compute;
    for (Instruction &instruction : list)
      instruction.waits.clear();
  });
  expectMalformed("own stream", [](List &list) {
    list[1].stream = list[0].stream;
    list[1].waits = {0};
  });
}

} // namespace
} // namespace tbc
