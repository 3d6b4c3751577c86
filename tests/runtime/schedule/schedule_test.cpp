//===- schedule_test.cpp - Pipeline schedules ------------------------------===//

#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace tbc::schedule {
namespace {

using Kind = Action::Kind;
const std::vector<ScheduleKind> &kinds = scheduleKinds();

std::string describe(ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
  std::string text = std::string(name(kind)) + ", " + std::to_string(micro) + " micro-batches on";
  for (int stage : pipeline.chunkStage)
    text += " " + std::to_string(stage);
  return text;
}

/// Placements of up to 4 chunks per stage on up to 8 stages, and some in arbitrary order.
std::vector<Pipeline> allPipelines() {
  std::vector<Pipeline> all;
  for (int stages = 1; stages <= 8; ++stages)
    for (int chunks = 1; chunks <= 4; ++chunks) {
      all.push_back(Pipeline::loop(stages, chunks));
      if (chunks > 1 && stages > 1)
        all.push_back(Pipeline::vee(stages, chunks));
    }
  std::mt19937 random(1);
  for (int i = 0; i < 10; ++i) {
    Pipeline pipeline = Pipeline::loop(2 + i % 4, 1 + i % 3);
    pipeline.chunkStage.push_back(int(random() % unsigned(pipeline.numStages)));
    std::shuffle(pipeline.chunkStage.begin(), pipeline.chunkStage.end(), random);
    all.push_back(pipeline);
  }
  return all;
}

/// Calls `check` for every kind, each placement valid for it, and up to 32 micro-batches.
template <typename Fn> void forAll(Fn check) {
  int64_t count = 0;
  for (ScheduleKind kind : kinds)
    for (const Pipeline &pipeline : allPipelines())
      for (int64_t micro : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 31, 32}) {
        if (!whyInvalid(kind, pipeline, micro).empty())
          continue;
        SCOPED_TRACE(describe(kind, pipeline, micro));
        check(kind, pipeline, micro);
        ++count;
      }
  EXPECT_GT(count, 1000);
}

TEST(Schedule, NamesRoundTrip) {
  for (ScheduleKind kind : kinds)
    EXPECT_EQ(parseScheduleKind(name(kind)), kind);
  EXPECT_EQ(parseScheduleKind("1F1B"), std::nullopt);
  EXPECT_EQ(scheduleNames(),
            (std::vector<std::string>{"gpipe", "1f1b", "interleaved", "zero-bubble"}));
  EXPECT_EQ(schedulesOfSeveralChunks("or"), "interleaved or zero-bubble");
}

TEST(Schedule, SearchedLayoutsAreValid) {
  for (ScheduleKind kind : kinds) {
    EXPECT_FALSE(searchedLayouts(kind).empty());
    for (const Layout &layout : searchedLayouts(kind)) {
      auto make = layout.isVee ? Pipeline::vee : Pipeline::loop;
      EXPECT_EQ(whyInvalid(kind, make(4, layout.chunksPerStage), 8), "") << name(kind);
      if (layout.chunksPerStage > 1)
        EXPECT_EQ(layout.isVee, prefersVee(kind)) << name(kind);
    }
  }
}

