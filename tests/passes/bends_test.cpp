//===- bends_test.cpp - Gradients of nodes where functions bend ------------===//

#include "passes/autodiff/Differentiate.h"
#include "passes/loss/AttachLoss.h"
#include "tests/frontend/ModelBuilder.h"

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace tbc;
using namespace tbc::test;
using kernels::Arith;
using kernels::Tensor;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

namespace {

/// A model of x[batch, size] + y, where nodes compute y from the parameter w.
ModelBuilder withWeights(const std::vector<float> &weights) {
  ModelBuilder b;
  b.input("x", {"batch", std::to_string(weights.size())});
  b.floats("w", {int64_t(weights.size())}, weights);
  b.output("z");
  return b;
}

/// The gradient of the sum of all z with respect to w, for one sample.
std::vector<double> gradientOf(ModelBuilder &b, size_t size) {
  b.node("Add", {"x", "y"}, {"z"});
  frontend::ImportOptions options;
  options.batch = 1;
  options.parameters = {"w"};
  TemporaryFolder folder;
  MLIRContext context{MLIRContext::Threading::DISABLED};
  auto model = frontend::importOnnx(context, folder.write("model.onnx", b.bytes()), options);
  if (!model)
    throw std::runtime_error(model.error().message);
  LossOptions loss;
  loss.kind = LossKind::Output;
  ModuleOp module = *model->module;
  if (failed(attachLoss(module, loss)) || failed(buildTrainFunction(module)))
    throw std::runtime_error("no step");
  auto train = module.lookupSymbol<func::FuncOp>("train");
  SmallVector<Tensor> arguments{Tensor::fromDoubles(*toKernelType(train.getArgumentTypes()[0]),
                                                    Arith::F64, std::vector<double>(size, 0))};
  for (const frontend::ParameterSource &source : model->parameters)
    arguments.push_back(*frontend::loadParameter(source, Arith::F64));
  auto results = evaluateFunction(train, arguments, Arith::F64);
  if (failed(results))
    throw std::runtime_error("evaluation failed");
  unsigned index = 0;
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    if (resultRole(train, i) == TensorRole::Gradient &&
        train.getResultAttrOfType<StringAttr>(i, kNameAttr).getValue() == "w")
      index = i;
  std::vector<double> gradient = (*results)[index].toDoubles();
  for (double &element : gradient)
    element *= double(size); // the loss is a mean
  return gradient;
}

TEST(Bends, PReluHasItsSlopeAtZero) {
  ModelBuilder b = withWeights({-1, 0, 1});
  b.floats("slope", {1}, {0.25f});
  b.node("PRelu", {"w", "slope"}, {"y"});
  EXPECT_THAT(gradientOf(b, 3), ElementsAre(0.25, 0.25, 1));
}

TEST(Bends, HardSigmoidIsFlatAtItsBounds) {
  ModelBuilder b = withWeights({-2, 0, 2, 3});
  auto &node = b.node("HardSigmoid", {"w"}, {"y"});
  for (const char *name : {"alpha", "beta"}) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::FLOAT);
    attribute->set_f(name[0] == 'a' ? 0.25f : 0.5f);
  }
  EXPECT_THAT(gradientOf(b, 4), ElementsAre(0, 0.25, 0, 0));
}

TEST(Bends, TheNormOfZerosHasNoSlope) {
  ModelBuilder b = withWeights({0, 0});
  b.node("ReduceL2", {"w"}, {"y"});
  EXPECT_THAT(gradientOf(b, 2), ElementsAre(0, 0));
  ModelBuilder other = withWeights({3, 4});
  other.node("ReduceL2", {"w"}, {"y"});
  EXPECT_THAT(gradientOf(other, 2), ElementsAre(DoubleNear(1.2, 1e-12), DoubleNear(1.6, 1e-12)));
}

TEST(Bends, APowerOfZeroHasNoSlope) {
  ModelBuilder b = withWeights({0, 2});
  b.floats("none", {}, {0});
  b.node("Pow", {"w", "none"}, {"y"});
  EXPECT_THAT(gradientOf(b, 2), ElementsAre(0, 0));
}

/// The gradient of softplus is sigmoid, also at 0, where its two parts bend: a margin of DPO is 0
/// at the first step.
TEST(Bends, SoftplusAtZero) {
  ModelBuilder b = withWeights({-1, 0, 2});
  b.node("Softplus", {"w"}, {"y"});
  EXPECT_THAT(gradientOf(b, 3), ElementsAre(DoubleNear(1 / (1 + std::exp(1)), 1e-12), 0.5,
                                            DoubleNear(1 / (1 + std::exp(-2)), 1e-12)));
}

} // namespace
