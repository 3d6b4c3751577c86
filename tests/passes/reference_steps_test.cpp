// Results of PyTorch for given gradients and logits (models/steps.py).

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/SerialTrainer.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/BuildUpdate.h"
#include "passes/precision/LowerPrecision.h"
#include "tests/ir/ParsedModule.h"
#include "tests/support/Npz.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

std::map<std::string, test::NpyArray> reference(const std::string &name) {
  return test::readNpz(std::string(TBC_SOURCE_DIR) + "/models/reference/steps/" + name + ".npz");
}

Tensor f64(kernels::Shape shape, const double *values) {
  std::vector<double> elements(values, values + kernels::numElements(shape));
  return Tensor::fromDoubles({DType::F64, std::move(shape)}, Arith::F64, elements);
}

struct OptimizerCase {
  std::string name;
  double rate;
  OptimizerOptions options;
};
void PrintTo(const OptimizerCase &c, std::ostream *stream) { *stream << c.name; }

OptimizerOptions optionsOf(OptimizerKind kind, double weightDecay) {
  OptimizerOptions options;
  options.kind = kind;
  options.weightDecay = weightDecay;
  return options;
}

std::vector<OptimizerCase> optimizerCases() {
  OptimizerOptions nesterov = optionsOf(OptimizerKind::Sgd, 0.05);
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  OptimizerOptions adamw;
  adamw.beta1 = 0.8, adamw.beta2 = 0.95, adamw.epsilon = 1e-6;
  OptimizerOptions clipNorm = optionsOf(OptimizerKind::Sgd, 0), clipValue = clipNorm;
  clipNorm.clipNorm = 1.5;
  clipValue.clipValue = 0.5;
  return {{"sgd_decay", 0.1, optionsOf(OptimizerKind::Sgd, 0.05)},
          {"sgd_nesterov", 0.1, nesterov},
          {"adam", 0.01, optionsOf(OptimizerKind::Adam, 0.1)},
          {"adamw", 0.01, adamw},
          {"clip_norm", 0.1, clipNorm},
          {"clip_value", 0.1, clipValue}};
}

class OptimizerReference : public testing::TestWithParam<OptimizerCase> {};

