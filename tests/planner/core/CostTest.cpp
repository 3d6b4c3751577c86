//===- CostTest.cpp - Closed forms of kernels and collectives -----------------===//

#include "planner/cost/Cost.h"
#include "planner/graph/Values.h"
#include "planner/memory/Memory.h"
#include "planner/predict/Time.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using reshard::AxisRef;
using reshard::CollectiveKind;
using reshard::Mesh;
using reshard::wholeAxis;

static Cluster h100() { return *loadCluster("h100-sxm"); }

/// Without different algorithms for small and large messages.
static Cluster plainH100() {
  Cluster cluster = h100();
  for (NetworkLevel *level : {&cluster.intraNode, &cluster.interNode}) {
    level->ringStepSeconds = level->switchBytesPerSecond = 0;
    level->smallFraction = 1;
  }
  return cluster;
}

TEST(NetworkCost, GroupsLieOnNodesAsRanksAreNumbered) {
  Cluster cluster = h100();
  Mesh mesh{{{"pp", 2}, {"dp", 4}, {"tp", 4}}}; // 32 ranks, 4 nodes
  NetworkCost network(cluster, mesh, 0);
  auto shape = [&](const std::vector<int> &axes) {
    std::vector<AxisRef> refs;
    for (int axis : axes)
      refs.push_back(wholeAxis(mesh, axis));
    GroupShape s = network.groupShape(refs);
    return std::vector<int64_t>{s.size, s.nodes, s.perNode};
  };
  EXPECT_EQ(shape({2}), (std::vector<int64_t>{4, 1, 4}));
  EXPECT_EQ(shape({1}), (std::vector<int64_t>{4, 2, 2})); // stride 4: two of a group on a node
  EXPECT_EQ(shape({0}), (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(shape({1, 2}), (std::vector<int64_t>{16, 2, 8}));
  GroupShape ends = network.stageGroupShape({0, 1});
  EXPECT_EQ(ends.nodes, 2);
}

TEST(NetworkCost, OddAxesStraddleNodes) {
  Cluster cluster = h100();
  Mesh mesh{{{"dp", 4}, {"tp", 6}}};
  GroupShape shape = NetworkCost(cluster, mesh).groupShape({wholeAxis(mesh, 1)});
  EXPECT_EQ(shape.nodes, 2); // ranks 6 to 11 lie on nodes 0 and 1
  EXPECT_EQ(shape.perNode, 2);
}

/// The same by looking at every rank.
static std::vector<int64_t> shapeByEnumeration(const Mesh &mesh, const std::vector<AxisRef> &axes,
                                               int64_t perNode) {
  std::map<std::vector<int64_t>, std::vector<int64_t>> groups; // by coordinates outside the axes
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    std::vector<int64_t> place = mesh.coordinates(rank);
    for (const AxisRef &ref : axes) {
      int64_t rest = mesh.axes[size_t(ref.axis)].size / (ref.pre * ref.size);
      int64_t &c = place[size_t(ref.axis)];
      c -= c / rest % ref.size * rest;
    }
    groups[place].push_back(rank);
  }
  int64_t nodes = 0, least = mesh.numRanks();
  for (const auto &[place, ranks] : groups) {
    std::map<int64_t, int64_t> onNode;
    for (int64_t rank : ranks)
      ++onNode[rank / perNode];
    nodes = std::max(nodes, int64_t(onNode.size()));
    for (const auto &[node, count] : onNode)
      least = std::min(least, count);
  }
  return {int64_t(groups.begin()->second.size()), nodes, least};
}

TEST(NetworkCost, GroupShapesEqualEnumeration) {
  Cluster cluster = h100();
  int cases = 0;
  for (int64_t perNode : {1, 3, 4, 8, 10})
    for (const std::vector<int64_t> &sizes : {std::vector<int64_t>{2, 4, 4},
                                              {3, 2, 5},
                                              {6, 4, 2},
                                              {12, 1, 3},
                                              {7, 9, 2},
                                              {4127},
                                              {2, 2099, 3},
                                              {1031, 2, 3},
                                              {3, 5, 1021},
                                              {6, 16, 64}}) { // the last five are shortened
      cluster.devicesPerNode = perNode;
      Mesh mesh;
      std::vector<AxisRef> parts; // whole axes, and both halves of even ones
      for (size_t axis = 0; axis < sizes.size(); ++axis) {
        mesh.axes.push_back({std::string(1, char('a' + axis)), sizes[axis]});
        parts.push_back({int(axis), 1, sizes[axis]});
        if (sizes[axis] % 2 == 0) {
          parts.push_back({int(axis), 1, 2});
          parts.push_back({int(axis), 2, sizes[axis] / 2});
        }
      }
      NetworkCost network(cluster, mesh);
      for (size_t i = 0; i < parts.size(); ++i)
        for (size_t k = 0; k < parts.size(); ++k) {
          std::vector<AxisRef> axes{parts[i]};
          if (k != i && !overlap(parts[i], parts[k]))
            axes.push_back(parts[k]);
          GroupShape shape = network.groupShape(axes);
          EXPECT_EQ((std::vector<int64_t>{shape.size, shape.nodes, shape.perNode}),
                    shapeByEnumeration(mesh, axes, perNode))
              << perNode << " per node, " << toString(mesh, axes);
          ++cases;
        }
    }
  EXPECT_GT(cases, 400);
}

TEST(NetworkCost, TreesInsideANode) {
  Cluster cluster = plainH100();
  Mesh mesh{{{"tp", 8}}};
  NetworkCost network(cluster, mesh);
  GroupShape group = network.groupShape({wholeAxis(mesh, 0)});
  double bytes = 1e9, bandwidth = cluster.intraNode.bytesPerSecond;
  double latency = cluster.intraNode.latencySeconds, start = cluster.intraNode.startSeconds;
  EXPECT_NEAR(network.seconds(CollectiveKind::AllReduce, group, bytes),
              start + 6 * latency + 2 * 7.0 / 8 * bytes / bandwidth, 1e-12);
  EXPECT_NEAR(network.seconds(CollectiveKind::AllGather, group, bytes),
              start + 3 * latency + 7.0 / 8 * bytes / bandwidth, 1e-12);
  EXPECT_EQ(network.seconds(CollectiveKind::AllGather, group, bytes),
            network.seconds(CollectiveKind::ReduceScatter, group, bytes));
  EXPECT_EQ(network.seconds(CollectiveKind::ShardSlice, group, bytes), 0);
  EXPECT_EQ(network.seconds(CollectiveKind::AllReduce, GroupShape(), bytes), 0);
}

TEST(NetworkCost, LargeMessagesGoRoundOrAreAddedUpByTheSwitch) {
  Cluster cluster = plainH100();
  NetworkLevel &level = cluster.intraNode;
  level.ringStepSeconds = 1e-5;
  level.smallFraction = 0.1;
  Mesh mesh{{{"tp", 8}}};
  auto seconds = [&](CollectiveKind kind, double bytes) {
    NetworkCost network(cluster, mesh);
    return network.seconds(kind, network.groupShape({wholeAxis(mesh, 0)}), bytes);
  };
  double bandwidth = level.bytesPerSecond, start = level.startSeconds;
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 1e4),
              start + 6 * level.latencySeconds + 2 * 7.0 / 8 * 1e4 / (0.1 * bandwidth), 1e-12);
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 1e9),
              start + 14e-5 + 2 * 7.0 / 8 * 1e9 / bandwidth, 1e-12);
  EXPECT_NEAR(seconds(CollectiveKind::AllGather, 1e9), start + 7e-5 + 7.0 / 8 * 1e9 / bandwidth,
              1e-12);
  level.switchBytesPerSecond = bandwidth; // for 7/4 of the bytes of a ring
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 1e9), start + 16e-5 + 1e9 / bandwidth, 1e-12);
  // A larger message never takes less.
  for (double bytes = 1; bytes < 1e10; bytes *= 1.5)
    EXPECT_LE(seconds(CollectiveKind::AllReduce, bytes),
              seconds(CollectiveKind::AllReduce, 1.5 * bytes));
}

