#include "passes/OpIds.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/autodiff/RepeatFreeOps.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/loss/AttachLoss.h"
#include "tests/passes/StepFixture.h"

#include "ir/Contraction.h"
#include "ir/Gradient.h"
#include "ir/Vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The largest difference between the gradients of @train and central differences of its loss.
double gradientError(ParsedModule &module) {
  auto train = module.function("train");
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  std::vector<Tensor> results = evaluate(module, "train", inputs, Arith::F64);
  constexpr double step = 1e-5;
  double error = 0;
  for (const std::string &name : resultNames(train, TensorRole::Gradient)) {
    unsigned arg = argument(train, TensorRole::Parameter, name);
    std::vector<double> gradient = results[result(train, TensorRole::Gradient, name)].toDoubles();
    for (size_t k = 0; k < gradient.size(); ++k) {
      double losses[2];
      for (int side : {0, 1}) {
        std::vector<Tensor> moved = inputs;
        moved[arg].mutableData<double>()[k] += side ? step : -step;
        losses[side] = evaluate(module, "train", moved, Arith::F64)[0].toDoubles()[0];
      }
      error = std::max(error, std::abs((losses[1] - losses[0]) / (2 * step) - gradient[k]));
    }
  }
  return error;
}

TEST(Differentiate, GradientsAgreeWithFiniteDifferences) {
  for (const char *text : {kMlp, kConvNet}) {
    ParsedModule module(text);
    buildStep(module);
    EXPECT_LT(gradientError(module), 1e-8);
  }
}

TEST(Differentiate, GradientsOfDecompositionsAgreeToo) {
  ParsedModule module(kMlp);
  ASSERT_TRUE(module && succeeded(attachLoss(*module, {}))) << module.messages;
  auto isComposite = [](Operation *op) { return isa<CompositeOpInterface>(op); };
  ASSERT_TRUE(succeeded(decomposeComposites(module.function("train"), isComposite)));
  ASSERT_FALSE(module.function("train").getOps<ClassMaxOp>().empty());
  ASSERT_TRUE(succeeded(buildTrainFunction(*module))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_LT(gradientError(module), 1e-8);
}

/// At ties: |w| has the slope 0, both sides of max(w, v) and min(w, v) have half of it, and a bound
/// leaves all of it to w.
TEST(Differentiate, SidesShareGradientsWhereTheyAreEqual) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x1xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64},
                     %w: tensor<1xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"},
                     %v: tensor<1xf32> {tbc.role = #tbc.role<param>, tbc.name = "v"})
        -> tensor<2x1xf32> {
      %zero = tbc.constant dense<0.0> : tensor<1xf32> : tensor<1xf32>
      %ten = tbc.constant dense<10.0> : tensor<1xf32> : tensor<1xf32>
      %hundred = tbc.constant dense<100.0> : tensor<1xf32> : tensor<1xf32>
      %thousand = tbc.constant dense<1000.0> : tensor<1xf32> : tensor<1xf32>
      %abs = tbc.abs %w : tensor<1xf32>
      %max = tbc.maximum %w, %v : tensor<1xf32>
      %max10 = tbc.mul %max, %ten : tensor<1xf32>
      %min = tbc.minimum %v, %w : tensor<1xf32>
      %min100 = tbc.mul %min, %hundred : tensor<1xf32>
      %clip = tbc.maximum %zero, %w : tensor<1xf32>
      %clip1000 = tbc.mul %clip, %thousand : tensor<1xf32>
      %a = tbc.add %abs, %max10 : tensor<1xf32>
      %b = tbc.add %a, %min100 : tensor<1xf32>
      %c = tbc.add %b, %clip1000 : tensor<1xf32>
      %all = tbc.broadcast %c {dims = array<i64: 1>} : (tensor<1xf32>) -> tensor<2x1xf32>
      %y = tbc.add %all, %x : tensor<2x1xf32>
      return %y : tensor<2x1xf32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  ASSERT_TRUE(succeeded(buildTrainFunction(*module))) << module.messages;
  auto train = module.function("train");
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  auto gradientsAt = [&](double w) {
    inputs[argument(train, TensorRole::Parameter, "w")].mutableData<double>()[0] = w;
    inputs[argument(train, TensorRole::Parameter, "v")].mutableData<double>()[0] = 0;
    std::vector<Tensor> results = evaluate(module, "train", inputs, Arith::F64);
    auto gradient = [&](const char *name) {
      return results[result(train, TensorRole::Gradient, name)].toDoubles()[0];
    };
    return std::pair(gradient("w"), gradient("v"));
  };
  EXPECT_EQ(gradientsAt(0), std::pair(1055., 55.));
  EXPECT_EQ(gradientsAt(1), std::pair(1011., 100.));
  EXPECT_EQ(gradientsAt(-1), std::pair(99., 10.));
}

/// x^y at x = 0 or y = 0, where log(x) and 1 / x are infinite.
TEST(Differentiate, PowersHaveFiniteGradientsAtZero) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x1xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64},
                     %w: tensor<1xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"},
                     %v: tensor<1xf32> {tbc.role = #tbc.role<param>, tbc.name = "v"})
        -> tensor<2x1xf32> {
      %p = tbc.pow %w, %v : tensor<1xf32>
      %all = tbc.broadcast %p {dims = array<i64: 1>} : (tensor<1xf32>) -> tensor<2x1xf32>
      %y = tbc.add %all, %x : tensor<2x1xf32>
      return %y : tensor<2x1xf32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  ASSERT_TRUE(succeeded(buildTrainFunction(*module))) << module.messages;
  auto train = module.function("train");
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  auto gradientsAt = [&](double w, double v) {
    inputs[argument(train, TensorRole::Parameter, "w")].mutableData<double>()[0] = w;
    inputs[argument(train, TensorRole::Parameter, "v")].mutableData<double>()[0] = v;
    std::vector<Tensor> results = evaluate(module, "train", inputs, Arith::F64);
    auto gradient = [&](const char *name) {
      return results[result(train, TensorRole::Gradient, name)].toDoubles()[0];
    };
    return std::pair(gradient("w"), gradient("v"));
  };
  EXPECT_EQ(gradientsAt(0, 2), std::pair(0., 0.));
  EXPECT_EQ(gradientsAt(0, 0), std::pair(0., 0.));
  EXPECT_EQ(gradientsAt(1, 3), std::pair(3., 0.));
}

TEST(Differentiate, ReturnsOneGradientPerUsedParameterInTheirOrder) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  EXPECT_THAT(resultNames(train, TensorRole::Gradient), ElementsAre("w1", "b1", "g", "w2"));
  EXPECT_THAT(resultNames(train, TensorRole::Loss), ElementsAre("loss"));
  for (const std::string &name : resultNames(train, TensorRole::Gradient))
    EXPECT_EQ(train.getResultTypes()[result(train, TensorRole::Gradient, name)],
              train.getArgumentTypes()[argument(train, TensorRole::Parameter, name)]);
}

