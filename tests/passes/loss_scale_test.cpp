// Training with a loss scale: the skipped steps, and the values that a skipped step keeps.

#include "ir/SerialTrainer.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/decompose/UseBatchStatistics.h"
#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/BuildUpdate.h"
#include "passes/precision/LowerPrecision.h"
#include "tests/passes/StepFixture.h"

#include "ir/Normalization.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::HasSubstr;

/// kConvNet or kMlp as a step, and its trainer.
class Training {
public:
  Training(const char *text, const OptimizerOptions &options, const kernels::KernelContext &context,
           bool isF16 = false)
      : module(text) {
    build(options, isF16);
    trainer.emplace(*module, context);
    inputs = trainInputs(module, context.arith);
    auto train = module.function("train");
    for (unsigned i = 0; i < inputs.size(); ++i) {
      std::optional<TensorRole> role = argumentRole(train, i);
      std::string name = train.getArgAttrOfType<StringAttr>(i, kNameAttr).str();
      if (role == TensorRole::Parameter || role == TensorRole::State)
        EXPECT_TRUE(succeeded(trainer->set(name, inputs[i]))) << module.messages;
      else if (role != TensorRole::OptimizerState)
        batch[name] = inputs[i];
    }
  }

  void step() { EXPECT_TRUE(succeeded(trainer->step({batch}, 0.125))) << module.messages; }
  Tensor value(const std::string &name) const { return trainer->values().at(name); }
  double number(const std::string &name) const { return value(name).toDoubles()[0]; }

  ParsedModule module;
  std::optional<SerialTrainer> trainer;
  SerialTrainer::Tensors batch;

private:
  void build(const OptimizerOptions &options, bool isF16) {
    ASSERT_TRUE(module) << module.messages;
    auto model = module.function("model");
    if (isF16) {
      ASSERT_TRUE(succeeded(lowerPrecision(model, FloatType::getF16(model.getContext()))));
    }
    ASSERT_TRUE(succeeded(attachLoss(*module, {}))) << module.messages;
    auto train = module.function("train");
    ASSERT_TRUE(succeeded(useBatchStatistics(train)));
    ASSERT_TRUE(succeeded(
        decomposeComposites(train, [](Operation *op) { return isa<BatchNormTrainOp>(op); })));
    AutodiffOptions autodiff;
    autodiff.lossScale = options.lossScale;
    ASSERT_TRUE(succeeded(buildTrainFunction(*module, autodiff)) &&
                succeeded(buildUpdateFunction(*module, options)) && succeeded(verify(*module)))
        << module.messages;
  }

  std::vector<Tensor> inputs;
};

OptimizerOptions scaled(double initial, int64_t interval = 2000) {
  OptimizerOptions options;
  options.lossScale.initial = initial;
  options.lossScale.growthInterval = interval;
  return options;
}

SerialTrainer::Tensors without(SerialTrainer::Tensors values,
                               const std::vector<std::string> &names) {
  for (const std::string &name : names)
    values.erase(name);
  return values;
}

void expectEqual(const SerialTrainer::Tensors &a, const SerialTrainer::Tensors &b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto &[name, value] : a)
    EXPECT_TRUE(bitwiseEqual(value, b.at(name))) << name;
}

/// In residues and in f64 a scale changes no result: a power of two is exact there. Example: (64 g)
/// / 64 is g.
TEST(LossScale, ChangesNothingButTheRangeOfGradients) {
  for (double interval : {0, 2000})
    for (Arith arith : {Arith::F64, Arith::Residue61}) {
      Training plain(kMlp, {}, arith), with(kMlp, scaled(1024, int64_t(interval)), arith);
      for (int step = 0; step < 2; ++step)
        plain.step(), with.step();
      expectEqual(plain.trainer->values(),
                  without(with.trainer->values(), {"tbc.loss_scale", "tbc.growth_tracker"}));
      EXPECT_TRUE(bitwiseEqual(plain.trainer->loss(), with.trainer->loss()));
    }
}

TEST(LossScale, GradientsAreClippedUnscaled) {
  for (double norm : {0.01, 100.0}) {
    OptimizerOptions clipped;
    clipped.clipNorm = norm;
    OptimizerOptions both = clipped;
    both.lossScale.initial = 1024;
    // Not in residues, where a square root is no square root.
    Training plain(kMlp, clipped, Arith::F64), with(kMlp, both, Arith::F64);
    plain.step(), with.step();
    expectEqual(plain.trainer->values(),
                without(with.trainer->values(), {"tbc.loss_scale", "tbc.growth_tracker"}));
  }
}

