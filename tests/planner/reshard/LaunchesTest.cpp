//===- LaunchesTest.cpp - Neighbouring kernels that share a launch ----------===//

#include "planner/reshard/Launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc::reshard;
using ::testing::ElementsAre;

namespace {

/// Kernels of Adam: each has 8 tensors of its own and reads 4 scalars.
std::vector<LaunchedKernel> adam(int parameters) {
  std::vector<LaunchedKernel> kernels;
  int next = 4;
  for (int p = 0; p < parameters; ++p) {
    LaunchedKernel kernel{true, p > 0, {0, 1, 2, 3}, {}, "adam"};
    for (int i = 0; i < 8; ++i)
      kernel.tensors.push_back(next++);
    kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<int> launchesOf(const std::vector<LaunchedKernel> &kernels) {
  int64_t tableBytes = 0;
  return joinLaunches(kernels, tableBytes);
}

TEST(Launches, HaveAtMost512Tensors) {
  EXPECT_THAT(launchesOf(adam(148)), ElementsAre(63, 63, 22));
  EXPECT_THAT(launchesOf(adam(1)), ElementsAre(1));
  EXPECT_THAT(launchesOf({}), ElementsAre());
}

TEST(Launches, EndWhereSomethingStandsBetween) {
  std::vector<LaunchedKernel> kernels = adam(6);
  kernels[2].isBehindPrevious = false;
  kernels[4].mayJoin = false;
  EXPECT_THAT(launchesOf(kernels), ElementsAre(2, 2, 1, 1));
}

TEST(Launches, WaitForTheMessagesOfTheirFirstKernels) {
  std::vector<LaunchedKernel> kernels = adam(5);
  kernels[0].messages = kernels[1].messages = {7};
  kernels[3].messages = {9};
  EXPECT_THAT(launchesOf(kernels), ElementsAre(3, 2));
}

TEST(Launches, HaveAtMostEightCodes) {
  std::vector<LaunchedKernel> kernels = adam(10);
  for (size_t k = 0; k < kernels.size(); ++k)
    kernels[k].code = std::to_string(k);
  EXPECT_THAT(launchesOf(kernels), ElementsAre(8, 2));
}

TEST(Launches, HaveTablesInConstantMemory) {
  EXPECT_EQ(launchTableBytes(63, 12), 256 + 252 + 1638);
  std::vector<LaunchedKernel> kernels = adam(148);
  int64_t tableBytes = maxTableBytes - launchTableBytes(63, 12);
  std::vector<int> launches = joinLaunches(kernels, tableBytes);
  // The first 63 fill the tables; the others are launches of their own.
  EXPECT_EQ(launches.size(), 1u + 148 - 63);
  EXPECT_EQ(launches.front(), 63);
  EXPECT_EQ(tableBytes, maxTableBytes);
}

} // namespace