// Between nodes large gathers go around a ring at the pace of its slowest link. Small ones pass
// every device and every node. A reduction goes up and down a tree.
TEST(NetworkCost, BetweenNodesGathersGoAroundRings) {
  Cluster cluster = plainH100();
  cluster.intraNode.ringStepSeconds = 1e-6;
  cluster.interNode.ringStepSeconds = 1e-4;
  cluster.interNode.smallFraction = 1e-3;
  Mesh mesh{{{"dp", 64}}}; // 8 nodes
  NetworkCost network(cluster, mesh);
  GroupShape group = network.groupShape({wholeAxis(mesh, 0)});
  const double start = cluster.interNode.startSeconds, rails = 8 * cluster.interNode.bytesPerSecond;
  EXPECT_NEAR(network.seconds(CollectiveKind::AllGather, group, 1e9),
              start + 63 * 1e-4 + 63.0 / 64 * 1e9 / rails, 1e-12);
  EXPECT_NEAR(network.seconds(CollectiveKind::ReduceScatter, group, 64),
              start + 56 * cluster.intraNode.latencySeconds + 7 * cluster.interNode.latencySeconds +
                  63 / (1e-3 * rails),
              1e-12);
  // Depth 3: twice 3 steps between nodes and 7 inside, 5 passes of the cards.
  EXPECT_NEAR(network.seconds(CollectiveKind::AllReduce, group, 1e8),
              start + 2 * (3 * 1e-4 + 7 * 1e-6) + 5 * 1e8 / rails, 1e-12);
  // For very large ones the ring of 126 steps is better: 126 / 64 passes.
  EXPECT_NEAR(network.seconds(CollectiveKind::AllReduce, group, 1e10),
              start + 126 * 1e-4 + 126.0 / 64 * 1e10 / rails, 1e-12);
}

