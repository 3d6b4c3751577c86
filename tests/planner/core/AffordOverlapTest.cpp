//===- AffordOverlapTest.cpp - Memory for blocks or for joint gathers ----------===//

#include "planner/search/Search.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

// Joint gathers take memory that kept values take too. The referee are all plans with a pinned
// number of recomputed blocks. A search estimates the bytes of blocks, and may recompute one too
// many: 2.4 % of the step here.
TEST(AffordOverlap, IsNoSlowerThanAnyNumberOfRecomputedBlocks) {
  constexpr int64_t layers = 8;
  const Graph graph = makeChain({layers, 1, 128, 4, 64, 1024, 96});
  Cluster cluster = *loadCluster("h100-sxm");
  cluster.contextBytes = 0;
  cluster.peakFlopsPerSecond = {{"bf16", 1e12}, {"f16", 1e12}, {"f32", 1e12}};
  cluster.memoryBytesPerSecond = 1e12;
  cluster.intraNode = {2e-4, 1e11, 2e-4};
  Job job;
  job.gpus = 4;
  job.globalBatch = 16;
  job.precision = Precision::F32;
  int shared = 0;
  for (int64_t mebibytes = 72; mebibytes <= 120; mebibytes += 8) {
    Pins pins;
    pins.mesh = *parseMesh("fsdp=4");
    pins.microBatch = 4;
    pins.zero = 3;
    pins.memoryLimitBytes = mebibytes << 20;
    const Result<SearchAnswer> open = search(graph, job, cluster, pins);
    double best = INFINITY;
    int64_t recomputed = 0; // blocks in the best plan
    for (const char *mode : {"selective", "full"})
      for (int64_t blocks = 0; blocks <= layers; ++blocks) {
        Pins pinned = pins;
        pinned.recompute = std::string(mode) + ":" + std::to_string(blocks);
        const Result<SearchAnswer> answer = search(graph, job, cluster, pinned);
        if (!answer || answer->plan.prediction.stepSeconds >= best)
          continue;
        best = answer->plan.prediction.stepSeconds;
        recomputed = blocks;
      }
    if (!std::isfinite(best))
      continue;
    ASSERT_TRUE(open) << open.error().message;
    EXPECT_LE(open->plan.prediction.stepSeconds, best * 1.03) << mebibytes << " MiB";
    shared += recomputed > 0 && recomputed < layers && open->plan.overlap.gatherBytes > 0;
  }
  EXPECT_GT(shared, 0) << "some limits leave memory for a part of the blocks";
}

} // namespace
