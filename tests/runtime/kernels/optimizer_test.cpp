//===- optimizer_test.cpp - Parameter updates ------------------------------===//
//
// Part of tbc. Compares with PyTorch's published algorithms, transcribed step by step.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/kernels/TestSupport.h"

using namespace tbc::kernels;

namespace {

class Optimizer : public ::testing::TestWithParam<Arith> {
protected:
  Arith arith = GetParam();

  Tensor x(const Doubles &values) { return floats(arith, {int64_t(values.size())}, values); }
  Tensor scalar(double value) { return floats(arith, {}, {value}); }
  std::vector<Tensor> update(const std::string &op, const Attrs &attrs,
                             const std::vector<Tensor> &inputs, size_t numResults) {
    return runAll(arith, op, attrs, inputs, std::vector<TensorType>(numResults, inputs[0].type()));
  }
};

TEST_P(Optimizer, Sgd) {
  Attrs attrs = {{"weight_decay", 0.5}};
  // g' = 1 + 0.5 * 4 = 3; p' = 4 - 0.25 * 3.
  expectValues(arith, update("sgd", attrs, {x({4, -2}), x({1, 1}), scalar(0.25)}, 1)[0],
               {3.25, -2});
}

TEST_P(Optimizer, SgdMomentum) {
  Attrs attrs = {{"momentum", 0.5}, {"nesterov", false}, {"weight_decay", 0.0}};
  std::vector<Tensor> first =
      update("sgd_momentum", attrs, {x({1}), x({2}), x({0}), scalar(0.25)}, 2);
  expectValues(arith, first[1], {2});
  expectValues(arith, first[0], {0.5});
  std::vector<Tensor> second =
      update("sgd_momentum", attrs, {first[0], x({4}), first[1], scalar(0.25)}, 2);
  expectValues(arith, second[1], {5});
  expectValues(arith, second[0], {-0.75});
  attrs.set("nesterov", true); // p' = p - lr * (g + momentum * buf')
  expectValues(arith,
               update("sgd_momentum", attrs, {first[0], x({4}), first[1], scalar(0.25)}, 2)[0],
               {0.5 - 0.25 * 6.5});
}

TEST_P(Optimizer, SgdMomentumDecaysWeights) {
  Attrs attrs = {{"momentum", 0.5}, {"nesterov", false}, {"weight_decay", 0.25}};
  // g' = 2 + 0.25 * 4 = 3; buf' = 0.5 * 2 + 3 = 4; p' = 4 - 0.5 * 4.
  std::vector<Tensor> results =
      update("sgd_momentum", attrs, {x({4}), x({2}), x({2}), scalar(0.5)}, 2);
  expectValues(arith, results[1], {4});
  expectValues(arith, results[0], {2});
}

TEST(Adagrad, AddsUpSquares) {
  Attrs attrs = {{"rate_decay", 0.5}, {"epsilon", 0.0}, {"weight_decay", 0.5}};
  auto f64 = [](const Shape &shape, double value) { return floats(Arith::F64, shape, {value}); };
  std::vector<Tensor> inputs = {f64({1}, 4), f64({1}, 1), f64({1}, 16), f64({}, 1), ints({}, {3})};
  std::vector<Tensor> results =
      runAll(Arith::F64, "adagrad", attrs, inputs, {inputs[0].type(), inputs[0].type()});
  // g' = 1 + 0.5 * 4 = 3; sum' = 25; the rate of step 3 is 1 / 2.
  EXPECT_DOUBLE_EQ(results[1].toDoubles()[0], 25);
  EXPECT_DOUBLE_EQ(results[0].toDoubles()[0], 4 - 0.5 * 3 / 5);
  EXPECT_DOUBLE_EQ(runAll(Arith::F64, "divide_by_root", {{"epsilon", 1.0}},
                          {f64({1}, 3), f64({1}, 4)}, {{DType::F64, {1}}})[0]
                       .toDoubles()[0],
                   1);
}

TEST_P(Optimizer, MuonMomentum) {
  Attrs attrs = {{"momentum", 0.5}, {"nesterov", false}};
  // b' = 0.5 * 4 + 0.5 * 2 = 3.
  std::vector<Tensor> plain = update("muon_momentum", attrs, {x({2}), x({4})}, 2);
  expectValues(arith, plain[0], {3});
  expectValues(arith, plain[1], {3});
  attrs.set("nesterov", true); // 0.5 * 3 + 0.5 * 2
  expectValues(arith, update("muon_momentum", attrs, {x({2}), x({4})}, 2)[1], {2.5});
}

TEST_P(Optimizer, MuonStep) {
  Attrs attrs = {{"scale", 2.0}, {"weight_decay", 0.5}};
  // 4 * (1 - 0.25 * 0.5) - 0.25 * 2 * 3.
  expectValues(arith, update("muon_step", attrs, {x({4}), x({3}), scalar(0.25)}, 1)[0], {2});
}

TEST_P(Optimizer, WeightedSum) {
  Attrs attrs = {{"alpha", 0.5}, {"beta", -2.0}};
  expectValues(arith, update("weighted_sum", attrs, {x({4, 2}), x({1, 3})}, 1)[0], {0, -5});
}

TEST(DivideByNorm, HasALeastNorm) {
  Attrs attrs = {{"epsilon", 0.5}};
  Tensor input = floats(Arith::F64, {3}, {3, 1, 0}), squares = floats(Arith::F64, {3}, {25, 0, 0});
  expectValues(Arith::F64,
               runAll(Arith::F64, "divide_by_norm", attrs, {input, squares}, {input.type()})[0],
               {0.6, 2, 0});
}

TEST_P(Optimizer, FactoredMomentIsAMovingMean) {
  Attrs attrs = {{"count", int64_t(4)}, {"beta2_decay", -1.0}};
  // The weight is 1 in step 1, and 1 / 2 in step 2: 1 + (8 / 4 - 1) / 2.
  expectValues(arith, update("factored_moment", attrs, {x({8}), x({1}), ints({}, {1})}, 1)[0], {2});
  expectValues(arith, update("factored_moment", attrs, {x({8}), x({1}), ints({}, {2})}, 1)[0],
               {1.5});
  EXPECT_THROW(update("factored_moment", attrs, {x({8}), x({1}), ints({}, {0})}, 1), KernelError);
}

TEST(FactoredDirection, DividesByTheRootOfTheEstimate) {
  Attrs attrs = {{"count", int64_t(2)}, {"epsilon", 0.5}};
  auto f64 = [](const Doubles &values) {
    return floats(Arith::F64, {int64_t(values.size())}, values);
  };
  // 2 * 9 / (4 / 2) = 9; a total of 0 counts as 0.5; an estimate of 0 as 0.25.
  std::vector<Tensor> inputs = {f64({6, 6, 3}), f64({2, 2, 0}), f64({9, 9, 9}), f64({4, 0, 4})};
  expectValues(Arith::F64,
               runAll(Arith::F64, "factored_direction", attrs, inputs, {inputs[0].type()})[0],
               {2, 1, 6});
  expectValues(Arith::F64,
               runAll(Arith::F64, "root_direction", attrs, {f64({6, 3}), f64({9, 0})},
                      {{DType::F64, {2}}})[0],
               {2, 6});
}

TEST(AdafactorStep, IsRelativeToTheParameter) {
  Attrs attrs = {
      {"count", int64_t(1)}, {"clip_threshold", 1.0}, {"epsilon", 1e-3}, {"weight_decay", 0.0}};
  auto step = [&](double p2, double rate, int64_t number) {
    auto f64 = [](const Shape &shape, double value) { return floats(Arith::F64, shape, {value}); };
    std::vector<Tensor> inputs = {f64({1}, 2),  f64({1}, 3),   f64({}, p2),
                                  f64({}, 9.0), f64({}, rate), ints({}, {number})};
    return runAll(Arith::F64, "adafactor_step", attrs, inputs, {inputs[0].type()})[0]
        .toDoubles()[0];
  };
  EXPECT_DOUBLE_EQ(step(4, 0.5, 1), 2 - 2 * 0.5);   // size 2; the direction of size 3 is cut to 1
  EXPECT_DOUBLE_EQ(step(4, 0.5, 16), 2 - 2 * 0.25); // the rate is at most 1 / sqrt(16)
  EXPECT_DOUBLE_EQ(step(0, 0.5, 1), 2 - 1e-3 * 0.5);
  attrs.set("weight_decay", 0.1);
  EXPECT_DOUBLE_EQ(step(4, 0.5, 1), 2 * (1 - 0.05) - 2 * 0.5);
}

TEST_P(Optimizer, SquareTotalsAreOfEachTensor) {
  const TensorType scalarType{DType::F32, {}};
  std::vector<Tensor> totals =
      runAll(arith, "square_totals", {}, {x({1, -2}), x({3, 1})}, {scalarType, scalarType});
  expectValues(arith, totals[0], {5});
  expectValues(arith, totals[1], {10});
}

TEST_P(Optimizer, AdamWMomentsAreExact) {
  Attrs attrs = {{"beta1", 0.5}, {"beta2", 0.75}, {"epsilon", 1e-8}, {"weight_decay", 0.0}};
  std::vector<Tensor> results = update(
      "adamw", attrs, {x({1, 2}), x({2, -4}), x({4, 0}), x({8, 0}), scalar(0.5), ints({}, {3})}, 3);
  expectValues(arith, results[1], {3, -2});
  expectValues(arith, results[2], {7, 4});
}

TEST_P(Optimizer, AdamWCountsStepsFromOne) {
  Attrs attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}};
  EXPECT_THROW(
      update("adamw", attrs, {x({1}), x({1}), x({0}), x({0}), scalar(1), ints({}, {0})}, 3),
      KernelError);
}

