//===- BoundTest.cpp - Bounds are bounds --------------------------------------===//

#include "planner/bound/CutBound.h"
#include "planner/bound/KeepBound.h"
#include "planner/bound/PipelineBound.h"
#include "planner/bound/PipelineRoom.h"
#include "planner/bound/ShortestCut.h"
#include "planner/cost/Cost.h"
#include "planner/graph/Recompute.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/BatchSums.h"
#include "planner/search/Search.h"
#include "tests/planner/core/PipelineCuts.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

// Indivisible parts, on one chunk or several of each stage.
TEST(CutBound, IsBelowEveryCut) {
  std::mt19937 random(29);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  int tight = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<WorkShare> parts;
    std::vector<bool> mayBegin;
    WorkShare total;
    for (int p = 0; p < 14; ++p) {
      double size = p % 3 ? 1 : 0.3 * uniform();
      parts.push_back({size, size * uniform(), size});
      mayBegin.push_back(random() % 4 != 0 || p < 2);
      total.add(parts.back(), 1);
    }
    const CutBound bound(parts, mayBegin);
    const int64_t numCuts = std::count(mayBegin.begin() + 1, mayBegin.end(), true);
    for (const ScheduleCase &c : {ScheduleCase{ScheduleKind::OneFOneB, 3, 1, false, 5},
                                  {ScheduleKind::GPipe, 3, 1, false, 2},
                                  {ScheduleKind::ZeroBubble, 4, 1, false, 8},
                                  {ScheduleKind::ZeroBubble, 2, 2, true, 6},
                                  {ScheduleKind::Interleaved, 2, 3, false, 4}}) {
      PipelineSchedule schedule = make(c);
      const int numChunks = schedule.pipeline.numChunks();
      if (numCuts + 1 < numChunks)
        continue;
      constexpr double sendSeconds = 0.05;
      const double even = total.seconds() * double(c.accumulation) / double(c.stages);
      const double least = bound.leastSeconds({c.stages, c.accumulation, c.chunksPerStage == 1,
                                               schedule::splitsBackward(c.kind), sendSeconds},
                                              even, 10 * even);
      EXPECT_GE(least, even);
      double best = INFINITY;
      for (int cut = 0; cut < 60; ++cut)
        best = std::min(
            best, makespanOf(schedule, parts, randomCut(random, mayBegin, numChunks), sendSeconds));
      EXPECT_LE(least, best * (1 + 1e-12)) << schedule::name(c.kind) << " round " << round;
      tight += least > 1.01 * even && least > 0.8 * best;
    }
  }
  EXPECT_GT(tight, 30) << "it says something";
}

TEST(CutBound, StagesOfSeveralChunksAreBins) {
  // Six of 3 seconds and six of 2: five stages have at least one with two of 3.
  std::vector<WorkShare> parts(6, {1, 1, 1});
  parts.insert(parts.end(), 6, {1, 1, 0});
  const CutBound bound(parts, std::vector<bool>(parts.size(), true));
  CutBound::Pipeline pipeline{5, 2, false, false, 0};
  EXPECT_NEAR(bound.leastSeconds(pipeline, 11, 100), 12, 0.05) << "a stage with two of 3";
  pipeline.stages = 12;
  EXPECT_NEAR(bound.leastSeconds(pipeline, 5, 100), 6, 0.05) << "the largest part";
  EXPECT_EQ(bound.leastSeconds(pipeline, 50, 100), 50);
  EXPECT_EQ(bound.leastSeconds(pipeline, 1, 4), 4) << "nobody asks for more";
}

