//===- arena_test.cpp - Offsets for buffers with lifetimes ------------------===//

#include "runtime/memory/Arena.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tbc::memory {
namespace {

/// Expects any two buffers that are live at the same time to be disjoint.
void expectDisjoint(const std::vector<Lifetime> &lifetimes, const Layout &layout) {
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    EXPECT_EQ(layout.offsets[i] % alignmentBytes, 0);
    EXPECT_LE(layout.offsets[i] + lifetimes[i].bytes, layout.bytes);
    for (size_t j = 0; j < i; ++j) {
      const Lifetime &a = lifetimes[i], &b = lifetimes[j];
      bool together = a.first <= b.last && b.first <= a.last;
      bool share = layout.offsets[i] < layout.offsets[j] + b.bytes &&
                   layout.offsets[j] < layout.offsets[i] + a.bytes;
      EXPECT_FALSE(together && share && a.bytes > 0 && b.bytes > 0) << i << " and " << j;
    }
  }
}

TEST(Arena, RoundsUpToTheAlignment) {
  EXPECT_EQ(alignedBytes(0), 0);
  EXPECT_EQ(alignedBytes(1), 256);
  EXPECT_EQ(alignedBytes(256), 256);
  EXPECT_EQ(alignedBytes(257), 512);
}

TEST(Arena, OfNothingIsEmpty) {
  EXPECT_EQ(assignOffsets({}).bytes, 0);
  EXPECT_EQ(mostLiveBytes({}), 0);
}

TEST(Arena, BuffersThatFollowEachOtherShareBytes) {
  Layout layout = assignOffsets({{512, 0, 1}, {512, 2, 3}, {512, 4, 4}});
  EXPECT_EQ(layout.bytes, 512);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 0, 0}));
}

/// A result is live while its operands are read.
TEST(Arena, BuffersThatMeetAtOneTimeDoNot) {
  EXPECT_EQ(assignOffsets({{512, 0, 1}, {512, 1, 2}}).bytes, 1024);
}

/// In order of time, a small buffer would take the place of a large one and then block it.
TEST(Arena, FindsWhatOrderOfTimeMisses) {
  std::vector<Lifetime> lifetimes = {{1024, 0, 1}, {256, 0, 4}, {512, 2, 3}, {1280, 4, 5}};
  EXPECT_EQ(assignOffsets(lifetimes).bytes, mostLiveBytes(lifetimes));
}

TEST(Arena, RandomLifetimesAreDisjointAndNearTheBound) {
  std::mt19937 random(7);
  double ratio = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    std::vector<Lifetime> lifetimes;
    for (unsigned i = 0, n = 1 + random() % 60; i < n; ++i) {
      int64_t first = random() % 40;
      lifetimes.push_back({int64_t(random() % 5000), first, first + int64_t(random() % 12)});
    }
    Layout layout = assignOffsets(lifetimes);
    expectDisjoint(lifetimes, layout);
    EXPECT_GE(layout.bytes, mostLiveBytes(lifetimes));
    ratio += double(layout.bytes) / double(std::max<int64_t>(mostLiveBytes(lifetimes), 1));
  }
  // From a measurement; a much worse layout is a defect.
  EXPECT_LT(ratio / rounds, 1.08);
}

} // namespace
} // namespace tbc::memory
