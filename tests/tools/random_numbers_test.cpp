//===- random_numbers_test.cpp - Models that draw random numbers ----------===//
//
// A sample has the same random numbers on whatever rank and in whatever micro-batch it is.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;

namespace {

/// y = bernoulli(0.75) relu((x + 0.1 normal) w1) + uniform of the samples, times w2.
std::string noisyModel() {
  test::ModelBuilder b(22);
  b.input("x", {"batch", "8"});
  std::vector<float> weights(8 * 8);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = float(int(i * 37 % 19) - 9) / 16;
  b.floats("w1", {8, 8}, weights);
  b.floats("w2", {8, 4}, {weights.begin(), weights.begin() + 32});
  b.floats("scale", {}, {0.1F});
  b.floats("keep", {}, {0.75F});
  b.floats("zero", {}, {0});
  b.node("RandomNormalLike", {"x"}, {"z"}, "noise");
  b.node("Mul", {"z", "scale"}, {"small"});
  b.node("Add", {"x", "small"}, {"moved"});
  b.node("MatMul", {"moved", "w1"}, {"h"}, "first");
  b.node("Relu", {"h"}, {"r"});
  b.node("Mul", {"r", "zero"}, {"none"});
  b.node("Add", {"none", "keep"}, {"probability"});
  b.node("Bernoulli", {"probability"}, {"mask"}, "mask");
  b.node("Mul", {"r", "mask"}, {"masked"});
  b.node("RandomUniformLike", {"masked"}, {"u"}, "offset");
  b.node("Add", {"masked", "u"}, {"shifted"});
  b.node("MatMul", {"shifted", "w2"}, {"y"}, "second");
  b.output("y");
  return b.bytes();
}

struct Case {
  test::PlanRequest request;
  const char *precision = "f32";
};

void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.request.mesh << " " << testCase.request.recompute << " " << testCase.precision;
}

class RandomNumbers : public testing::TestWithParam<Case> {};

TEST_P(RandomNumbers, AreTheSameUnderEveryPlan) {
  test::TemporaryFolder folder;
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = folder.write("noisy.onnx", noisyModel());
  options.import.constants = {"scale", "keep", "zero"};
  options.optimizer = planner::Optimizer::Sgd;
  options.precision = planner::parsePrecision(GetParam().precision);
  auto step = driver::buildTrainingStep(*model.context, options);
  ASSERT_TRUE(step) << step.error().message;
  model.step = std::move(*step);
  const std::vector<reshard::GraphOp> &ops = model.step->step.graph.ops;
  EXPECT_GE(std::count_if(ops.begin(), ops.end(),
                          [](const auto &op) { return op.kind == "random_uniform_train"; }),
            4);
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  driver::VerifyOptions verify;
  verify.steps = 2;
  auto report = driver::verifyPlan(*model.step, *plan, verify);
  ASSERT_TRUE(report) << report.error().message;
  for (auto *lines : {&report->residues, &report->floats}) {
    EXPECT_FALSE(lines->empty());
    for (const driver::Comparison &line : *lines)
      EXPECT_TRUE(line.equal) << line.name << ": error " << line.error << ", bound " << line.bound;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, RandomNumbers,
                         testing::Values(Case{{"dp=4"}}, Case{{"fsdp=2,tp=2"}}, Case{{"pp=2,dp=2"}},
                                         Case{{"dp=2,tp=2", "auto", "", "full"}},
                                         Case{{"pp=2,tp=2"}, "bf16"}));

} // namespace