TEST(ShortestCut, IsTheShortestOfAllCuts) {
  std::mt19937 random(7);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  for (const ScheduleCase &c : {ScheduleCase{ScheduleKind::OneFOneB, 3, 1, false, 4},
                                {ScheduleKind::ZeroBubble, 3, 1, false, 2},
                                {ScheduleKind::ZeroBubble, 2, 2, true, 4},
                                {ScheduleKind::Interleaved, 2, 2, false, 4}}) {
    PipelineSchedule schedule = make(c);
    int numChunks = schedule.pipeline.numChunks();
    std::vector<WorkShare> ops;
    std::vector<bool> mayBegin;
    for (int op = 0; op < 9; ++op) {
      ops.push_back({uniform(), uniform(), uniform()});
      mayBegin.push_back(op != 4);
    }
    const PieceSends sends{{}, 0.1};
    double least = shortestCutSeconds(schedule, ops, mayBegin, sends, 10000), best = INFINITY;
    // All subsets of ops at which a next chunk may begin, if they end on the last chunk.
    for (int cuts = 0; cuts < 1 << 8; ++cuts) {
      std::vector<int> chunkOf{0};
      for (int op = 1; op < 9; ++op)
        chunkOf.push_back(chunkOf.back() + (cuts >> (op - 1) & 1));
      if (chunkOf.back() == numChunks - 1 && !(cuts >> 3 & 1))
        best = std::min(best, makespanOf(schedule, ops, chunkOf, 0.1));
    }
    EXPECT_NEAR(least, best, 1e-12) << schedule::name(c.kind);
    EXPECT_EQ(shortestCutSeconds(schedule, ops, mayBegin, sends, 10000, 1.01 * least), least);
    EXPECT_GT(shortestCutSeconds(schedule, ops, mayBegin, sends, 10000, 0.99 * least),
              0.99 * least);
    EXPECT_EQ(shortestCutSeconds(schedule, ops, mayBegin, sends, 2), 0) << "too many to look at";
    EXPECT_EQ(shortestCutSeconds(schedule, {ops[0]}, {true}, sends, 2), INFINITY) << "too few ops";
  }
}

//===----------------------------------------------------------------------===//
// Bytes kept by a pipeline, against random cuts
//===----------------------------------------------------------------------===//

TEST(PipelineRoom, IsAboveEveryCutThatFits) {
  std::mt19937 random(9);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  int tight = 0, cuts = 0;
  for (int round = 0; round < 200; ++round) {
    PipelineRoom room;
    size_t length = 2 + random() % 5, stages = 2 + random() % 3;
    for (size_t i = 0; i < length; ++i)
      room.block.push_back({uniform(), uniform() * double(random() % 2) + (i == 0), 0, uniform()});
    room.count = double(4 + random() % 12);
    for (size_t s = 0; s < stages; ++s)
      room.inFlight.push_back(double(stages - s));
    size_t numOps = length * size_t(room.count);
    double fixed = 0, all = 0;
    for (const BlockPart &part : room.block) {
      fixed += part.fixedBytes * room.count;
      all += part.keptBytes * room.count;
    }
    room.usableBytes = (fixed + all * uniform()) / double(stages) * 1.5;
    room.mostSeconds = INFINITY;
    double most = room.mostKeptBytes(), best = -1, within = INFINITY;
    for (int cut = 0; cut < 300; ++cut) {
      std::vector<size_t> begins{0, numOps};
      for (size_t s = 1; s < stages; ++s)
        begins.push_back(random() % numOps);
      std::sort(begins.begin(), begins.end());
      double kept = 0, longest = 0;
      bool fits = true;
      for (size_t s = 0; s < stages; ++s) {
        BlockPart on;
        for (size_t op = begins[s]; op < begins[s + 1]; ++op) {
          const BlockPart &part = room.block[op % length];
          on.seconds += part.seconds;
          on.keptBytes += part.keptBytes;
          on.fixedBytes += part.fixedBytes;
        }
        fits &= on.fixedBytes <= room.usableBytes;
        kept += std::min(on.keptBytes, (room.usableBytes - on.fixedBytes) / room.inFlight[s]);
        longest = std::max(longest, on.seconds);
      }
      if (!fits)
        continue;
      ++cuts;
      best = std::max(best, kept);
      EXPECT_LE(kept, most * (1 + 1e-9)) << "round " << round;
      // The same for plans that take no longer than this one.
      PipelineRoom timed = room;
      timed.mostSeconds = longest;
      within = timed.mostKeptBytes();
      EXPECT_LE(kept, within * (1 + 1e-9)) << "round " << round;
      EXPECT_LE(within, most * (1 + 1e-9));
    }
    tight += best > 0 && most < all && best > 0.8 * most;
  }
  EXPECT_GT(cuts, 1000);
  EXPECT_GT(tight, 10) << "it says something";
}

