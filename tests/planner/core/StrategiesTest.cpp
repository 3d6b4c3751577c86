//===- StrategiesTest.cpp - Collectives of named strategies ----------------===//

#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

/// Collectives by kind and axes: total bytes per step. The scalar loss is left out.
static std::map<std::string, double> bytesByKind(const Plan &plan) {
  std::map<std::string, double> sums;
  for (const CollectiveLine &line : plan.prediction.collectives)
    if (line.count.bytes > 8)
      sums[std::string(reshard::name(line.count.kind)) + " " + line.count.axes] +=
          double(line.count.bytes) * double(line.count.count);
  return sums;
}

TEST(Strategies, HaveTheirClosedForms) {
  Graph graph = makeMlp(1, {64, 256, 32});
  double p = 4.0 * (64 * 256 + 256 * 32);
  Job job = jobFor(4, 32);
  auto run = [&](const std::string &strategy, const std::string &mesh = "") {
    Pins pins;
    pins.strategy = strategy;
    pins.microBatch = 2; // 4 micro-batches
    pins.recompute = "none";
    if (!mesh.empty())
      pins.mesh = *parseMesh(mesh);
    Result<SearchAnswer> answer = search(graph, job, smallCluster(), pins);
    EXPECT_TRUE(answer) << strategy << ": " << answer.error().message;
    return bytesByKind(answer->plan);
  };
  using Sums = std::map<std::string, double>;
  EXPECT_EQ(run("ddp"), (Sums{{"all_reduce dp", p}}));
  EXPECT_EQ(run("zero1"), (Sums{{"reduce_scatter dp", p}, {"all_gather dp", p}}));
  EXPECT_EQ(run("zero2"), (Sums{{"reduce_scatter dp", 4 * p}, {"all_gather dp", p}}));
  // The backward does not need the first layer's weight: the input has no gradient.
  double backward = 4.0 * 256 * 32;
  EXPECT_EQ(run("fsdp")["reduce_scatter fsdp"], 4 * p);
  EXPECT_GE(run("fsdp")["all_gather fsdp"], 4 * (p + backward));
  EXPECT_LE(run("fsdp")["all_gather fsdp"], 8 * p);
  EXPECT_EQ(run("shard-grad-op"),
            (Sums{{"all_gather fsdp", 4 * p}, {"reduce_scatter fsdp", 4 * p}}));
  Sums hybrid = run("hybrid-shard", "dp=2,fsdp=2");
  EXPECT_EQ(hybrid["all_reduce dp"], p / 2);
  EXPECT_EQ(hybrid["reduce_scatter fsdp"], 2 * 2 * 2 * p / 2);
}
