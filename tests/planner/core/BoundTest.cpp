//===- BoundTest.cpp - Bounds are bounds --------------------------------------===//

#include "planner/core/KeepBound.h"
#include "planner/core/PipelineBound.h"
#include "planner/core/Recompute.h"
#include "planner/core/Search.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

/// The makespan where part p lies on chunk `chunkOf[p]`.
double makespanOf(const PipelineSchedule &schedule, const std::vector<WorkShare> &parts,
                  const std::vector<int> &chunkOf) {
  std::vector<schedule::ChunkTimes> times(schedule.pipeline.chunkStage.size());
  bool isParted = schedule::splitsBackward(schedule.kind);
  for (size_t p = 0; p < parts.size(); ++p) {
    schedule::ChunkTimes &of = times[chunkOf[p]];
    of.forwardSeconds += parts[p].forward;
    of.backwardSeconds += parts[p].backward + (isParted ? 0 : parts[p].weight);
    of.weightSeconds += isParted ? parts[p].weight : 0;
  }
  return schedule::makespanSeconds(schedule.actions, schedule.pipeline, times,
                                   schedule.accumulation);
}

struct ScheduleCase {
  const char *name;
  int64_t stages;
  int chunksPerStage;
  bool thereAndBack;
  int64_t accumulation;
};

PipelineSchedule make(const ScheduleCase &c) {
  schedule::Pipeline pipeline = c.thereAndBack
                                    ? schedule::Pipeline::vee(int(c.stages), c.chunksPerStage)
                                    : schedule::Pipeline::loop(int(c.stages), c.chunksPerStage);
  return PipelineSchedule::make(c.name, c.stages, pipeline.chunkStage, c.accumulation);
}

TEST(ChainMixture, IsBelowEveryCut) {
  std::mt19937 random(5);
  double tightest = 0;
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  for (const ScheduleCase &c : {ScheduleCase{"1f1b", 4, 1, false, 8},
                                {"zero-bubble", 2, 1, false, 1},
                                {"zero-bubble", 4, 1, false, 8},
                                {"zero-bubble", 4, 2, true, 4},
                                {"zero-bubble", 4, 2, true, 16},
                                {"interleaved", 4, 2, false, 8},
                                {"interleaved", 2, 4, false, 2},
                                {"interleaved", 8, 3, false, 16}}) {
    PipelineSchedule schedule = make(c);
    int numChunks = schedule.pipeline.numChunks();
    std::vector<WorkShare> parts;
    WorkShare total;
    for (int p = 0; p < 6 * numChunks; ++p) {
      parts.push_back({uniform(), uniform(), uniform() * double(random() % 2)});
      total.forward += parts.back().forward;
      total.backward += parts.back().backward;
      total.weight += parts.back().weight;
    }
    double least = ChainMixture(schedule, total).leastSeconds(parts), best = INFINITY;
    for (int round = 0; round < 400; ++round) {
      // In order, as models are cut, evenly or not, and in none.
      std::vector<int> chunkOf;
      for (size_t p = 0; p < parts.size(); ++p)
        chunkOf.push_back(round == 0 ? int(p) * numChunks / int(parts.size())
                                     : int(random() % unsigned(numChunks)));
      if (round % 2)
        std::sort(chunkOf.begin(), chunkOf.end());
      double makespan = makespanOf(schedule, parts, chunkOf);
      best = std::min(best, makespan);
      EXPECT_LE(least, makespan * (1 + 1e-12)) << c.name << " " << c.stages;
    }
    tightest = std::max(tightest, least / best);
  }
  EXPECT_GT(tightest, 0.99) << "it says something";
}

//===----------------------------------------------------------------------===//
// What is kept, against all sets of ops that may be run again
//===----------------------------------------------------------------------===//

/// The shortest step on one device with any micro-batch and any ops run again, by peak of memory:
/// pairs of what fits in how many bytes, ascending.
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
      plan.schedule = "none";
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
  for (int round = 0; round < 10; ++round) {
    std::vector<int64_t> widths;
    for (int i = 0; i < 4; ++i)
      widths.push_back(int64_t(8 + 8 * (random() % 30)));
    Graph graph = round % 2 ? makeMlp(1, widths) : makeMlp(1, widths, 4, /*hasBias=*/true);
    Cluster cluster = *loadCluster("h100-sxm");
    cluster.contextBytes = 0;
    cluster.launchSeconds = round % 3 ? 1e-7 : 1e-5;
    cluster.memoryBytesPerSecond = round % 4 ? 1e9 : 1e10;
    for (auto &[name, kernel] : cluster.kernels)
      kernel.rampSeconds = 0;
    cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
    Job job;
    job.globalBatch = 32;
    job.precision = "f32";
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
      Result<SearchAnswer> answer = search(graph, job, cluster, pins);
      if (!answer) // whole ops alone are looked at; the bound is not for them alone
        continue;
      ++cases;
      double bound = answer->plan.lowerBoundSeconds;
      EXPECT_LE(bound, best * (1 + 1e-12)) << "round " << round << ", " << limit << " bytes";
      if (part == 8)
        unlimited = bound;
      forced += bound > unlimited * (1 + 1e-6);
      tight += bound > best * 0.99;
    }
  }
  EXPECT_GT(forced, 0) << "memory is not looked at";
  EXPECT_GT(tight, cases / 5) << "it says something";
}

/// Models of layers that follow each other, with a bias that the next op may have in registers.
TEST(KeepBound, WhatSavesTimeIsRunAgain) {
  Graph graph = makeMlp(1, {64, 256, 256, 32}, 4, /*hasBias=*/true);
  Job job;
  job.globalBatch = 1024;
  job.precision = "f32";
  Cluster cluster = *loadCluster("h100-sxm");
  Pins none;
  none.recompute = "none";
  Result<SearchAnswer> open = search(graph, job, cluster, {}),
                       kept = search(graph, job, cluster, none);
  ASSERT_TRUE(open && kept);
  EXPECT_TRUE(kept->plan.recomputeOps.empty());
  EXPECT_FALSE(open->plan.recomputeOps.empty());
  EXPECT_EQ(open->plan.recompute, "none");
  EXPECT_LT(open->plan.prediction.stepSeconds, kept->plan.prediction.stepSeconds);
  EXPECT_LE(double(open->plan.prediction.peakBytes),
            1.01 * double(kept->plan.prediction.peakBytes));
  EXPECT_LE(kept->plan.lowerBoundSeconds, open->plan.prediction.stepSeconds)
      << "other plans may run ops again";
}

} // namespace