// Ops of any sizes, on one chunk or several of each stage.
TEST(MostKeptAnywhere, IsAboveEveryCutThatFits) {
  std::mt19937 random(5);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  int tight = 0, cuts = 0;
  for (int round = 0; round < 400; ++round) {
    const size_t stages = 2 + random() % 3, chunks = stages * (1 + random() % 2);
    const size_t numOps = chunks + random() % 8;
    std::vector<double> fixed, kept, copies, inFlight(stages, INFINITY);
    for (size_t op = 0; op < numOps; ++op) {
      fixed.push_back(uniform());
      kept.push_back(uniform() * double(random() % 2));
    }
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      copies.push_back(double(1 + random() % 4));
      double &least = inFlight[chunk % stages];
      least = std::min(least, copies.back());
    }
    const double allFixed = std::accumulate(fixed.begin(), fixed.end(), 0.0);
    const double allKept = std::accumulate(kept.begin(), kept.end(), 0.0);
    const double usable = (allFixed + 2 * allKept * uniform()) / double(stages) * 1.5;
    const double most = mostKeptAnywhere(usable, inFlight, allFixed);
    double best = -1;
    for (int cut = 0; cut < 200; ++cut) {
      std::vector<size_t> begins{0, numOps};
      for (size_t chunk = 1; chunk < chunks; ++chunk)
        begins.push_back(random() % numOps);
      std::sort(begins.begin(), begins.end());
      // Recomputed ops keep a part of their bytes.
      const double part = uniform();
      std::vector<double> held(stages, 0);
      double sum = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        for (size_t op = begins[chunk]; op < begins[chunk + 1]; ++op) {
          held[chunk % stages] += fixed[op] + copies[chunk] * part * kept[op];
          sum += part * kept[op];
        }
      if (*std::max_element(held.begin(), held.end()) > usable)
        continue;
      ++cuts;
      best = std::max(best, sum);
      EXPECT_LE(sum, most * (1 + 1e-9)) << "round " << round;
    }
    tight += best > 0.7 * most;
  }
  EXPECT_GT(cuts, 1000);
  EXPECT_GT(tight, 20) << "it says something";
  EXPECT_LT(mostKeptAnywhere(1, {2, 1}, 2.5), 0) << "the parameters alone do not fit";
  EXPECT_DOUBLE_EQ(mostKeptAnywhere(10, {2, 1}, 12), 8) << "the example of the header";
}

//===----------------------------------------------------------------------===//
// Kept bytes, against all sets of ops that may be recomputed
//===----------------------------------------------------------------------===//

