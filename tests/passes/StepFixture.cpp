//===- StepFixture.cpp - Small models made into training steps -------------===//

#include "tests/passes/StepFixture.h"

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/decompose/UseBatchStatistics.h"
#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/BuildUpdate.h"

#include "ir/Normalization.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;

namespace tbc {

using kernels::Arith;
using kernels::Tensor;

const char *const kMlp = R"(
func.func @model(
    %x: tensor<4x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64},
    %w1: tensor<3x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "w1", tbc.display_name = "first.weight"},
    %b1: tensor<6xf32> {tbc.role = #tbc.role<param>, tbc.name = "b1", tbc.display_name = "first.bias"},
    %g: tensor<6xf32> {tbc.role = #tbc.role<param>, tbc.name = "g"},
    %unused: tensor<2xf32> {tbc.role = #tbc.role<param>, tbc.name = "unused"},
    %w2: tensor<6x5xf32> {tbc.role = #tbc.role<param>, tbc.name = "w2"})
    -> (tensor<4x5xf32> {tbc.name = "logits"}, tensor<4x6xf32> {tbc.name = "hidden"}) {
  %h0 = tbc.einsum %x, %w1 {tbc.id = "fc1", lhs_labels = array<i64: 0, 1>,
      rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>}
    : (tensor<4x3xf32>, tensor<3x6xf32>) -> tensor<4x6xf32>
  %bias = tbc.broadcast %b1 {tbc.id = "bias", dims = array<i64: 1>}
    : (tensor<6xf32>) -> tensor<4x6xf32>
  %h1 = tbc.add %h0, %bias {tbc.id = "add"} : tensor<4x6xf32>
  %n, %mean, %rstd = tbc.layer_norm %h1, %g, %b1 {tbc.id = "norm", epsilon = 1.0e-05 : f64}
    : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
      -> (tensor<4x6xf32>, tensor<4xf32>, tensor<4xf32>)
  %a = tbc.gelu %n {tbc.id = "gelu", approximate = "tanh"}
    : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %scale = tbc.broadcast %g {tbc.id = "scale", dims = array<i64: 1>}
    : (tensor<6xf32>) -> tensor<4x6xf32>
  %s = tbc.mul %a, %scale {tbc.id = "mul"} : tensor<4x6xf32>
  %r = tbc.add %s, %h1 {tbc.id = "residual"} : tensor<4x6xf32>
  %logits = tbc.einsum %r, %w2 {tbc.id = "fc2", lhs_labels = array<i64: 0, 1>,
      rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>}
    : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
  %hidden = tbc.exp %n {tbc.id = "hidden"} : tensor<4x6xf32>
  return %logits, %hidden : tensor<4x5xf32>, tensor<4x6xf32>
})";

const char *const kConvNet = R"(
func.func @model(
    %x: tensor<4x3x2xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64},
    %w: tensor<2x3x1xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"},
    %scale: tensor<2xf32> {tbc.role = #tbc.role<param>, tbc.name = "scale"},
    %bias: tensor<2xf32> {tbc.role = #tbc.role<param>, tbc.name = "bias"},
    %mean: tensor<2xf32> {tbc.role = #tbc.role<state>, tbc.name = "running_mean"},
    %var: tensor<2xf32> {tbc.role = #tbc.role<state>, tbc.name = "running_var"})
    -> (tensor<4x2xf32> {tbc.name = "logits"}) {
  %c = tbc.conv %x, %w {tbc.id = "conv", strides = array<i64: 1>, pads = array<i64: 0, 0>,
      dilations = array<i64: 1>, groups = 1 : i64}
    : (tensor<4x3x2xf32>, tensor<2x3x1xf32>) -> tensor<4x2x2xf32>
  %n = tbc.batch_norm %c, %scale, %bias, %mean, %var {tbc.id = "bn", epsilon = 1.0e-05 : f64,
      momentum = 0.9 : f64}
    : (tensor<4x2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
      -> tensor<4x2x2xf32>
  %r = tbc.relu %n {tbc.id = "relu"} : tensor<4x2x2xf32>
  %logits = tbc.reduce_sum %r {tbc.id = "pool", dims = array<i64: 2>}
    : (tensor<4x2x2xf32>) -> tensor<4x2xf32>
  return %logits : tensor<4x2xf32>
})";

void buildStep(ParsedModule &module, int64_t samples) {
  ASSERT_TRUE(module) << module.messages;
  LossOptions loss;
  loss.samples = samples;
  ASSERT_TRUE(succeeded(attachLoss(*module, loss))) << module.messages;
  auto train = module.function("train");
  ASSERT_TRUE(succeeded(useBatchStatistics(train))) << module.messages;
  ASSERT_TRUE(succeeded(decomposeComposites(train, [](Operation *op) {
    return isa<BatchNormTrainOp>(op);
  }))) << module.messages;
  ASSERT_TRUE(succeeded(buildTrainFunction(*module))) << module.messages;
  ASSERT_TRUE(succeeded(buildUpdateFunction(*module, {}))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
}

std::vector<Tensor> trainInputs(ParsedModule &module, Arith arith) {
  auto train = module.function("train");
  std::mt19937 generator(7);
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < train.getNumArguments(); ++i) {
    kernels::TensorType type = *toKernelType(train.getArgumentTypes()[i]);
    auto name = train.getArgAttrOfType<StringAttr>(i, kNameAttr).getValue();
    std::vector<double> values;
    for (int64_t k = 0; k < kernels::numElements(type.shape); ++k) {
      // Multiples of 1/64 are the same number in every arithmetic, bf16 included.
      double value = double(13 + generator() % 64) / 64;
      bool isNegative = generator() % 2 && name != "running_var";
      values.push_back(kernels::isFloat(type.dtype) ? (isNegative ? -value : value)
                                                    : double(generator() % 2));
    }
    inputs.push_back(Tensor::fromDoubles(type, arith, values));
  }
  return inputs;
}

std::vector<Tensor> evaluate(ParsedModule &module, StringRef name,
                             const std::vector<Tensor> &inputs, Arith arith) {
  auto results = evaluateFunction(module.function(name), inputs, arith);
  if (failed(results)) {
    ADD_FAILURE() << module.messages;
    return std::vector<Tensor>(module.function(name).getNumResults());
  }
  return {results->begin(), results->end()};
}

static bool hasText(Attribute attr, StringRef text) {
  auto string = dyn_cast_or_null<StringAttr>(attr);
  return string && string.getValue() == text;
}

unsigned argument(func::FuncOp function, TensorRole role, StringRef name) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (argumentRole(function, i) == role && hasText(function.getArgAttr(i, kNameAttr), name))
      return i;
  ADD_FAILURE() << "no argument " << name.str();
  return 0;
}

unsigned result(func::FuncOp function, TensorRole role, StringRef name) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (resultRole(function, i) == role && hasText(function.getResultAttr(i, kNameAttr), name))
      return i;
  ADD_FAILURE() << "no result " << name.str();
  return 0;
}

std::vector<std::string> resultNames(func::FuncOp function, TensorRole role) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (resultRole(function, i) == role)
      names.push_back(function.getResultAttrOfType<StringAttr>(i, kNameAttr).str());
  return names;
}

Operation *findOp(func::FuncOp function, StringRef id) {
  for (Operation &op : function.getBody().front())
    if (hasText(op.getAttr(kIdAttr), id))
      return &op;
  ADD_FAILURE() << "no op " << id.str();
  return &function.getBody().front().back();
}

std::vector<std::string> idsOf(func::FuncOp function) {
  std::vector<std::string> ids;
  for (Operation &op : function.getBody().front().without_terminator())
    ids.push_back(op.getAttrOfType<StringAttr>(kIdAttr).str());
  return ids;
}

} // namespace tbc
