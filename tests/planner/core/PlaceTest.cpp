//===- PlaceTest.cpp - Placement, and bounds of parts of it ----------------===//

#include "planner/place/Place.h"
#include "planner/devices/Cluster.h"
#include "planner/graph/Fold.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <random>

using namespace tbc::planner;
using namespace tbc::planner::test;

static Job jobOf(int64_t gpus) {
  Job job;
  job.gpus = gpus;
  job.globalBatch = 64;
  return job;
}

TEST(Repeat, IsOneLayerWithItsBackward) {
  Graph graph = makeChain({6});
  Repeat repeat = largestRepeat(graph);
  int64_t forward = 0, backward = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (repeat.ops[op])
      ++(graph.ops[op].phase == tbc::reshard::Phase::Forward ? forward : backward);
  EXPECT_EQ(forward, 12);
  EXPECT_GT(backward, forward);
  // The first layer's backward differs: the embedding's cotangent gets no sum with a residual path.
  EXPECT_GE(repeat.count, 4);
  EXPECT_LE(repeat.count, 6);
  EXPECT_EQ(largestRepeat(makeMlp(8, {16, 32, 64, 16})).count, 0);
}

TEST(PlacementBound, PartsAddUpToLessThanTheWhole) {
  Cluster cluster = *loadCluster("h100-sxm");
  std::mt19937 random(7);
  auto among = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  double tightest = 0;
  for (int round = 0; round < 60; ++round) {
    ChainSizes sizes;
    sizes.layers = 3 + int64_t(random() % 6);
    sizes.batch = among({1, 4, 16});
    sizes.sequence = among({64, 512, 2048});
    sizes.heads = among({8, 12, 16});
    sizes.headDim = among({16, 64, 128});
    sizes.hidden = among({512, 2048, 8192});
    sizes.classes = among({96, 4096});
    sizes.tied = random() % 2;
    sizes.elementBytes = among({2, 4});
    Graph graph = makeChain(sizes);
    Repeat repeat = largestRepeat(graph);
    ASSERT_GT(repeat.count, 0);
    int64_t tp = among({2, 4, 8, 16});
    bool mustSplit = random() % 2;
    Job job = jobOf(tp);
    double bound =
        double(repeat.count) * placementBound(graph, repeat.ops, tp, job, cluster, mustSplit);
    Placement whole = place(graph, tp, job, cluster, /*updatesPerMicroBatch=*/0, mustSplit);
    ASSERT_TRUE(whole.exact);
    EXPECT_LE(bound, whole.seconds * (1 + 1e-12)) << "round " << round;
    tightest = std::max(tightest, bound / whole.seconds);
  }
  // The test is meaningful: most of a deep chain's time is in its layers.
  EXPECT_GT(tightest, 0.6);
}