// The bounds of the search rest on this: joined messages never take longer than separate ones.
TEST(NetworkCost, SecondsAreConcaveInTheBytes) {
  for (const char *preset : {"h100-sxm", "a100-80gb-sxm", "l4"})
    for (int64_t ranks : {8, 16, 64, 512})
      for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                  CollectiveKind::ReduceScatter, CollectiveKind::AllToAll}) {
        const Cluster cluster = *loadCluster(preset);
        const Mesh mesh{{{"dp", ranks}}};
        const NetworkCost network(cluster, mesh);
        const GroupShape group = network.groupShape({wholeAxis(mesh, 0)});
        const double start = network.seconds(kind, group, 0);
        for (double bytes = 1; bytes < 1e11; bytes *= 3) {
          const double one = network.seconds(kind, group, bytes),
                       three = network.seconds(kind, group, 3 * bytes);
          EXPECT_LE(one, three);
          EXPECT_LE(three - start, 3 * (one - start) + 1e-12 * three) << preset << " " << ranks;
        }
      }
}

TEST(NetworkCost, BetweenNodesTheCardsOfAGroupAddUp) {
  Cluster cluster = h100();
  auto seconds = [&](GroupShape group) {
    Mesh mesh{{{"dp", group.size}}};
    return NetworkCost(cluster, mesh).seconds(CollectiveKind::AllReduce, group, 1e10);
  };
  // Two nodes exchange the message once, at most at the rate of the switch in each.
  double one = seconds({2, 2, 1}), eight = seconds({16, 2, 8});
  EXPECT_NEAR(one, 1e10 / 4.5e10, 0.01 * one);
  EXPECT_NEAR(eight, 1e10 / 2.6e11, 0.01 * eight);
}