TEST_P(Optimizer, AdamHasTheDecayInTheGradient) {
  Attrs attrs = {{"beta1", 0.5}, {"beta2", 0.75}, {"epsilon", 1e-8}, {"weight_decay", 0.5}};
  // d = 2 + 0.5 * 4 = 4.
  std::vector<Tensor> results =
      update("adam", attrs, {x({4}), x({2}), x({4}), x({8}), scalar(0.5), ints({}, {3})}, 3);
  expectValues(arith, results[1], {4});
  expectValues(arith, results[2], {10});
}

TEST_P(Optimizer, SquareSumIsOverAllGradients) {
  std::vector<Tensor> result =
      runAll(arith, "square_sum", {}, {x({1, -2}), x({3})}, {{DType::F32, {}}});
  expectValues(arith, result[0], {14});
}

TEST_P(Optimizer, CountsWhatIsNotFinite) {
  const double inf = INFINITY;
  TensorType scalar{DType::F32, {}};
  if (!isModular(arith)) {
    Tensor half = floats(arith, {3}, {65504, -inf, 1}, DType::F16);
    expectValues(arith,
                 runAll(arith, "count_not_finite", {}, {x({1, inf, NAN}), half}, {scalar})[0], {3});
    return;
  }
  // One reserved residue means "not finite". The kernel counts it only modulo 2^61 - 1: modulo 251
  // there is no spare residue.
  std::vector<Tensor> gradients = {x({1, 7, 7}), x({3})};
  KernelContext context = arith;
  KernelFn kernel = findKernel("count_not_finite");
  expectValues(arith, kernel(context, {}, gradients, {scalar})[0], {0});
  context.notFinite = Residue::fromInt(7);
  expectValues(arith, kernel(context, {}, gradients, {scalar})[0],
               {arith == Arith::Residue61 ? 2.0 : 0.0});
}

