//===- region_test.cpp - Inputs and outputs of a compiled region -----------===//

#include "runtime/abi/Region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::program {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instruction kernel(std::vector<ValueId> operands, std::vector<ValueId> results) {
  Instruction instruction;
  instruction.op = "op";
  instruction.operands = std::move(operands);
  instruction.results = std::move(results);
  return instruction;
}

/// %0 and %1 are arguments (slots 0 and 1); %2 = f(%1), %3 = f(%2, %0), %4 = f(%3, %1), %5, %6 =
/// f(%4), %7 = f(%5). %4 is written to slot 0, and %1 is added to slot 2.
struct Example {
  Stage stage;
  Block &block = stage.chunks[0].forward;
  Region region = {1, 3, "k", 1};

  Example() {
    stage.values.assign(8, {kernels::DType::F32, {16}});
    for (int i = 0; i < 3; ++i)
      stage.slots.push_back({"s" + std::to_string(i), Role::Parameter, -1, stage.values[0]});
    block.arguments = {{0, 0}, {1, 1}};
    block.instructions = {kernel({1}, {2}), kernel({2, 0}, {3}), kernel({3, 1}, {4}),
                          kernel({4}, {5, 6}), kernel({5}, {7})};
    block.results = {{4, 0}, {1, 2, true}};
  }

  /// Places slots, then values, without any overlap.
  void placeApart() {
    stage.memory.arenaBytes = 1 << 16;
    for (int i = 0; i < 3; ++i)
      stage.memory.slots.push_back({-1, 256 * i});
    for (int i = 0; i < 8; ++i)
      stage.memory.values.push_back({i < 2 ? i : -1, i < 2 ? 0 : 256 * (i + 2)});
  }
};

TEST(Region, OperandsInOrderOfReadingResultsInOrderOfDefinition) {
  Example example;
  RegionValues values = regionValues(example.block, example.region);
  EXPECT_THAT(values.operands, ElementsAre(2, 0, 1));
  EXPECT_THAT(values.results, ElementsAre(4, 5)); // 3 and 6 are not read outside
  values = regionValues(example.block, {0, 5, "k", 1});
  EXPECT_THAT(values.operands, ElementsAre(1, 0));
  EXPECT_THAT(values.results, ElementsAre(4));
}

TEST(Region, NothingSharesBytesUnlessThePlanSaysSo) {
  Example example;
  EXPECT_THAT(sharedPlaces(example.stage, example.block, example.region), IsEmpty()); // no plan
  example.placeApart();
  EXPECT_THAT(sharedPlaces(example.stage, example.block, example.region), IsEmpty());
}

TEST(Region, ResultInPlaceOfAnOperandIsTheSamePlace) {
  Example example;
  example.placeApart();
  example.stage.memory.values[4] = {0, 0}; // computed in its slot, over %0
  auto shared = sharedPlaces(example.stage, example.block, example.region);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].result, 4);
  EXPECT_EQ(shared[0].other, 0);
  EXPECT_TRUE(shared[0].isSame);
}

TEST(Region, PartlyOverlappingOperandIsAnotherPlace) {
  Example example;
  example.placeApart();
  example.stage.memory.values[5].offset = example.stage.memory.values[2].offset + 32;
  auto shared = sharedPlaces(example.stage, example.block, example.region);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].other, 2);
  EXPECT_FALSE(shared[0].isSame);
}

/// %6 overlaps %2. The first instruction makes %2, which is written to slot 2 during the region.
TEST(Region, ResultOverWhatIsWrittenToASlotMeanwhile) {
  Example example;
  example.placeApart();
  example.region = {3, 2, "k", 1};
  example.block.instructions[4].operands = {5, 0}; // slot 0 is read to the end
  example.block.results = {{2, 0}, {7, 1}};
  EXPECT_THAT(sharedPlaces(example.stage, example.block, example.region), IsEmpty());
  example.stage.memory.values[7].offset = example.stage.memory.values[2].offset;
  auto shared = sharedPlaces(example.stage, example.block, example.region);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].result, 7);
  EXPECT_EQ(shared[0].other, 2);
  EXPECT_FALSE(shared[0].isSame);
}

TEST(Region, TwoResultsAtOnePlace) {
  Example example;
  example.placeApart();
  example.stage.memory.values[5].offset = example.stage.memory.values[4].offset;
  auto shared = sharedPlaces(example.stage, example.block, example.region);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].result, 5);
  EXPECT_EQ(shared[0].other, 4);
  EXPECT_FALSE(shared[0].isSame);
}

} // namespace
} // namespace tbc::program
