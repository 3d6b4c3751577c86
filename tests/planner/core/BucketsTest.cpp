//===- BucketsTest.cpp - How much is reduced together, how early is gathered -===//

#include "planner/cost/Buckets.h"
#include "planner/memory/Buffers.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanFile.h"
#include "planner/search/Search.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

namespace {

/// A cluster with a high latency of collectives.
Cluster slowToStart(int64_t memoryBytes = int64_t(1) << 30) {
  Cluster cluster = *loadCluster("h100-sxm");
  cluster.memoryBytes = memoryBytes;
  cluster.contextBytes = 0;
  cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
  cluster.memoryBytesPerSecond = 1e10;
  cluster.intraNode = {1e-4, 1e9, 1e-4};
  return cluster;
}

Result<SearchAnswer> planOn(const char *mesh, Pins pins, const Cluster &cluster,
                            int64_t microBatch = 2) {
  pins.mesh = *parseMesh(mesh);
  pins.microBatch = microBatch;
  Job job;
  job.gpus = 4;
  job.globalBatch = 16;
  job.precision = Precision::F32;
  return search(makeChain({4, 1, 16, 4, 8, 64, 96}), job, cluster, pins);
}

Pins with(const char *bucketSize, const char *prefetch, const char *gatherSize = "none") {
  Pins pins;
  pins.bucketSize = bucketSize;
  pins.prefetch = prefetch;
  pins.gatherSize = gatherSize;
  return pins;
}

TEST(Buckets, BestNumberIsTheLeastOfTheirCost) {
  for (double transfer : {0.0, 1e-4, 1e-3, 0.02, 0.5})
    for (double start : {1e-6, 1e-5, 1e-4}) {
      double best = bestNumBuckets(transfer, start);
      auto cost = [&](double n) { return n * start + transfer / n; };
      EXPECT_GE(best, 1);
      for (double n = 1; n < 2000; ++n)
        EXPECT_LE(cost(best), cost(n) * (1 + 1e-12)) << transfer << " " << start << " " << n;
    }
  EXPECT_EQ(bestNumBuckets(1, 0), 1) << "free starts say nothing";
}

TEST(Buckets, NumberOfCollectives) {
  std::optional<int64_t> none = 0, small = 100;
  EXPECT_EQ(numJoined(none, 12, 1000, 1, 0.01), 12);
  EXPECT_EQ(numJoined(small, 12, 1000, 1, 0.01), 10);
  EXPECT_EQ(numJoined(small, 12, 1e6, 1, 0.01), 12) << "no more than there are";
  EXPECT_EQ(numJoined({}, 12, 1000, 0.04, 0.01), 2);
  EXPECT_EQ(numJoined({}, 1, 1000, 0.04, 0.01), 1);
}

TEST(Buckets, AreFasterThanOneByOneAndNeverSlower) {
  for (const char *mesh : {"dp=4", "fsdp=4", "dp=2,fsdp=2", "pp=2,dp=2", "dp=2,tp=2"})
    for (int64_t microBatch : {1, 2, 4}) {
      Result<SearchAnswer> open = planOn(mesh, {}, slowToStart(), microBatch),
                           none = planOn(mesh, with("none", "none"), slowToStart(), microBatch);
      ASSERT_TRUE(open) << mesh << ": " << open.error().message;
      ASSERT_TRUE(none) << mesh << ": " << none.error().message;
      EXPECT_EQ(none->plan.overlap, reshard::OverlapSettings());
      EXPECT_GT(open->plan.overlap.bucketBytes, 0) << mesh;
      EXPECT_LT(open->plan.prediction.stepSeconds, none->plan.prediction.stepSeconds) << mesh;
      EXPECT_LE(open->plan.lowerBoundSeconds, open->plan.prediction.stepSeconds) << mesh;
      EXPECT_LE(none->plan.lowerBoundSeconds, none->plan.prediction.stepSeconds) << mesh;
      EXPECT_LE(open->plan.lowerBoundSeconds, none->plan.lowerBoundSeconds * (1 + 1e-12)) << mesh;
    }
}

TEST(Buckets, TakeNoMoreMemoryThanThereIs) {
  int withBuckets = 0, without = 0;
  for (int64_t kib = 256; kib < 8192; kib = kib * 9 / 8)
    for (const char *mesh : {"dp=4", "fsdp=4"}) {
      Result<SearchAnswer> none = planOn(mesh, with("none", "none"), slowToStart(kib * 1024)),
                           open = planOn(mesh, {}, slowToStart(kib * 1024));
      ASSERT_EQ(bool(open), bool(none)) << mesh << " " << kib;
      if (!open)
        continue;
      EXPECT_LE(open->plan.prediction.peakBytes, open->plan.limitBytes());
      EXPECT_LE(open->plan.prediction.stepSeconds, none->plan.prediction.stepSeconds * (1 + 2e-3))
          << mesh << " " << kib;
      (open->plan.overlap.bucketBytes > 0 ? withBuckets : without) += 1;
    }
  EXPECT_GT(withBuckets, 0);
  EXPECT_GT(without, 0) << "memory is never short";
}

TEST(Prefetch, IsForStoredParametersAlone) {
  EXPECT_EQ(planOn("dp=4", {}, slowToStart())->plan.overlap.prefetch, 0);
  EXPECT_GT(planOn("fsdp=4", {}, slowToStart())->plan.overlap.prefetch, 0);
  Result<SearchAnswer> one = planOn("fsdp=4", with("auto", "1"), slowToStart()),
                       all = planOn("fsdp=4", with("auto", "4096"), slowToStart());
  ASSERT_TRUE(one && all);
  EXPECT_EQ(one->plan.overlap.prefetch, 1);
  EXPECT_EQ(all->plan.overlap.prefetch, 4096);
  EXPECT_LE(one->plan.prediction.peakBytes, all->plan.prediction.peakBytes);
}

/// Returns the peak of the gathered parameters in forward, in bytes.
int64_t mostGathered(const reshard::Graph &graph, const Plan &plan, int64_t prefetch) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  EXPECT_TRUE(step) << step.error().message;
  reshard::Derivation derivation = reshard::derive(step->graph, step->assignment);
  StepBuffers buffers =
      stepBuffers(step->graph, step->assignment, derivation,
                  reshard::planOverlap(step->graph, derivation, {0, prefetch, 0}));
  const BlockBuffers &forward = buffers.blocks.at({0, reshard::Phase::Forward});
  int64_t most = 0;
  for (int at = 0; at < int(forward.opOf.size()); ++at) {
    int64_t live = 0;
    for (size_t b = 0; b < forward.kinds.size(); ++b)
      if (forward.kinds[b] == BufferKind::Gathered && forward.lifetimes[b].first <= at &&
          at <= forward.lifetimes[b].last)
        live += forward.lifetimes[b].bytes;
    most = std::max(most, live);
  }
  return most;
}

