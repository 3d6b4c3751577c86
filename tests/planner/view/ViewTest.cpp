//===- ViewTest.cpp - The content of a report -------------------------------===//

#include "planner/view/Facts.h"
#include "planner/view/PlanView.h"
#include "tests/planner/view/Plans.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

const LinkView &linkOf(const MeshView &mesh, const std::vector<std::string> &axes) {
  for (const LinkView &link : mesh.links)
    if (link.axes == axes)
      return link;
  ADD_FAILURE() << "no such link";
  static const LinkView none;
  return none;
}

nlohmann::json jsonOf(const Plan &plan) {
  return nlohmann::json::parse(toJson({viewOf(plan, "plan.json")}))["plans"][0];
}

} // namespace

TEST(MeshView, PutsAxesOnNodes) {
  const Plan plan = planOf("dp=4,tp=2");
  const MeshView mesh = meshView(plan);
  EXPECT_EQ(mesh.ranks, 8);
  EXPECT_EQ(mesh.nodes, 2); // of 4 devices
  EXPECT_EQ(linkOf(mesh, {"tp"}).shape.nodes, 1);
  EXPECT_EQ(linkOf(mesh, {"dp"}).shape.nodes, 2);
  EXPECT_EQ(linkOf(mesh, {"dp"}).shape.perNode, 2);
}

TEST(MeshView, CountsTheTrafficOfTheBusiestStage) {
  const Plan plan = planOf("pp=2,dp=2,tp=2", "1f1b");
  const MeshView mesh = meshView(plan);
  for (const LinkView &link : mesh.links) {
    std::string axes;
    for (const std::string &axis : link.axes)
      axes += (axes.empty() ? "" : "+") + axis;
    std::map<int, double> seconds;
    for (const CollectiveLine &line : plan.prediction.collectives)
      if (line.count.axes == axes)
        seconds[line.count.stage] += line.seconds * double(line.count.count);
    double most = 0;
    for (const auto &[stage, sum] : seconds)
      most = std::max(most, sum);
    EXPECT_DOUBLE_EQ(link.seconds, most) << axes;
  }
}

TEST(MeshView, LeavesNodesOutOfALargePicture) {
  Plan plan = planOf("dp=8");
  plan.mesh.dp = 4096;
  const MeshView mesh = meshView(plan);
  EXPECT_EQ(mesh.nodes, 1024);
  ASSERT_EQ(int64_t(mesh.drawn.size()), mostNodes);
  EXPECT_EQ(mesh.drawn.back().index, 1023);
  EXPECT_EQ(mesh.drawn.back().firstRank, 4092);
}

TEST(MeshView, FillsTheNodesOfEveryGroupInOrder) {
  Cluster large = smallCluster(), little = smallCluster();
  large.name = "large", large.numNodes = 1, large.devicesPerNode = 4;
  little.name = "little", little.numNodes = 2, little.devicesPerNode = 2;
  Plan plan = planOf("pp=2,dp=4", "1f1b");
  plan.cluster = *clusterOfGroups("mix", "test", {large, little}, std::nullopt);
  const PlanView view = viewOf(plan, "plan.json");
  ASSERT_EQ(view.mesh.drawn.size(), 3u);
  EXPECT_EQ(view.mesh.drawn[0].device, "large");
  EXPECT_EQ(view.mesh.drawn[2].device, "little");
  EXPECT_EQ(view.mesh.drawn[2].firstRank, 6);
  EXPECT_THAT(view.cluster.front().facts[1].value, HasSubstr("large"));
}

TEST(MeshView, KnowsContextAndExpertAxes) {
  Plan plan = planOf("dp=8");
  plan.mesh = MeshShape();
  plan.mesh.ep = 2, plan.mesh.cp = 4;
  plan.prediction.collectives = {{{reshard::CollectiveKind::AllToAll, "ep", 0, 100, 3}, 1e-3},
                                 {{reshard::CollectiveKind::Permute, "cp", 0, 50, 2}, 2e-3},
                                 {{reshard::CollectiveKind::AllReduce, "ep+cp", 0, 8, 1}, 1e-5}};
  const PlanView view = viewOf(plan, "plan.json");
  EXPECT_EQ(linkOf(view.mesh, {"ep"}).bytes, 300);
  EXPECT_EQ(linkOf(view.mesh, {"cp"}).seconds, 4e-3);
  EXPECT_EQ(linkOf(view.mesh, {"ep", "cp"}).size, 8);
  EXPECT_EQ(view.collectives.front().kind, "permute") << "the longest first";
}