TEST(Differentiate, ReturnsNewStatesBetweenLossAndGradients) {
  ParsedModule module(kConvNet);
  buildStep(module);
  auto train = module.function("train");
  EXPECT_THAT(resultNames(train, TensorRole::State), ElementsAre("running_mean", "running_var"));
  EXPECT_EQ(result(train, TensorRole::State, "running_mean"), 2u); // behind the loss and the count
}

TEST(Differentiate, TagsEveryOp) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  bool inBackward = false;
  for (Operation &op : train.getBody().front().without_terminator()) {
    ASSERT_TRUE(op.hasAttr(kPhaseAttr));
    inBackward |= isBackward(&op);
    EXPECT_EQ(phaseOf(&op), inBackward ? reshard::Phase::Backward : reshard::Phase::Forward);
    EXPECT_EQ(op.hasAttr(kForwardIdAttr), inBackward);
    if (auto forward = op.getAttrOfType<StringAttr>(kForwardIdAttr))
      EXPECT_EQ(phaseOf(findOp(train, forward.getValue())), reshard::Phase::Forward);
  }
  std::vector<std::string> ids = idsOf(train);
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_THAT(ids, Contains("fc1.bwd.0"));
}

TEST(Differentiate, NotesWhatACotangentIsOf) {
  ParsedModule module(kMlp);
  buildStep(module);
  Operation *gradient = findOp(module.function("train"), "gelu.bwd.0");
  auto marks = gradient->getAttrOfType<ArrayAttr>(kCotangentOfAttr);
  ASSERT_TRUE(marks && marks.size() == 1);
  auto mark = cast<ArrayAttr>(marks[0]);
  EXPECT_EQ(cast<StringAttr>(mark[0]).getValue(), "norm");
  EXPECT_EQ(cast<IntegerAttr>(mark[1]).getInt(), 0);
  EXPECT_EQ(gradient->getAttrOfType<StringAttr>(kForwardIdAttr).getValue(), "gelu");
}

TEST(Differentiate, KeepsNoResultsOfFreeOps) {
  ParsedModule module(kMlp);
  buildStep(module);
  auto train = module.function("train");
  for (Value value : residuals(train))
    if (Operation *op = value.getDefiningOp())
      EXPECT_NE(cast<CostOpInterface>(op).getKernelClass(), KernelClass::None)
          << op->getName().getStringRef().str();
  // The backward of `mul` reads the scale itself, broadcast anew.
  EXPECT_THAT(idsOf(train), Contains("scale.rc"));
}

