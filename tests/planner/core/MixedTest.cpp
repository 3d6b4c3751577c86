//===- MixedTest.cpp - Clusters of unlike devices and nodes ----------------===//

#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/memory/Memory.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/report/Summary.h"
#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using namespace tbc::reshard;
using testing::HasSubstr;

/// `count` nodes of `size` devices of `preset`, as TOML.
static std::string nodes(const std::string &preset, int count, int size = 0) {
  return "[[nodes]]\ncluster = \"" + preset + "\"\ncount = " + std::to_string(count) + "\n" +
         (size > 0 ? "devices_per_node = " + std::to_string(size) + "\n" : "");
}

static std::string header(const std::string &name = "mix") {
  return "name = \"" + name + "\"\ndescription = \"test\"\n";
}

static Cluster parsed(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text, "my.toml");
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  return cluster ? *cluster : Cluster();
}

static std::string errorOf(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text, "my.toml");
  return cluster ? "no error" : cluster.error().message;
}

/// Groups of the small cluster: {name, nodes, devices of a node, relative speed}.
struct SmallGroup {
  const char *name;
  int64_t nodes, size;
  double speed;
};
static Cluster smallMix(const std::vector<SmallGroup> &of, int64_t memoryBytes = int64_t(1) << 30) {
  std::vector<Cluster> groups;
  for (const SmallGroup &one : of) {
    Cluster group = smallCluster(memoryBytes);
    group.name = one.name;
    group.numNodes = one.nodes;
    group.devicesPerNode = one.size;
    for (auto &[precision, peak] : group.peakFlopsPerSecond)
      peak *= one.speed;
    group.vectorFlopsPerSecond *= one.speed;
    group.memoryBytesPerSecond *= one.speed;
    groups.push_back(group);
  }
  Result<Cluster> cluster = clusterOfGroups("mix", "", groups, std::nullopt);
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  return *cluster;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

TEST(Mixed, FilesNameNodesByKind) {
  Cluster cluster = parsed(header() + nodes("h100-sxm", 2) + nodes("a100-80gb-sxm", 3, 4));
  EXPECT_TRUE(cluster.isMixed());
  EXPECT_EQ(cluster.numDevices(), 28);
  EXPECT_EQ(cluster.groupsText(), "2 nodes of 8 x h100-sxm and 3 nodes of 4 x a100-80gb-sxm");
  EXPECT_EQ(cluster.groups[1].memoryBytes, loadCluster("a100-80gb-sxm")->memoryBytes);
  EXPECT_FALSE(cluster.betweenGroups);
  Cluster slow = parsed(header() + nodes("h100-sxm", 2) + nodes("a100-80gb-sxm", 1) +
                        "[network.between_groups]\nbytes_per_second = 1e9\nlatency_seconds = "
                        "1e-5\nstart_seconds = 2e-5\n");
  ASSERT_TRUE(slow.betweenGroups);
  EXPECT_EQ(slow.betweenGroups->bytesPerSecond, 1e9);
}

TEST(Mixed, FilesOfDevicesStandBesideTheOneThatNamesThem) {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tbc-mixed-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  auto write = [&](const char *name, const std::string &text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  std::string own = *clusterText("l4");
  write("own.toml", own.replace(own.find("\"l4\""), 4, "\"own\""));
  std::string mix = write("mix.toml", header() + nodes("own.toml", 1) + nodes("l40s", 1));
  Result<Cluster> cluster = loadCluster(mix);
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->groups[0].name, "own");
  // A file is refused if it names itself, or if it has kinds of its own.
  std::string loop = write("loop.toml", header() + nodes("loop.toml", 1));
  EXPECT_THAT(loadCluster(loop).error().message, HasSubstr("its own nodes are of several kinds"));
  std::filesystem::remove_all(folder);
}

/// "l4" is the preset, "./l4" a file in the folder of the file that names it.
TEST(Mixed, PathsAreNotTakenForPresets) {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tbc-paths-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::string own = *clusterText("l40s");
  std::ofstream(folder / "l4") << own.replace(own.find("\"l40s\""), 6, "\"own\"");
  std::string text = header() + nodes("./l4", 1) + nodes("l4", 1);
  std::ofstream(folder / "mix.toml") << text;
  Result<Cluster> cluster = loadCluster((folder / "mix.toml").string());
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->groups[0].name, "own");
  EXPECT_EQ(cluster->groups[1].name, "l4");
  EXPECT_EQ(filesOfNodes(text), std::vector<std::string>{"./l4"});
  std::filesystem::remove_all(folder);
}