/// @train returns its inputs as loss and gradient, so the test chooses the gradient.
TEST_P(OptimizerReference, StepsAsPyTorch) {
  ParsedModule module(R"(
    func.func @train(%p: tensor<2x3xf64> {tbc.role = #tbc.role<param>, tbc.name = "p"},
                     %g: tensor<2x3xf64> {tbc.role = #tbc.role<input>, tbc.name = "g"})
        -> (tensor<f64> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
            tensor<2x3xf64> {tbc.role = #tbc.role<grad>, tbc.name = "p"}) {
      %l = tbc.reduce_sum %g {dims = array<i64: 0, 1>} : (tensor<2x3xf64>) -> tensor<f64>
      return %l, %g : tensor<f64>, tensor<2x3xf64>
    })");
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, GetParam().options)))
      << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  auto data = reference("optimizers");
  const test::NpyArray &gradients = data["gradients"], &expected = data[GetParam().name];
  ASSERT_EQ(expected.shape, gradients.shape);
  SerialTrainer trainer(*module, Arith::F64);
  ASSERT_TRUE(succeeded(trainer.set("p", f64({2, 3}, data["initial"].values.data()))));
  for (int64_t step = 0; step < gradients.shape[0]; ++step) {
    SerialTrainer::Tensors batch = {{"g", f64({2, 3}, &gradients.values[6 * step])}};
    ASSERT_TRUE(succeeded(trainer.step({batch}, GetParam().rate))) << module.messages;
    std::vector<double> values = trainer.values().at("p").toDoubles();
    // The learning rate is a f32 scalar in the IR, but f64 runs hold it exactly.
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(values[i], expected.values[6 * step + i], 1e-12) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerReference, testing::ValuesIn(optimizerCases()),
                         [](const auto &info) { return info.param.name; });

struct MuonCase {
  std::string shape, name;
  int64_t rows, columns;
  OptimizerOptions options;
};
void PrintTo(const MuonCase &c, std::ostream *stream) { *stream << c.shape << "_" << c.name; }

std::vector<MuonCase> muonCases() {
  OptimizerOptions original = optionsOf(OptimizerKind::Muon, 0.1);
  OptimizerOptions matchRms = optionsOf(OptimizerKind::Muon, 0);
  matchRms.muon.matchesRms = true;
  OptimizerOptions plain = original;
  plain.muon.momentum = 0.8, plain.muon.nesterov = false, plain.muon.steps = 3;
  std::vector<MuonCase> cases;
  for (auto [shape, rows, columns] : {std::tuple("wide", 3, 5), std::tuple("tall", 6, 4)}) {
    cases.push_back({shape, "original", rows, columns, original});
    cases.push_back({shape, "match_rms", rows, columns, matchRms});
    cases.push_back({shape, "plain", rows, columns, plain});
  }
  return cases;
}

class MuonReference : public testing::TestWithParam<MuonCase> {};

/// The hidden weight [out, in] of two layers; the test chooses its gradient.
TEST_P(MuonReference, StepsAsPyTorch) {
  const MuonCase &c = GetParam();
  const std::string in = std::to_string(c.columns), out = std::to_string(c.rows),
                    type = "tensor<" + out + "x" + in + "xf64>";
  ParsedModule module(
      "func.func @train(%p: " + type + " {tbc.role = #tbc.role<param>, tbc.name = \"p\"}, %g: " +
      type + " {tbc.role = #tbc.role<input>, tbc.name = \"g\"}) -> (tensor<f64> {tbc.role = " +
      "#tbc.role<loss>, tbc.name = \"loss\"}, " + type +
      " {tbc.role = #tbc.role<grad>, tbc.name = \"p\"}) {\n" +
      "%x = tbc.constant dense<1.0> : " + "tensor<2x" + in + "xf64> : tensor<2x" + in + "xf64>\n" +
      "%h = tbc.einsum %x, %p {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, " +
      "out_labels = array<i64: 0, 2>} : (tensor<2x" + in + "xf64>, " + type + ") -> tensor<2x" +
      out + "xf64>\n" +
      "%l = tbc.einsum %h, %h {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 1>, " +
      "out_labels = array<i64>} : (tensor<2x" + out + "xf64>, tensor<2x" + out +
      "xf64>) -> tensor<f64>\n" + "return %l, %g : tensor<f64>, " + type + " }");
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, c.options))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  auto data = reference("muon");
  const test::NpyArray &gradients = data[c.shape + "_gradients"],
                       &expected = data[c.shape + "_" + c.name];
  ASSERT_EQ(expected.shape, gradients.shape);
  const int64_t size = c.rows * c.columns;
  SerialTrainer trainer(*module, Arith::F64);
  ASSERT_TRUE(succeeded(
      trainer.set("p", f64({c.rows, c.columns}, data[c.shape + "_initial"].values.data()))));
  for (int64_t step = 0; step < gradients.shape[0]; ++step) {
    SerialTrainer::Tensors batch = {
        {"g", f64({c.rows, c.columns}, &gradients.values[size * step])}};
    ASSERT_TRUE(succeeded(trainer.step({batch}, 0.02))) << module.messages;
    std::vector<double> values = trainer.values().at("p").toDoubles();
    // Sums of matmuls have another order.
    for (int64_t i = 0; i < size; ++i)
      EXPECT_NEAR(values[i], expected.values[size * step + i], 1e-9) << "step " << step + 1;
  }
  EXPECT_TRUE(trainer.values().count("p.m"));
  EXPECT_FALSE(trainer.values().count("p.v"));
}

INSTANTIATE_TEST_SUITE_P(All, MuonReference, testing::ValuesIn(muonCases()),
                         [](const auto &info) { return info.param.shape + "_" + info.param.name; });

/// A parameter of one shape, stepped by an optimizer of a file of reference steps.
struct ShapeCase {
  std::string file, shape, name;
  kernels::Shape sizes;
  double rate;
  OptimizerOptions options;
  std::vector<std::string> states; // of all after ".", in any order
};
void PrintTo(const ShapeCase &c, std::ostream *stream) {
  *stream << c.file << "_" << c.shape << "_" << c.name;
}