// In a full mesh of 8 devices a pair has one link of seven: the other links are idle.
TEST(NetworkCost, AGroupOfAMeshHasTheLinksBetweenItsDevices) {
  Cluster cluster = *loadCluster("mi300x");
  auto seconds = [&](CollectiveKind kind, int64_t ranks) {
    Mesh mesh{{{"tp", ranks}}};
    NetworkCost network(cluster, mesh);
    return network.seconds(kind, network.groupShape({wholeAxis(mesh, 0)}), 1e10);
  };
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 2), 1e10 / 4.76e10, 1e-3);
  EXPECT_NEAR(seconds(CollectiveKind::Send, 2), 1e10 / 4.76e10, 1e-3);
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 4), 1.5 * 1e10 / 1.43e11, 1e-3);
  EXPECT_NEAR(seconds(CollectiveKind::AllReduce, 8), 1.75 * 1e10 / 3.12e11, 1e-3);
  EXPECT_NEAR(seconds(CollectiveKind::AllToAll, 2), 0.5 * 1e10 / 4.76e10, 1e-3);
}

// Rows of the tables named in planner/clusters/h100-sxm.toml: microseconds on 1 to 32 nodes.
TEST(NetworkCost, IsNearPublishedMeasurements) {
  Cluster cluster = h100();
  struct Row {
    CollectiveKind kind;
    int64_t ranks;
    double bytes, micros, tolerance;
  };
  for (const Row &row : {Row{CollectiveKind::AllReduce, 8, 16384, 17.46, 0.15},
                         {CollectiveKind::AllReduce, 8, 67108864, 326.6, 0.15},
                         {CollectiveKind::AllReduce, 8, 1073741824, 4253, 0.05},
                         {CollectiveKind::AllReduce, 16, 1024, 69.24, 0.15},
                         {CollectiveKind::AllReduce, 16, 67108864, 601.5, 0.4},
                         {CollectiveKind::AllReduce, 16, 1073741824, 4607.6, 0.1},
                         {CollectiveKind::AllReduce, 64, 256e6, 5062.1, 0.3},
                         {CollectiveKind::AllReduce, 256, 256e6, 7855.2, 0.2},
                         {CollectiveKind::AllGather, 16, 256e6, 1300, 0.15},
                         {CollectiveKind::AllGather, 64, 256e6, 3652.3, 0.15},
                         {CollectiveKind::AllGather, 256, 256e6, 9117.2, 0.15},
                         {CollectiveKind::ReduceScatter, 16, 256e6, 1321.9, 0.15},
                         {CollectiveKind::ReduceScatter, 64, 256e6, 3676.1, 0.15},
                         {CollectiveKind::ReduceScatter, 256, 256e6, 9125.4, 0.15}}) {
    Mesh mesh{{{"dp", row.ranks}}};
    NetworkCost network(cluster, mesh);
    const double seconds =
        network.seconds(row.kind, network.groupShape({wholeAxis(mesh, 0)}), row.bytes);
    EXPECT_NEAR(std::log(seconds / (row.micros * 1e-6)), 0, row.tolerance)
        << name(row.kind) << " of " << row.bytes << " bytes over " << row.ranks;
  }
}

TEST(Kernel, FollowsTheRoofline) {
  Cluster cluster = h100();
  const KernelEfficiency &kernel = cluster.kernel(KernelClass::Matmul);
  LocalWork work{1e13, 1e6, reshard::DType::BF16};
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::Matmul, work),
              cluster.launchSeconds + kernel.rampSeconds + 1e13 / (9.89e14 * kernel.flopsFraction),
              1e-12);
  work = {1, 1e10, reshard::DType::BF16};
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::Matmul, work),
              cluster.launchSeconds + 1e10 / (3.35e12 * kernel.memoryFraction), 1e-12);
  EXPECT_EQ(kernelSeconds(cluster, KernelClass::None, work), 0);
}