TEST(Mixed, FilesThatCannotBe) {
  EXPECT_THAT(errorOf(header() + nodes("h100", 1) + nodes("l4", 1)),
              HasSubstr("my.toml:3: cluster \"h100\" is neither a preset"));
  EXPECT_THAT(errorOf(header() + nodes("l4", 0)), HasSubstr("nodes.count must be between 1"));
  EXPECT_THAT(errorOf(header() + "[[nodes]]\ncount = 1\n"), HasSubstr("nodes.cluster is missing"));
  EXPECT_THAT(errorOf(header() + nodes("l4", 1) + "size = 3\n"),
              HasSubstr("unknown key nodes.size"));
  EXPECT_THAT(errorOf("devices_per_node = 8\n" + header() + nodes("l4", 1)),
              HasSubstr("unknown key devices_per_node"));
  EXPECT_THAT(errorOf(header() + "nodes = 3\n"), HasSubstr("each under [[nodes]]"));
  EXPECT_THAT(errorOf(header() + nodes("l4", 1 << 20, 1 << 20)), HasSubstr("1048576 devices"));
}

//===----------------------------------------------------------------------===//
// Alike after all
//===----------------------------------------------------------------------===//

TEST(Mixed, GroupsOfOneKindPlanAsWithoutGroups) {
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  Cluster plain = everyTerm(smallCluster()), group = plain;
  group.numNodes = 1;
  Cluster groups = *clusterOfGroups(plain.name, plain.description, {group, group}, std::nullopt);
  EXPECT_FALSE(groups.isMixed());
  for (const char *mesh : {"", "pp=2,dp=4", "dp=8"}) {
    Pins pins;
    if (*mesh)
      pins.mesh = *parseMesh(mesh);
    Result<SearchAnswer> a = search(graph, jobFor(8, 16), plain, pins),
                         b = search(graph, jobFor(8, 16), groups, pins);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(b->counts.bounded, a->counts.bounded);
    b->plan.cluster = a->plan.cluster;
    EXPECT_EQ(writePlan(b->plan), writePlan(a->plan)) << mesh;
  }
  Result<SearchAnswer> many = search(graph, jobFor(16, 16), groups, {});
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message,
              HasSubstr("--gpus 16: cluster small has 8 devices (1 node of 4 x small and 1 node of "
                        "4 x small)"));
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

TEST(Mixed, StagesHaveTheDevicesOfTheirRanks) {
  Cluster cluster = smallMix({{"fast", 2, 8, 4}, {"slow", 4, 4, 1}});
  StageDevices devices = *StageDevices::make(cluster, 4, 8);
  EXPECT_EQ(devices.of(1).name, "fast");
  EXPECT_EQ(devices.of(2).name, "slow");
  EXPECT_EQ(devices.of(1).devicesPerNode, 8);
  EXPECT_EQ(devices.of(2).devicesPerNode, 4);
  EXPECT_EQ(devices.shapeOf({0, 1}).nodes, 2);
  // Two stages in a node; the last two of four in one, too.
  EXPECT_EQ((*StageDevices::make(cluster, 8, 4)).shapeOf({0, 1}).nodes, 1);
  EXPECT_EQ((*StageDevices::make(cluster, 8, 4)).shapeOf({3, 4}).nodes, 2);
}

