//===- schedule_test.cpp - Pipeline schedules ------------------------------===//

#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

namespace tbc::schedule {
namespace {

using Kind = Action::Kind;
constexpr ScheduleKind kinds[] = {ScheduleKind::GPipe, ScheduleKind::OneFOneB};

/// Calls `check` for every kind, up to 5 stages and up to 9 micro-batches.
template <typename Fn> void forAll(Fn check) {
  for (ScheduleKind kind : kinds)
    for (int stages = 1; stages <= 5; ++stages)
      for (int64_t micro = 1; micro <= 9; ++micro)
        check(kind, stages, micro);
}

TEST(Schedule, NamesRoundTrip) {
  for (ScheduleKind kind : kinds)
    EXPECT_EQ(parseScheduleKind(name(kind)), kind);
  EXPECT_EQ(parseScheduleKind("1F1B"), std::nullopt);
}

TEST(Schedule, OneFOneBOfTheMiddleStage) {
  std::vector<Action> expected = {{Kind::Forward, 0}, {Kind::Forward, 1},  {Kind::Backward, 0},
                                  {Kind::Forward, 2}, {Kind::Backward, 1}, {Kind::Backward, 2},
                                  {Kind::Update, 0}};
  EXPECT_EQ(schedule(ScheduleKind::OneFOneB, 3, 3, 1), expected);
}

TEST(Schedule, EveryActionOnceAndBackwardAfterForward) {
  forAll([](ScheduleKind kind, int stages, int64_t micro) {
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<Action> actions = schedule(kind, stages, micro, stage);
      ASSERT_EQ(actions.size(), size_t(2 * micro + 1));
      EXPECT_EQ(actions.back(), (Action{Kind::Update, 0}));
      auto place = [&](Action action) {
        EXPECT_EQ(std::count(actions.begin(), actions.end(), action), 1);
        return std::find(actions.begin(), actions.end(), action);
      };
      for (int64_t m = 0; m < micro; ++m)
        EXPECT_LT(place({Kind::Forward, m}), place({Kind::Backward, m}));
    }
  });
}

TEST(Schedule, MaxInFlightIsWhatTheActionsHold) {
  forAll([](ScheduleKind kind, int stages, int64_t micro) {
    for (int stage = 0; stage < stages; ++stage) {
      int64_t inFlight = 0, most = 0;
      for (const Action &action : schedule(kind, stages, micro, stage)) {
        inFlight += action.kind == Kind::Forward ? 1 : action.kind == Kind::Backward ? -1 : 0;
        most = std::max(most, inFlight);
      }
      EXPECT_EQ(maxInFlight(kind, stages, micro, stage), most);
    }
  });
}

TEST(Schedule, OneFOneBHoldsNoMoreThanItsDepth) {
  EXPECT_EQ(maxInFlight(ScheduleKind::OneFOneB, 4, 100, 0), 4);
  EXPECT_EQ(maxInFlight(ScheduleKind::OneFOneB, 4, 100, 3), 1);
  EXPECT_EQ(maxInFlight(ScheduleKind::GPipe, 4, 100, 3), 100);
}

TEST(Timeline, RespectsDependencies) {
  std::vector<StageTimes> times = {{1, 2}, {3, 1}, {0.5, 4}};
  double transfer = 0.25;
  for (ScheduleKind kind : kinds) {
    Timeline timeline = simulate(kind, times, 6, transfer);
    std::map<std::pair<int, int64_t>, Event> forward, backward;
    for (int stage = 0; stage < 3; ++stage) {
      double freeSeconds = 0;
      for (const Event &event : timeline.stages[stage]) {
        EXPECT_GE(event.startSeconds, freeSeconds) << "a stage does one thing at a time";
        freeSeconds = event.endSeconds;
        bool isForward = event.action.kind == Kind::Forward;
        EXPECT_DOUBLE_EQ(event.endSeconds - event.startSeconds,
                         isForward ? times[stage].forwardSeconds : times[stage].backwardSeconds);
        (isForward ? forward : backward)[{stage, event.action.microBatch}] = event;
      }
    }
    ASSERT_EQ(forward.size(), 18u);
    ASSERT_EQ(backward.size(), 18u);
    for (int64_t m = 0; m < 6; ++m) {
      for (int stage = 0; stage + 1 < 3; ++stage) {
        EXPECT_GE((forward[{stage + 1, m}].startSeconds),
                  (forward[{stage, m}].endSeconds + transfer));
        EXPECT_GE((backward[{stage, m}].startSeconds),
                  (backward[{stage + 1, m}].endSeconds + transfer));
      }
      EXPECT_GE((backward[{2, m}].startSeconds), (forward[{2, m}].endSeconds));
    }
  }
}

TEST(Timeline, EqualStagesTakeTheClosedForm) {
  forAll([](ScheduleKind kind, int stages, int64_t micro) {
    Timeline timeline = simulate(kind, std::vector<StageTimes>(stages, {1, 2}), micro);
    // (m + p - 1)(f + b), the bubble being (p - 1)(f + b) on every stage: Megatron-LM (SC
    // 2021), 2.2.
    EXPECT_DOUBLE_EQ(timeline.makespanSeconds, 3.0 * double(micro + stages - 1));
    for (int stage = 0; stage < stages; ++stage)
      EXPECT_DOUBLE_EQ(timeline.bubbleSeconds(stage), 3.0 * (stages - 1));
    EXPECT_DOUBLE_EQ(makespanSeconds(kind, std::vector<StageTimes>(stages, {1, 2}), micro),
                     timeline.makespanSeconds);
  });
}

TEST(Timeline, ASlowStageSetsThePace) {
  // The slow middle stage works without a pause from its first input to its last backward.
  std::vector<StageTimes> times = {{1, 1}, {5, 5}, {1, 1}};
  double seconds = makespanSeconds(ScheduleKind::OneFOneB, times, 10);
  EXPECT_GE(seconds, 1 + 10 * 10.0 + 1);
  EXPECT_LE(seconds, 1 + 10 * 10.0 + 1 + 2 + 5);
}

TEST(Timeline, TransfersLengthenTheFillAndTheDrain) {
  std::vector<StageTimes> times(3, {1, 1});
  // One micro-batch passes two links forward and two back.
  EXPECT_DOUBLE_EQ(makespanSeconds(ScheduleKind::GPipe, times, 1, 0.5), 6 + 4 * 0.5);
}

} // namespace
} // namespace tbc::schedule