std::vector<ShapeCase> shapeCases() {
  std::vector<ShapeCase> cases;
  OptimizerOptions adafactor = optionsOf(OptimizerKind::Adafactor, 0), limits = adafactor;
  limits.weightDecay = 0.1;
  limits.adafactor = {-0.5, 0.3, 2.0, 1.5};
  for (auto [shape, sizes] : {std::pair<const char *, kernels::Shape>("vector", {5}),
                              {"matrix", {3, 5}},
                              {"stack", {2, 3, 4}}}) {
    std::vector<std::string> states = {"row_var", "col_var"};
    if (sizes.size() == 1)
      states = {"variance"};
    cases.push_back({"adafactor", shape, "default", sizes, 0.05, adafactor, states});
    cases.push_back({"adafactor", shape, "every_limit", sizes, 0.9, limits, states});
  }
  OptimizerOptions adagrad = optionsOf(OptimizerKind::Adagrad, 0), settings = adagrad;
  adagrad.epsilon = 1e-10;
  settings.weightDecay = 0.1;
  settings.epsilon = 1e-3;
  settings.adagrad = {0.25, 0.5};
  cases.push_back({"adagrad", "matrix", "default", {3, 5}, 0.05, adagrad, {"sum"}});
  cases.push_back({"adagrad", "matrix", "every_setting", {3, 5}, 0.1, settings, {"sum"}});
  return cases;
}

class ShapeReference : public testing::TestWithParam<ShapeCase> {};

/// @train returns its inputs as loss and gradient, so the test chooses the gradient.
TEST_P(ShapeReference, StepsAsPyTorch) {
  const ShapeCase &c = GetParam();
  std::string type = "tensor<", dims;
  for (size_t dim = 0; dim < c.sizes.size(); ++dim) {
    type += std::to_string(c.sizes[dim]) + "x";
    dims += (dim == 0 ? "" : ", ") + std::to_string(dim);
  }
  type += "f64>";
  ParsedModule module("func.func @train(%p: " + type +
                      " {tbc.role = #tbc.role<param>, tbc.name = \"p\"}, %g: " + type +
                      " {tbc.role = #tbc.role<input>, tbc.name = \"g\"}) -> (tensor<f64> " +
                      "{tbc.role = #tbc.role<loss>, tbc.name = \"loss\"}, " + type +
                      " {tbc.role = #tbc.role<grad>, tbc.name = \"p\"}) {\n" +
                      "%l = tbc.reduce_sum %g {dims = array<i64: " + dims + ">} : (" + type +
                      ") -> tensor<f64>\nreturn %l, %g : tensor<f64>, " + type + " }");
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, c.options))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  auto data = reference(c.file);
  const test::NpyArray &gradients = data[c.shape + "_gradients"],
                       &expected = data[c.shape + "_" + c.name];
  ASSERT_EQ(expected.shape, gradients.shape);
  const int64_t size = kernels::numElements(c.sizes);
  SerialTrainer trainer(*module, Arith::F64);
  ASSERT_TRUE(succeeded(trainer.set("p", f64(c.sizes, data[c.shape + "_initial"].values.data()))));
  for (int64_t step = 0; step < gradients.shape[0]; ++step) {
    SerialTrainer::Tensors batch = {{"g", f64(c.sizes, &gradients.values[size * step])}};
    ASSERT_TRUE(succeeded(trainer.step({batch}, c.rate))) << module.messages;
    std::vector<double> values = trainer.values().at("p").toDoubles();
    for (int64_t i = 0; i < size; ++i)
      EXPECT_NEAR(values[i], expected.values[size * step + i], 1e-12) << "step " << step + 1;
  }
  for (const std::string &state : c.states)
    EXPECT_TRUE(trainer.values().count("p." + state)) << state;
  EXPECT_FALSE(trainer.values().count("p.m"));
}

INSTANTIATE_TEST_SUITE_P(All, ShapeReference, testing::ValuesIn(shapeCases()),
                         [](const auto &info) {
                           return info.param.file + "_" + info.param.shape + "_" + info.param.name;
                         });

