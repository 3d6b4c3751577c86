//===- raise_test.cpp - Raising keeps the results of a function ------------===//
//
// Compares every example of the text tests beside this file, and the models, before and after, in
// f64.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Import.h"
#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "passes/raise/RaiseComposites.h"
#include "tests/ir/ParsedModule.h"

#include "ir/Activation.h"
#include "ir/Attention.h"
#include "ir/Experts.h"
#include "ir/Normalization.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace mlir;
using namespace tbc;
using kernels::Arith;
using kernels::Tensor;

namespace {

std::string readFile(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(std::string(TBC_SOURCE_DIR) + "/" + path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// Numbers in [-0.5, 0.5] for floats, and 0 to `classes` - 1 for integers.
SmallVector<Tensor> randomInputs(func::FuncOp function, int64_t classes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> numbers(-0.5, 0.5);
  SmallVector<Tensor> inputs;
  for (Type type : function.getArgumentTypes()) {
    kernels::TensorType kernelType = *toKernelType(type);
    size_t count = kernels::numElements(kernelType.shape);
    if (kernels::isFloat(kernelType.dtype)) {
      std::vector<double> values(count);
      for (double &value : values)
        value = numbers(random);
      inputs.push_back(Tensor::fromDoubles(kernelType, Arith::F64, values));
    } else {
      std::vector<int64_t> values(count);
      for (int64_t &value : values)
        value = int64_t(random() % classes);
      inputs.push_back(Tensor::fromInts(kernelType, values));
    }
  }
  return inputs;
}

void expectClose(ArrayRef<Tensor> before, ArrayRef<Tensor> after, double tolerance) {
  ASSERT_EQ(before.size(), after.size());
  for (auto [expected, actual] : llvm::zip_equal(before, after)) {
    std::vector<double> x = expected.toDoubles(), y = actual.toDoubles();
    double worst = 0, largest = 1;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_FALSE(std::isnan(x[i]) || std::isnan(y[i]));
      worst = std::max(worst, std::abs(x[i] - y[i]));
      largest = std::max(largest, std::abs(x[i]));
    }
    EXPECT_LE(worst, tolerance * largest);
  }
}

/// Raises `function` and checks that its results stay equal for `numInputs` random inputs.
void expectSameAfterRaising(func::FuncOp function, double tolerance, int64_t classes = 2,
                            unsigned numInputs = 1) {
  auto evaluate = [&](unsigned seed) {
    auto results = evaluateFunction(function, randomInputs(function, classes, seed), Arith::F64);
    EXPECT_TRUE(succeeded(results));
    return succeeded(results) ? *results : SmallVector<Tensor>();
  };
  std::vector<SmallVector<Tensor>> before;
  for (unsigned seed = 0; seed < numInputs; ++seed)
    before.push_back(evaluate(seed));
  ASSERT_TRUE(succeeded(raiseComposites(function)));
  ASSERT_TRUE(succeeded(verify(function)));
  for (unsigned seed = 0; seed < numInputs; ++seed)
    expectClose(before[seed], evaluate(seed), tolerance);
}

template <typename Op> int64_t count(func::FuncOp function) {
  return llvm::range_size(function.getOps<Op>());
}

class Example : public testing::TestWithParam<const char *> {};

TEST_P(Example, MeansTheSameAfterwards) {
  std::string text = readFile("tests/passes/raise/" + std::string(GetParam()) + ".mlir");
  ASSERT_FALSE(text.empty());
  for (llvm::StringRef part : llvm::split(text, "// -----")) {
    ParsedModule module(part.str()); // the parser wants a terminated string
    ASSERT_TRUE(module) << module.messages;
    for (auto function : module->getOps<func::FuncOp>()) {
      SCOPED_TRACE(function.getName().str());
      // Constants in these functions are rounded to f32 in another way than those of the composite.
      bool isRounded = function.getName().ends_with("_rounded");
      // Masks that are inputs hide whole rows in some of the 16 inputs.
      expectSameAfterRaising(function, isRounded ? 1e-6 : 1e-12, 2, 16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Example,
                         testing::Values("activations", "attention", "attention_masks",
                                         "cross_entropy", "experts", "hidden_rows",
                                         "kept_attention", "kept_experts", "near_masks", "norms",
                                         "rotary"),
                         [](const testing::TestParamInfo<const char *> &info) {
                           return std::string(info.param);
                         });

/// The number of composites of a model.
struct ModelCase {
  const char *name;
  int64_t attentions, layerNorms, rmsNorms, gelus, swiglus, rotaries, experts, softmaxes;
  /// The input beside input_ids that determines the mask.
  const char *maskInput = nullptr;
  bool isCausal = true, keyMask = false, isPacked = false;
  /// The dropout ratio of the attention's weights.
  double dropout = 0;
};
void PrintTo(const ModelCase &model, std::ostream *stream) { *stream << model.name; }

class Model : public testing::TestWithParam<ModelCase> {
protected:
  static constexpr int64_t batch = 2, seq = 13;

  void SetUp() override {
    context.loadDialect<TbcDialect, func::FuncDialect>();
    frontend::ImportOptions options;
    options.batch = batch;
    options.seq = seq;
    if (GetParam().maskInput)
      options.fix[GetParam().maskInput] = "input";
    auto result = frontend::importOnnx(
        context, std::string(TBC_SOURCE_DIR) + "/models/" + GetParam().name + ".onnx", options);
    ASSERT_TRUE(bool(result)) << result.error().message;
    model = std::move(*result);
    function = model.module->lookupSymbol<func::FuncOp>("model");
  }

  MLIRContext context;
  frontend::ImportedModel model;
  func::FuncOp function;
};

TEST_P(Model, IsRaisedWhole) {
  ASSERT_TRUE(succeeded(raiseComposites(function)));
  ASSERT_TRUE(succeeded(verify(*model.module)));
  EXPECT_EQ(count<AttentionOp>(function), GetParam().attentions);
  EXPECT_EQ(count<LayerNormOp>(function), GetParam().layerNorms);
  EXPECT_EQ(count<RmsNormOp>(function), GetParam().rmsNorms);
  EXPECT_EQ(count<GeluOp>(function), GetParam().gelus);
  EXPECT_EQ(count<SwigluOp>(function), GetParam().swiglus);
  EXPECT_EQ(count<SiluOp>(function), 0);
  EXPECT_EQ(count<RotaryOp>(function), GetParam().rotaries);
  EXPECT_EQ(count<RoutedExpertsOp>(function), GetParam().experts);
  EXPECT_EQ(count<SoftmaxOp>(function), GetParam().softmaxes);
  for (auto attention : function.getOps<AttentionOp>()) {
    EXPECT_EQ(attention.getCausal(), GetParam().isCausal);
    EXPECT_EQ(attention.getKeyMask(), GetParam().keyMask);
    EXPECT_EQ(attention.getSegments(), GetParam().isPacked);
    EXPECT_EQ(attention.getOrdered(), GetParam().isPacked);
    EXPECT_FLOAT_EQ(attention.getDropout().convertToDouble(), GetParam().dropout);
  }
  // No tensor of size s x s is left.
  for (Operation &op : function.getBody().front())
    for (Type type : op.getResultTypes()) {
      auto shape = cast<RankedTensorType>(type).getShape();
      EXPECT_LE(llvm::count(shape, seq), 1) << op.getName().getStringRef().str();
    }
}

TEST_P(Model, HasUniqueIds) {
  ASSERT_TRUE(succeeded(raiseComposites(function)));
  llvm::StringMap<unsigned> seen;
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto id = op.getAttrOfType<StringAttr>(kIdAttr);
    ASSERT_TRUE(id) << op.getName().getStringRef().str();
    EXPECT_EQ(seen[id.getValue()]++, 0u) << id.getValue().str();
  }
}

/// Models with random weights; gpt2's would take a laptop's whole memory in f64.
class SmallModel : public Model {};

TEST_P(SmallModel, MeansTheSameAfterwards) {
  // The attention scale of a head of 6 or 8, and root 2, are rounded to f32 in the file.
  bool isPower = llvm::StringRef(GetParam().name).starts_with("tiny");
  double tolerance = isPower ? 1e-12 : 1e-7;
  expectSameAfterRaising(function, tolerance, 64);
}

const ModelCase tinyGpt2{"tiny-gpt2", 2, 5, 0, 2, 0, 0, 0, 0},
    tinyLlama{"tiny-llama", 2, 0, 5, 0, 2, 4, 0, 0}, gpt2{"gpt2", 12, 25, 0, 12, 0, 0, 0, 0},
    moe{"moe-8l", 8, 17, 0, 0, 0, 0, 8, 8},
    bert{"masked-bert", 2, 6, 0, 3, 0, 0, 0, 0, "attention_mask", false, true},
    padded{"gpt2", 12, 25, 0, 12, 0, 0, 0, 0, "attention_mask", true, true},
    packed{"packed-llama", 2, 0, 5, 0, 2, 4, 0, 0, "position_ids", false, false, true},
    trainedGpt2{"gpt2-8l", 8, 17, 0, 8, 0, 0, 0, 0, nullptr, true, false, false, 0.1},
    trainedLlama{"llama-8l", 8, 0, 17, 0, 8, 16, 0, 0, nullptr, true, false, false, 0.1};

std::string nameOf(const testing::TestParamInfo<ModelCase> &info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  if (info.param.maskInput)
    name += std::string("_") + info.param.maskInput;
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Model,
                         testing::Values(tinyGpt2, tinyLlama, gpt2, moe, bert, padded, packed,
                                         trainedGpt2, trainedLlama),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(All, SmallModel, testing::Values(tinyGpt2, tinyLlama, moe, bert, packed),
                         nameOf);

} // namespace
