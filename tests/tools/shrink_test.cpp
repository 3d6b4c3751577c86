//===- shrink_test.cpp - Large plans made small enough to verify ----------===//

#include "ir/Resize.h"
#include "ir/Tbc.h"
#include "planner/plan/PlanFile.h"
#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/FewerLayers.h"
#include "tools/driver/Shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc;
using testing::Contains;
using testing::HasSubstr;

namespace {

void expectVerified(driver::Shrunk &small) {
  driver::VerifyOptions options;
  options.floats = false;
  auto report = driver::verifyPlan(*small.step, small.plan, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->residues.empty());
  EXPECT_TRUE(report->passed());
}

TEST(Shrink, LeavesWhatIsSmallEnough) {
  test::Model model = test::loadModel("tiny-llama");
  auto plan = test::makePlan(model, {"pp=2,dp=2,tp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto small = driver::shrink(*model.step, *plan, {8});
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_TRUE(small->notes.empty()) << small->notes[0];
  EXPECT_EQ(small->step->hash, model.step->hash);
  EXPECT_EQ(planner::writePlan(small->plan), planner::writePlan(*plan));
}

TEST(Shrink, AxesToTwoAndStagesMerge) {
  test::Model model = test::loadModel("gpt2-8l");
  auto plan = test::makePlan(model, {"pp=8,dp=4", "auto", "1f1b", "none", 1, 64});
  ASSERT_TRUE(plan) << plan.error().message;
  auto small = driver::shrink(*model.step, *plan, {8});
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(planner::toString(small->plan.mesh), "pp=4 dp=2");
  EXPECT_EQ(small->plan.stages, (std::vector<std::string>{plan->stages[0], plan->stages[2],
                                                          plan->stages[4], plan->stages[6]}));
  EXPECT_EQ(small->plan.accumulation, 5);
  EXPECT_EQ(small->plan.job.globalBatch, 10);
  EXPECT_THAT(small->notes, Contains(HasSubstr("pp=8 dp=4 -> pp=4 dp=2, stages merged")));
  EXPECT_THAT(small->notes, Contains("micro-batches 16 -> 5"));
  expectVerified(*small);
}

TEST(Shrink, ChunksKeepTheirPlacement) {
  test::Model model = test::loadModel("gpt2-8l");
  for (const char *schedule : {"interleaved", "zero-bubble"}) {
    SCOPED_TRACE(schedule);
    test::PlanRequest request{"pp=4,dp=4", "auto", schedule, "none", 1, 64};
    request.virtualStages = 2;
    auto plan = test::makePlan(model, request);
    ASSERT_TRUE(plan) << plan.error().message;
    auto small = driver::shrink(*model.step, *plan, {4});
    ASSERT_TRUE(small) << small.error().message;
    EXPECT_EQ(planner::scheduleText(small->plan), planner::scheduleText(*plan));
    EXPECT_EQ(small->plan.stages, (std::vector<std::string>{plan->stages[0], plan->stages[2],
                                                            plan->stages[4], plan->stages[6]}));
    expectVerified(*small);
  }
}

TEST(Shrink, TooFewRanksAreAUsageError) {
  test::Model model = test::loadModel("tiny-gpt2");
  auto plan = test::makePlan(model, {"pp=2,dp=2,tp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto small = driver::shrink(*model.step, *plan, {4});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::Usage);
  EXPECT_THAT(small.error().message, HasSubstr("needs at least 8 ranks"));
  EXPECT_THAT(small.error().message, HasSubstr("--ranks"));
}

TEST(Shrink, AnotherModelsPlanIsAUsageError) {
  test::Model model = test::loadModel("tiny-gpt2"), other = test::loadModel("tiny-mlp");
  auto plan = test::makePlan(model, {"dp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto small = driver::shrink(*other.step, *plan, {4});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::Usage);
}

/// A full-size model: its factors shrink, split dims stay divisible, and it is verified.
TEST(Shrink, FullSizeModels) {
  test::Model model = test::loadModel("gpt2");
  for (const char *mesh : {"fsdp=16", "pp=4,fsdp=4,tp=4", "dp=2,tp=12"}) {
    SCOPED_TRACE(mesh);
    auto plan = test::makePlan(model, {mesh, "auto", "", "selective", 1, 64});
    ASSERT_TRUE(plan) << plan.error().message;
    auto small = driver::shrink(*model.step, *plan, {16});
    ASSERT_TRUE(small) << small.error().message;
    EXPECT_THAT(small->notes, Contains(HasSubstr("factor 768 -> ")));
    int64_t parameters = 0;
    for (const frontend::ParameterSource &source : small->step->model.parameters) {
      parameters += kernels::numElements(source.shape);
      EXPECT_FALSE(source.present);
    }
    EXPECT_LT(parameters, 100000);
    expectVerified(*small);
  }
}

/// Taking the backward away and building it again gives the same step.
TEST(FewerLayers, DifferentiateAgain) {
  const std::pair<const char *, const char *> models[] = {
      {"tiny-gpt2", "f32"}, {"tiny-llama", "bf16"}, {"tiny-resnet", "f16"}, {"moe-8l", "bf16"}};
  for (auto [name, precision] : models) {
    SCOPED_TRACE(name);
    test::Model model = test::loadModel(name, "adamw", {}, "", precision);
    auto same = driver::withForward(*model.step, [](mlir::func::FuncOp) {});
    ASSERT_TRUE(same) << same.error().message;
    EXPECT_EQ((*same)->hash, model.step->hash);
  }
}

/// Uneven stages, with recomputation in some layers of each.
TEST(FewerLayers, KeepTheDecisions) {
  test::Model model = test::loadModel("gpt2-8l");
  for (const char *recompute : {"none", "full:2", "selective"}) {
    SCOPED_TRACE(recompute);
    test::PlanRequest request{"pp=2,fsdp=2,tp=2", "auto", "1f1b", recompute, 1, 16};
    request.begin = "node_layer_norm_10"; // of the sixth layer
    auto plan = test::makePlan(model, request);
    ASSERT_TRUE(plan) << plan.error().message;
    auto small = driver::shrink(*model.step, *plan, {8});
    ASSERT_TRUE(small) << small.error().message;
    EXPECT_THAT(small->notes, Contains(HasSubstr("layers 8 -> ")));
    EXPECT_LT(small->step->step.graph.ops.size(), model.step->step.graph.ops.size() * 9 / 10);
    EXPECT_EQ(small->plan.stages, plan->stages);
    expectVerified(*small);
    auto all = driver::shrink(*model.step, *plan, {8, /*allLayers=*/true});
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(all->step->step.graph.ops.size(), model.step->step.graph.ops.size());
  }
}

/// Residual blocks with running statistics, which are states.
std::string blocksWithStates(int count) {
  test::ModelBuilder b;
  b.input("x0", {"batch", "2", "4", "4"});
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    auto weight = [&](const std::string &name, const std::vector<int64_t> &dims) {
      b.floats(name + n, dims, std::vector<float>(size_t(kernels::numElements(dims)), 0.5F));
      return name + n;
    };
    test::ModelBuilder::attr(b.node("Conv", {"x" + n, weight("weight", {2, 2, 3, 3})}, {"y" + n}),
                             "pads", std::vector<int64_t>{1, 1, 1, 1});
    test::ModelBuilder::attr(b.node("BatchNormalization",
                                    {"y" + n, weight("scale", {2}), weight("bias", {2}),
                                     weight("mean", {2}), weight("variance", {2})},
                                    {"z" + n, "newMean" + n, "newVariance" + n}),
                             "training_mode", int64_t(1));
    b.node("Add", {"z" + n, "x" + n}, {"x" + std::to_string(i + 1)});
  }
  b.node("GlobalAveragePool", {"x" + std::to_string(count)}, {"pooled"});
  b.node("Flatten", {"pooled"}, {"logits"});
  b.output("logits");
  return b.bytes();
}

TEST(FewerLayers, DropTheStatesOfLayers) {
  test::TemporaryFolder folder;
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = folder.write("model.onnx", blocksWithStates(8));
  auto step = driver::buildTrainingStep(*model.context, options);
  ASSERT_TRUE(step) << step.error().message;
  model.step = std::move(*step);
  ASSERT_EQ(model.step->step.graph.stateUpdates.size(), 16U);
  auto plan = test::makePlan(model, {"dp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto fewer = driver::withFewerLayers(*model.step, *plan);
  ASSERT_TRUE(fewer) << fewer.error().message;
  ASSERT_TRUE(fewer->step);
  EXPECT_LE(fewer->step->step.graph.stateUpdates.size(), 8U);
  driver::Shrunk small{std::move(fewer->step), std::move(fewer->plan), {}};
  expectVerified(small);
}

/// The globs of left out layers match no parameter any more.
TEST(FewerLayers, DropTheGlobsOfLayers) {
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = std::string(TBC_SOURCE_DIR) + "/models/gpt2-8l.onnx";
  options.import.seq = 8;
  options.noDecay = {"*h.3.*", "*ln_1*"};
  options.freeze = {"*h.5.*ln_2*", "*wpe*"};
  auto step = driver::buildTrainingStep(*model.context, options);
  ASSERT_TRUE(step) << step.error().message;
  model.step = std::move(*step);
  auto plan = test::makePlan(model, {"dp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto small = driver::shrink(*model.step, *plan, {8});
  ASSERT_TRUE(small) << small.error().message;
  // Layer 5 is frozen in part: 0 to 4, 5, and 6 and 7.
  EXPECT_THAT(small->notes, Contains(HasSubstr("layers 8 -> 6")));
  EXPECT_EQ(small->step->options.noDecay, std::vector<std::string>{"*ln_1*"});
  EXPECT_LT(small->step->model.parameters.size(), model.step->model.parameters.size());
  expectVerified(*small);
}

/// All inner sizes of an expert are independent, so mixtures of any size can shrink.
TEST(Shrink, AllOfAnExpertMayShrink) {
  test::Model model = test::loadModel("moe-8l");
  FactorSizes sizes = resizableFactors(model.step->train, *model.step->analysis);
  int seen = 0;
  for (mlir::BlockArgument arg : model.step->train.getArguments()) {
    auto name = model.step->train.getArgAttrOfType<mlir::StringAttr>(arg.getArgNumber(), kNameAttr);
    if (!name ||
        (!name.getValue().ends_with("mlp.gate_up") && !name.getValue().ends_with("mlp.down")))
      continue;
    ++seen;
    for (const reshard::DimLayout &dim : model.step->analysis->tensorLayout(arg).dims)
      for (const reshard::Segment &segment : dim.segments)
        for (const reshard::Factor &factor : segment.factors)
          EXPECT_TRUE(sizes.count(factor.id)) << name.str() << ", " << factor.size;
  }
  EXPECT_EQ(seen, 16);
}

} // namespace