TEST(Kernel, HasAFloorThatLargeOnesHide) {
  Cluster cluster = h100();
  double plain = kernelSeconds(cluster, KernelClass::Matmul, {1e12, 1e6, reshard::DType::BF16});
  double small = kernelSeconds(cluster, KernelClass::Matmul, {1, 1, reshard::DType::BF16});
  cluster.floorSeconds = 2 * small;
  EXPECT_EQ(kernelSeconds(cluster, KernelClass::Matmul, {1e12, 1e6, reshard::DType::BF16}), plain);
  EXPECT_EQ(kernelSeconds(cluster, KernelClass::Matmul, {1, 1, reshard::DType::BF16}), 2 * small);
}

TEST(Kernel, ShortSumsReachLessOfThePeak) {
  Cluster cluster = h100();
  cluster.launchSeconds = cluster.kernels[KernelClass::Matmul].rampSeconds = 0;
  cluster.kernels[KernelClass::Matmul].halfDepth = 100;
  LocalWork work{1e13, 0, reshard::DType::BF16};
  double deep = kernelSeconds(cluster, KernelClass::Matmul, work);
  work.depth = 100;
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::Matmul, work), 2 * deep, 1e-12);
  work.depth = 400;
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::Matmul, work), 1.25 * deep, 1e-12);

  Graph graph = makeMlp(8, {16, 32, 4});
  EXPECT_EQ(localWork(graph, 0, {}).depth, 16);
  reshard::OpStrategy split;
  for (int loop = 0; loop < int(graph.ops[0].loops.size()); ++loop)
    if (graph.ops[0].loops[loop].kind == reshard::LoopKind::Reduction)
      split.loopAxes[loop] = {wholeAxis(Mesh{{{"tp", 4}}}, 0)};
  EXPECT_EQ(localWork(graph, 0, split).depth, 4);
}

// Causal attention on n parts of a sequence in order: the last rank skips 1/n of the whole's
// skipped work. Example: with 4 ranks and half the work hidden, it skips 1/8 instead of 1/2.
TEST(Kernel, CausalAttentionSkipsWhatIsHidden) {
  Cluster cluster = h100();
  cluster.launchSeconds = 0;
  KernelEfficiency &kernel = cluster.kernels[KernelClass::CausalAttention];
  kernel.rampSeconds = 0;
  kernel.executedFraction = 1;
  LocalWork work{1e13, 0, reshard::DType::BF16};
  double full = kernelSeconds(cluster, KernelClass::CausalAttention, work);
  kernel.executedFraction = 0.5;
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::CausalAttention, work), 0.5 * full, 1e-12);
  work.partsInOrder = 4;
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::CausalAttention, work), 7.0 / 8 * full, 1e-12);
  // Without a class of its own it is priced as attention.
  cluster.kernels.erase(KernelClass::CausalAttention);
  EXPECT_EQ(kernelSeconds(cluster, KernelClass::CausalAttention, work),
            kernelSeconds(cluster, KernelClass::Attention, work));
}

TEST(Kernel, MayWriteItsScores) {
  Cluster cluster = h100();
  KernelEfficiency &kernel = cluster.kernels[KernelClass::Attention];
  kernel.bytesPerFlop = 16e-3;
  LocalWork work{1e12, 1e9, reshard::DType::BF16};
  EXPECT_NEAR(kernelSeconds(cluster, KernelClass::Attention, work),
              cluster.launchSeconds + 17e9 / (cluster.memoryBytesPerSecond * kernel.memoryFraction),
              1e-12);
}