/// With this scale the gradients overflow f32: the first steps are skipped, then one is not.
TEST(LossScale, BacksOffUntilGradientsAreFinite) {
  Training training(kMlp, scaled(0x1p127), Arith::Native);
  SerialTrainer::Tensors before = training.trainer->values();
  double scale = 0x1p127;
  int skipped = 0;
  while (training.step(), training.number("tbc.loss_scale") < scale) {
    scale /= 2;
    ++skipped;
    ASSERT_EQ(training.number("tbc.loss_scale"), scale);
    EXPECT_EQ(training.number("tbc.steps_taken"), 0);
    for (const auto &[name, value] : before)
      EXPECT_TRUE(bitwiseEqual(value, training.value(name))) << name;
    EXPECT_EQ(training.value("w1.m").toDoubles(), std::vector<double>(18, 0));
    ASSERT_LT(skipped, 100);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(training.number("tbc.steps_taken"), 1);
  EXPECT_EQ(training.number("tbc.growth_tracker"), 1);
  EXPECT_FALSE(bitwiseEqual(before.at("w1"), training.value("w1")));
}

TEST(LossScale, GrowsAfterFiniteStepsInARow) {
  Training training(kMlp, scaled(8, 2), Arith::Residue61);
  std::vector<double> trackers;
  std::vector<uint64_t> scales;
  for (int step = 0; step < 4; ++step) {
    training.step();
    trackers.push_back(training.number("tbc.growth_tracker"));
    scales.push_back(training.value("tbc.loss_scale").data<kernels::Residue>()[0].v);
  }
  EXPECT_THAT(trackers, testing::ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(scales, testing::ElementsAre(8, 16, 16, 32));
}

/// In residues an overflow is planted, in f16 it comes from a huge input. PyTorch updates running
/// statistics in forward, also in a skipped step; so does tbc.
TEST(LossScale, ASkippedStepUpdatesRunningStatistics) {
  for (bool isStatic : {false, true}) {
    OptimizerOptions options = scaled(64, isStatic ? 0 : 2000);
    Training usual(kConvNet, options, Arith::Residue61);
    usual.step();
    kernels::KernelContext context = Arith::Residue61;
    context.notFinite = usual.trainer->gradients().at("w").data<kernels::Residue>()[1];
    Training planted(kConvNet, options, context);
    SerialTrainer::Tensors before = planted.trainer->values();
    planted.step();
    for (const char *name : {"w", "scale", "bias"})
      EXPECT_TRUE(bitwiseEqual(before.at(name), planted.value(name))) << name;
    for (const char *name : {"running_mean", "running_var"}) {
      EXPECT_FALSE(bitwiseEqual(before.at(name), planted.value(name))) << name;
      EXPECT_TRUE(bitwiseEqual(usual.value(name), planted.value(name))) << name;
    }
    EXPECT_EQ(planted.number("tbc.steps_taken"), 0);
    if (isStatic)
      continue;
    EXPECT_EQ(planted.value("tbc.loss_scale").data<kernels::Residue>()[0].v, 32u);
    // With the new scale gradients have other residues: the next step is taken.
    planted.step();
    EXPECT_EQ(planted.number("tbc.steps_taken"), 1);
    EXPECT_FALSE(bitwiseEqual(before.at("w"), planted.value("w")));
  }
}

TEST(LossScale, AHugeInputIsSkippedInF16) {
  Training training(kConvNet, scaled(64), Arith::Native, /*isF16=*/true);
  training.step();
  SerialTrainer::Tensors before = training.trainer->values();
  Tensor usual = training.batch.at("x");
  std::vector<double> huge = usual.toDoubles();
  for (double &x : huge)
    x *= 60000; // f16 ends at 65504
  training.batch["x"] = Tensor::fromDoubles(usual.type(), Arith::Native, huge);
  training.step();
  EXPECT_FALSE(std::isfinite(training.trainer->gradients().at("w").toDoubles()[0]));
  EXPECT_FALSE(std::isfinite(training.number("running_mean")));
  EXPECT_EQ(training.number("tbc.loss_scale"), 32);
  EXPECT_EQ(training.number("tbc.growth_tracker"), 0);
  for (const auto &[name, value] : before)
    if (name.rfind("tbc.", 0) != 0 && name.rfind("running", 0) != 0)
      EXPECT_TRUE(bitwiseEqual(value, training.value(name))) << name;
  EXPECT_EQ(training.number("tbc.steps_taken"), 1);
  training.batch["x"] = usual;
  training.step();
  EXPECT_EQ(training.number("tbc.steps_taken"), 2);
  EXPECT_FALSE(bitwiseEqual(before.at("w.master"), training.value("w.master")));
}

/// Adam's bias correction counts the steps taken.
TEST(LossScale, AStepThatCountsNothingIsNone) {
  for (double initial : {0.0, 64.0}) {
    Training training(kMlp, scaled(initial), Arith::Residue61);
    Tensor labels = training.batch.at("labels");
    training.batch["labels"] = Tensor::fromInts(labels.type(), {-100});
    training.step();
    EXPECT_EQ(training.number("tbc.steps_taken"), 0);
    if (initial != 0) {
      EXPECT_EQ(training.number("tbc.growth_tracker"), 0);
    }
    training.batch["labels"] = labels;
    training.step();
    Training fresh(kMlp, scaled(initial), Arith::Residue61);
    fresh.step();
    expectEqual(fresh.trainer->values(), training.trainer->values());
  }
}

} // namespace
} // namespace tbc
