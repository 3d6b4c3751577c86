//===- StepTimeTest.cpp - Seconds of a step, from those of its stages ------===//

#include "planner/predict/Time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

using namespace tbc;
using namespace tbc::planner;

static Cluster h100() { return *loadCluster("h100-sxm"); }

TEST(Step, ClosedFormEqualsTheScheduleForEqualStages) {
  Cluster cluster = h100();
  StageSeconds stage;
  stage.forward = 0.01;
  stage.backward = 0.02;
  for (int stages : {1, 2, 4, 8})
    for (int64_t accumulation : {1, 2, 4, 16})
      for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        std::vector<StageSeconds> all(stages, stage);
        auto run = PipelineSchedule::make(kind, stages, {}, accumulation);
        double closed = stepTime(cluster, all, run).seconds;
        EXPECT_NEAR(closed, 0.03 * double(accumulation + stages - 1), 1e-12);
        EXPECT_NEAR(simulatedStepTime(cluster, all, run).seconds, closed, 1e-9);
        EXPECT_LE(schedule::pipelineLowerBound(0.03 * stages, stages, accumulation),
                  closed + 1e-12);
      }
}

TEST(Step, ClosedFormIsNearTheScheduleOfSeveralChunks) {
  Cluster cluster = h100();
  StageSeconds chunk;
  chunk.forward = 0.01;
  chunk.backward = 0.01;
  for (int64_t stages : {2, 4, 8})
    for (int64_t accumulation : {16, 32, 64}) {
      for (int each : {2, 4}) {
        auto loop = schedule::Pipeline::loop(int(stages), each).chunkStage;
        auto run = PipelineSchedule::make(ScheduleKind::Interleaved, stages, loop, accumulation);
        std::vector<StageSeconds> all(loop.size(), chunk);
        EXPECT_NEAR(stepTime(cluster, all, run).seconds,
                    simulatedStepTime(cluster, all, run).seconds, 1e-9);
      }
      StageSeconds parted = chunk;
      parted.weight = 0.01;
      for (int each : {1, 2}) {
        auto vee = schedule::Pipeline::vee(int(stages), each).chunkStage;
        auto run = PipelineSchedule::make(ScheduleKind::ZeroBubble, stages, vee, accumulation);
        std::vector<StageSeconds> all(vee.size(), parted);
        EXPECT_NEAR(stepTime(cluster, all, run).seconds,
                    simulatedStepTime(cluster, all, run).seconds, 1e-9);
      }
    }
}

TEST(Step, LowerBoundHoldsForUnequalStages) {
  Cluster cluster = h100();
  for (int seed = 1; seed < 200; ++seed) {
    std::vector<StageSeconds> stages(1 + seed % 5);
    double total = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      stages[s].forward = 0.001 * double((seed * 7 + s * 13) % 11);
      stages[s].backward = 0.001 * double((seed * 5 + s * 17) % 13);
      total += stages[s].forward + stages[s].backward;
    }
    int64_t accumulation = 1 + seed % 7;
    double least = schedule::pipelineLowerBound(total, int64_t(stages.size()), accumulation);
    for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB})
      EXPECT_GE(
          simulatedStepTime(cluster, stages,
                            PipelineSchedule::make(kind, int64_t(stages.size()), {}, accumulation))
              .seconds,
          least - 1e-12);
  }
}

TEST(Step, DataCommunicationHidesBehindCompute) {
  Cluster cluster = h100();
  cluster.overlapSlowdown = 0.25;
  PipelineSchedule once = PipelineSchedule::make(std::nullopt, 1, {}, 1);
  StageSeconds stage;
  stage.forward = 1;
  stage.backward = 2;
  stage.reduceStep = 1;
  EXPECT_EQ(expose(cluster, stage, once).stepEnd, 0.25); // kernels are slower for it
  EXPECT_EQ(expose(cluster, stage, once).hidden, 1);
  cluster.overlapSlowdown = 0;
  ExposedSeconds hidden = expose(cluster, stage, once);
  EXPECT_EQ(hidden.stepEnd, 0);
  EXPECT_EQ(hidden.hidden, 1);
  // With several micro-batches, or a pipeline, they are a part of the update.
  for (const PipelineSchedule &late : {PipelineSchedule::make(std::nullopt, 1, {}, 2),
                                       PipelineSchedule::make(ScheduleKind::OneFOneB, 2, {}, 1)}) {
    EXPECT_EQ(expose(cluster, stage, late).stepEnd, 1);
    EXPECT_EQ(expose(cluster, stage, late).hidden, 0);
  }
  stage.reduceStep = 5;
  EXPECT_NEAR(expose(cluster, stage, once).stepEnd, 5 - 2 * cluster.overlapFraction, 1e-12);
  stage.operandsForward = 0.5; // between ops: never hidden
  EXPECT_NEAR(expose(cluster, stage, once).forward, 1.5, 1e-12);
  stage.gatherForward = 1;
  EXPECT_NEAR(expose(cluster, stage, once).forward, 1.5 + 1 - cluster.overlapFraction, 1e-12);
  // No kernel hides the ends of a block.
  const ExposedSeconds before = expose(cluster, stage, once);
  stage.firstGatherForward = 0.25, stage.firstGatherBackward = 0.5, stage.lastReduceMicro = 1;
  const ExposedSeconds ends = expose(cluster, stage, once);
  EXPECT_NEAR(ends.forward, before.forward + 0.25, 1e-12);
  EXPECT_NEAR(ends.backward, before.backward + 1.5, 1e-12);
  EXPECT_NEAR(ends.data, before.data + 1.75, 1e-12);
  EXPECT_EQ(ends.hidden, before.hidden);
}

