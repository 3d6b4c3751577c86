//===- training_test.cpp - The tiny models train as they do in PyTorch -----===//
//
// models/reference holds PyTorch's losses and gradients, in f32 and in f64.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Import.h"
#include "ir/Normalization.h"
#include "ir/SerialTrainer.h"
#include "passes/OpIds.h"
#include "passes/autodiff/Differentiate.h"
#include "passes/autodiff/RepeatFreeOps.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/decompose/UseBatchStatistics.h"
#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/BuildUpdate.h"
#include "passes/plan/Recompute.h"
#include "passes/precision/LowerPrecision.h"
#include "passes/raise/RaiseComposites.h"
#include "passes/random/UseDropout.h"
#include "tests/support/Npz.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;

constexpr int kSteps = 20;

struct Case {
  std::string model;
  std::string optimizer;
  /// Micro-batches per step; the global batch is 8.
  int64_t microBatches = 1;
  bool isNarrow = false;
  bool isRecomputed = false;
  bool isClipped = false;
};
void PrintTo(const Case &c, std::ostream *stream) {
  *stream << c.model << " " << c.optimizer << " " << c.microBatches;
}

std::string referencePath(const std::string &model, const std::string &file) {
  return std::string(TBC_SOURCE_DIR) + "/models/reference/" + model + "/" + file;
}

/// Rows first .. first + count - 1 of an array, as a tensor.
Tensor rows(const test::NpyArray &array, int64_t first, int64_t count, Arith arith) {
  kernels::TensorType type{array.isFloat() ? kernels::DType::F32 : kernels::DType::I64,
                           array.shape};
  int64_t row = array.numElements() / array.shape[0];
  type.shape[0] = count;
  auto part = [&](const auto &values) {
    auto begin = values.begin() + first * row;
    return std::decay_t<decltype(values)>(begin, begin + count * row);
  };
  return array.isFloat() ? Tensor::fromDoubles(type, arith, part(array.values))
                         : Tensor::fromInts(type, part(array.ints));
}

OptimizerOptions optimizerOf(const std::string &name) {
  OptimizerOptions options;
  options.kind = *parseOptimizerKind(name);
  if (name == "sgd")
    options.weightDecay = 0;
  return options;
}

/// A tiny model with its step functions and its trainer.
class Training {
public:
  Training(const Case &c, Arith arith) : reference(c), arith(arith) { build(); }

  /// The losses of the first `steps` steps.
  std::vector<double> run(int steps);
  const SerialTrainer::Tensors &gradients() const { return trainer->gradients(); }
  const SerialTrainer::Tensors &values() const { return trainer->values(); }

private:
  void build();

  Case reference;
  Arith arith;
  MLIRContext context;
  std::optional<frontend::ImportedModel> model;
  std::unique_ptr<SerialTrainer> trainer;
};

void Training::build() {
  context.loadDialect<TbcDialect, func::FuncDialect>();
  frontend::ImportOptions options;
  options.batch = 8 / reference.microBatches;
  auto data = test::readNpz(referencePath(reference.model, "inputs.npz"));
  if (data["input_1"].shape.size() == 2)
    options.seq = data["input_1"].shape[1];
  auto imported = frontend::importOnnx(
      context, std::string(TBC_SOURCE_DIR) + "/models/" + reference.model + ".onnx", options);
  ASSERT_TRUE(imported) << imported.error().message;
  model = std::move(*imported);
  ModuleOp module = *model->module;
  removeDropout(module.lookupSymbol<func::FuncOp>("model")); // the references are without it
  ASSERT_TRUE(succeeded(raiseComposites(module.lookupSymbol<func::FuncOp>("model"))));
  if (reference.isNarrow)
    ASSERT_TRUE(succeeded(lowerPrecision(module.lookupSymbol<func::FuncOp>("model"),
                                         FloatType::getBF16(module.getContext()))));
  LossOptions loss;
  loss.samples = 8;
  ASSERT_TRUE(succeeded(attachLoss(module, loss)));
  auto train = module.lookupSymbol<func::FuncOp>("train");
  ASSERT_TRUE(succeeded(useBatchStatistics(train)));
  ASSERT_TRUE(succeeded(
      decomposeComposites(train, [](Operation *op) { return isa<BatchNormTrainOp>(op); })));
  ASSERT_TRUE(succeeded(buildTrainFunction(module)));
  if (reference.isRecomputed) {
    llvm::StringSet<> ids;
    for (Value value : residuals(train))
      if (Operation *op = value.getDefiningOp())
        ids.insert(getId(op));
    ASSERT_FALSE(ids.empty());
    ASSERT_TRUE(succeeded(applyRecompute(train, ids)));
  }
  OptimizerOptions optimizer = optimizerOf(reference.optimizer);
  optimizer.clipNorm = reference.isClipped ? 1 : 0;
  ASSERT_TRUE(succeeded(buildUpdateFunction(module, optimizer)));
  ASSERT_TRUE(succeeded(verify(module)));
  trainer = std::make_unique<SerialTrainer>(module, arith);
  for (const frontend::ParameterSource &source : model->parameters) {
    auto value = frontend::loadParameter(source, arith);
    ASSERT_TRUE(value) << value.error().message;
    ASSERT_TRUE(succeeded(trainer->set(source.name, *value)));
  }
}