/// Returns the shortest step on one device over all micro-batches and all sets of recomputed ops,
/// by peak memory: pairs (bytes, seconds), ascending. A plan fits if its peak is at most these
/// bytes.
std::vector<std::pair<int64_t, double>> everyPlan(const Graph &graph, const Job &job,
                                                  const Cluster &cluster) {
  std::vector<std::pair<int64_t, double>> found;
  int numForward = numForwardOps(graph);
  for (int64_t micro = 1; micro <= job.globalBatch; micro *= 2)
    for (int subset = 0; subset < 1 << numForward; ++subset) {
      Plan plan;
      plan.job = job;
      plan.cluster = cluster;
      plan.microBatch = micro;
      plan.accumulation = job.globalBatch / micro;
      plan.schedule.reset();
      plan.stages = {graph.ops[0].id};
      for (int op = 0; op < numForward; ++op)
        if (subset >> op & 1)
          plan.recomputeOps.push_back(graph.ops[op].id);
      Result<Prediction> prediction = predict(graph, plan);
      EXPECT_TRUE(prediction) << prediction.error().message;
      if (prediction)
        found.push_back({prediction->peakBytes, prediction->stepSeconds});
    }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(KeepBound, IsBelowEveryRecomputationThatFits) {
  std::mt19937 random(3);
  int forced = 0, tight = 0, cases = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<int64_t> widths;
    for (int i = 0; i < 4; ++i)
      widths.push_back(int64_t(8 + 8 * (random() % 30)));
    Graph graph = round % 2 ? makeMlp(1, widths) : makeMlp(1, widths, 4, /*hasBias=*/true);
    Cluster cluster = *loadCluster("h100-sxm");
    cluster.contextBytes = 0;
    cluster.launchSeconds = round % 3 ? 1e-7 : 1e-5;
    cluster.memoryBytesPerSecond = round % 4 ? 1e9 : 1e10;
    for (auto &[name, kernel] : cluster.kernels)
      kernel.rampSeconds = kernel.halfDepth = 0;
    cluster.overlapSlowdown = 0;
    bool hasEveryTerm = round >= 10;
    if (hasEveryTerm) {
      cluster.floorSeconds = 3 * cluster.launchSeconds;
      for (auto &[name, kernel] : cluster.kernels)
        kernel.bytesPerFlop = 2;
      cluster.kernels[KernelClass::Matmul].halfDepth = 16;
    }
    cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
    Job job;
    job.globalBatch = 32;
    job.precision = Precision::F32;
    std::vector<std::pair<int64_t, double>> all = everyPlan(graph, job, cluster);
    double unlimited = 0;
    for (int part = 8; part >= 0; --part) {
      int64_t limit = all[(all.size() - 1) * size_t(part) / 8].first;
      double best = INFINITY;
      for (auto [bytes, seconds] : all)
        if (bytes <= limit)
          best = std::min(best, seconds);
      Pins pins;
      pins.memoryLimitBytes = limit;
      pins.memoryGoal = MemoryVerdict::Tight; // as for `bytes`, the middle of the interval
      Result<SearchAnswer> answer = search(graph, job, cluster, pins);
      if (!answer) // whole ops alone are looked at; the bound is not for them alone
        continue;
      double bound = answer->plan.lowerBoundSeconds;
      EXPECT_LE(bound, best * (1 + 1e-12)) << "round " << round << ", " << limit << " bytes";
      if (part == 8)
        unlimited = bound;
      forced += bound > unlimited * (1 + 1e-6);
      cases += !hasEveryTerm;
      tight += !hasEveryTerm && bound > best * 0.99;
    }
  }
  EXPECT_GT(forced, 0) << "memory is not looked at";
  EXPECT_GT(tight, cases / 6) << "it says something";
}

//===----------------------------------------------------------------------===//
// Launches and latencies, against every mesh of two or four devices
//===----------------------------------------------------------------------===//

