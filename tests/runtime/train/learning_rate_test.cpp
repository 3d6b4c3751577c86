//===- learning_rate_test.cpp - The learning rate of a step ----------------===//

#include "runtime/train/LearningRate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tbc::train {
namespace {

LearningRate rate(LearningRate::Schedule schedule) {
  LearningRate result;
  result.peak = 1;
  result.least = 0.1;
  result.schedule = schedule;
  result.warmupSteps = 4;
  result.totalSteps = 14;
  return result;
}

TEST(LearningRate, WarmsUp) {
  for (auto schedule : {LearningRate::Schedule::Constant, LearningRate::Schedule::Linear,
                        LearningRate::Schedule::Cosine}) {
    EXPECT_DOUBLE_EQ(rate(schedule).at(1), 0.25);
    EXPECT_DOUBLE_EQ(rate(schedule).at(4), 1);
  }
}

TEST(LearningRate, GrowsWithTheBatch) {
  LearningRate given = rate(LearningRate::Schedule::Linear);
  EXPECT_DOUBLE_EQ(given.forBatch(4096).at(4), 1); // unless requested
  ASSERT_TRUE(bool(parseGrowth("linear:256", given)));
  EXPECT_DOUBLE_EQ(given.forBatch(256).at(4), 1);
  EXPECT_DOUBLE_EQ(given.forBatch(1024).at(4), 4);
  EXPECT_DOUBLE_EQ(given.forBatch(1024).at(14), 0.4);
  EXPECT_DOUBLE_EQ(given.forBatch(64).at(4), 0.25);
  ASSERT_TRUE(bool(parseGrowth("sqrt:256", given)));
  EXPECT_DOUBLE_EQ(given.forBatch(1024).at(4), 2);
  for (const char *wrong : {"", "linear", "linear:", "linear:0", "linear:-4", "linear:4x", "root:4",
                            "sqrt:99999999999999999999", ":4"}) {
    Status status = parseGrowth(wrong, given);
    ASSERT_FALSE(bool(status)) << wrong;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
  }
}

TEST(LearningRate, FollowsItsFormula) {
  EXPECT_DOUBLE_EQ(rate(LearningRate::Schedule::Constant).at(100), 1);
  EXPECT_DOUBLE_EQ(rate(LearningRate::Schedule::Linear).at(9), 0.55);
  EXPECT_DOUBLE_EQ(rate(LearningRate::Schedule::Cosine).at(9), 0.55);
  EXPECT_NEAR(rate(LearningRate::Schedule::Cosine).at(6),
              0.1 + 0.9 * (1 + std::cos(0.2 * M_PI)) / 2, 1e-12);
  for (auto schedule : {LearningRate::Schedule::Linear, LearningRate::Schedule::Cosine}) {
    EXPECT_DOUBLE_EQ(rate(schedule).at(14), 0.1);
    EXPECT_DOUBLE_EQ(rate(schedule).at(1000), 0.1);
  }
}

TEST(LearningRate, WithoutWarmUpTheFirstStepIsFull) {
  LearningRate plain;
  plain.totalSteps = 10;
  EXPECT_DOUBLE_EQ(plain.at(1), 1e-3);
}

TEST(LearningRate, NamesAreParsed) {
  EXPECT_EQ(*parseSchedule("cosine"), LearningRate::Schedule::Cosine);
  EXPECT_EQ(parseSchedule("cosin").error().code, ErrorCode::Usage);
}

} // namespace
} // namespace tbc::train