TEST(Mixed, NodesOfOtherSizesCountAsWhatDividesThem) {
  Cluster cluster = smallMix({{"one", 1, 12, 1}, {"one", 1, 8, 1}, {"one", 2, 4, 1}});
  EXPECT_EQ((*StageDevices::make(cluster, 1, 28)).of(0).devicesPerNode, 4);
  EXPECT_EQ((*StageDevices::make(cluster, 1, 12)).of(0).devicesPerNode, 12);
  EXPECT_EQ((*StageDevices::make(cluster, 1, 20)).of(0).devicesPerNode, 12); // 12 and the rest
  StageDevices halves = *StageDevices::make(cluster, 2, 14); // ranks 14 to 27: 6, 4 and 4 of them
  EXPECT_EQ(halves.of(1).devicesPerNode, 2);
  Mesh mesh = MeshShape{1, 7, 1, 1, 1, 4}.mesh();
  StageDevices all = *StageDevices::make(cluster, 1, 28);
  StageNetworks networks(all, mesh, -1);
  EXPECT_EQ(networks.of(0).groupShape({wholeAxis(mesh, 1)}).nodes, 1); // tp=4 lies inside
  EXPECT_GT(networks.of(0).groupShape({wholeAxis(mesh, 0)}).nodes, 1);
}

TEST(Mixed, TypesInOneStageAreRefusedByName) {
  Cluster cluster = smallMix({{"fast", 1, 4, 4}, {"slow", 2, 4, 1}});
  EXPECT_EQ(StageDevices::make(cluster, 2, 6).error().message,
            "stage 0 of 2, ranks 0 to 5, would be 4 x fast and 2 x slow: device types may differ "
            "between pipeline stages, not over dp, fsdp, ep, cp or tp; on 12 devices a mesh with "
            "pp=3, pp=6, pp=12 keeps them apart");
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Pins pins;
  pins.mesh = *parseMesh("dp=12");
  Result<SearchAnswer> answer = search(graph, jobFor(12, 24), cluster, pins);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::Usage);
  EXPECT_THAT(answer.error().message,
              HasSubstr("--mesh dp=12: without pipeline stages, ranks 0 to 11, would be 4 x fast "
                        "and 8 x slow"));
  EXPECT_THAT(StageDevices::make(cluster, 1, 5).error().message, HasSubstr("pp=5"));
  EXPECT_THAT(StageDevices::make(cluster, 2, 8).error().message,
              HasSubstr("16 ranks are more than the 12 devices"));
}

/// Stage 0 lies on the first and second of the three first nodes, stage 1 on the third and the
/// last. So some pairs of ranks use the network of the first group.
TEST(Mixed, PartedStagesMeetInsideGroupsToo) {
  std::vector<Cluster> groups = smallMix({{"one", 3, 4, 1}, {"one", 1, 4, 1}}).groups;
  NetworkLevel fast = groups[0].interNode;
  fast.bytesPerSecond *= 100;
  fast.latencySeconds = fast.startSeconds = 0;
  Cluster cluster = *clusterOfGroups("mix", "", groups, fast);
  StageDevices devices = *StageDevices::make(cluster, 2, 8);
  EXPECT_TRUE(devices.kindOf(1).isParted);
  EXPECT_TRUE(devices.networkOf({0, 1}).interNode == groups[0].interNode);
  // Stages of 4 are whole nodes: the last two meet between the groups alone.
  StageDevices apart = *StageDevices::make(cluster, 4, 4);
  EXPECT_TRUE(apart.networkOf({2, 3}).interNode == fast);
  EXPECT_TRUE(apart.networkOf({1, 2}).interNode == groups[0].interNode);
}