TEST(Differentiate, FrozenParametersGetNoGradient) {
  for (const char *glob : {"w1", "first.weight", "first.w*"}) {
    ParsedModule module(kMlp);
    ASSERT_TRUE(succeeded(attachLoss(*module, {})));
    ASSERT_TRUE(succeeded(buildTrainFunction(*module, {{glob}}))) << module.messages;
    EXPECT_THAT(resultNames(module.function("train"), TensorRole::Gradient),
                ElementsAre("b1", "g", "w2"));
    // Nothing is computed that only it would need.
    EXPECT_THAT(idsOf(module.function("train")), Not(Contains("fc1.bwd.0")));
  }
}

/// A straight-through estimator y = h + detach(round(h) - h) of h = w x, and y * detach(y). The
/// gradient of the mean over two samples is round(h) x / 2.
TEST(Differentiate, NoGradientPassesADetachedValue) {
  ParsedModule module(R"(
    func.func @model(
        %x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64},
        %w: tensor<2x3xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"})
        -> (tensor<2xf32> {tbc.name = "loss"}) {
      %h = tbc.mul %x, %w {tbc.id = "h"} : tensor<2x3xf32>
      %r = tbc.round %h {tbc.id = "r"} : tensor<2x3xf32>
      %d = tbc.sub %r, %h {tbc.id = "d"} : tensor<2x3xf32>
      %e = tbc.detach %d {tbc.id = "e"} : tensor<2x3xf32>
      %y = tbc.add %h, %e {tbc.id = "y"} : tensor<2x3xf32>
      %z = tbc.detach %y {tbc.id = "z"} : tensor<2x3xf32>
      %p = tbc.mul %y, %z {tbc.id = "p"} : tensor<2x3xf32>
      %s = tbc.reduce_sum %p {dims = array<i64: 1>, tbc.id = "s"} : (tensor<2x3xf32>) -> tensor<2xf32>
      return %s : tensor<2xf32>
    })");
  LossOptions loss;
  loss.kind = LossKind::Output;
  loss.output = "loss";
  ASSERT_TRUE(module && succeeded(attachLoss(*module, loss))) << module.messages;
  ASSERT_TRUE(succeeded(buildTrainFunction(*module))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  auto train = module.function("train");
  EXPECT_TRUE(train.getOps<DetachOp>().empty());
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  unsigned weight = argument(train, TensorRole::Parameter, "w");
  std::vector<double> x = inputs[argument(train, TensorRole::Input, "x")].toDoubles(),
                      w = inputs[weight].toDoubles();
  for (size_t i = 0; i < w.size(); ++i) // h is far from a jump of round
    inputs[weight].mutableData<double>()[i] = w[i] = (double(i) - 1.8) / x[i];
  std::vector<double> gradient =
      evaluate(module, "train", inputs, Arith::F64)[result(train, TensorRole::Gradient, "w")]
          .toDoubles();
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_NEAR(gradient[i], std::nearbyint(w[i] * x[i]) * x[i] / 2, 1e-12);
}

TEST(Differentiate, RefusesAGlobThatMatchesNothing) {
  ParsedModule module(kMlp);
  ASSERT_TRUE(succeeded(attachLoss(*module, {})));
  EXPECT_TRUE(failed(buildTrainFunction(*module, {{"x"}})));
  EXPECT_THAT(module.messages, HasSubstr("--freeze: the glob \"x\" matches no parameter"));
}

TEST(Differentiate, RefusesAModelWithNothingToTrain) {
  ParsedModule module(kMlp);
  ASSERT_TRUE(succeeded(attachLoss(*module, {})));
  EXPECT_TRUE(failed(buildTrainFunction(*module, {{"*"}})));
  EXPECT_THAT(module.messages, HasSubstr("depends on no trained parameter"));
}

TEST(Differentiate, NamesTheOpWithoutADerivative) {
  ParsedModule module(R"(
    func.func @model(
        %x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64},
        %w: tensor<2x3xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"}) -> (tensor<2x3xf32>) {
      %y = tbc.relu_grad %x, %w {tbc.id = "odd"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      return %y : tensor<2x3xf32>
    })");
  ASSERT_TRUE(module && succeeded(attachLoss(*module, {}))) << module.messages;
  EXPECT_TRUE(failed(buildTrainFunction(*module)));
  EXPECT_THAT(module.messages, HasSubstr("'tbc.relu_grad' op has no derivative"));
}

} // namespace
} // namespace tbc