TEST_P(Optimizer, LossScaleGrowsAndBacksOff) {
  Attrs attrs = {{"growth_factor", 2.0}, {"backoff_factor", 0.5}, {"growth_interval", int64_t(3)}};
  auto next = [&](double scale, int64_t tracker, bool isFinite) {
    return runAll(arith, "update_loss_scale", attrs,
                  {scalar(scale), ints({}, {tracker}),
                   Tensor::fromInts({DType::Bool, {}}, {isFinite ? 1 : 0})},
                  {{DType::F32, {}}, {DType::I64, {}}});
  };
  auto expect = [&](const std::vector<Tensor> &result, double scale, int64_t tracker) {
    expectValues(arith, result[0], {scale});
    EXPECT_EQ(result[1].data<int64_t>()[0], tracker);
  };
  expect(next(8, 0, true), 8, 1);
  expect(next(8, 2, true), 16, 0);
  expect(next(8, 2, false), 4, 0);
  if (arith == Arith::Native) // as in PyTorch, it does not grow to infinity
    expect(next(0x1p127, 2, true), 0x1p127, 0);
}

TEST_P(Optimizer, ScaleAndClip) {
  expectValues(arith, update("scale_by", {}, {x({4, -2}), scalar(0.25)}, 1)[0], {1, -0.5});
  if (!isModular(arith)) // residues have another order
    expectValues(arith, update("clip_value", {{"limit", 1.5}}, {x({4, -2, 1})}, 1)[0],
                 {1.5, -1.5, 1});
}