TEST(Kernel, ShardingALoopDividesWorkAndBytes) {
  Graph graph = makeMlp(8, {16, 32, 4});
  int fc1 = 0;
  ASSERT_EQ(graph.ops[fc1].id, "fc1");
  LocalWork whole = localWork(graph, fc1, {});
  EXPECT_EQ(whole.flops, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(whole.bytes, 4.0 * (8 * 16 + 16 * 32 + 8 * 32));
  for (size_t loop = 0; loop < graph.ops[fc1].loops.size(); ++loop) {
    reshard::OpStrategy strategy;
    strategy.loopAxes[int(loop)] = {{0, 1, 2}};
    LocalWork half = localWork(graph, fc1, strategy);
    EXPECT_EQ(half.flops, whole.flops / 2);
    EXPECT_LT(half.bytes, whole.bytes);
  }
}

TEST(Kernel, TheFullestRankOfExpertsHasMoreWorkThanTheMean) {
  Graph graph = makeMlp(8, {16, 32, 4});
  reshard::GraphOp &experts = graph.ops[0];
  const double flops = experts.flops;
  reshard::OpStrategy strategy;
  strategy.loopAxes[0] = {{0, 1, 4}};
  for (const auto &[imbalance, part] : {std::pair(1.0, 0.25), {1.5, 0.375}, {9.0, 1.0}}) {
    experts.routing = {/*experts=*/0, /*innerLoop=*/1, /*copies=*/2, /*inner=*/1, imbalance};
    EXPECT_EQ(localWork(graph, 0, strategy).flops, flops * part);
    experts.routing.experts = 1; // these axes divide tokens, or inner values of each expert
    EXPECT_EQ(localWork(graph, 0, strategy).flops, flops / 4);
  }
}

TEST(Kernel, FlopsOnceLeaveOutWhatAGradientComputesAgain) {
  Graph graph = makeMlp(8, {16, 32, 4});
  const double ofMatmul = 2.0 * 8 * 16 * 32;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    EXPECT_EQ(flopsOnce(graph)[op], graph.ops[op].flops) << graph.ops[op].id;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].phase == reshard::Phase::Backward && graph.ops[op].forwardOp == 0) {
      graph.ops[op].flops = 2.5 * ofMatmul; // one op for all gradients, as of attention
    }
  double ofGradients = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].phase == reshard::Phase::Backward && graph.ops[op].forwardOp == 0)
      ofGradients += flopsOnce(graph)[op];
  EXPECT_EQ(ofGradients, 2 * ofMatmul);
}

TEST(Kernel, FrameworksComputeInnerValuesOfExpertsAgainOnlyIfTheyRecompute) {
  Graph graph = makeMlp(8, {16, 32, 4});
  Cluster others = h100();
  others.executor.name = "other";
  size_t gradient = 0;
  for (size_t op = 0; op < graph.ops.size() && gradient == 0; ++op)
    if (graph.ops[op].phase == reshard::Phase::Backward && graph.ops[op].forwardOp == 0)
      gradient = op;
  ASSERT_GT(gradient, 0u);
  graph.ops[gradient].flops = 3 * graph.ops[0].flops;
  graph.ops[gradient].routing.copies = 1;
  EXPECT_EQ(kernelShares(others, graph)[gradient].own.work, 2.0 / 3);
  graph.ops[0].isRecomputed = true;
  EXPECT_EQ(kernelShares(others, graph)[gradient].own.work, 1);
}

/// Volta multiplies f16 on tensor cores, and bf16 as f32.
TEST(Kernel, F16HasAPeakOfItsOwn) {
  Result<Cluster> v100 = loadCluster("v100-16gb");
  ASSERT_TRUE(v100) << v100.error().message;
  Graph graph = makeMlp(4096, {4096, 4096, 4096}, 2);
  double bf16 = kernelSeconds(*v100, KernelClass::Matmul, localWork(graph, 0, {}));
  for (reshard::GraphValue &value : graph.values)
    value.dtype = reshard::DType::F16;
  ASSERT_EQ(localWork(graph, 0, {}).dtype, reshard::DType::F16);
  double f16 = kernelSeconds(*v100, KernelClass::Matmul, localWork(graph, 0, {}));
  EXPECT_GT(bf16, 4 * f16);
  EXPECT_EQ(v100->peakFlops(KernelClass::Matmul, reshard::DType::F16),
            v100->peakFlopsPerSecond.at("f16"));
  EXPECT_EQ(v100->peakFlops(KernelClass::Matmul, reshard::DType::F32),
            v100->peakFlopsPerSecond.at("f32"));
}