TEST(Schedule, PlacementsAreWhatTheirNamesSay) {
  EXPECT_EQ(Pipeline::plain(3).chunkStage, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Pipeline::loop(3, 2).chunkStage, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(Pipeline::vee(3, 3).chunkStage, (std::vector<int>{0, 1, 2, 2, 1, 0, 0, 1, 2}));
  EXPECT_EQ(Pipeline::vee(3, 2).chunksOf(1), (std::vector<int>{1, 4}));
}

TEST(Schedule, WhatCannotBeIsSaid) {
  auto why = [](ScheduleKind kind, Pipeline pipeline, int64_t micro) {
    return whyInvalid(kind, pipeline, micro);
  };
  EXPECT_EQ(why(ScheduleKind::OneFOneB, Pipeline::plain(4), 1), "");
  EXPECT_NE(why(ScheduleKind::OneFOneB, Pipeline::loop(4, 2), 8), "");
  EXPECT_NE(why(ScheduleKind::GPipe, {2, {1, 0}}, 8), "");
  EXPECT_NE(why(ScheduleKind::Interleaved, Pipeline::plain(4), 8), "");
  EXPECT_EQ(why(ScheduleKind::Interleaved, Pipeline::loop(4, 2), 6),
            "schedule interleaved needs a number of micro-batches that its 4 stages divide, not 6");
  EXPECT_EQ(why(ScheduleKind::Interleaved, Pipeline::vee(4, 2), 6), "");
  EXPECT_EQ(why(ScheduleKind::ZeroBubble, {3, {0, 2}}, 6), "stage 1 has no chunk");
  EXPECT_EQ(why(ScheduleKind::ZeroBubble, {2, {0, 2}}, 6), "a chunk lies on stage 2 of 2");
}

TEST(Schedule, OneFOneBOfTheMiddleStage) {
  std::vector<Action> expected = {{Kind::Forward, 0}, {Kind::Forward, 1},  {Kind::Backward, 0},
                                  {Kind::Forward, 2}, {Kind::Backward, 1}, {Kind::Backward, 2},
                                  {Kind::Update, 0}};
  EXPECT_EQ(schedule(ScheduleKind::OneFOneB, Pipeline::plain(3), 3, 1), expected);
}

TEST(Schedule, ZeroBubbleDelaysWeightsByTheStage) {
  std::vector<Action> expected = {{Kind::Forward, 0},  {Kind::Backward, 0}, {Kind::Forward, 1},
                                  {Kind::Backward, 1}, {Kind::Weight, 0},   {Kind::Forward, 2},
                                  {Kind::Backward, 2}, {Kind::Weight, 1},   {Kind::Weight, 2},
                                  {Kind::Update, 0}};
  EXPECT_EQ(schedule(ScheduleKind::ZeroBubble, Pipeline::plain(2), 3, 1), expected);
}

TEST(Schedule, InterleavedTakesGroupsThroughChunks) {
  // The first of two stages with two chunks: Megatron-LM (SC 2021), figure 4, for p = 2.
  std::string text;
  for (const Action &action : schedule(ScheduleKind::Interleaved, Pipeline::loop(2, 2), 4, 0))
    text += std::string(1, "FBWU"[int(action.kind)]) + std::to_string(action.chunk) +
            std::to_string(action.microBatch) + " ";
  EXPECT_EQ(text, "F00 F01 F10 F11 F02 B10 F03 B11 F12 B00 F13 B01 B12 B13 B02 B03 U00 ");
}

TEST(Schedule, EveryActionOnceInAnOrderThatCanBe) {
  forAll([](ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
    std::vector<std::vector<Action>> all = schedules(kind, pipeline, micro);
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      const std::vector<Action> &actions = all[stage];
      int chunks = int(pipeline.chunksOf(stage).size());
      ASSERT_EQ(actions, schedule(kind, pipeline, micro, stage));
      ASSERT_EQ(int64_t(actions.size()), (splitsBackward(kind) ? 3 : 2) * micro * chunks + 1);
      ASSERT_EQ(actions.back(), (Action{Kind::Update, 0}));
      std::map<std::tuple<Kind, int, int64_t>, size_t> place;
      for (size_t i = 0; i < actions.size(); ++i)
        ASSERT_TRUE(
            place.insert({{actions[i].kind, actions[i].chunk, actions[i].microBatch}, i}).second);
      for (int chunk = 0; chunk < chunks; ++chunk)
        for (int64_t m = 0; m < micro; ++m) {
          ASSERT_TRUE(place.count({Kind::Forward, chunk, m}));
          ASSERT_TRUE(place.count({Kind::Backward, chunk, m}));
          ASSERT_LT((place[{Kind::Forward, chunk, m}]), (place[{Kind::Backward, chunk, m}]));
          if (splitsBackward(kind)) {
            ASSERT_TRUE(place.count({Kind::Weight, chunk, m}));
            ASSERT_LT((place[{Kind::Backward, chunk, m}]), (place[{Kind::Weight, chunk, m}]));
          }
          // A chunk forwards messages in the order of their arrival.
          for (Kind each : {Kind::Forward, Kind::Backward})
            if (m > 0)
              ASSERT_LT((place[{each, chunk, m - 1}]), (place[{each, chunk, m}]));
        }
    }
  });
}

