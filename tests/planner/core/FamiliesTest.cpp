//===- FamiliesTest.cpp - The simplest of equals, and runners-up ------------===//

#include "planner/search/Families.h"
#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// A plan that takes half of its device.
Plan planOn(const char *mesh, int zero = 0, bool keepGathered = false) {
  Plan plan;
  const auto axes = parseMesh(mesh);
  for (const auto &[name, size] : *axes)
    *plan.mesh.find(name) = size;
  plan.parameterDefault.zero = zero;
  plan.parameterDefault.keepGathered = keepGathered;
  plan.cluster = smallCluster();
  if (plan.mesh.pp > 1)
    plan.schedule = ScheduleKind::OneFOneB;
  plan.prediction.limitBytes = 100;
  plan.prediction.peakBytes = plan.prediction.highBytes = 50;
  plan.prediction.memory = MemoryVerdict::Fits;
  return plan;
}

ExactCandidate exactly(Plan plan, double seconds, MemoryVerdict memory = MemoryVerdict::Fits) {
  ExactCandidate exact;
  exact.candidate.mesh = plan.mesh;
  exact.candidate.zero = {plan.parameterDefault.zero, plan.parameterDefault.keepGathered};
  exact.plan = std::move(plan);
  exact.plan.prediction.stepSeconds = seconds;
  exact.plan.prediction.memory = memory;
  return exact;
}

std::vector<std::string> meshesOf(const std::vector<ExactCandidate> &exact) {
  std::vector<std::string> meshes;
  for (const ExactCandidate &one : exact)
    meshes.push_back(toString(one.plan.mesh));
  return meshes;
}

} // namespace

TEST(Families, HaveTheNamesOfStrategies) {
  EXPECT_TRUE(familyOf(planOn("dp=8").mesh, {0, false}).isDdp());
  EXPECT_EQ(familyOf(planOn("dp=8").mesh, {1, false}).data, DataFamily::Zero1);
  EXPECT_EQ(familyOf(planOn("dp=8").mesh, {2, false}).data, DataFamily::Zero2);
  EXPECT_EQ(familyOf(planOn("fsdp=8").mesh, {3, false}).data, DataFamily::Fsdp);
  EXPECT_EQ(familyOf(planOn("fsdp=8").mesh, {3, true}), familyOf(planOn("dp=8").mesh, {3, false}));
  EXPECT_EQ(familyOf(planOn("dp=2,fsdp=4").mesh, {3, false}).data, DataFamily::Hsdp);
  EXPECT_EQ(familyOf(planOn("tp=8").mesh, {0, false}).data, DataFamily::None);
  EXPECT_FALSE(familyOf(planOn("dp=4,tp=2").mesh, {0, false}).isDdp());
}

TEST(Families, AreOrderedFromSimpleToComplicated) {
  std::vector<Plan> plans = {planOn("dp=8"),      planOn("dp=8", 1),        planOn("dp=8", 2),
                             planOn("fsdp=8", 3), planOn("dp=2,fsdp=4", 3), planOn("tp=8"),
                             planOn("dp=4,tp=2"), planOn("dp=2,pp=2,tp=2")};
  for (size_t i = 0; i + 1 < plans.size(); ++i) {
    EXPECT_TRUE(isSimpler(plans[i], plans[i + 1])) << i;
    EXPECT_FALSE(isSimpler(plans[i + 1], plans[i])) << i;
  }
}

TEST(Families, WithinOneOrderByWhatElseIsSimple) {
  Plan plain = planOn("dp=8");
  Plan other = plain;
  other.recompute = {RecomputeMode::Full, BlockShare::share(3, 8)};
  EXPECT_TRUE(isSimpler(plain, other));
  other = plain;
  other.offload.optimizer = true;
  EXPECT_TRUE(isSimpler(plain, other));
  other = plain;
  other.prediction.highBytes = 95; // 0 tenths free, not 5
  EXPECT_TRUE(isSimpler(plain, other));
  Plan inNode = planOn("dp=2,tp=4"), across = planOn("dp=2,tp=8"); // nodes of 4
  EXPECT_TRUE(isSimpler(inNode, across));
  Plan oneF = planOn("pp=2,dp=4"), zeroBubble = oneF;
  zeroBubble.schedule = ScheduleKind::ZeroBubble;
  EXPECT_TRUE(isSimpler(oneF, zeroBubble));
  EXPECT_FALSE(isSimpler(plain, plain));
}

TEST(Families, TheSimplestWithinTheTieIsTaken) {
  auto make = [] {
    std::vector<ExactCandidate> exact;
    exact.push_back(exactly(planOn("dp=2,fsdp=4", 3), 1.000));
    exact.push_back(exactly(planOn("fsdp=8", 3), 1.003));
    exact.push_back(exactly(planOn("dp=8"), 1.015));
    exact.push_back(exactly(planOn("dp=8"), 1.021));
    return exact;
  };
  std::vector<ExactCandidate> exact = make();
  preferSimplest(exact, MemoryVerdict::Fits, 0.02);
  EXPECT_EQ(exact[0].plan.prediction.stepSeconds, 1.015);
  EXPECT_EQ(exact[1].plan.prediction.stepSeconds, 1.000) << "the fastest stays the first runner-up";
  exact = make();
  preferSimplest(exact, MemoryVerdict::Fits, 0.005);
  EXPECT_THAT(meshesOf(exact), ElementsAre("fsdp=8", "dp=2 fsdp=4", "dp=8", "dp=8"));
  exact = make();
  preferSimplest(exact, MemoryVerdict::Fits, 0);
  EXPECT_EQ(exact[0].plan.prediction.stepSeconds, 1.000);
  exact = make();
  exact[2].plan.prediction.memory = MemoryVerdict::Tight;
  exact[3].plan.prediction.memory = MemoryVerdict::DoesNotFit;
  preferSimplest(exact, MemoryVerdict::Fits, 0.03);
  EXPECT_EQ(toString(exact[0].plan.mesh), "fsdp=8") << "what does not fit is no answer";
}