/// The formula of EXACT_ROWWISE_ADAGRAD, step by step: a row keeps the sum of the means of squares.
TEST(RowwiseAdagrad, ARowHasOneSum) {
  ParsedModule module(R"(
    func.func @train(%i: tensor<4xi64> {tbc.role = #tbc.role<input>, tbc.name = "i"},
                     %t: tensor<3x2xf64> {tbc.role = #tbc.role<param>, tbc.name = "t"},
                     %g: tensor<3x2xf64> {tbc.role = #tbc.role<input>, tbc.name = "g"})
        -> (tensor<f64> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
            tensor<3x2xf64> {tbc.role = #tbc.role<grad>, tbc.name = "t"}) {
      %x = tbc.gather %t, %i {dim = 0 : i64} : (tensor<3x2xf64>, tensor<4xi64>) -> tensor<4x2xf64>
      %l = tbc.reduce_sum %x {dims = array<i64: 0, 1>} : (tensor<4x2xf64>) -> tensor<f64>
      return %l, %g : tensor<f64>, tensor<3x2xf64>
    })");
  OptimizerOptions options = optionsOf(OptimizerKind::RowwiseAdagrad, 0);
  options.epsilon = 0.25;
  options.adagrad.initial = 0.5;
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, options))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  std::vector<double> table = {1, 2, 3, 4, 5, 6}, sums(3, 0.5);
  const std::vector<double> gradient = {3, 1, 0, 0, -2, 4};
  const std::vector<int64_t> indices = {0, 2, 2, 1};
  SerialTrainer trainer(*module, Arith::F64);
  ASSERT_TRUE(succeeded(trainer.set("t", f64({3, 2}, table.data()))));
  for (int step = 0; step < 3; ++step) {
    SerialTrainer::Tensors batch = {{"g", f64({3, 2}, gradient.data())},
                                    {"i", Tensor::fromInts({DType::I64, {4}}, indices)}};
    ASSERT_TRUE(succeeded(trainer.step({batch}, 0.5))) << module.messages;
    for (size_t row = 0; row < 3; ++row) {
      const double *of = &gradient[2 * row];
      sums[row] += (of[0] * of[0] + of[1] * of[1]) / 2;
      for (size_t column = 0; column < 2; ++column)
        table[2 * row + column] -= 0.5 / (std::sqrt(sums[row]) + 0.25) * of[column];
    }
    const std::vector<double> values = trainer.values().at("t").toDoubles(),
                              states = trainer.values().at("t.row_sum").toDoubles();
    for (size_t i = 0; i < table.size(); ++i)
      EXPECT_NEAR(values[i], table[i], 1e-12) << "step " << step + 1;
    for (size_t row = 0; row < 3; ++row)
      EXPECT_NEAR(states[row], sums[row], 1e-12);
  }
}

std::vector<OptimizerCase> scaledCases() {
  OptimizerOptions nesterov = optionsOf(OptimizerKind::Sgd, 0.05);
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  OptimizerOptions clipped = optionsOf(OptimizerKind::Adam, 0.1);
  clipped.clipNorm = 1.5;
  std::vector<OptimizerCase> cases = {
      {"adamw", 0.01, {}}, {"adam_clip_norm", 0.01, clipped}, {"sgd_nesterov", 0.1, nesterov}};
  for (OptimizerCase &c : cases)
    c.options.lossScale.initial = 8, c.options.lossScale.growthInterval = 2;
  return cases;
}

class ScaledReference : public testing::TestWithParam<OptimizerCase> {};

/// As above, with gradients multiplied by a loss scale. Some are not finite.
TEST_P(ScaledReference, StepsAsPyTorchsGradScaler) {
  ParsedModule module(R"(
    func.func @train(%p: tensor<2x3xf64> {tbc.role = #tbc.role<param>, tbc.name = "p"},
                     %g: tensor<2x3xf64> {tbc.role = #tbc.role<input>, tbc.name = "g"},
                     %s: tensor<f32> {tbc.role = #tbc.role<opt_state>, tbc.name = "tbc.loss_scale",
                                      tbc.initial = 8.0 : f64})
        -> (tensor<f64> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
            tensor<2x3xf64> {tbc.role = #tbc.role<grad>, tbc.name = "p"}) {
      %l = tbc.reduce_sum %g {dims = array<i64: 0, 1>} : (tensor<2x3xf64>) -> tensor<f64>
      %scaled = tbc.scale_by %g, %s : (tensor<2x3xf64>, tensor<f32>) -> tensor<2x3xf64>
      return %l, %scaled : tensor<f64>, tensor<2x3xf64>
    })");
  ASSERT_TRUE(module && succeeded(buildUpdateFunction(*module, GetParam().options)))
      << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  auto data = reference("scaled");
  const std::string &name = GetParam().name;
  const test::NpyArray &gradients = data["gradients"], &expected = data[name];
  ASSERT_EQ(expected.shape, gradients.shape);
  SerialTrainer trainer(*module, Arith::F64);
  ASSERT_TRUE(succeeded(trainer.set("p", f64({2, 3}, data["initial"].values.data()))));
  for (int64_t step = 0; step < gradients.shape[0]; ++step) {
    SerialTrainer::Tensors batch = {{"g", f64({2, 3}, &gradients.values[6 * step])}};
    ASSERT_TRUE(succeeded(trainer.step({batch}, GetParam().rate))) << module.messages;
    std::vector<double> values = trainer.values().at("p").toDoubles();
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(values[i], expected.values[6 * step + i], 1e-12) << "step " << step + 1;
    EXPECT_EQ(trainer.values().at("tbc.loss_scale").toDoubles()[0],
              data[name + "_scale"].values[step]);
    EXPECT_EQ(trainer.values().at("tbc.growth_tracker").data<int64_t>()[0],
              data[name + "_tracker"].ints[step]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaledReference, testing::ValuesIn(scaledCases()),
                         [](const auto &info) { return info.param.name; });

/// All in f16: the first scales and the fifth input are too large, then it recovers.
TEST(HalfReference, OverflowsAndRecoversAsPyTorch) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<4x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                          tbc.batch_dim = 0 : i64},
                     %w: tensor<3x5xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"}) -> tensor<4x5xf32> {
      %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>,
          out_labels = array<i64: 0, 2>} : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
      return %y : tensor<4x5xf32>
    })");
  LossOptions loss;
  loss.kind = LossKind::MeanSquaredError;
  OptimizerOptions optimizer = optionsOf(OptimizerKind::Sgd, 0);
  optimizer.lossScale.initial = 0x1p18, optimizer.lossScale.growthInterval = 2;
  AutodiffOptions autodiff;
  autodiff.lossScale = optimizer.lossScale;
  ASSERT_TRUE(module &&
              succeeded(lowerPrecision(module.function("model"),
                                       FloatType::getF16(module.function("model").getContext()))) &&
              succeeded(attachLoss(*module, loss)) &&
              succeeded(buildTrainFunction(*module, autodiff)) &&
              succeeded(buildUpdateFunction(*module, optimizer)))
      << module.messages;
  auto data = reference("half");
  auto tensor = [&](const std::string &name, kernels::Shape shape, int64_t first) {
    const double *values = &data[name].values[first];
    return Tensor::fromDoubles({DType::F32, shape}, Arith::Native,
                               {values, values + kernels::numElements(shape)});
  };
  SerialTrainer trainer(*module, Arith::Native);
  ASSERT_TRUE(succeeded(trainer.set("w", tensor("w", {3, 5}, 0))));
  const std::vector<double> &scales = data["scale"].values;
  int64_t skipped = 0;
  for (size_t step = 0; step < scales.size(); ++step) {
    auto result = trainer.step(
        {{{"x", tensor("x", {4, 3}, 12 * step)}, {"labels", tensor("labels", {4, 5}, 20 * step)}}},
        0.125);
    ASSERT_TRUE(succeeded(result)) << module.messages;
    EXPECT_EQ(trainer.values().at("tbc.loss_scale").toDoubles()[0], scales[step])
        << "step " << step + 1;
    skipped += scales[step] < (step ? scales[step - 1] : 0x1p18);
    double expectedLoss = data["loss"].values[step];
    if (std::isfinite(expectedLoss)) {
      EXPECT_NEAR(*result, expectedLoss, 1e-3 * expectedLoss) << "step " << step + 1;
    } else {
      EXPECT_EQ(*result, expectedLoss);
    }
    // f16 has 11 bits, and each side rounds the gradients its own way.
    std::vector<double> master = trainer.values().at("w.master").toDoubles();
    for (size_t i = 0; i < master.size(); ++i)
      EXPECT_NEAR(master[i], data["master"].values[15 * step + i], 1e-3) << "step " << step + 1;
  }
  EXPECT_EQ(skipped, 4);
}

constexpr int64_t numLabels = 8;

/// One step of SGD with rate 1 on logits = x @ w, in micro-batches of `size`.
class LossReference : public testing::TestWithParam<std::tuple<std::string, int64_t>> {
protected:
  /// Builds the step and runs it on these labels.
  void run(const std::vector<int64_t> &labels, Arith arith, const OptimizerOptions &optimizer);
  Tensor tensor(const std::string &name, kernels::Shape shape, Arith arith, int64_t first = 0) {
    const double *values = &data[name].values[first];
    return Tensor::fromDoubles({DType::F32, shape}, arith,
                               {values, values + kernels::numElements(shape)});
  }

  std::map<std::string, test::NpyArray> data = reference("losses");
  SerialTrainer::Tensors values;
  double loss = 0;
};

void LossReference::run(const std::vector<int64_t> &labels, Arith arith,
                        const OptimizerOptions &optimizer) {
  auto [name, size] = GetParam();
  std::string rows = std::to_string(size);
  ParsedModule module("func.func @model(%x: tensor<" + rows +
                      "x3xf32> {tbc.role = #tbc.role<input>, "
                      "tbc.name = \"x\", tbc.batch_dim = 0 : i64}, %w: tensor<3x5xf32> {tbc.role = "
                      "#tbc.role<param>, tbc.name = \"w\"}) -> tensor<" +
                      rows +
                      "x5xf32> {\n"
                      "  %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = "
                      "array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<" +
                      rows + "x3xf32>, tensor<3x5xf32>) -> tensor<" + rows +
                      "x5xf32>\n"
                      "  return %y : tensor<" +
                      rows + "x5xf32>\n}");
  LossOptions options;
  options.samples = numLabels;
  options.labelSmoothing = name == "smoothed" ? 0.2 : 0;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options)) &&
              succeeded(buildTrainFunction(*module)) &&
              succeeded(buildUpdateFunction(*module, optimizer)))
      << module.messages;
  SerialTrainer trainer(*module, arith);
  ASSERT_TRUE(succeeded(trainer.set("w", tensor("w", {3, 5}, arith))));
  std::vector<SerialTrainer::Tensors> batches;
  for (int64_t first = 0; first < numLabels; first += size)
    batches.push_back(
        {{"x", tensor("x", {size, 3}, arith, 3 * first)},
         {"labels", Tensor::fromInts({DType::I64, {size}},
                                     {labels.begin() + first, labels.begin() + first + size})}});
  auto result = trainer.step(batches, 1);
  ASSERT_TRUE(succeeded(result)) << module.messages;
  loss = *result;
  values = trainer.values();
}