/// Computes mostInFlight by counting.
int64_t countedInFlight(const std::vector<Action> &actions, Kind end) {
  int64_t inFlight = 0, most = 0;
  for (const Action &action : actions) {
    inFlight += action.kind == Kind::Forward;
    most = std::max(most, inFlight);
    inFlight -= action.kind == end;
  }
  return most;
}

int64_t totalInFlight(const std::vector<Action> &actions, int chunks) {
  int64_t total = 0;
  for (const InFlight &chunk : mostInFlight(actions, chunks))
    total += chunk.untilWeight;
  return total;
}

TEST(Schedule, MostInFlightIsWhatTheActionsHold) {
  forAll([](ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      std::vector<Action> actions = schedule(kind, pipeline, micro, stage);
      int chunks = int(pipeline.chunksOf(stage).size());
      Kind end = splitsBackward(kind) ? Kind::Weight : Kind::Backward;
      EXPECT_EQ(totalInFlight(actions, chunks), countedInFlight(actions, end));
      for (const InFlight &chunk : mostInFlight(actions, chunks)) {
        EXPECT_LE(chunk.forward, chunk.untilWeight);
        EXPECT_LE(chunk.untilWeight, chunk.forward + chunk.weight);
      }
    }
  });
}

/// Returns the peak memory over all actions. A micro-batch holds `forward` from forward to backward
/// and `weight` from backward to wgrad. Example: F0 F1 B0 B1 with forward = 1, weight = 0 gives 2.
int64_t mostHeld(const std::vector<Action> &actions, int64_t forward, int64_t weight) {
  int64_t now = 0, most = 0;
  for (const Action &action : actions) {
    if (action.kind == Kind::Forward)
      now += forward;
    if (action.kind == Kind::Backward)
      now += weight;
    most = std::max(most, now);
    if (action.kind == Kind::Backward)
      now -= forward;
    if (action.kind == Kind::Weight)
      now -= weight;
  }
  return most;
}

TEST(Schedule, FullestMomentsHoldTheMostWhateverIsKept) {
  auto check = [](const Pipeline &pipeline, int64_t micro) {
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      std::vector<Action> actions = schedule(ScheduleKind::ZeroBubble, pipeline, micro, stage);
      int chunks = int(pipeline.chunksOf(stage).size());
      Moments moments = fullestMoments(actions, chunks);
      EXPECT_EQ(moments[0], mostInFlight(actions, chunks));
      for (auto [forward, weight] : {std::pair(1, 0), {0, 1}, {1, 1}, {5, 2}, {1, 3}, {3, 4}}) {
        int64_t most = 0;
        for (const std::vector<InFlight> &moment : moments) {
          int64_t held = 0;
          for (const InFlight &chunk : moment)
            held += chunk.forward * forward + chunk.weight * weight;
          most = std::max(most, held);
        }
        EXPECT_EQ(most, mostHeld(actions, forward, weight))
            << pipeline.numStages << " stages, " << micro << " micro-batches, stage " << stage;
      }
    }
  };
  for (int p : {2, 3, 4, 8})
    for (int64_t micro : {1, 4, 9, 32}) {
      check(Pipeline::plain(p), micro);
      check(Pipeline::vee(p, 2), micro);
    }
  std::vector<Action> plain = schedule(ScheduleKind::OneFOneB, Pipeline::plain(4), 8, 0);
  EXPECT_EQ(fullestMoments(plain, 1).size(), 1u);
}