TEST(Mixed, ThereAreNotTooManyGroups) {
  std::vector<SmallGroup> of(size_t(mostGroups), {"one", 1, 1, 1});
  std::vector<std::string> names;
  for (size_t i = 0; i < of.size(); ++i)
    names.push_back("kind" + std::to_string(i));
  for (size_t i = 0; i < of.size(); ++i)
    of[i] = {names[i].c_str(), 1, 1, 1 + double(i)};
  Cluster most = smallMix(of);
  StageDevices devices = *StageDevices::make(most, mostGroups, 1);
  EXPECT_EQ(devices.of(int(mostGroups) - 1).name, names.back());
  std::vector<Cluster> groups = most.groups;
  groups.push_back(groups[0]);
  Result<Cluster> more = clusterOfGroups("mix", "", groups, std::nullopt);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message, "nodes must be of at most 64 kinds");
  // The same holds for an edited plan.
  Pins pins;
  pins.mesh = *parseMesh("pp=2");
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  Cluster two = smallMix({{"fast", 1, 1, 4}, {"slow", 1, 1, 1}});
  Result<SearchAnswer> answer = search(graph, jobFor(2, 4), two, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  answer->plan.cluster.groups = groups;
  Result<Plan> read = readPlan(writePlan(answer->plan), "plan.json");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("\"cluster.groups\" must have at most 64 entries"));
}

/// No collective on the slower of two networks is faster than on either one.
TEST(Mixed, TheSlowerNetworkIsSlower) {
  std::vector<Cluster> clusters;
  for (const std::string &name : clusterPresets())
    clusters.push_back(*loadCluster(name));
  for (double ring : {0.0, 2e-6}) { // with rings between nodes, and inside them or not
    clusters.push_back(clusters[0]);
    clusters.back().interNode.ringStepSeconds = 3e-6;
    clusters.back().intraNode.ringStepSeconds = ring;
    clusters.back().interNode.smallFraction = 0.5;
  }
  for (const Cluster &a : clusters)
    for (const Cluster &b : clusters) {
      const Network slower =
          slowerOf(Network{a.intraNode, a.interNode}, Network{b.intraNode, b.interNode});
      for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                  CollectiveKind::AllToAll, CollectiveKind::Send})
        for (double bytes : {0.0, 1e4, 1e6, 1e9})
          for (GroupShape shape :
               {GroupShape{2, 1, 2}, {2, 2, 1}, {8, 1, 8}, {8, 8, 1}, {64, 8, 8}})
            for (const Cluster *one : {&a, &b})
              EXPECT_GE(networkSeconds(slower.intraNode, slower.interNode, kind, shape, bytes) *
                            (1 + 1e-12),
                        networkSeconds(one->intraNode, one->interNode, kind, shape, bytes))
                  << a.name << " and " << b.name << ", " << shape.size << " on " << shape.nodes;
    }
}

/// A stage has the time and memory that it has on a cluster of its devices alone.
TEST(Mixed, StagesArePricedOnTheirOwnDevices) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Cluster cluster = smallMix({{"fast", 1, 4, 4}, {"slow", 1, 4, 1}});
  Pins pins;
  pins.mesh = *parseMesh("pp=2,dp=2,tp=2");
  Result<SearchAnswer> answer = search(graph, jobFor(8, 16), cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  const Prediction &mixed = answer->plan.prediction;
  for (int stage : {0, 1}) {
    Plan alike = answer->plan;
    alike.cluster = cluster.groups[size_t(stage)];
    Result<Prediction> whole = predict(graph, alike);
    ASSERT_TRUE(whole);
    EXPECT_DOUBLE_EQ(mixed.stageSeconds[size_t(stage)], whole->stageSeconds[size_t(stage)]);
    EXPECT_EQ(mixed.stages[size_t(stage)].totalBytes(), whole->stages[size_t(stage)].totalBytes());
  }
  EXPECT_THAT(summarize(answer->plan), HasSubstr("  stage 0 on 4 x fast\n  stage 1 on 4 x slow\n"));
}

/// The memory interval ends as far beyond the limit as that of the least certain stage, though
/// another stage is fuller.
TEST(Mixed, TheLeastSureStageEndsTheInterval) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  std::vector<Cluster> groups = smallMix({{"sure", 1, 1, 1}, {"unsure", 1, 1, 1}}).groups;
  groups[1].memoryBytes *= 2;
  groups[1].contextUncertaintyBytes = groups[1].memoryBytes;
  Cluster cluster = *clusterOfGroups("mix", "", groups, std::nullopt);
  Pins pins;
  pins.mesh = *parseMesh("pp=2");
  Result<SearchAnswer> answer = search(graph, jobFor(2, 4), cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  const Prediction &prediction = answer->plan.prediction;
  EXPECT_EQ(prediction.limitBytes, groups[0].usableBytes());
  EXPECT_EQ(prediction.highBytes - prediction.limitBytes,
            memoryInterval(prediction.stages[1], groups[1]).second - groups[1].usableBytes());
}