std::vector<double> Training::run(int steps) {
  std::vector<double> losses;
  if (!trainer)
    return losses;
  auto data = test::readNpz(referencePath(reference.model, "inputs.npz"));
  int64_t size = 8 / reference.microBatches;
  for (int step = 1; step <= steps; ++step) {
    std::vector<SerialTrainer::Tensors> batches;
    for (int64_t first = 0; first < 8; first += size)
      batches.push_back(
          {{model->inputs.front().name,
            rows(data["input_" + std::to_string(step)], first, size, arith)},
           {"labels", rows(data["label_" + std::to_string(step)], first, size, arith)}});
    auto loss = trainer->step(batches, reference.optimizer == "sgd" ? 0.1 : 1e-3);
    if (failed(loss)) {
      ADD_FAILURE() << "step " << step;
      return losses;
    }
    losses.push_back(*loss);
  }
  return losses;
}

std::vector<double> referenceLosses(const Case &c, const std::string &suffix) {
  return test::readCsv(referencePath(c.model, "losses_" + c.optimizer + suffix + ".csv"))["loss"];
}

class TinyModel : public ::testing::TestWithParam<Case> {};

/// The bound: 4 x the largest distance between PyTorch's own f32 and f64 losses, and one ulp of the
/// loss.
TEST_P(TinyModel, TrainsToTheLossesOfPyTorch) {
  std::vector<double> exact = referenceLosses(GetParam(), "_f64"),
                      single = referenceLosses(GetParam(), "");
  ASSERT_EQ(exact.size(), size_t(kSteps));
  double distance = 0, largest = 0;
  for (int i = 0; i < kSteps; ++i) {
    distance = std::max(distance, std::abs(exact[i] - single[i]));
    largest = std::max(largest, exact[i]);
  }
  double bound = 4 * distance + std::ldexp(1, std::ilogb(largest) - 23);
  std::vector<double> losses = Training(GetParam(), Arith::Native).run(kSteps);
  ASSERT_EQ(losses.size(), size_t(kSteps));
  for (int i = 0; i < kSteps; ++i)
    EXPECT_NEAR(losses[i], exact[i], bound) << "step " << i + 1;
}

/// The tolerance between our f64 and PyTorch's. Some constants are f32 numbers in the ONNX file,
/// 3e-8 beside PyTorch's in f64: those of GPT-2's gelu, and the root of the attention scale of a
/// head of 6 or 8. With PyTorch's constants they agree to 1e-9 too.
double f64Tolerance(const std::string &model) {
  bool hasRoundedConstants = model == "tiny-gpt2" || model == "gpt2-8l" || model == "llama-8l" ||
                             model == "unet-8l" || model == "moe-8l";
  return hasRoundedConstants ? 1e-8 : 1e-9;
}

/// The file has eight decimals, so its own error is 5e-9.
TEST_P(TinyModel, InF64TrainsToPyTorchsLossesInF64) {
  std::vector<double> exact = referenceLosses(GetParam(), "_f64");
  std::vector<double> losses = Training(GetParam(), Arith::F64).run(kSteps);
  ASSERT_EQ(losses.size(), exact.size());
  for (int i = 0; i < kSteps; ++i)
    EXPECT_NEAR(losses[i], exact[i], 5e-9 + f64Tolerance(GetParam().model)) << "step " << i + 1;
}

/// "moe_8l", and "mlp" for "tiny-mlp".
std::string testName(llvm::StringRef model) {
  model.consume_front("tiny-");
  std::string name = model.str();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, TinyModel,
    ::testing::Values(Case{"tiny-mlp", "sgd"}, Case{"tiny-mlp", "adamw"}, Case{"tiny-gpt2", "sgd"},
                      Case{"tiny-gpt2", "adamw"}, Case{"tiny-llama", "sgd"},
                      Case{"tiny-llama", "adamw"}, Case{"tiny-resnet", "sgd"},
                      Case{"tiny-resnet", "adamw"}, Case{"moe-8l", "sgd"}, Case{"moe-8l", "adamw"},
                      Case{"gpt2-8l", "sgd"}, Case{"gpt2-8l", "adamw"}, Case{"llama-8l", "sgd"},
                      Case{"unet-8l", "sgd"}, Case{"resnet-8b", "sgd"},
                      Case{"tiny-mlp", "adamw", 4}, Case{"tiny-gpt2", "sgd", 2}),
    [](const ::testing::TestParamInfo<Case> &info) {
      std::string name = testName(info.param.model) + "_" + info.param.optimizer;
      return info.param.microBatches == 1 ? name
                                          : name + "_" + std::to_string(info.param.microBatches);
    });

class TinyModelGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyModelGradients, EqualPyTorchsInF64) {
  auto expected = test::readNpz(referencePath(GetParam(), "grads_step1_f64.npz"));
  Training training({GetParam(), "sgd"}, Arith::F64);
  ASSERT_EQ(training.run(1).size(), 1u);
  ASSERT_EQ(training.gradients().size(), expected.size());
  double largest = 0;
  for (const auto &[name, array] : expected)
    for (double value : array.values)
      largest = std::max(largest, std::abs(value));
  for (const auto &[name, gradient] : training.gradients()) {
    ASSERT_TRUE(expected.count(name)) << name;
    EXPECT_EQ(gradient.shape(), expected[name].shape) << name;
    std::vector<double> values = gradient.toDoubles();
    double error = 0;
    for (size_t i = 0; i < values.size(); ++i)
      error = std::max(error, std::abs(values[i] - expected[name].values[i]));
    EXPECT_LT(error, f64Tolerance(GetParam()) * largest) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModelGradients,
                         ::testing::Values("tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet",
                                           "moe-8l", "gpt2-8l", "llama-8l", "unet-8l", "resnet-8b"),
                         [](const ::testing::TestParamInfo<std::string> &info) {
                           return testName(info.param);
                         });

/// Checks that one step of `a` and of `b` gives the same bits.
void expectSameStep(const Case &a, const Case &b, Arith arith) {
  Training left(a, arith), right(b, arith);
  ASSERT_EQ(left.run(1).size(), 1u);
  ASSERT_EQ(right.run(1).size(), 1u);
  ASSERT_EQ(left.values().size(), right.values().size());
  for (const auto &[name, value] : left.values())
    EXPECT_TRUE(bitwiseEqual(value, right.values().at(name))) << name;
}

/// AdamW over four micro-batches with the norm of all gradients clipped to 1.
TEST(TinyGpt2, ClipsGradientsAsPyTorch) {
  Case c{"tiny-gpt2", "adamw", 4};
  c.isClipped = true;
  auto exact = test::readCsv(referencePath(c.model, "losses_adamw_clip_accum_f64.csv"));
  ASSERT_EQ(exact["loss"].size(), size_t(kSteps));
  // Clipping must take effect.
  EXPECT_GT(*std::max_element(exact["grad_norm"].begin(), exact["grad_norm"].end()), 1);
  std::vector<double> losses = Training(c, Arith::F64).run(kSteps);
  ASSERT_EQ(losses.size(), size_t(kSteps));
  for (int i = 0; i < kSteps; ++i)
    EXPECT_NEAR(losses[i], exact["loss"][i], 5e-9 + f64Tolerance(c.model)) << "step " << i + 1;
}

// Without the resnet: its batch statistics are those of a micro-batch.
TEST(TinyModelResidues, MicroBatchesAddUpBitForBit) {
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "moe-8l"})
    expectSameStep({model, "adamw", 1}, {model, "adamw", 4}, Arith::Residue61);
}

TEST(TinyModelResidues, RecomputeChangesNoBit) {
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet", "moe-8l"})
    for (Arith arith : {Arith::Residue61, Arith::Native})
      expectSameStep({model, "adamw"}, {model, "adamw", 1, false, true}, arith);
}

/// The first loss is off by less than one rounding to bf16 (8 bits), since single roundings average
/// out. After that the runs drift apart, by less than ten roundings.
TEST(TinyModelNarrow, TrainsInBF16) {
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet", "moe-8l"}) {
    Case c{model, "adamw", 1, true};
    std::vector<double> exact = referenceLosses(c, "_f64"),
                        losses = Training(c, Arith::Native).run(kSteps);
    ASSERT_EQ(losses.size(), exact.size());
    for (int i = 0; i < kSteps; ++i)
      EXPECT_NEAR(losses[i], exact[i], (i == 0 ? 1 : 10) * exact[i] / 256)
          << model << " step " << i + 1;
  }
}

/// The running statistics are PyTorch's: momentum the other way round, an unbiased variance.
TEST(TinyResnet, KeepsTheRunningStatisticsOfPyTorch) {
  Training training({"tiny-resnet", "sgd"}, Arith::Native);
  ASSERT_EQ(training.run(kSteps).size(), size_t(kSteps));
  auto expected = test::readNpz(referencePath("tiny-resnet", "bn_running_after_20_sgd.npz"));
  ASSERT_FALSE(expected.empty());
  for (const auto &[name, array] : expected) {
    auto it = training.values().find(name);
    ASSERT_NE(it, training.values().end()) << name;
    std::vector<double> values = it->second.toDoubles();
    ASSERT_EQ(values.size(), array.values.size()) << name;
    // Both are f32 after 20 steps of rounding; another formula differs by more than 1e-3.
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], array.values[i], 1e-5 * (1 + std::abs(array.values[i]))) << name;
  }
}

} // namespace
} // namespace tbc