TEST(Prefetch, TakesMemoryFromWhenTheGatherBegins) {
  Result<SearchAnswer> answer = planOn("fsdp=4", {}, slowToStart());
  ASSERT_TRUE(answer) << answer.error().message;
  reshard::Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  int64_t none = mostGathered(graph, answer->plan, 0), one = mostGathered(graph, answer->plan, 1),
          all = mostGathered(graph, answer->plan, maxPrefetch), whole = 0;
  for (const reshard::GraphParameter &parameter : graph.parameters) {
    const reshard::TensorLayout &layout = graph.values[parameter.value].layout;
    whole += layout.numElements() * layout.elementBytes;
  }
  EXPECT_GT(none, 0);
  EXPECT_LT(none, one);
  EXPECT_LT(one, all);
  EXPECT_GE(all, whole) << "all of them at once";
}

TEST(BlockEnds, AreTheFirstGatherAndTheLastReduction) {
  for (const char *gatherSize : {"none", "4KiB", "1GiB"}) {
    Result<SearchAnswer> answer = planOn("fsdp=4", with("auto", "auto", gatherSize), slowToStart());
    ASSERT_TRUE(answer) << answer.error().message;
    const Plan &plan = answer->plan;
    ASSERT_EQ(plan.prediction.chunks.size(), 1u);
    const StageSeconds &chunk = plan.prediction.chunks[0].seconds;
    double gathers = 0, scatters = 0, numGathers = 0; // of a step
    for (const CollectiveLine &line : plan.prediction.collectives) {
      const double seconds = line.seconds * double(line.count.count);
      if (line.count.kind == reshard::CollectiveKind::AllGather)
        gathers += seconds, numGathers += double(line.count.count);
      if (line.count.kind == reshard::CollectiveKind::ReduceScatter)
        scatters += seconds;
    }
    const double accumulation = double(plan.accumulation);
    EXPECT_GT(chunk.firstGatherForward, 0) << gatherSize;
    EXPECT_GT(chunk.lastReduceMicro, 0) << gatherSize;
    EXPECT_NEAR(accumulation * (chunk.gatherForward + chunk.firstGatherForward +
                                chunk.gatherBackward + chunk.firstGatherBackward),
                gathers, 1e-9)
        << gatherSize;
    EXPECT_NEAR(accumulation * (chunk.reduceMicro + chunk.lastReduceMicro), scatters, 1e-9);
    const bool isOneOfEach = numGathers <= 2 * accumulation;
    EXPECT_EQ(isOneOfEach, std::string(gatherSize) == "1GiB");
    EXPECT_EQ(chunk.gatherForward == 0, isOneOfEach) << gatherSize;
  }
}

