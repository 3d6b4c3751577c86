//===- offload_test.cpp - Offloaded tensors and their cost ----------------===//
//
// Closed forms. With --offload optimizer a device keeps only the step's scalars of all states. With
// --offload residuals it keeps only small residuals. Each tensor is copied once to the host, and
// back once for every block that reads it. sweep_test and random_graphs_test check that results
// stay the same.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/Recompute.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "runtime/exec/SimulatedCluster.h"
#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc;
using testing::HasSubstr;

namespace {

planner::Plan planned(const test::Model &model, const char *mesh, const char *offload,
                      const char *recompute = "none") {
  test::PlanRequest request;
  request.mesh = mesh;
  request.offload = offload;
  request.recompute = recompute;
  auto plan = test::makePlan(model, request);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : planner::Plan();
}

/// Returns the memory use of rank 0 after a step of the plan's Program.
runtime::MemoryUse useOf(const test::Model &model, const planner::Plan &plan) {
  auto compiled = driver::compilePlan(*model.step, plan);
  EXPECT_TRUE(compiled) << compiled.error().message;
  auto data = driver::makeRunData(*model.step, plan, 1, kernels::Arith::Native, 1);
  auto cluster = runtime::SimulatedCluster::create(compiled->program, {});
  EXPECT_TRUE(cluster->load([&](const std::string &name) { return data->initial.at(name); }));
  runtime::StepInputs inputs;
  inputs.microBatches = data->steps[0];
  inputs.learningRate = 1e-3;
  auto loss = cluster->step(inputs);
  EXPECT_TRUE(loss) << loss.error().message;
  return cluster->executor(0).memory();
}

/// Returns (count, bytes) of copies in one step of a rank of stage 0, by kind.
std::map<program::InstructionKind, std::pair<int64_t, int64_t>>
copiesOf(const program::Program &program) {
  std::map<program::InstructionKind, std::pair<int64_t, int64_t>> copies;
  const program::Stage &stage = program.stages[0];
  for (const schedule::Action &action : actionsOf(program, 0))
    for (const program::Instruction &it : stage.block(action).instructions)
      if (isHostCopy(it.kind)) {
        ++copies[it.kind].first;
        copies[it.kind].second += messageBytes(program, stage, it);
      }
  return copies;
}

constexpr int64_t stepStateBytes = 8; // the number of steps taken
constexpr int64_t bytesPerState = 4;

TEST(OffloadOptimizer, LeavesTheScalarsOfTheStepOnTheDevice) {
  test::Model model = test::loadModel("tiny-gpt2");
  planner::Plan plan = planned(model, "fsdp=2", "optimizer");
  int64_t elements = 0, count = 0;
  const reshard::Graph &graph = model.step->step.graph;
  for (const reshard::GraphParameter &parameter : graph.parameters) {
    elements += (graph.values[parameter.value].layout.numElements() + 1) / 2; // of two ranks
    ++count;
  }
  runtime::MemoryUse use = useOf(model, plan);
  EXPECT_EQ(use.optimizerStateBytes, stepStateBytes);
  EXPECT_EQ(use.hostOptimizerStateBytes, 2 * bytesPerState * elements);

  auto compiled = driver::compilePlan(*model.step, plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  std::pair<int64_t, int64_t> each{2 * count, 2 * bytesPerState * elements};
  auto copies = copiesOf(compiled->program);
  EXPECT_EQ(copies[program::InstructionKind::Fetch], each);
  EXPECT_EQ(copies[program::InstructionKind::Offload], each);
  // The step takes longer by the copies' time according to the cluster's constants.
  planner::Plan without = planned(model, "fsdp=2", "none");
  double seconds = 2 * (double(each.first) * plan.cluster.launchSeconds +
                        double(each.second) / plan.cluster.hostBytesPerSecond);
  EXPECT_NEAR(plan.prediction.time.host, seconds, 1e-6 * seconds);
  EXPECT_EQ(without.prediction.time.host, 0);
  // The steps of parameters stand apart between copies, so they share no launches.
  const double launches = plan.prediction.time.update - without.prediction.time.update;
  constexpr int64_t mostLaunches = 3; // of an update
  EXPECT_GT(launches, 0);
  EXPECT_LE(launches, double(mostLaunches * count) * plan.cluster.launchSeconds);
  EXPECT_NEAR(plan.prediction.stepSeconds - without.prediction.stepSeconds, seconds + launches,
              1e-6 * seconds);
}

TEST(OffloadOptimizer, MasterWeightsGoWithTheStates) {
  test::Model model = test::loadModel("tiny-gpt2", "adamw", {}, "", "bf16");
  planner::Plan plan = planned(model, "dp=2", "optimizer");
  for (const planner::MemoryLine &line : plan.prediction.stages[0].lines)
    if (line.name == "master weights")
      EXPECT_EQ(line.bytes, 0);
  std::map<std::string, int64_t> host;
  for (const planner::MemoryLine &line : plan.prediction.stages[0].host)
    host[line.name] = line.bytes;
  EXPECT_GT(host["master weights"], 0);
  EXPECT_EQ(host["optimizer state"], 2 * host["master weights"]);
}

TEST(OffloadResiduals, LeaveOnceAndComeBackOnce) {
  test::Model model = test::loadModel("gpt2-8l");
  planner::Plan kept = planned(model, "dp=2", "none"), away = planned(model, "dp=2", "residuals");
  runtime::MemoryUse before = useOf(model, kept), after = useOf(model, away);
  EXPECT_EQ(before.hostResidualPeakBytes, 0);
  EXPECT_EQ(after.residualPeakBytes + after.hostResidualPeakBytes, before.residualPeakBytes);
  // Small residuals stay on the device.
  EXPECT_LT(after.residualPeakBytes, before.residualPeakBytes / 10);

  auto compiled = driver::compilePlan(*model.step, away);
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto copies = copiesOf(compiled->program);
  EXPECT_EQ(copies[program::InstructionKind::Offload].second,
            away.accumulation * after.hostResidualPeakBytes);
  EXPECT_EQ(copies[program::InstructionKind::Offload], copies[program::InstructionKind::Fetch]);
}

TEST(OffloadResiduals, OfSomeBlocksAreTheirShare) {
  test::Model model = test::loadModel("gpt2-8l");
  planner::Plan some = planned(model, "dp=2", "residuals:4"),
                all = planned(model, "dp=2", "residuals");
  EXPECT_EQ(planner::residualsText(some.offload.residuals), "4/8");
  EXPECT_EQ(planner::residualsText(all.offload.residuals), "all");
  double share = double(some.prediction.hostBytes) / double(all.prediction.hostBytes);
  EXPECT_GT(share, 0.35);
  EXPECT_LT(share, 0.6);
}

TEST(OffloadAll, GoesWithRecomputation) {
  test::Model model = test::loadModel("gpt2-8l");
  planner::Plan plan = planned(model, "pp=2,dp=2", "all", "full");
  runtime::MemoryUse use = useOf(model, plan);
  EXPECT_GT(use.hostResidualPeakBytes, 0);
  EXPECT_EQ(use.optimizerStateBytes, stepStateBytes);
}

TEST(OffloadPins, AreChecked) {
  test::Model model = test::loadModel("tiny-gpt2");
  test::PlanRequest request;
  request.mesh = "dp=2";
  for (auto [offload, part] : {std::pair("residual", "did you mean residuals?"),
                               {"optimizer:2", "a number of blocks"},
                               {"residuals:x", "a number of blocks"},
                               {"residuals:99", "blocks whose residuals"}}) {
    request.offload = offload;
    auto plan = test::makePlan(model, request);
    ASSERT_FALSE(plan) << offload;
    EXPECT_THAT(plan.error().message, HasSubstr(part));
  }
}

/// Plans a job with a memory limit of `share` of its peak without a limit.
Result<planner::Plan> planWithin(const test::Model &model, double share, const char *offload,
                                 const char *axis = "dp") {
  planner::Plan free = planned(model, (std::string(axis) + "=2").c_str(), "none");
  planner::Pins pins;
  pins.mesh = {{axis, 2}};
  pins.recompute = "none";
  pins.zero = 0;
  pins.microBatch = 1;
  pins.offload = offload;
  pins.memoryLimitBytes = int64_t(share * double(free.prediction.peakBytes));
  auto answer = planner::search(model.step->step.graph, free.job, free.cluster, pins);
  if (!answer)
    return answer.error();
  return answer->plan;
}

/// The device context exceeds all other memory of this model.
test::Model smallModel() { return test::loadModel("gpt2-8l"); }

double shareOf(const planner::Plan &plan, std::initializer_list<const char *> names, double part) {
  double bytes = 0;
  for (const planner::MemoryLine &line : plan.prediction.stages[0].lines)
    for (const char *name : names)
      bytes += line.name == name ? double(line.bytes) : 0;
  return 1 - part * bytes / double(plan.prediction.peakBytes);
}

TEST(OffloadSearch, TakesWhatMustBeWhereMemoryIsShort) {
  test::Model model = smallModel();
  planner::Plan free = planned(model, "dp=2", "none");
  auto enough = planWithin(model, 1.01, "auto");
  ASSERT_TRUE(enough) << enough.error().message;
  EXPECT_TRUE(enough->offload.isNone());
  double shorter = shareOf(free, {"optimizer state"}, 0.5);
  auto away = planWithin(model, shorter, "auto");
  ASSERT_TRUE(away) << away.error().message;
  EXPECT_FALSE(away->offload.isNone());
  EXPECT_TRUE(away->prediction.meets(planner::MemoryVerdict::Tight));
  EXPECT_GT(away->prediction.hostBytes, 0);
  auto reason = std::find_if(away->reasons.begin(), away->reasons.end(),
                             [](const planner::Reason &r) { return r.decision == "offload"; });
  ASSERT_NE(reason, away->reasons.end());
  EXPECT_EQ(reason->origin, planner::Origin::Forced);
}

TEST(OffloadSearch, IsProposedWhereNothingFits) {
  test::Model model = smallModel();
  // Over dp, ZeRO would be proposed first.
  planner::Plan free = planned(model, "pp=2", "none");
  auto refused = planWithin(model, shareOf(free, {"optimizer state"}, 0.5), "none", "pp");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::NoFeasiblePlan);
  EXPECT_THAT(refused.error().message, HasSubstr("add --offload optimizer: then"));
}

TEST(OffloadPlan, IsReadAsItWasWritten) {
  test::Model model = test::loadModel("gpt2-8l");
  planner::Plan plan = planned(model, "pp=2,dp=2", "all");
  std::string text = planner::writePlan(plan);
  auto read = planner::readPlan(text, "plan");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(planner::writePlan(*read), text);
  EXPECT_THAT(read->offload.ops, testing::UnorderedElementsAreArray(plan.offload.ops));
  auto again = planner::predict(model.step->step.graph, *read);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->hostBytes, plan.prediction.hostBytes);
  plan.offload.ops = {"no such op"};
  auto bad = planner::applyPlan(model.step->step.graph, plan);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("plan key \"offload\": the model has no op"));
}

} // namespace
