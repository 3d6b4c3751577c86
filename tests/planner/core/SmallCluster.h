//===- SmallCluster.h - A slow cluster for small models --------------------===//

#ifndef TBC_TESTS_PLANNER_CORE_SMALLCLUSTER_H
#define TBC_TESTS_PLANNER_CORE_SMALLCLUSTER_H

#include "planner/devices/Cluster.h"
#include "planner/plan/Plan.h"

namespace tbc::planner::test {

inline Job jobFor(int64_t gpus, int64_t batch) {
  Job job;
  job.gpus = gpus;
  job.globalBatch = batch;
  job.precision = Precision::F32;
  return job;
}

/// A cluster on which every decision counts in a small model: slow devices, slow network, little
/// memory.
inline Cluster smallCluster(int64_t memoryBytes = int64_t(1) << 30) {
  Cluster cluster = *loadCluster("h100-sxm");
  cluster.name = "small";
  cluster.devicesPerNode = 4;
  cluster.memoryBytes = memoryBytes;
  cluster.contextBytes = cluster.contextUncertaintyBytes = 0;
  cluster.launchSeconds = 1e-7;
  for (auto &[name, kernel] : cluster.kernels)
    kernel.rampSeconds = kernel.halfDepth = 0;
  cluster.overlapSlowdown = 0;
  cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
  cluster.vectorFlopsPerSecond = 1e10;
  cluster.memoryBytesPerSecond = 1e10;
  cluster.intraNode = {1e-6, 1e9, 1e-6};
  cluster.interNode = {5e-6, 1e8, 5e-6};
  return cluster;
}

/// The same with all terms of the cost: a minimum kernel time, slower short sums (`halfDepth`),
/// kernels slowed by communication, and other algorithms for small messages than for large ones.
inline Cluster everyTerm(Cluster cluster) {
  cluster.floorSeconds = 3e-7;
  cluster.kernels[KernelClass::Matmul].halfDepth = 16;
  cluster.overlapSlowdown = 0.3;
  cluster.intraNode.ringStepSeconds = 2e-6;
  cluster.intraNode.smallFraction = 0.5;
  cluster.intraNode.switchBytesPerSecond = 1e9;
  cluster.interNode.ringStepSeconds = 1e-5;
  cluster.interNode.smallFraction = 0.5;
  return cluster;
}

} // namespace tbc::planner::test

#endif // TBC_TESTS_PLANNER_CORE_SMALLCLUSTER_H