// With several micro-batches, the last backward of the first stage reduces: all but the last bucket
// beside kernels. The parts add up to the collectives.
TEST(BlockEnds, AreOfTheLastBackwardWithSeveralMicroBatches) {
  for (const char *mesh : {"dp=4", "dp=2,pp=2"}) {
    Pins pins = with("4KiB", "auto", "auto");
    pins.microBatch = 1;
    Result<SearchAnswer> answer = planOn(mesh, pins, slowToStart());
    ASSERT_TRUE(answer) << answer.error().message;
    const Plan &plan = answer->plan;
    ASSERT_GT(plan.accumulation, 1) << mesh;
    const StageSeconds &chunk = plan.prediction.chunks[0].seconds;
    double reductions = 0;
    for (const CollectiveLine &line : plan.prediction.collectives)
      if (line.count.axes == "dp" && line.count.stage == 0 && line.count.bytes > 64)
        reductions += line.seconds * double(line.count.count);
    EXPECT_GT(chunk.reduceLast, 0) << mesh;
    EXPECT_GT(chunk.lastReduceStep, 0) << mesh;
    EXPECT_EQ(chunk.reduceStep, 0) << mesh;
    EXPECT_NEAR(chunk.reduceLast + chunk.lastReduceStep, reductions, 1e-9) << mesh;
    if (plan.mesh.pp > 1)
      EXPECT_GT(plan.prediction.chunks[1].seconds.reduceStep, 0);
    EXPECT_LE(plan.lowerBoundSeconds, plan.prediction.stepSeconds * (1 + 1e-9));
  }
}

TEST(Gathers, TakeTheBytesOfABlockOrLess) {
  EXPECT_EQ(gatherUnitBytes(16.1e9, 32), int64_t(480) << 20);
  EXPECT_EQ(gatherUnitBytes(10, 3), int64_t(1) << 20);
  EXPECT_GT(planOn("fsdp=4", {}, slowToStart())->plan.overlap.gatherBytes, 0);
  EXPECT_EQ(planOn("dp=4", {}, slowToStart())->plan.overlap.gatherBytes, 0);
}

TEST(Prefetch, IsOfMoreGathersWhereEachIsAlone) {
  Result<SearchAnswer> answer = planOn("fsdp=4", {}, slowToStart());
  ASSERT_TRUE(answer) << answer.error().message;
  reshard::Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Result<PlannedStep> step = applyPlan(graph, answer->plan);
  ASSERT_TRUE(step) << step.error().message;
  const reshard::Derivation derivation = reshard::derive(step->graph, step->assignment);
  const NetworkCost network(answer->plan.cluster, step->assignment.mesh);
  auto first = [&](const OverlapPins &pins, int64_t unit) {
    return overlapChoices(pins, unit, step->graph, derivation, network).front();
  };
  OverlapPins alone;
  alone.gatherBytes = 0;
  EXPECT_EQ(first({}, 1 << 20).prefetch, 1);
  EXPECT_EQ(first({}, 1 << 20).gatherBytes, 1 << 20);
  for (const reshard::OverlapSettings &choice : {first(alone, 1 << 20), first({}, 0)}) {
    EXPECT_EQ(choice.prefetch, 4);
    EXPECT_EQ(choice.gatherBytes, 0);
  }
}

TEST(OverlapPins, WordsThatAreNoneAreNamed) {
  for (const char *text : {"", "no", "-1", "0", "25MB5", "1e6", "99999999999999999999"}) {
    Result<SearchAnswer> answer = planOn("dp=4", with(text, "auto"), slowToStart());
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, ErrorCode::Usage);
    EXPECT_THAT(answer.error().message, HasSubstr("--bucket-size")) << text;
    answer = planOn("fsdp=4", with("auto", "auto", text), slowToStart());
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, ErrorCode::Usage);
    EXPECT_THAT(answer.error().message, HasSubstr("--gather-size")) << text;
  }
  for (const char *text : {"", "no", "-1", "0", "4097", "2x", "99999999999999999999"}) {
    Result<SearchAnswer> answer = planOn("fsdp=4", with("auto", text), slowToStart());
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, ErrorCode::Usage);
    EXPECT_THAT(answer.error().message, HasSubstr("--prefetch")) << text;
  }
}

TEST(OverlapPins, AreKeptInThePlan) {
  Result<SearchAnswer> answer = planOn("fsdp=4", with("12KiB", "3", "5KiB"), slowToStart());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.overlap, (reshard::OverlapSettings{12 << 10, 3, 5 << 10}));
  std::string text = writePlan(answer->plan);
  Result<Plan> read = readPlan(text, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->overlap, answer->plan.overlap);
  // Plans from before there were any.
  for (const char *line :
       {" \"bucket_bytes\": 12288,\n", " \"prefetch\": 3,\n", " \"gather_bytes\": 5120,\n"}) {
    size_t at = text.find(line);
    ASSERT_NE(at, std::string::npos) << line;
    text.erase(at, std::string(line).size());
  }
  Result<Plan> old = readPlan(text, "plan.json");
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_EQ(old->overlap, reshard::OverlapSettings());
}

} // namespace