TEST(Schedule, InFlightHasTheKnownValues) {
  auto held = [](ScheduleKind kind, const Pipeline &pipeline, int64_t micro, int stage) {
    return totalInFlight(schedule(kind, pipeline, micro, stage),
                         int(pipeline.chunksOf(stage).size()));
  };
  for (int p = 2; p <= 8; ++p)
    for (int s = 0; s < p; ++s) {
      EXPECT_EQ(held(ScheduleKind::GPipe, Pipeline::plain(p), 32, s), 32);
      EXPECT_EQ(held(ScheduleKind::OneFOneB, Pipeline::plain(p), 32, s), p - s);
      // ZB-H1 (ICLR 2024, section 2.3): every stage has as many as the first stage of 1F1B.
      EXPECT_EQ(held(ScheduleKind::ZeroBubble, Pipeline::plain(p), 32, s), p);
      // ZB-V (NeurIPS 2024, table 1): the same in bytes, because a chunk is half a stage.
      EXPECT_EQ(held(ScheduleKind::ZeroBubble, Pipeline::vee(p, 2), 32, s), 2 * p);
      // Megatron-LM's warm-up (megatron/core/pipeline_parallel/schedules.py): 2 (p - s - 1) + (v -
      // 1) p forwards, plus one before the first backward. Example: p = 4, v = 2, s = 0 gives 11.
      for (int v = 2; v <= 4; ++v)
        EXPECT_EQ(held(ScheduleKind::Interleaved, Pipeline::loop(p, v), 4 * p, s),
                  2 * (p - s - 1) + (v - 1) * p + 1);
    }
}

TEST(Schedule, MoreMicroBatchesRaiseThePeakOnlyWhereAllAreKept) {
  int64_t compared = 0;
  auto check = [&](ScheduleKind kind, const Pipeline &pipeline) {
    const std::optional<int64_t> enough = microBatchesOfPeak(kind, pipeline);
    EXPECT_EQ(enough.has_value(), kind != ScheduleKind::GPipe);
    const int64_t few = enough.value_or(2 * pipeline.numStages);
    for (int64_t micro = few + 1; micro <= 3 * few; ++micro) {
      if (!whyInvalid(kind, pipeline, micro).empty())
        continue;
      for (int stage = 0; stage < pipeline.numStages; ++stage) {
        const int chunks = int(pipeline.chunksOf(stage).size());
        auto moments = [&](int64_t number) {
          return fullestMoments(schedule(kind, pipeline, number, stage), chunks);
        };
        EXPECT_EQ(moments(few) == moments(micro), enough.has_value())
            << describe(kind, pipeline, micro) << ", stage " << stage;
        ++compared;
      }
    }
  };
  for (ScheduleKind kind : kinds)
    for (const Layout &layout : searchedLayouts(kind))
      for (int stages = 2; stages <= 9; ++stages)
        check(kind, (layout.isVee ? Pipeline::vee : Pipeline::loop)(stages, layout.chunksPerStage));
  EXPECT_GT(compared, 1000);
}

TEST(Schedule, GreedyTakesOnNoMoreThanAPipelineOfItsChunks) {
  forAll([](ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
    if (kind != ScheduleKind::Interleaved && kind != ScheduleKind::ZeroBubble)
      return;
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      std::vector<Action> first;
      for (const Action &action : schedule(kind, pipeline, micro, stage))
        if (action.chunk == 0)
          first.push_back(action);
      EXPECT_LE(countedInFlight(first, Kind::Backward), pipeline.numChunks());
    }
  });
}

TEST(Timeline, RespectsDependencies) {
  forAll([](ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
    if (micro > 9)
      return;
    std::mt19937 random(unsigned(micro) + 100);
    std::vector<ChunkTimes> times(size_t(pipeline.numChunks()));
    for (ChunkTimes &chunk : times)
      chunk = {1.0 + random() % 4, 1.0 + random() % 4, splitsBackward(kind) ? 1.5 : 0, 0.25, 0.5};
    Timeline timeline = simulate(kind, pipeline, times, micro);
    std::map<std::tuple<Kind, int, int64_t>, Event> events; // by chunk of the model
    double end = 0;
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      double freeSeconds = 0;
      for (const Event &event : timeline.stages[stage]) {
        ASSERT_GE(event.startSeconds, freeSeconds) << "a stage does one thing at a time";
        freeSeconds = event.endSeconds;
        int chunk = pipeline.chunksOf(stage)[event.action.chunk];
        events[{event.action.kind, chunk, event.action.microBatch}] = event;
      }
      end = std::max(end, freeSeconds);
    }
    EXPECT_DOUBLE_EQ(timeline.makespanSeconds, end);
    EXPECT_DOUBLE_EQ(makespanSeconds(schedules(kind, pipeline, micro), pipeline, times, micro),
                     end);
    auto at = [&](Kind each, int chunk, int64_t m) { return events.at({each, chunk, m}); };
    for (int64_t m = 0; m < micro; ++m)
      for (int c = 0; c < pipeline.numChunks(); ++c) {
        bool isLast = c + 1 == pipeline.numChunks();
        double send = isLast || pipeline.chunkStage[c] == pipeline.chunkStage[c + 1] ? 0 : 1;
        ASSERT_GE(at(Kind::Backward, c, m).startSeconds, at(Kind::Forward, c, m).endSeconds);
        if (splitsBackward(kind))
          ASSERT_GE(at(Kind::Weight, c, m).startSeconds, at(Kind::Backward, c, m).endSeconds);
        if (isLast)
          continue;
        ASSERT_GE(at(Kind::Forward, c + 1, m).startSeconds,
                  at(Kind::Forward, c, m).endSeconds + send * 0.25);
        ASSERT_GE(at(Kind::Backward, c, m).startSeconds,
                  at(Kind::Backward, c + 1, m).endSeconds + send * 0.5);
      }
  });
}