TEST(Step, LongKernelsHideLaunches) {
  Cluster cluster = h100();
  const PipelineSchedule two = PipelineSchedule::make(std::nullopt, 1, {}, 2);
  StageSeconds stage;
  stage.forward = 1;
  stage.operandsForward = 0.5;
  stage.backward = 2;
  stage.recompute = 1;
  stage.launchForward = 1.75; // 0.25 beyond kernels and collectives
  stage.launchBackward = 2.5; // hidden
  const ExposedSeconds exposed = expose(cluster, stage, two);
  EXPECT_EQ(exposed.forward, 1.75);
  EXPECT_EQ(exposed.waitForward, 0.25);
  EXPECT_EQ(exposed.backward, 3);
  EXPECT_EQ(exposed.waits(), 0.25);
  const StepTime time = stepTime(cluster, {stage}, two);
  EXPECT_EQ(time.seconds, 2 * (1.75 + 3));
  EXPECT_EQ(time.split.launches, 2 * 0.25);
  EXPECT_EQ(time.split.total(), time.seconds);
}

// Messages hold a stage whatever its kernels do.
TEST(Step, MessagesHoldTheirStages) {
  Cluster cluster = h100();
  StageSeconds stage;
  stage.forward = 1, stage.backward = 2;
  stage.launchForward = 1.5;
  stage.messageForward = stage.messageBackward = 0.25;
  const PipelineSchedule pipeline = PipelineSchedule::make(ScheduleKind::OneFOneB, 2, {}, 4);
  const ExposedSeconds exposed = expose(cluster, stage, pipeline);
  EXPECT_EQ(exposed.forward, 1.75);
  EXPECT_EQ(exposed.backward, 2.25);
  EXPECT_EQ(exposed.waits(), 0.5);
  const StepTime time = simulatedStepTime(cluster, {stage, stage}, pipeline);
  EXPECT_EQ(time.seconds, (4 + 1) * (1.75 + 2.25));
  EXPECT_EQ(time.split.total(), time.seconds);
}

// Sums of gradients begin in the last backward of an executor that has hooks for them, also with
// several micro-batches. In a pipeline, and in the updates of others, they are exposed.
TEST(Step, LastBackwardHidesReductions) {
  Cluster cluster = h100();
  cluster.overlapFraction = 0;
  cluster.executor.name = "of hooks";
  cluster.executor.lastBackward = 0.5;
  StageSeconds stage;
  stage.forward = 1, stage.backward = 2, stage.recompute = 1;
  stage.reduceLast = 2;
  const PipelineSchedule four = PipelineSchedule::make(std::nullopt, 1, {}, 4);
  EXPECT_EQ(expose(cluster, stage, four).stepEnd, 2 - 0.5 * 3);
  EXPECT_EQ(expose(cluster, stage, four).hidden, 1.5);
  EXPECT_EQ(
      expose(cluster, stage, PipelineSchedule::make(ScheduleKind::OneFOneB, 2, {}, 4)).stepEnd, 2);
  stage.reduceStep = 1;
  EXPECT_EQ(expose(cluster, stage, four).stepEnd, 1.5);
}

// Programs reduce the gradients of the first stage in its last backward, but for the last bucket.
// Later stages reduce while the stages before them run their last backwards.
TEST(Step, ReductionsHideAtTheEndOfTheStep) {
  Cluster cluster = h100();
  cluster.overlapFraction = 0.5, cluster.overlapSlowdown = 0;
  StageSeconds first, later;
  first.forward = later.forward = 1, first.backward = later.backward = 2;
  first.reduceLast = 1.5, first.lastReduceStep = 0.25;
  const PipelineSchedule alone = PipelineSchedule::make(std::nullopt, 1, {}, 4);
  EXPECT_EQ(expose(cluster, first, alone).stepEnd, 0.5 + 0.25);
  EXPECT_EQ(expose(cluster, first, alone).hidden, 1);
  EXPECT_EQ(stepTime(cluster, {first}, alone).seconds, 4 * 3 + 0.75);

  later.reduceStep = 3;
  StageSeconds third = later;
  third.reduceStep = 6;
  const std::vector<StageSeconds> stages = {first, later, third};
  auto seconds = [&](ScheduleKind kind) {
    return simulatedStepTime(cluster, stages, PipelineSchedule::make(kind, 3, {}, 4)).seconds;
  };
  // Six seconds of micro-batches each of three, less two of the second stage and four of the third.
  EXPECT_EQ(seconds(ScheduleKind::OneFOneB), (4 + 2) * 3 + 2);
  EXPECT_EQ(seconds(ScheduleKind::GPipe), (4 + 2) * 3 + 2);
  // Another executor, and stages with wgrad apart, have all of them at the end.
  EXPECT_GE(seconds(ScheduleKind::ZeroBubble), 4 * 3 + 6);
  cluster.executor.name = "other";
  EXPECT_EQ(seconds(ScheduleKind::OneFOneB), (4 + 2) * 3 + 6);
}

