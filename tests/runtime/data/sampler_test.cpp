//===- sampler_test.cpp - The samples of a step ----------------------------===//

#include "runtime/data/Sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tbc::data {
namespace {

std::vector<int64_t> epochOf(Sampler &sampler, int64_t firstStep, int64_t steps, int64_t batch) {
  std::vector<int64_t> samples;
  for (int64_t step = firstStep; step < firstStep + steps; ++step)
    for (int64_t place = 0; place < batch; ++place)
      samples.push_back(sampler.sample(step, place));
  return samples;
}

TEST(Sampler, AnEpochTakesEverySampleOnce) {
  auto sampler = Sampler::create(12, 3, true, 7);
  ASSERT_TRUE(bool(sampler));
  std::vector<int64_t> first = epochOf(*sampler, 1, 4, 3), second = epochOf(*sampler, 5, 4, 3);
  EXPECT_NE(first, second);
  for (std::vector<int64_t> epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    std::vector<int64_t> all(12);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(epoch, all);
  }
  EXPECT_EQ(sampler->epoch(4), 0);
  EXPECT_EQ(sampler->epoch(5), 1);
}

TEST(Sampler, BatchesMayGrowBetweenEpochs) {
  auto small = Sampler::create(12, 3, true, 7), large = Sampler::create(12, 6, true, 7);
  std::vector<int64_t> second = epochOf(*small, 5, 4, 3), third = epochOf(*small, 9, 4, 3);
  EXPECT_FALSE(small->originAfter(3)); // within an epoch
  std::optional<BatchOrigin> origin = small->originAfter(4);
  ASSERT_TRUE(origin);
  EXPECT_EQ(*origin, (BatchOrigin{4, 1, 0}));
  large->beginAt(*origin);
  // The same epochs, in fewer steps.
  EXPECT_EQ(epochOf(*large, 5, 2, 6), second);
  EXPECT_EQ(epochOf(*large, 7, 2, 6), third);
  EXPECT_EQ(large->epoch(6), 1);
  EXPECT_EQ(large->epoch(7), 2);
  EXPECT_EQ(large->lastStepOf(3), 8);
  EXPECT_EQ(large->lastStepOf(1), 4);
  EXPECT_EQ(*large->originAfter(6), (BatchOrigin{6, 2, 0}));
  // Endless data: no sample is skipped or repeated.
  auto endless = Sampler::create(0, 3, true, 7), more = Sampler::create(0, 5, true, 7);
  more->beginAt(*endless->originAfter(4));
  EXPECT_EQ(epochOf(*more, 5, 2, 5),
            (std::vector<int64_t>{12, 13, 14, 15, 16, 17, 18, 19, 20, 21}));
  EXPECT_EQ(*more->originAfter(6), (BatchOrigin{6, 0, 22}));
}

TEST(Sampler, AnyStepCanBeAskedForAtOnce) {
  auto a = Sampler::create(100, 8, true, 7), b = Sampler::create(100, 8, true, 7);
  std::vector<int64_t> all = epochOf(*a, 1, 40, 8);
  EXPECT_EQ(epochOf(*b, 31, 1, 8), std::vector<int64_t>(all.begin() + 240, all.begin() + 248));
}

TEST(Sampler, SeedsDiffer) {
  auto a = Sampler::create(100, 10, true, 1), b = Sampler::create(100, 10, true, 2);
  EXPECT_NE(epochOf(*a, 1, 10, 10), epochOf(*b, 1, 10, 10));
}

TEST(Sampler, InOrderMeansInOrder) {
  auto sampler = Sampler::create(7, 2, false, 7);
  // The seventh sample does not fill a batch.
  EXPECT_THAT(epochOf(*sampler, 1, 4, 2), testing::ElementsAre(0, 1, 2, 3, 4, 5, 0, 1));
}

TEST(Sampler, WithoutEndThereIsOneEpoch) {
  auto sampler = Sampler::create(0, 4, true, 7);
  EXPECT_THAT(epochOf(*sampler, 3, 1, 4), testing::ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(sampler->epoch(1000), 0);
}

TEST(Sampler, TooFewSamplesAreAnError) {
  auto sampler = Sampler::create(3, 4, true, 7);
  ASSERT_FALSE(bool(sampler));
  EXPECT_EQ(sampler.error().code, ErrorCode::Usage);
}

} // namespace
} // namespace tbc::data