TEST(Mixed, WithoutAPipelineAllIsOnTheFirstType) {
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  Cluster cluster = smallMix({{"fast", 1, 4, 4}, {"slow", 1, 4, 1}});
  Pins pins;
  pins.strategy = "ddp";
  Result<SearchAnswer> answer = search(graph, jobFor(8, 16), cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.idleDevices, 4);
  EXPECT_THAT(summarize(answer->plan), HasSubstr("  all 4 x fast\n"));
}

TEST(Mixed, ShortMemoryIsNamedByStageAndDevice) {
  Graph graph = makeChain({10, 1, 16, 4, 8, 64, 96});
  std::vector<Cluster> groups = smallMix({{"fast", 1, 1, 4}, {"slow", 1, 1, 1}}).groups;
  groups[1].memoryBytes = 2000;
  Cluster cluster = *clusterOfGroups("mix", "", groups, std::nullopt);
  Pins pins;
  pins.mesh = *parseMesh("pp=2");
  Result<SearchAnswer> answer = search(graph, jobFor(2, 4), cluster, pins);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::NoFeasiblePlan);
  EXPECT_THAT(answer.error().message, HasSubstr("stage 1, on slow, needs "));
}

/// No collective and no kernel is slower on the whole cluster's numbers than on any of its groups.
TEST(Mixed, TheWholeIsAsGoodAsTheBest) {
  std::mt19937_64 random(3);
  const std::vector<std::string> names = clusterPresets();
  for (int round = 0; round < 40; ++round) {
    std::vector<Cluster> groups;
    for (int i = 0; i < 2; ++i) {
      groups.push_back(*loadCluster(names[random() % names.size()]));
      groups[size_t(i)].name = std::to_string(i);
      groups[size_t(i)].numNodes = 8;
      groups[size_t(i)].devicesPerNode = 8;
      for (NetworkLevel *level : {&groups[size_t(i)].intraNode, &groups[size_t(i)].interNode})
        if (round % 2 == 0) { // with rings and small messages, or without
          level->ringStepSeconds = random() % 2 ? 1e-6 * double(random() % 20) : 0;
          level->smallFraction = random() % 2 ? 0.5 : 1;
        }
    }
    Cluster whole = *clusterOfGroups("mix", "", groups, std::nullopt);
    Mesh mesh = MeshShape{1, 8, 1, 1, 1, 8}.mesh();
    for (const Cluster &group : groups) {
      for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                  CollectiveKind::AllToAll, CollectiveKind::Send})
        for (double bytes : {0.0, 1e4, 1e7, 1e9})
          for (GroupShape shape : {GroupShape{2, 1, 2}, {8, 1, 8}, {8, 8, 1}, {64, 8, 8}})
            EXPECT_LE(NetworkCost(whole, mesh).seconds(kind, {shape.size, 1, shape.size}, bytes),
                      NetworkCost(group, mesh).seconds(kind, shape, bytes) * (1 + 1e-12));
      for (KernelClass kernel : reshard::kernelClasses())
        for (double flops : {1e6, 1e12}) {
          LocalWork work;
          work.flops = flops;
          work.bytes = 1e3 * double(random() % 1000000);
          work.dtype = random() % 2 ? reshard::DType::BF16 : reshard::DType::F32;
          work.depth = 100;
          EXPECT_LE(kernelSeconds(whole, kernel, work),
                    kernelSeconds(group, kernel, work) * (1 + 1e-12));
        }
      EXPECT_GE(whole.usableBytes() - whole.contextBytes, group.usableBytes() - group.contextBytes);
    }
  }
}

//===----------------------------------------------------------------------===//
// The search
//===----------------------------------------------------------------------===//