/// Returns the bubble in seconds. By the closed forms it is the same on every stage.
double bubble(ScheduleKind kind, const Pipeline &pipeline, int64_t micro, ChunkTimes times) {
  Timeline timeline =
      simulate(kind, pipeline, std::vector<ChunkTimes>(pipeline.numChunks(), times), micro);
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    EXPECT_NEAR(timeline.bubbleSeconds(stage), timeline.bubbleSeconds(0), 1e-9);
  return timeline.bubbleSeconds(0);
}

TEST(Timeline, BubblesHaveTheClosedForms) {
  for (int p = 1; p <= 8; ++p)
    for (int64_t m = 1; m <= 32; ++m) {
      SCOPED_TRACE(std::to_string(p) + " stages, " + std::to_string(m) + " micro-batches");
      Pipeline plain = Pipeline::plain(p);
      // The bubble is (p - 1)(f + b), a fraction (p - 1) / (m + p - 1) of the makespan. Sources:
      // GPipe (NeurIPS 2019), section 2.3; Megatron-LM (SC 2021), section 2.2.1.
      for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        EXPECT_NEAR(bubble(kind, plain, m, {1, 2}), 3.0 * (p - 1), 1e-9);
        double makespan =
            simulate(kind, plain, std::vector<ChunkTimes>(p, {1, 2}), m).makespanSeconds;
        EXPECT_NEAR(3.0 * (p - 1) / makespan, double(p - 1) / double(m + p - 1), 1e-9);
      }
      // The bubble is (p - 1) / (v m) of the ideal time: Megatron-LM (SC 2021), section 2.2.2.
      for (int v = 2; v <= 4 && m % p == 0; ++v)
        EXPECT_NEAR(bubble(ScheduleKind::Interleaved, Pipeline::loop(p, v), m, {1, 2}) /
                        (3.0 * v * double(m)),
                    double(p - 1) / double(v * m), 1e-9);
      // The bubble is (p - 1)(f + b - w): Qi et al. (ICLR 2024), table 1, for f = b = w and enough
      // micro-batches to fill the pipeline.
      if (m >= p)
        EXPECT_NEAR(bubble(ScheduleKind::ZeroBubble, plain, m, {1, 1, 1}), 1.0 * (p - 1), 1e-9);
      // The bubble is only the wait for the first input, f (p - 1) with f of half a stage: Qi et
      // al. (NeurIPS 2024), section 4.
      if (m >= 2 * p - 1)
        EXPECT_NEAR(bubble(ScheduleKind::ZeroBubble, Pipeline::vee(p, 2), m, {1, 1, 1}),
                    1.0 * (p - 1), 1e-9);
    }
}

/// Work of 1 s per micro-batch over the chunks of a stage: equal chunks, or any. A backward with
/// recomputation is up to three forwards; wgrad is at most half of the work.
std::vector<ChunkTimes> randomTimes(ScheduleKind kind, const Pipeline &pipeline, bool areEqual,
                                    std::mt19937 &random) {
  std::uniform_real_distribution<double> share(0.05, 1);
  std::vector<double> ofStage, ofChunk;
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    ofStage.push_back(share(random));
  double total = 0;
  for (int stage : pipeline.chunkStage)
    total += ofChunk.emplace_back(areEqual ? ofStage[size_t(stage)] : share(random));
  std::vector<ChunkTimes> times;
  for (double seconds : ofChunk)
    times.push_back({seconds / total * 0.25, seconds / total * (splitsBackward(kind) ? 0.25 : 0.75),
                     splitsBackward(kind) ? seconds / total * 0.5 : 0});
  return times;
}

