//===- StepViewTest.cpp - The schedule and the memory of a step over time --===//

#include "planner/view/StepView.h"
#include "planner/predict/Time.h"
#include "tests/planner/view/Plans.h"

#include <algorithm>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using schedule::Action;

namespace {

/// A pipelined plan with each kind of schedule.
std::vector<Plan> pipelines() {
  return {planOf("pp=4,dp=2", "1f1b"), planOf("pp=4,dp=2", "gpipe"),
          planOf("pp=2,dp=2,tp=2", "interleaved", 2), planOf("pp=4,dp=2", "zero-bubble"),
          planOf("pp=2,dp=4", "zero-bubble", 2, "v")};
}

int64_t inFlight(const Plan &plan, int stage) {
  PipelineSchedule schedule = scheduleOf(plan);
  int64_t total = 0;
  for (const schedule::InFlight &chunk : schedule::mostInFlight(
           schedule.actions[size_t(stage)], int(schedule.pipeline.chunksOf(stage).size())))
    total += chunk.untilWeight;
  return total;
}

} // namespace

TEST(StepView, DrawsTheOrderOfTheGenerator) {
  for (const Plan &plan : pipelines()) {
    const PipelineSchedule schedule = scheduleOf(plan);
    const StepView view = stepView(plan);
    ASSERT_EQ(view.timeline.stages.size(), schedule.actions.size());
    EXPECT_EQ(view.microBatches, plan.accumulation);
    for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
      std::vector<Action> drawn;
      for (const schedule::Event &event : view.timeline.stages[stage])
        drawn.push_back(event.action);
      std::vector<Action> expected = schedule.actions[stage];
      expected.pop_back(); // the update
      EXPECT_EQ(drawn, expected) << scheduleText(plan) << ", stage " << stage;
    }
  }
}

TEST(StepView, KeepsTheMostWhereTheGeneratorHasMostInFlight) {
  for (const Plan &plan : pipelines()) {
    const StepView view = stepView(plan);
    ASSERT_EQ(int64_t(view.kept.size()), plan.mesh.pp);
    for (int stage = 0; stage < int(plan.mesh.pp); ++stage) {
      const KeptCurve &curve = view.kept[size_t(stage)];
      ASSERT_FALSE(curve.isSliced);
      double most = 0, least = 1, last = 0;
      for (const auto &[time, share] : curve.points) {
        EXPECT_GE(time, last) << "time goes on";
        last = time;
        most = std::max(most, share);
        if (share > 0)
          least = std::min(least, share);
      }
      EXPECT_DOUBLE_EQ(most, 1);
      EXPECT_DOUBLE_EQ(curve.points.front().second, 0);
      EXPECT_NEAR(curve.points.back().second, 0, 1e-9) << "everything is freed";
      EXPECT_GT(curve.peakSeconds, 0);
      EXPECT_LT(curve.peakSeconds, view.wholeSeconds);
      // The share of one micro-batch of one chunk.
      EXPECT_NEAR(1 / double(inFlight(plan, stage)), curve.points[2].second, 1e-9)
          << scheduleText(plan) << ", stage " << stage;
    }
  }
}

TEST(StepView, TakesTheSecondsOfThePrediction) {
  for (const Plan &plan : pipelines()) {
    const StepView view = stepView(plan);
    for (size_t chunk = 0; chunk < view.times.size(); ++chunk) {
      const schedule::ChunkTimes &times = view.times[chunk];
      EXPECT_DOUBLE_EQ(times.forwardSeconds + times.backwardSeconds + times.weightSeconds,
                       plan.prediction.stageSeconds[chunk]);
    }
    // The update takes the rest.
    EXPECT_LT(view.wholeSeconds, plan.prediction.stepSeconds) << scheduleText(plan);
    EXPECT_NEAR(view.wholeSeconds + view.endSeconds, plan.prediction.stepSeconds, 1e-12);
  }
}

TEST(StepView, FollowsTheLayersInOneChunk) {
  Plan plan = planOf("dp=8");
  plan.accumulation = 1;
  plan.blocks.resize(2);
  plan.blocks[0].count = plan.blocks[1].count = 1;
  plan.blocks[0].seconds = 1, plan.blocks[0].residualBytes = 0;
  plan.blocks[1].seconds = 3, plan.blocks[1].residualBytes = 100;
  const StepView view = stepView(plan);
  const KeptCurve &curve = view.kept[0];
  const double forward = view.times[0].forwardSeconds;
  // Nothing is kept until a quarter of the forward, then it grows to its end.
  EXPECT_NEAR(curve.points[2].first, forward / 4, 1e-12);
  EXPECT_EQ(curve.points[2].second, 0);
  EXPECT_NEAR(curve.peakSeconds, forward, 1e-12);
}

TEST(StepView, LimitsALongStep) {
  Plan plan = planOf("pp=4,dp=2", "1f1b");
  for (int64_t accumulation : {int64_t(3000), int64_t(1) << 40}) {
    plan.accumulation = accumulation;
    const StepView view = stepView(plan);
    int64_t events = 0, points = 0;
    for (size_t stage = 0; stage < 4; ++stage) {
      events += int64_t(view.timeline.stages[stage].size());
      points += int64_t(view.kept[stage].points.size());
      EXPECT_TRUE(view.kept[stage].isSliced);
    }
    EXPECT_LE(events, mostEvents);
    EXPECT_LE(points, mostPoints);
    EXPECT_LT(view.microBatches, accumulation);
  }
}

TEST(StepView, AddsTheSlowestStageForMicroBatchesThatAreNotSimulated) {
  Plan plan = planOf("pp=2,dp=4", "1f1b");
  ASSERT_EQ(plan.prediction.chunks.size(), 2u);
  for (ChunkSeconds &chunk : plan.prediction.chunks)
    chunk.seconds = {};
  plan.prediction.chunks[0].seconds.forward = 3e-3;
  plan.prediction.chunks[1].seconds.backward = 6e-3;
  auto wholeOf = [&](int64_t accumulation) {
    plan.accumulation = accumulation;
    return stepView(plan).wholeSeconds;
  };
  // 2 stages and 2 actions: 250,000 micro-batches are simulated.
  EXPECT_NEAR(wholeOf(250001) - wholeOf(250000), 6e-3, 1e-6);
}