TEST(Step, TraceIsTheSimulatedStep) {
  Cluster cluster = h100();
  StageSeconds stage;
  stage.forward = 1e-3, stage.backward = 2e-3, stage.updateStep = 5e-4;
  StepTrace trace;
  PipelineSchedule run = PipelineSchedule::make(std::nullopt, 1, {}, 2);
  double seconds = simulatedStepTime(cluster, {stage}, run, &trace).seconds;
  EXPECT_EQ(seconds, simulatedStepTime(cluster, {stage}, run).seconds);
  EXPECT_EQ(trace.seconds, seconds);
  ASSERT_EQ(trace.timeline.stages.size(), 1u);
  std::vector<double> begins;
  for (const schedule::Event &event : trace.timeline.stages[0])
    begins.push_back(event.startSeconds);
  ASSERT_EQ(begins.size(), 4u);
  for (size_t i = 0; i < begins.size(); ++i)
    EXPECT_NEAR(begins[i], std::vector<double>({0, 1e-3, 3e-3, 4e-3})[i], 1e-15);
  EXPECT_NEAR(trace.updateBegin, 6e-3, 1e-15);
  EXPECT_EQ(trace.updateBegin + trace.stages[0].stepEnd, seconds);

  std::vector<StageSeconds> stages(4, stage);
  stages[1].sendForward = 1e-4;
  for (ScheduleKind kind : schedule::scheduleKinds()) {
    std::vector<int> chunkStage; // as plans have it: empty for one chunk per stage
    if (kind == ScheduleKind::Interleaved)
      chunkStage = {0, 1, 0, 1};
    run = PipelineSchedule::make(kind, chunkStage.empty() ? 4 : 2, chunkStage, 8);
    trace = {};
    seconds = simulatedStepTime(cluster, stages, run, &trace).seconds;
    EXPECT_EQ(seconds, simulatedStepTime(cluster, stages, run).seconds) << name(kind);
    EXPECT_EQ(trace.seconds, seconds);
    double last = 0, end = 0;
    for (size_t s = 0; s < trace.timeline.stages.size(); ++s) {
      last = std::max(last, trace.timeline.stages[s].back().endSeconds);
      end = std::max(end, trace.stages[s].stepEnd);
    }
    EXPECT_EQ(last, trace.updateBegin) << name(kind);
    EXPECT_EQ(last + end, seconds) << name(kind);
  }
}

// The head sends logits to the stage of the loss; the other stages send activations.
TEST(Step, SendsTakeTheirOwnTime) {
  std::vector<StageSeconds> stages(4);
  for (size_t s = 0; s < 4; ++s) {
    stages[s].forward = stages[s].backward = 0.01;
    stages[s].sendForward = s == 2 ? 8e-3 : 1e-3;
    stages[s].sendBackward = s == 3 ? 8e-3 : s == 1 ? 1e-4 : 1e-3;
  }
  const Cluster cluster = h100();
  const PipelineSchedule run = PipelineSchedule::make(ScheduleKind::OneFOneB, 4, {}, 1);
  const std::vector<schedule::ChunkTimes> times = chunkTimes(cluster, stages, run);
  EXPECT_EQ(times[0].sendForwardSeconds, 1e-3);
  EXPECT_EQ(times[2].sendForwardSeconds, 8e-3);
  EXPECT_EQ(times[1].sendBackwardSeconds, 1e-3) << "no less than the first";
  EXPECT_EQ(times[3].sendBackwardSeconds, 8e-3);
  EXPECT_NEAR(simulatedStepTime(cluster, stages, run).seconds, 8 * 0.01 + 2 * 8e-3 + 4 * 1e-3,
              1e-12);
}

TEST(Step, SplitAddsUpToTheStep) {
  Cluster cluster = h100();
  std::vector<StageSeconds> stages(3);
  for (size_t s = 0; s < 3; ++s) {
    stages[s].forward = 0.01 * double(s + 1);
    stages[s].backward = 0.02;
    stages[s].updateStep = 0.001;
    stages[s].reduceStep = 0.1;
    stages[s].sendForward = stages[s].sendBackward = 1e-4;
  }
  StepTime time =
      simulatedStepTime(cluster, stages, PipelineSchedule::make(ScheduleKind::OneFOneB, 3, {}, 6));
  EXPECT_NEAR(time.split.total(), time.seconds, 1e-9);
  EXPECT_EQ(time.slowestStage, 2);
}