TEST(Kernel, F8NeedsARateInTheClusterFile) {
  Graph graph = makeMlp(4096, {4096, 4096, 4096}, 2);
  for (reshard::GraphValue &value : graph.values)
    if (value.role == reshard::ValueRole::Parameter)
      value.dtype = reshard::DType::F8E4M3;
  Cluster cluster = *loadCluster("a100-80gb-sxm");
  EXPECT_EQ(cluster.missingRate(reshard::DType::BF16), "");
  Status status = checkRates(graph, cluster);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("f8e4m3"), testing::HasSubstr("a100-80gb-sxm"),
                             testing::HasSubstr("device.peak_flops_per_second.f8")));
  cluster.peakFlopsPerSecond["f8"] = 2 * cluster.peakFlopsPerSecond.at("bf16");
  EXPECT_TRUE(checkRates(graph, cluster));
  for (reshard::DType dtype : {reshard::DType::F8E4M3, reshard::DType::F8E5M2})
    EXPECT_EQ(cluster.peakFlops(KernelClass::Matmul, dtype),
              2 * cluster.peakFlops(KernelClass::Matmul, reshard::DType::BF16));
}

TEST(DType, NamesRoundTrip) {
  for (reshard::DType dtype : dtypes())
    EXPECT_EQ(parseDType(name(dtype)), dtype);
  EXPECT_EQ(parseDType("f8"), std::nullopt);
  EXPECT_EQ(rates().size(), 4u);
}

TEST(Kernel, StatisticsDoNotSetThePrecision) {
  Graph graph = makeMlp(8, {16, 32, 4}, 2);
  int extra = graph.ops[0].operands[0];
  ASSERT_EQ(localWork(graph, 0, {}).dtype, reshard::DType::BF16);
  // A small f32 operand beside large bf16 ones, as attention has its row maxima.
  graph.values.push_back(graph.values[extra]);
  graph.values.back().layout.elementBytes = 4;
  graph.values.back().dtype = reshard::DType::F32;
  graph.values.back().layout.dims.pop_back();
  graph.ops[0].operands.push_back(int(graph.values.size()) - 1);
  EXPECT_EQ(localWork(graph, 0, {}).dtype, reshard::DType::BF16);
}

TEST(Cost, ExecutorsAddWorkToCollectivesOfParameters) {
  using reshard::CollectiveKind;
  Cluster cluster = h100();
  EXPECT_EQ(executorSeconds(cluster, CollectiveKind::AllGather, 2, 8, 1e9), 0);
  cluster.executor.gatherRankSeconds = 1e-5;
  cluster.executor.gatherMoved = 3;
  cluster.executor.scatterMoved = 4;
  const double host = 2 * 8 * 1e-5; // two collectives of eight ranks
  EXPECT_DOUBLE_EQ(executorSeconds(cluster, CollectiveKind::AllGather, 2, 8, 1e9),
                   host + updateSeconds(cluster, 3e9, 0));
  EXPECT_DOUBLE_EQ(executorSeconds(cluster, CollectiveKind::ReduceScatter, 2, 8, 1e9),
                   host + updateSeconds(cluster, 4e9, 0));
  EXPECT_EQ(executorSeconds(cluster, CollectiveKind::AllReduce, 2, 8, 1e9), 0);
}