TEST(Families, RunnersUpAreTheBestOfEach) {
  std::vector<ExactCandidate> exact;
  exact.push_back(exactly(planOn("fsdp=8", 3), 1.00));
  exact.push_back(exactly(planOn("fsdp=8", 3, true), 1.01));
  exact.push_back(exactly(planOn("fsdp=8", 3), 1.02));
  exact.push_back(exactly(planOn("tp=8"), 1.30));
  exact.push_back(exactly(planOn("dp=2,fsdp=4", 3), 1.40));
  exact.push_back(exactly(planOn("dp=8"), 0.90, MemoryVerdict::DoesNotFit));
  auto places = [&](size_t most) {
    std::vector<size_t> found;
    for (const ExactCandidate *one : runnersUp(exact, most))
      found.push_back(size_t(one - exact.data()));
    return found;
  };
  EXPECT_THAT(places(0), ElementsAre());
  EXPECT_THAT(places(1), ElementsAre(5)) << "DDP always";
  EXPECT_THAT(places(3), ElementsAre(3, 4, 5));
  EXPECT_THAT(places(4), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(places(9), ElementsAre(1, 2, 3, 4, 5));
}

/// Checks every mesh and ZeRO stage by itself: no simpler one is within the tie.
TEST(Families, NoSimplerStrategyIsWithinTheTie) {
  std::set<std::string> answers;
  int moved = 0;
  for (int64_t batch : {8, 32})
    for (double slow : {1.0, 0.03}) {
      ChainSizes sizes{2, batch, 16, 4, 8, 64, 96};
      Graph graph = makeChain(sizes);
      Cluster cluster = smallCluster();
      cluster.interNode.bytesPerSecond *= slow;
      cluster.intraNode.bytesPerSecond *= slow;
      const Job job = jobFor(8, batch);
      Pins pins;
      Result<SearchAnswer> fastest = search(graph, job, cluster, pins);
      ASSERT_TRUE(fastest) << fastest.error().message;
      pins.tie = 0.05;
      Result<SearchAnswer> answer = search(graph, job, cluster, pins);
      ASSERT_TRUE(answer) << answer.error().message;
      const double limit = fastest->plan.prediction.stepSeconds * (1 + pins.tie);
      const Plan &chosen = answer->plan;
      EXPECT_LE(chosen.prediction.stepSeconds, limit * (1 + 1e-9));
      auto rank = [](const Plan &plan) {
        const Family family = familyOf(plan.mesh, {plan.parameterDefault.zero, false});
        return std::make_tuple(family.modelAxes(), family.data, plan.mesh.numAxes());
      };
      for (const char *mesh : {"dp=8", "fsdp=8", "dp=2,fsdp=4", "dp=4,fsdp=2", "tp=8", "pp=8",
                               "dp=4,tp=2", "dp=2,tp=4", "pp=2,dp=4"})
        for (int zero : {0, 1, 2, 3}) {
          Pins alone;
          alone.mesh = *parseMesh(mesh);
          alone.zero = zero;
          Result<Plan> other = costOf(graph, job, cluster, alone);
          if (!other || !other->prediction.fits() || rank(*other) >= rank(chosen))
            continue;
          EXPECT_GT(other->prediction.stepSeconds, limit)
              << mesh << " ZeRO-" << zero << " is simpler than " << toString(chosen.mesh);
        }
      answers.insert(toString(chosen.mesh));
      moved += !(chosen.mesh == fastest->plan.mesh) ||
               !(chosen.parameterDefault == fastest->plan.parameterDefault);
    }
  EXPECT_GT(answers.size(), 1u);
  EXPECT_GT(moved, 0) << "the tie decides nothing in these jobs";
}

TEST(Families, DdpIsARunnerUpThoughItDoesNotFit) {
  ChainSizes sizes{2, 16, 16, 4, 8, 64, 96};
  Graph graph = makeChain(sizes);
  const Job job = jobFor(8, 16);
  for (int64_t memory = int64_t(1) << 22; memory > 1 << 16; memory = memory * 4 / 5) {
    const Cluster cluster = smallCluster(memory);
    Pins ddp;
    ddp.mesh = *parseMesh("dp=8");
    ddp.zero = 0;
    Result<Plan> alone = costOf(graph, job, cluster, ddp);
    Result<SearchAnswer> answer = search(graph, job, cluster, Pins{});
    if (!answer || (alone && alone->prediction.fits()))
      continue;
    const std::vector<Alternative> &others = answer->plan.alternatives;
    auto found = std::find_if(others.begin(), others.end(), [](const Alternative &other) {
      return familyOf(other.mesh, {other.data.zero, other.data.keepGathered}).isDdp();
    });
    ASSERT_NE(found, others.end()) << memory;
    EXPECT_THAT(found->note, HasSubstr("does not fit")) << memory;
    return;
  }
  FAIL() << "there is no memory with which DDP alone does not fit";
}