/// Returns the shortest step over all data-parallel meshes, ways to shard parameters and
/// micro-batches. With pipelines of two stages also over schedules and cuts.
double shortestOnMeshes(const Graph &graph, const Job &job, const Cluster &cluster) {
  double best = INFINITY;
  auto look = [&](Plan plan) {
    for (int64_t bucketBytes : {int64_t(0), int64_t(1) << 40}) {
      plan.overlap.bucketBytes = plan.overlap.gatherBytes = bucketBytes;
      Result<Prediction> prediction = predict(graph, plan);
      EXPECT_TRUE(prediction) << prediction.error().message;
      if (prediction && prediction->fits())
        best = std::min(best, prediction->stepSeconds);
    }
  };
  for (int64_t pp : {1, 2})
    for (int64_t fsdp = 1; fsdp * pp <= job.gpus; fsdp *= 2)
      for (int mode = 0; mode < 5; ++mode)
        for (int64_t micro = 1; micro * (job.gpus / pp) <= job.globalBatch; micro *= 2) {
          Plan plan;
          plan.job = job;
          plan.cluster = cluster;
          plan.mesh = {pp, job.gpus / pp / fsdp, fsdp, 1};
          plan.microBatch = micro;
          plan.accumulation = job.globalBatch / (micro * (job.gpus / pp));
          ParameterDecision &data = plan.parameterDefault;
          data.zero = job.gpus == pp ? 0 : std::min(mode, 3);
          data.keepGathered = mode == 4;
          for (const char *axis : {"dp", "fsdp"})
            if (*plan.mesh.find(axis) > 1)
              (data.zero > 0 && (axis[0] == 'f' || fsdp == 1) ? data.zeroAxes : data.reduceAxes)
                  .push_back(axis);
          plan.schedule.reset();
          plan.stages = {graph.ops[0].id};
          if (pp == 1)
            look(plan);
          // Stages of two chunks: the cuts that leave an op or two on each of three chunks.
          for (int cut = 1; pp == 2 && mode == 0 && cut + 2 < numForwardOps(graph); ++cut)
            for (int next = cut + 1; next <= cut + 2; ++next)
              for (int last = next + 1; last <= next + 2 && last < numForwardOps(graph); ++last) {
                plan.schedule = ScheduleKind::ZeroBubble;
                plan.chunkStage = {0, 1, 1, 0};
                plan.stages = {graph.ops[0].id, graph.ops[cut].id, graph.ops[next].id,
                               graph.ops[last].id};
                look(plan);
              }
          plan.chunkStage.clear();
          for (int cut = 1; pp == 2 && cut < numForwardOps(graph); ++cut)
            for (ScheduleKind schedule : {ScheduleKind::OneFOneB, ScheduleKind::ZeroBubble}) {
              plan.schedule = schedule;
              plan.stages = {graph.ops[0].id, graph.ops[cut].id};
              look(plan);
            }
        }
  return best;
}

TEST(Bound, CountsLaunchesAndLatenciesButNoMoreThanTheBestPlanHas) {
  std::mt19937 random(13);
  int tight = 0, cases = 0;
  for (int round = 0; round < 24; ++round) {
    std::vector<int64_t> widths;
    for (size_t i = 0; i < 3 + random() % 2; ++i)
      widths.push_back(int64_t(3 + 2 * (random() % 40))); // odd: tp cannot split them
    Graph graph = makeMlp(1, widths);
    Cluster cluster = *loadCluster("h100-sxm");
    cluster.devicesPerNode = round % 2 ? 2 : 8;
    cluster.contextBytes = 0;
    cluster.launchSeconds = round % 3 ? 5e-6 : 1e-7; // most of a kernel, or little
    cluster.memoryBytesPerSecond = 1e10;
    cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
    cluster.intraNode = {round % 4 ? 5e-6 : 1e-7, 1e9, round % 4 ? 1e-5 : 0};
    cluster.interNode = {1e-5, 1e8, 2e-5};
    if (round >= 16) { // every other term
      cluster.floorSeconds = 3 * cluster.launchSeconds;
      cluster.overlapSlowdown = 0.3;
      for (NetworkLevel *level : {&cluster.intraNode, &cluster.interNode}) {
        level->ringStepSeconds = 2 * level->latencySeconds;
        level->smallFraction = 0.5;
      }
      cluster.intraNode.switchBytesPerSecond = 1e9;
      cluster.kernels[KernelClass::Matmul].bytesPerFlop = 1;
    }
    Job job;
    job.gpus = round % 2 ? 4 : 2;
    job.globalBatch = 16;
    job.precision = Precision::F32;
    double best = shortestOnMeshes(graph, job, cluster);
    Pins pins;
    pins.recompute = "none";
    Result<SearchAnswer> answer = search(graph, job, cluster, pins);
    ASSERT_TRUE(answer) << answer.error().message;
    double bound = answer->plan.lowerBoundSeconds;
    EXPECT_LE(bound, best * (1 + 1e-12)) << "round " << round;
    EXPECT_LE(answer->plan.prediction.stepSeconds, best * (1 + 2e-3)) << "round " << round;
    ++cases;
    tight += bound > 0.9 * best;
  }
  EXPECT_GT(tight, cases / 4) << "it says something";
}