TEST(Memory, IsAsSureAsContextAndAllocatorAre) {
  Cluster cluster = h100();
  cluster.contextBytes = 500;
  cluster.contextUncertaintyBytes = 200;
  cluster.allocatorUncertainty = 0.02;
  StageMemory memory;
  memory.lines = {{"parameters", 9000},
                  {"transients", 1000},
                  {"device context", 500},
                  {"allocator margin", 300}};
  ASSERT_EQ(programBytes(memory), 10000);
  EXPECT_EQ(memoryInterval(memory, cluster), std::make_pair(int64_t(10400), int64_t(11200)));
  // The lower end is never below the bytes of the Program.
  cluster.contextUncertaintyBytes = 800;
  cluster.allocatorUncertainty = 0.5;
  EXPECT_EQ(memoryInterval(memory, cluster), std::make_pair(int64_t(10000), int64_t(16600)));
  cluster.contextUncertaintyBytes = 0;
  cluster.allocatorUncertainty = 0;
  EXPECT_EQ(memoryInterval(memory, cluster), std::make_pair(int64_t(10800), int64_t(10800)));
  // The program of another executor is not known to the byte.
  cluster.allocatorUncertainty = 0.2;
  cluster.executor.name = "megatron";
  EXPECT_EQ(memoryInterval(memory, cluster), std::make_pair(int64_t(8800), int64_t(12800)));
}

/// x[64, 64] f32 -> bias broadcast to it, add, gelu, view, matmul; everything forward.
TEST(Fusion, WhatStaysInRegistersIsNotMoved) {
  using namespace tbc::reshard;
  Graph graph;
  auto value = [&](const std::vector<int64_t> &shape, int producer) {
    GraphValue v;
    for (int64_t size : shape)
      v.layout.dims.push_back({{{{{0, size}}}}});
    v.layout.elementBytes = 4;
    v.producer = producer;
    graph.values.push_back(v);
    return int(graph.values.size()) - 1;
  };
  auto op = [&](KernelClass kernelClass, const std::vector<int> &operands,
                const std::vector<int64_t> &shape, bool generator = false) {
    GraphOp o;
    o.kernelClass = kernelClass;
    o.operands = operands;
    o.generator = generator;
    for (int operand : operands)
      graph.values[operand].users.push_back(int(graph.ops.size()));
    o.results = {value(shape, int(graph.ops.size()))};
    graph.ops.push_back(o);
    return o.results[0];
  };
  auto bytes = [&](int v) { return localWork(graph, graph.values[v].producer, {}).bytes; };
  const double whole = 64 * 64 * 4, row = 64 * 4;
  int x = value({64, 64}, -1), bias = value({64}, -1);
  int wide = op(KernelClass::None, {bias}, {64, 64});
  int sum = op(KernelClass::Elementwise, {x, wide}, {64, 64});
  int scale = op(KernelClass::None, {}, {64, 64}, true);
  int scaled = op(KernelClass::Elementwise, {sum, scale}, {64, 64});
  int view = op(KernelClass::None, {scaled}, {4096});
  int kept = op(KernelClass::Elementwise, {view}, {4096});
  int norm = op(KernelClass::Reduction, {kept}, {4096});
  int product = op(KernelClass::Matmul, {kept}, {4096});

  EXPECT_TRUE(isFused(graph, sum));
  EXPECT_TRUE(isFused(graph, scaled)); // its user reads it through a view
  EXPECT_FALSE(isFused(graph, kept));  // two users
  EXPECT_FALSE(isFused(graph, norm));
  EXPECT_EQ(bytes(sum), whole + row); // x and the bias as it is; the sum stays
  EXPECT_EQ(bytes(scaled), 0);
  EXPECT_EQ(bytes(kept), whole);
  EXPECT_EQ(bytes(norm), 2 * whole);
  EXPECT_EQ(bytes(product), 2 * whole);
  EXPECT_EQ(kernelSeconds(h100(), KernelClass::Elementwise, localWork(graph, 2 + 1, {})), 0);

  // With a user in backward it is a residual.
  graph.ops[graph.values[scaled].producer].phase = Phase::Backward;
  EXPECT_FALSE(isFused(graph, sum));
  EXPECT_EQ(bytes(sum), 2 * whole + row);
}