/// The mean is over the counted labels, for every split into micro-batches.
TEST_P(LossReference, IsPyTorchsMean) {
  run(data["labels"].ints, Arith::F64, optionsOf(OptimizerKind::Sgd, 0));
  const std::string &name = std::get<0>(GetParam());
  // Smoothing is a f32 constant of the op.
  double tolerance = name == "smoothed" ? 1e-7 : 1e-12;
  EXPECT_NEAR(loss, data[name + "_loss"].values[0], tolerance);
  std::vector<double> w = values.at("w").toDoubles();
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_NEAR(data["w"].values[i] - w[i], data[name + "_gradient"].values[i], tolerance) << i;
}

TEST_P(LossReference, AStepThatCountsNothingChangesNothing) {
  for (Arith arith : {Arith::Native, Arith::F64, Arith::Residue61}) {
    run(std::vector<int64_t>(numLabels, -100), arith, {});
    EXPECT_TRUE(bitwiseEqual(values.at("w"), tensor("w", {3, 5}, arith)));
    EXPECT_TRUE(bitwiseEqual(values.at("w.m"), Tensor::zeros(values.at("w.m").type(), arith)));
    EXPECT_EQ(loss, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LossReference,
                         testing::Combine(testing::Values("plain", "smoothed"),
                                          testing::Values(numLabels, numLabels / 2, 1)),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

} // namespace
} // namespace tbc
