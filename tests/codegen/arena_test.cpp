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

/// Planner and Program have the same frames in different orders, and must agree about their bytes.
TEST(Arena, FramesTakeTheSameBytesInAnyOrder) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Lifetime>> frames;
    for (unsigned f = 0, n = 2 + random() % 6; f < n; ++f) {
      const int64_t bytes = 256 * int64_t(1 + random() % 20), length = int64_t(random() % 9);
      std::vector<Lifetime> &instances = frames.emplace_back();
      for (int64_t first = int64_t(random() % 4), m = 0; m < 4; ++m, first += 2)
        instances.push_back({bytes, first, first + length});
    }
    const FrameLayout layout = layOutFrames(frames);
    std::shuffle(frames.begin(), frames.end(), random);
    const FrameLayout shuffled = layOutFrames(frames);
    ASSERT_EQ(layout.bytes, shuffled.bytes) << "round " << round;
    std::vector<Lifetime> all;
    Layout places;
    places.bytes = shuffled.bytes;
    for (size_t f = 0; f < frames.size(); ++f)
      for (size_t m = 0; m < frames[f].size(); ++m) {
        all.push_back(frames[f][m]);
        places.offsets.push_back(shuffled.offsets[f][m % shuffled.offsets[f].size()]);
      }
    expectDisjoint(all, places);
  }
}

} // namespace
} // namespace tbc::memory