TEST(Timeline, LeastMakespanIsNoLongerThanAnyDivision) {
  std::mt19937 random(7);
  int64_t tight = 0;
  forAll([&](ScheduleKind kind, const Pipeline &pipeline, int64_t micro) {
    const int64_t each = pipeline.numChunks() / pipeline.numStages;
    bool isEven = pipeline.numChunks() % pipeline.numStages == 0;
    for (int stage = 0; stage < pipeline.numStages; ++stage)
      isEven &= int64_t(pipeline.chunksOf(stage).size()) == each;
    const PipelineSize size{pipeline.numStages, each, micro};
    for (Chunking chunking : {Chunking::Any, Chunking::Equal}) {
      // Equal chunks are for layouts of the search: looped or V-shaped.
      if (chunking == Chunking::Equal &&
          !(isEven && pipeline.chunkStage[0] == 0 &&
            pipeline.chunkStage[1 % pipeline.numChunks()] == 1 % pipeline.numStages))
        continue;
      const double least = leastMakespan(kind, 1, size, chunking);
      double shortest = INFINITY;
      for (int i = 0; i < 4; ++i)
        shortest = std::min(
            shortest,
            simulate(kind, pipeline,
                     randomTimes(kind, pipeline, chunking == Chunking::Equal, random), micro)
                .makespanSeconds);
      EXPECT_LE(least, shortest * (1 + 1e-12));
      tight += least > 0.8 * shortest;
    }
  });
  EXPECT_GT(tight, 100);
}

TEST(Timeline, ClosedFormOfTheBubble) {
  EXPECT_DOUBLE_EQ(bubbleSeconds(ScheduleKind::GPipe, {1, 2}, 1), 3);
  EXPECT_DOUBLE_EQ(bubbleSeconds(ScheduleKind::OneFOneB, {1, 2}, 1), 3);
  EXPECT_DOUBLE_EQ(bubbleSeconds(ScheduleKind::Interleaved, {1, 2}, 2), 1.5);
  EXPECT_DOUBLE_EQ(bubbleSeconds(ScheduleKind::ZeroBubble, {1, 1, 0.5}, 1), 1.5);
  EXPECT_DOUBLE_EQ(bubbleSeconds(ScheduleKind::ZeroBubble, {1, 1, 1}, 2), 0.5);
  EXPECT_DOUBLE_EQ(pipelineLowerBound(4, 2, 4), 4 / (1 - 0.5625));
}

TEST(Timeline, ZeroBubbleIsNoSlowerThanOneFOneB) {
  for (int p = 2; p <= 8; ++p)
    for (int64_t m = 1; m <= 32; ++m)
      EXPECT_LE(bubble(ScheduleKind::ZeroBubble, Pipeline::plain(p), m, {1, 1, 1}),
                bubble(ScheduleKind::OneFOneB, Pipeline::plain(p), m, {1, 2}) + 1e-9);
}

TEST(Timeline, ASlowStageSetsThePace) {
  // The slow middle stage is busy without a pause from its first input to its last backward.
  std::vector<ChunkTimes> times = {{1, 1}, {5, 5}, {1, 1}};
  double seconds = simulate(ScheduleKind::OneFOneB, Pipeline::plain(3), times, 10).makespanSeconds;
  EXPECT_GE(seconds, 1 + 10 * 10.0 + 1);
  EXPECT_LE(seconds, 1 + 10 * 10.0 + 1 + 2 + 5);
}

TEST(Timeline, TransfersLengthenTheFillAndTheDrain) {
  std::vector<ChunkTimes> times(3, {1, 1, 0, 0.5, 0.5});
  // One micro-batch crosses two links forward and two backward.
  EXPECT_DOUBLE_EQ(simulate(ScheduleKind::GPipe, Pipeline::plain(3), times, 1).makespanSeconds,
                   6 + 4 * 0.5);
}

} // namespace
} // namespace tbc::schedule