/// Returns the number of blocks of the chain that begin on each stage.
static std::vector<int> blocksByStage(const Graph &graph, const Plan &plan) {
  std::vector<int> blocks(size_t(plan.mesh.pp), 0);
  int chunk = -1;
  for (const GraphOp &op : graph.ops) {
    if (op.phase != Phase::Forward)
      break;
    if (chunk + 1 < int(plan.stages.size()) && plan.stages[size_t(chunk + 1)] == op.id)
      ++chunk;
    bool isStart = op.id.size() > 4 && op.id.compare(op.id.size() - 4, 4, ".ln1") == 0;
    blocks[size_t(plan.chunkStage.empty() ? chunk : plan.chunkStage[size_t(chunk)])] += isStart;
  }
  return blocks;
}

/// A model with the shapes of GPT-2 on a node of each: the H100s take more of its blocks.
TEST(Mixed, FasterStagesGetMoreBlocks) {
  Graph graph = makeChain({12, 1, 1024, 12, 64, 3072, 8192, false, 2});
  Cluster cluster = parsed(header() + nodes("h100-sxm", 1) + nodes("a100-80gb-sxm", 1));
  Job job = jobFor(16, 128);
  job.precision = Precision::BF16;
  Pins pins;
  pins.mesh = *parseMesh("pp=2,dp=8");
  pins.schedule = "1f1b";
  pins.microBatch = 1;
  Result<SearchAnswer> answer = search(graph, job, cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  std::vector<int> blocks = blocksByStage(graph, answer->plan);
  EXPECT_EQ(blocks[0] + blocks[1], 12);
  EXPECT_GE(blocks[0], blocks[1] + 2) << blocks[0] << " and " << blocks[1];
  EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds);
  // In the opposite order the second stage gets more.
  cluster = parsed(header() + nodes("a100-80gb-sxm", 1) + nodes("h100-sxm", 1));
  Result<SearchAnswer> turned = search(graph, job, cluster, pins);
  ASSERT_TRUE(turned);
  std::vector<int> other = blocksByStage(graph, turned->plan);
  EXPECT_GT(other[1], other[0]);
}

TEST(Mixed, PlansReadBackAsWritten) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Cluster cluster = smallMix({{"fast", 1, 4, 4}, {"slow", 1, 4, 1}});
  Pins pins;
  pins.mesh = *parseMesh("pp=2,fsdp=4");
  Result<SearchAnswer> answer = search(graph, jobFor(8, 16), cluster, pins);
  ASSERT_TRUE(answer) << answer.error().message;
  std::string text = writePlan(answer->plan);
  Result<Plan> read = readPlan(text, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->cluster == answer->plan.cluster);
  EXPECT_EQ(writePlan(*read), text);
  EXPECT_EQ(predict(graph, *read)->stepSeconds, answer->plan.prediction.stepSeconds);
  // Edited plans: two types within a stage, or more ranks than devices.
  Plan edited = answer->plan;
  edited.cluster = smallMix({{"fast", 1, 3, 4}, {"slow", 1, 5, 1}});
  Result<Plan> refused = readPlan(writePlan(edited), "plan.json");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("mesh"));
  EXPECT_THAT(refused.error().message, HasSubstr("device types may differ"));
  size_t at = text.find("\"nodes\": 1");
  ASSERT_NE(at, std::string::npos);
  EXPECT_THAT(readPlan(text.replace(at, 10, "\"nodes\": 0"), "plan.json").error().message,
              HasSubstr("cluster.groups[0].nodes"));
}

/// The example of docs/clusters.md is a cluster.
TEST(Mixed, TheDocumentedFileLoads) {
  std::ifstream file(TBC_SOURCE_DIR "/docs/clusters.md");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t begin = text.find("```toml\n");
  ASSERT_NE(begin, std::string::npos);
  begin += 8;
  Cluster cluster = parsed(text.substr(begin, text.find("```", begin) - begin));
  EXPECT_EQ(cluster.groupsText(), "1 node of 8 x h100-sxm and 2 nodes of 4 x a100-80gb-sxm");
  ASSERT_TRUE(cluster.betweenGroups);
}