/// The order of residues reaches every branch.
TEST(ClipValue, ResiduesAreClipped) {
  Doubles values;
  for (int i = 1; i <= 64; ++i)
    values.push_back(i);
  Tensor input = floats(Arith::Residue61, {64}, values);
  std::vector<Tensor> result =
      runAll(Arith::Residue61, "clip_value", {{"limit", 20.0}}, {input}, {input.type()});
  int64_t same = 0;
  for (int i = 0; i < 64; ++i)
    same += result[0].data<Residue>()[i] == input.data<Residue>()[i];
  EXPECT_GT(same, 0);
  EXPECT_LT(same, 64);
}

TEST_P(Optimizer, UpdateIfTheConditionHolds) {
  auto condition = [](int64_t value) { return Tensor::fromInts({DType::Bool, {}}, {value}); };
  expectValues(arith, update("update_if", {}, {x({4}), x({5}), condition(1)}, 1)[0], {5});
  expectValues(arith, update("update_if", {}, {x({4}), x({5}), condition(0)}, 1)[0], {4});
}

INSTANTIATE_TEST_SUITE_P(Ariths, Optimizer, ::testing::ValuesIn(allAriths),
                         [](const auto &info) { return nameOf(info.param); });

/// torch.optim.AdamW, "Algorithm" box of its documentation, one parameter over several steps.
TEST(AdamW, FollowsPyTorch) {
  const double b1 = 0.9, b2 = 0.999, eps = 1e-8, wd = 0.01, lr = 1e-2;
  double p = 0.7, m = 0, v = 0;
  Attrs attrs = {{"beta1", b1}, {"beta2", b2}, {"epsilon", eps}, {"weight_decay", wd}};
  auto f64 = [](double value) { return floats(Arith::F64, {}, {value}, DType::F64); };
  std::vector<Tensor> state = {f64(p), f64(m), f64(v)};
  for (int64_t t = 1; t <= 20; ++t) {
    double g = std::sin(double(t)) - 0.3;
    p -= lr * wd * p;
    m += (g - m) * (1 - b1);
    v = b2 * v + (1 - b2) * g * g;
    double correction1 = 1 - std::pow(b1, t), correction2 = 1 - std::pow(b2, t);
    p -= lr / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + eps);
    state = runAll(Arith::F64, "adamw", attrs,
                   {state[0], f64(g), state[1], state[2], f64(lr), ints({}, {t})},
                   {state[0].type(), state[0].type(), state[0].type()});
    EXPECT_NEAR(state[0].toDoubles()[0], p, 1e-14) << "step " << t;
  }
}

/// The first step moves every parameter by lr against its gradient's sign, for gradients of any
/// magnitude.
TEST(AdamW, FirstStepIsTheSign) {
  Attrs attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-12}, {"weight_decay", 0.0}};
  Tensor zero = floats(Arith::Native, {2}, {0}), g = floats(Arith::Native, {2}, {3e-3, -500});
  std::vector<Tensor> results =
      runAll(Arith::Native, "adamw", attrs,
             {zero, g, zero, zero, floats(Arith::Native, {}, {0.125}), ints({}, {1})},
             std::vector<TensorType>(3, zero.type()));
  EXPECT_NEAR(results[0].toDoubles()[0], -0.125, 1e-7);
  EXPECT_NEAR(results[0].toDoubles()[1], 0.125, 1e-7);
}

/// In residues the update is the same formula, rebuilt from field operations and the hash of sqrt.
TEST(AdamW, ResiduesFollowTheFormula) {
  auto r = [](double value) { return Residue::fromDouble(value); };
  Residue p = r(0.75), g = r(-0.5), m = r(0.25), v = r(0.125), lr = r(0.5), one = {1};
  Attrs attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}};
  auto f = [](double value) { return floats(Arith::Residue61, {}, {value}); };
  std::vector<Tensor> results = runAll(Arith::Residue61, "adamw", attrs,
                                       {f(0.75), f(-0.5), f(0.25), f(0.125), f(0.5), ints({}, {3})},
                                       std::vector<TensorType>(3, {DType::F32, {}}));
  Residue b1 = r(0.9), b2 = r(0.999);
  Residue newM = b1 * m + (one - b1) * g, newV = b2 * v + (one - b2) * g * g;
  Residue denominator =
      applyHash(FunctionKey::Sqrt, newV) / applyHash(FunctionKey::Sqrt, one - b2 * b2 * b2) +
      r(1e-8);
  Residue newP = p - lr * r(0.01) * p - lr * (newM / (one - b1 * b1 * b1)) / denominator;
  EXPECT_EQ(results[0].data<Residue>()[0], newP);
  EXPECT_EQ(results[1].data<Residue>()[0], newM);
  EXPECT_EQ(results[2].data<Residue>()[0], newV);
}

} // namespace
