//===- calibrate_test.cpp - From measurements to a cluster ----------------===//

#include "planner/devices/Cluster.h"
#include "tools/calibrate/Calibrate.h"

#include <gtest/gtest.h>

namespace tbc::calibrate {
namespace {

TEST(Fit, FindsTheCoefficientsOfAPlane) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (double steps : {1, 2, 4})
    for (double bytes : {1e2, 1e5, 1e8}) {
      rows.push_back({1, steps, bytes});
      seconds.push_back(2e-5 + 3e-6 * steps + bytes / 5e9);
    }
  std::vector<double> found = fit(rows, seconds);
  EXPECT_NEAR(found[0] / 2e-5, 1, 1e-6);
  EXPECT_NEAR(found[1] / 3e-6, 1, 1e-6);
  EXPECT_NEAR(found[2] * 5e9, 1, 1e-6);
  EXPECT_LT(relativeError(rows, seconds, found), 1e-9);
}

TEST(Fit, NothingIsNegative) {
  // Faster than proportional: a line through these would begin below zero.
  std::vector<double> found = fit({{1, 1}, {1, 10}, {1, 100}}, {1, 20, 250});
  EXPECT_EQ(found[0], 0);
  EXPECT_GT(found[1], 1);
}

/// Measurements of a machine modelled by the planner give back that machine.
TEST(ClusterText, OfAKnownMachineIsThatMachine) {
  Measurements m;
  m.ranks = 4;
  m.memoryBytes = 64e9;
  m.processBytes = 2e7;
  m.bytesPerSecond = 1e10;
  m.kernelFloor = 1e-6;
  for (const char *dtype : {"f32", "bf16"})
    for (double size : {64, 256, 1024}) {
      double flops = 2 * size * size * size, peak = dtype[0] == 'f' ? 1e11 : 2e11;
      m.matmuls.push_back({dtype, int64_t(size), flops, 0, 1e-6 + 4e-6 + flops / peak});
    }
  m.rows = {{"f32", 1024, 2e6, 4e6, 4e6 / 5e9}};
  m.adds = {{"f32", 1 << 10, 1 << 10, 12 << 10, 2e-7}, {"f32", 1 << 24, 1 << 24, 12 << 24, 0.025}};
  for (int64_t ranks : {2, 4})
    for (bool isReduce : {true, false})
      for (double bytes : {1e3, 1e6}) {
        double times = isReduce ? 2 : 1, steps = ranks == 2 ? 1 : 2;
        m.collectives.push_back({isReduce ? "all_reduce" : "all_gather", ranks, bytes,
                                 3e-5 + times * steps * 1e-5 +
                                     times * double(ranks - 1) / double(ranks) * bytes / 2e9});
      }
  std::string text = clusterText(m, "known");
  auto cluster = planner::parseCluster(text, "text");
  ASSERT_TRUE(bool(cluster)) << cluster.error().message << text;
  EXPECT_EQ(cluster->name, "known");
  EXPECT_EQ(cluster->devicesPerNode, 4);
  EXPECT_EQ(cluster->memoryBytes, 16000000000);
  EXPECT_EQ(cluster->contextBytes, 20000000);
  EXPECT_NEAR(cluster->peakFlopsPerSecond.at("f32") / 1e11, 1, 1e-3);
  EXPECT_NEAR(cluster->peakFlopsPerSecond.at("bf16") / 2e11, 1, 1e-3);
  EXPECT_NEAR(cluster->kernel(reshard::KernelClass::Matmul).rampSeconds / 4e-6, 1, 1e-3);
  EXPECT_NEAR(cluster->kernel(reshard::KernelClass::Matmul).memoryFraction, 0.5, 1e-3);
  EXPECT_NEAR(cluster->kernel(std::nullopt).memoryFraction, 12.0 * (1 << 24) / 0.025 / 1e10, 1e-3);
  EXPECT_NEAR(cluster->intraNode.startSeconds / 3e-5, 1, 1e-3);
  EXPECT_NEAR(cluster->intraNode.latencySeconds / 1e-5, 1, 1e-3);
  EXPECT_NEAR(cluster->intraNode.bytesPerSecond / 2e9, 1, 1e-3);
  EXPECT_EQ(cluster->timeUncertainty, 0.1);
}

} // namespace
} // namespace tbc::calibrate
