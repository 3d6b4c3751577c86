//===- JoinedBoundTest.cpp - Bounds on joined collectives and ends of blocks --===//

#include "planner/bound/JoinedBound.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Search.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

TEST(LeastJoinedSeconds, IsBelowEveryGrouping) {
  std::mt19937 random(17);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  int tight = 0;
  for (int round = 0; round < 400; ++round) {
    // The fastest of three algorithms.
    const double starts[] = {0.1 * uniform(), uniform(), 3 * uniform()};
    const double rates[] = {2 * uniform(), uniform(), 0.3 * uniform()};
    auto seconds = [&](double bytes) {
      double least = INFINITY;
      for (int k = 0; k < 3; ++k)
        least = std::min(least, starts[k] + rates[k] * bytes);
      return least;
    };
    std::vector<double> tensors;
    std::map<double, double> sizes;
    for (size_t i = 0; i < 1 + random() % 9; ++i) {
      tensors.push_back(random() % 4 ? uniform() : 5 * uniform());
      sizes[tensors.back()] += 1;
    }
    const double most = random() % 5 == 0 ? 0 : random() % 5 == 0 ? INFINITY : 3 * uniform();
    const double apart = leastJoinedSeconds(seconds, sizes, 0);
    double best = INFINITY, bestOfTwo = INFINITY;
    for (int trial = 0; trial < 300; ++trial) {
      std::shuffle(tensors.begin(), tensors.end(), random);
      double total = 0, open = 0, groups = 0;
      for (double bytes : tensors) {
        if (open > 0 && (open + bytes > most || random() % 4 == 0)) {
          total += seconds(open);
          open = 0;
        }
        groups += open == 0;
        open += bytes;
      }
      total += seconds(open);
      best = std::min(best, total);
      bestOfTwo = groups > 1 ? std::min(bestOfTwo, total) : bestOfTwo;
    }
    const double bound = leastJoinedSeconds(seconds, sizes, most);
    EXPECT_LE(bound, best * (1 + 1e-12)) << "round " << round;
    EXPECT_LE(leastJoinedSeconds(seconds, sizes, most, 2), bestOfTwo * (1 + 1e-12)) << round;
    EXPECT_LE(bound, apart * (1 + 1e-12));
    tight += bound > 0.9 * best;
  }
  EXPECT_GT(tight, 200) << "it says something";
  EXPECT_EQ(leastJoinedSeconds([](double) { return 1.0; }, {}, 10), 0);
  auto example = [](double mb) { return std::min(0.2 + mb / 20, 1 + mb / 200); };
  EXPECT_NEAR(leastJoinedSeconds(example, {{4, 100}}, 40), 12, 1e-12) << "as in the header";
}

/// Returns the shortest step of `plan` over sizes of buckets.
double shortestOverBuckets(const Graph &graph, Plan plan) {
  double best = INFINITY;
  for (int64_t bucket : {int64_t(0), int64_t(1) << 8, int64_t(1) << 11, int64_t(1) << 13,
                         int64_t(1) << 14, int64_t(1) << 15, int64_t(1) << 40})
    for (int64_t gather : {int64_t(0), int64_t(1) << 10, int64_t(1) << 40}) {
      plan.overlap.bucketBytes = bucket;
      plan.overlap.gatherBytes = gather;
      Result<Prediction> prediction = predict(graph, plan);
      EXPECT_TRUE(prediction) << prediction.error().message;
      if (prediction)
        best = std::min(best, prediction->stepSeconds);
    }
  return best;
}

// The first gather and the last reduction of a block: every way to join collectives exposes them.
TEST(Bound, CountsTheEndsOfBlocks) {
  std::mt19937 random(31);
  int tight = 0, cases = 0;
  for (int round = 0; round < 6; ++round) {
    std::vector<int64_t> widths;
    for (size_t i = 0; i < 4 + random() % 3; ++i)
      widths.push_back(int64_t(16 + 4 * (random() % 20)));
    const Graph graph = makeMlp(1, widths);
    Cluster cluster = *loadCluster("h100-sxm");
    cluster.contextBytes = 0;
    cluster.launchSeconds = 1e-7;
    cluster.overlapFraction = round % 3 ? 1 : 0.8;
    cluster.overlapSlowdown = round % 2 ? 0.1 : 0;
    cluster.memoryBytesPerSecond = 1e11;
    cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
    cluster.intraNode = {1e-6, double(1 + round % 4) * 3e8, 2e-6};
    Job job;
    job.gpus = 4;
    job.globalBatch = 64;
    job.precision = Precision::F32;
    for (const char *mesh : {"dp=4", "fsdp=4", "dp=2,fsdp=2"})
      for (int mode = 0; mode < 5; ++mode)
        for (int64_t accumulation : {1, 2}) {
          Pins pins;
          Plan plan;
          plan.job = job;
          plan.cluster = cluster;
          pins.mesh = *parseMesh(mesh);
          for (const auto &[axis, size] : pins.mesh)
            *plan.mesh.find(axis) = size;
          plan.accumulation = accumulation;
          plan.microBatch = job.globalBatch / 4 / accumulation;
          ParameterDecision &data = plan.parameterDefault;
          data.zero = std::min(mode, 3);
          data.keepGathered = mode == 4;
          for (const char *axis : {"dp", "fsdp"})
            if (*plan.mesh.find(axis) > 1)
              (data.zero > 0 && (axis[0] == 'f' || plan.mesh.fsdp == 1) ? data.zeroAxes
                                                                        : data.reduceAxes)
                  .push_back(axis);
          plan.schedule.reset();
          plan.stages = {graph.ops[0].id};
          pins.recompute = "none";
          pins.microBatch = plan.microBatch;
          if (mode == 4)
            pins.strategy = "shard-grad-op";
          else
            pins.zero = data.zero;
          Result<SearchAnswer> answer = search(graph, job, cluster, pins);
          if (!answer) // `fsdp` leaves 2 and 3 open alone
            continue;
          const double best = shortestOverBuckets(graph, plan);
          const double bound = answer->plan.lowerBoundSeconds;
          EXPECT_LE(bound, best * (1 + 1e-12)) << mesh << " mode " << mode << " round " << round;
          ++cases;
          tight += bound > 0.97 * best;
        }
  }
  EXPECT_GT(cases, 80);
  EXPECT_GT(tight, cases / 3) << "it says something";
}

} // namespace
