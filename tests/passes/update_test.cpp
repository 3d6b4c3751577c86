#include "passes/optimizer/BuildUpdate.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A @train that returns a gradient of its one parameter.
std::string trainOf(const std::string &type) {
  return "func.func @train(%p: tensor<1x" + type +
         "> {tbc.role = #tbc.role<param>, tbc.name = \"p\"}) -> (tensor<1xf32> "
         "{tbc.role = #tbc.role<grad>, tbc.name = \"p\"}) {"
         "  %c = tbc.constant dense<0.0> : tensor<1xf32> : tensor<1xf32>  return %c : "
         "tensor<1xf32> }";
}

struct Step {
  std::vector<double> values; // the results of @update
  std::vector<std::string> names;
};

/// @update for one parameter of `type`, on (parameter, gradient, states ..).
Step runUpdate(const std::string &type, const OptimizerOptions &options, std::vector<double> inputs,
               double rate, int64_t step) {
  ParsedModule module(trainOf(type));
  EXPECT_TRUE(module && succeeded(buildUpdateFunction(*module, options))) << module.messages;
  EXPECT_TRUE(succeeded(verify(*module))) << module.messages;
  DType dtype = type == "bf16" ? DType::BF16 : DType::F32;
  std::vector<Tensor> tensors;
  for (double input : inputs)
    tensors.push_back(
        Tensor::fromDoubles({tensors.empty() ? dtype : DType::F32, {1}}, Arith::Native, {input}));
  if (options.kind != OptimizerKind::Sgd)
    tensors.push_back(Tensor::fromInts({DType::I64, {}}, {step - 1}));
  tensors.push_back(Tensor::fromDoubles({DType::F32, {}}, Arith::Native, {rate}));
  Step result;
  for (const Tensor &tensor : evaluate(module, "update", tensors, Arith::Native))
    result.values.push_back(tensor.toDoubles()[0]);
  result.names = resultNames(module.function("update"), TensorRole::OptimizerState);
  return result;
}

TEST(BuildUpdate, SgdHasNoState) {
  OptimizerOptions options;
  options.kind = OptimizerKind::Sgd;
  options.weightDecay = 0;
  Step step = runUpdate("f32", options, {1, 2}, 0.25, 1);
  EXPECT_THAT(step.values, ElementsAre(0.5));
  EXPECT_TRUE(step.names.empty());
}

TEST(BuildUpdate, MomentumHasABuffer) {
  OptimizerOptions options;
  options.kind = OptimizerKind::Sgd;
  options.weightDecay = 0.5;
  options.momentum = 0.5;
  // d = 2 + 0.5 * 1, buffer = 0.5 * 4 + d
  Step step = runUpdate("f32", options, {1, 2, 4}, 0.5, 1);
  EXPECT_THAT(step.values, ElementsAre(1 - 0.5 * 4.5, 4.5));
  EXPECT_THAT(step.names, ElementsAre("p.m"));
}

TEST(BuildUpdate, AdamWHasTwoMoments) {
  OptimizerOptions options;
  options.beta1 = 0.5, options.beta2 = 0.75, options.epsilon = 0, options.weightDecay = 0.5;
  // At step 1 from zero moments the bias corrections cancel: the step is lr * sign(g).
  Step step = runUpdate("f32", options, {4, -2, 0, 0}, 0.25, 1);
  EXPECT_THAT(step.values, ElementsAre(4 - 0.25 * 0.5 * 4 + 0.25, -1, 1, 1));
  EXPECT_THAT(step.names, ElementsAre("p.m", "p.v", "tbc.steps_taken"));
}

TEST(BuildUpdate, AdamHasTheDecayInTheGradient) {
  OptimizerOptions options;
  options.kind = OptimizerKind::Adam;
  options.beta1 = 0.5, options.beta2 = 0.75, options.epsilon = 0, options.weightDecay = 0.5;
  // -4 + 0.5 * 4 = -2; its sign alone moves the parameter.
  Step step = runUpdate("f32", options, {4, -4, 0, 0}, 0.25, 1);
  EXPECT_THAT(step.values, ElementsAre(4 + 0.25, -1, 1, 1));
  EXPECT_THAT(step.names, ElementsAre("p.m", "p.v", "tbc.steps_taken"));
}

TEST(BuildUpdate, SomeWeightsDoNotDecay) {
  OptimizerOptions options;
  options.kind = OptimizerKind::Sgd;
  options.weightDecay = 0.5;
  EXPECT_THAT(runUpdate("f32", options, {4, 2}, 0.25, 1).values, ElementsAre(3));
  options.noDecay = {"[a-z]"};
  EXPECT_THAT(runUpdate("f32", options, {4, 2}, 0.25, 1).values, ElementsAre(3.5));
}

TEST(BuildUpdate, NamesAGlobWithoutParameters) {
  ParsedModule module(trainOf("f32"));
  OptimizerOptions options;
  options.noDecay = {"*.bias"};
  EXPECT_TRUE(failed(buildUpdateFunction(*module, options)));
  EXPECT_THAT(module.messages, HasSubstr("--no-decay: the glob \"*.bias\" matches no parameter"));
}

TEST(BuildUpdate, ClipsByNormOrByValue) {
  ParsedModule module(trainOf("f32"));
  OptimizerOptions options;
  options.clipNorm = options.clipValue = 1;
  EXPECT_TRUE(failed(buildUpdateFunction(*module, options)));
  EXPECT_THAT(module.messages, HasSubstr("not by both"));
}

TEST(BuildUpdate, NarrowParametersStepOnTheirMasterCopy) {
  OptimizerOptions options;
  options.kind = OptimizerKind::Sgd;
  options.weightDecay = 0;
  double fine = 1 + 1. / 4096; // less than half a step of bf16 above 1
  Step step = runUpdate("bf16", options, {1, -1, 1}, 1. / 4096, 1);
  EXPECT_THAT(step.values, ElementsAre(1, fine));
  EXPECT_THAT(step.names, ElementsAre("p.master"));
}

TEST(BuildUpdate, MarksStatesWithTheirParameter) {
  ParsedModule module(trainOf("bf16"));
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, {}))) << module.messages;
  auto update = module.function("update");
  for (const char *name : {"p.m", "p.v", "p.master"}) {
    unsigned i = argument(update, TensorRole::OptimizerState, name);
    EXPECT_EQ(update.getArgAttrOfType<StringAttr>(i, kParameterAttr).getValue(), "p");
    EXPECT_EQ(update.getArgAttr(i, kMasterAttr) != nullptr, StringRef(name) == "p.master");
    EXPECT_TRUE(getElementTypeOrSelf(update.getArgumentTypes()[i]).isF32());
  }
}

TEST(BuildUpdate, NeedsGradients) {
  ParsedModule module("func.func @train() { return }");
  EXPECT_TRUE(failed(buildUpdateFunction(*module, {})));
  EXPECT_THAT(module.messages, HasSubstr("returns no gradients"));
}

} // namespace
} // namespace tbc