TEST(PlanView, SaysWhetherItFits) {
  Plan plan = planOf("dp=8");
  Prediction &p = plan.prediction;
  EXPECT_THAT(viewOf(plan, "p").verdict, HasSubstr("within the limit"));
  p.memory = MemoryVerdict::Tight;
  EXPECT_THAT(viewOf(plan, "p").verdict, HasSubstr("may run out of memory"));
  p.memory = MemoryVerdict::DoesNotFit;
  p.limitBytes = p.peakBytes - (int64_t(3) << 20);
  EXPECT_THAT(viewOf(plan, "p").verdict, HasSubstr("3.00 MiB more than the limit"));
  p.hostBytes = 2, p.hostLimitBytes = 1;
  EXPECT_THAT(viewOf(plan, "p").verdict, HasSubstr("host memory"));
}

TEST(PlanView, ComparesPlansBySimplicity) {
  Plan plan = planOf("dp=8");
  plan.mesh = MeshShape();
  plan.mesh.fsdp = 4, plan.mesh.tp = 2;
  plan.parameterDefault.zero = 3;
  Alternative other;
  other.mesh.dp = 8;
  EXPECT_TRUE(isSimpler(other, plan)) << "DDP";
  other.mesh = MeshShape();
  other.mesh.fsdp = 8, other.data.zero = 3;
  EXPECT_TRUE(isSimpler(other, plan)) << "no tp";
  other.mesh.fsdp = 2, other.mesh.tp = 2, other.mesh.pp = 2;
  EXPECT_FALSE(isSimpler(other, plan)) << "one axis more";
  other.mesh = plan.mesh;
  other.data.keepGathered = true;
  EXPECT_TRUE(isSimpler(other, plan)) << "SHARD_GRAD_OP";
}

TEST(PlanView, AnswersWhyNotSimpler) {
  Plan plan = planOf("fsdp=8");
  plan.alternatives.clear();
  EXPECT_THAT(viewOf(plan, "p").whyNotSimpler, HasSubstr("no alternatives"));
  plan.alternatives.resize(1);
  plan.alternatives[0].mesh = plan.mesh;
  plan.alternatives[0].data = plan.parameterDefault;
  EXPECT_THAT(viewOf(plan, "p").whyNotSimpler, HasSubstr("simplest"));
  plan.alternatives[0].mesh = MeshShape();
  plan.alternatives[0].mesh.dp = 8;
  plan.alternatives[0].data = ParameterDecision();
  EXPECT_THAT(viewOf(plan, "p").whyNotSimpler, HasSubstr("why they lost"));
}

TEST(PlanView, HasThePartsOfTheStepAndOfThePeak) {
  for (const char *mesh : {"dp=8", "fsdp=4,tp=2", "pp=2,dp=4"}) {
    const Plan plan = planOf(mesh, std::string(mesh).find("pp") == 0 ? "1f1b" : "");
    const auto json = jsonOf(plan);
    double seconds = 0, bytes = 0;
    for (const auto &part : json["time"]["parts"])
      seconds += part["seconds"].get<double>();
    EXPECT_NEAR(seconds, plan.prediction.stepSeconds, 1e-9 * seconds);
    const auto &memory = json["memory"];
    const auto &stage = memory["stages"][memory["fullest_stage"].get<size_t>()];
    for (const auto &line : stage["lines"])
      bytes += line["bytes"].get<double>();
    EXPECT_EQ(bytes, double(plan.prediction.peakBytes));
    EXPECT_EQ(stage["limit"], plan.prediction.limitBytes);
    EXPECT_EQ(json["layers"].size(), plan.blocks.size());
    EXPECT_EQ(json["others"].size(), plan.alternatives.size());
    EXPECT_EQ(json["reasons"].size(), plan.reasons.size());
  }
}

TEST(PlanView, NamesOpsAsPatterns) {
  Plan plan = planOf("dp=8");
  plan.recomputeOps = {"h.0.fc", "h.1.fc", "h.2.fc"};
  const PlanView view = viewOf(plan, "p");
  ASSERT_FALSE(view.named.empty());
  EXPECT_EQ(view.named.back().decision, "recompute");
  EXPECT_EQ(view.named.back().count, 3);
  EXPECT_THAT(view.named.back().names, ElementsAre("h.{0..2}.fc"));
}

TEST(Facts, HaveUnits) {
  EXPECT_EQ(rateText(3.62e11, "B"), "362 GB/s");
  EXPECT_EQ(rateText(9.89e14, "FLOP"), "989 TFLOP/s");
  for (const FactGroup &group : clusterFacts(*loadCluster("h100-sxm")))
    for (const FactView &fact : group.facts)
      EXPECT_FALSE(fact.value.empty()) << group.title << ", " << fact.name;
}