/// Models of successive layers; the next op may have the bias in registers.
TEST(KeepBound, WhatSavesTimeIsRunAgain) {
  Graph graph = makeMlp(1, {64, 256, 256, 32}, 4, /*hasBias=*/true);
  Job job;
  job.globalBatch = 1024;
  job.precision = Precision::F32;
  Cluster cluster = *loadCluster("h100-sxm");
  Pins none;
  none.recompute = "none";
  Result<SearchAnswer> open = search(graph, job, cluster, {}),
                       kept = search(graph, job, cluster, none);
  ASSERT_TRUE(open && kept);
  EXPECT_TRUE(kept->plan.recomputeOps.empty());
  EXPECT_FALSE(open->plan.recomputeOps.empty());
  EXPECT_EQ(toString(open->plan.recompute), "none");
  EXPECT_LT(open->plan.prediction.stepSeconds, kept->plan.prediction.stepSeconds);
  EXPECT_LE(double(open->plan.prediction.peakBytes),
            1.01 * double(kept->plan.prediction.peakBytes));
  EXPECT_LE(kept->plan.lowerBoundSeconds, open->plan.prediction.stepSeconds * (1 + 1e-12))
      << "other plans may run ops again";
}

} // namespace

// Every plan completes sums over all samples, so the score, the bound and the exact time agree.
TEST(BatchSums, CountInScoreAndBound) {
  StepBuilder builder;
  FactorId b = builder.factor(16), h = builder.factor(7), c = builder.factor(5);
  int x = builder.input("x", {{b}, {h}}), labels = builder.input("labels", {{b}}, 8);
  int y = builder.batchNorm(
      "bn1", builder.matmul("fc1", x, builder.parameter("w1", {{h}, {h}}), {{b}, {h}}));
  int z = builder.batchNorm("bn2", y);
  builder.loss("loss", builder.matmul("fc2", z, builder.parameter("w2", {{h}, {c}}), {{b}, {c}}),
               labels);
  Graph graph = builder.finish(b);
  std::vector<BatchSum> sums = batchSums(graph);
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_EQ(std::count_if(sums.begin(), sums.end(), [](auto &sum) { return sum.isForward; }), 2);
  for (const BatchSum &sum : sums)
    EXPECT_EQ(sum.bytes, 4 * 7);

  Cluster cluster = *loadCluster("h100-sxm");
  Job job;
  job.gpus = 16;
  job.globalBatch = 16;
  job.precision = Precision::F32;
  Pins pins;
  pins.mesh = *parseMesh("dp=16");
  Result<SearchAnswer> answer = search(graph, job, cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  reshard::Mesh mesh = answer->plan.mesh.mesh();
  NetworkCost network(cluster, mesh, -1);
  double one = network.seconds(reshard::CollectiveKind::AllReduce,
                               network.groupShape({wholeAxis(mesh, mesh.axisIndex("dp"))}), 4 * 7);
  EXPECT_NEAR(answer->plan.prediction.time.operands, 4 * one, 1e-12);
  EXPECT_GT(answer->plan.lowerBoundSeconds, 4 * one);
  EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds);
}
