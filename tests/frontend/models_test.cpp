//===- models_test.cpp - The models of the repository ----------------------===//

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/Import.h"
#include "ir/Interpreter.h"
#include "ir/Rebatch.h"
#include "ir/Roles.h"
#include "tests/support/Npz.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using frontend::ImportedModel;
using frontend::ImportOptions;
using kernels::Arith;

namespace {

const std::string models = TBC_SOURCE_DIR "/models/";

class Models : public ::testing::Test {
protected:
  ImportedModel import(const std::string &name, const ImportOptions &options = {}) {
    auto model = frontend::importOnnx(context, models + name + ".onnx", options);
    if (!model)
      throw std::runtime_error(model.error().message);
    return std::move(*model);
  }
  static mlir::func::FuncOp functionOf(ImportedModel &model) {
    return *model.module->getOps<mlir::func::FuncOp>().begin();
  }
  static std::string print(ImportedModel &model) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    model.module->print(stream);
    return text;
  }
  static int64_t countParameters(const ImportedModel &model) {
    int64_t count = 0;
    for (const frontend::ParameterSource &source : model.parameters)
      count += source.isState ? 0 : kernels::numElements(source.shape);
    return count;
  }
  static unsigned countOps(ImportedModel &model, llvm::StringRef name) {
    unsigned count = 0;
    model.module->walk([&](mlir::Operation *op) { count += op->getName().getStringRef() == name; });
    return count;
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
};

TEST_F(Models, ParameterCounts) {
  EXPECT_EQ(countParameters(import("gpt2")), 124439808);
  EXPECT_EQ(countParameters(import("tiny-mlp")), 6922);
  EXPECT_EQ(countParameters(import("tiny-gpt2")), 120576);
  EXPECT_EQ(countParameters(import("tiny-llama")), 106816);
  EXPECT_EQ(countParameters(import("tiny-resnet")), 78042);
}

/// The largest difference between the model's outputs and PyTorch's on the first reference input.
double logitsError(mlir::func::FuncOp function, const ImportedModel &model, const std::string &name,
                   Arith arith) {
  auto inputs = test::readNpz(models + "reference/" + name + "/inputs.npz");
  auto logits = test::readNpz(models + "reference/" + name + "/logits_step1.npz");
  const test::NpyArray &input = inputs.at("input_1");
  llvm::SmallVector<kernels::Tensor> arguments;
  kernels::TensorType type{model.inputs[0].dtype, input.shape};
  arguments.push_back(input.isFloat() ? kernels::Tensor::fromDoubles(type, arith, input.values)
                                      : kernels::Tensor::fromInts(type, input.ints));
  for (const frontend::ParameterSource &source : model.parameters) {
    auto tensor = frontend::loadParameter(source, arith);
    if (!tensor)
      throw std::runtime_error(tensor.error().message);
    arguments.push_back(*tensor);
  }
  auto results = evaluateFunction(function, arguments, arith);
  if (mlir::failed(results))
    throw std::runtime_error("evaluation failed");
  std::vector<double> found = (*results)[0].toDoubles();
  const std::vector<double> &expected = logits.begin()->second.values;
  EXPECT_EQ(found.size(), expected.size());
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    error = std::max(error, std::fabs(found[i] - expected[i]));
  return error;
}

class Logits : public Models, public ::testing::WithParamInterface<const char *> {};

TEST_P(Logits, AreThoseOfPyTorch) {
  ImportOptions options;
  options.batch = 8;
  options.seq = 32;
  ImportedModel model = import(GetParam(), options);
  EXPECT_LT(logitsError(functionOf(model), model, GetParam(), Arith::Native), 1e-5);
  EXPECT_LT(logitsError(functionOf(model), model, GetParam(), Arith::F64), 1e-5);
}
INSTANTIATE_TEST_SUITE_P(Tiny, Logits,
                         ::testing::Values("tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Rebatch : public Models, public ::testing::WithParamInterface<const char *> {};

/// Two independent mechanisms: the importer's marker, and factor analysis.
TEST_P(Rebatch, ImportAt2RebatchedTo6IsImportAt6) {
  ImportOptions options;
  options.batch = 2;
  ImportedModel two = import(GetParam(), options);
  options.batch = 6;
  ImportedModel six = import(GetParam(), options);
  EXPECT_NE(print(two), print(six));
  ASSERT_TRUE(mlir::succeeded(tbc::rebatch(functionOf(two), 6)));
  EXPECT_EQ(print(two), print(six));
}
INSTANTIATE_TEST_SUITE_P(All, Rebatch,
                         ::testing::Values("tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet",
                                           "gpt2"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(Models, ImportIsDeterministic) {
  ImportedModel first = import("tiny-llama"), second = import("tiny-llama");
  EXPECT_EQ(print(first), print(second));
  EXPECT_EQ(first.hash, second.hash);
  EXPECT_NE(first.hash, import("tiny-gpt2").hash);
}

TEST_F(Models, MasksAreIotasNotTables) {
  ImportedModel model = import("gpt2");
  int64_t largest = 0;
  model.module->walk([&](mlir::Operation *op) {
    if (op->getName().getStringRef() == "tbc.constant")
      largest = std::max(
          largest, llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getNumElements());
  });
  EXPECT_EQ(largest, 1);
  EXPECT_EQ(countOps(model, "tbc.compare"), 1u);
  EXPECT_EQ(countOps(model, "tbc.gather"), 1u) << "the position table is sliced, not gathered";
}

TEST_F(Models, AttentionMaskIsHeldAtOnesUnlessKept) {
  ImportedModel held = import("gpt2");
  ASSERT_EQ(held.inputs.size(), 1u);
  EXPECT_EQ(held.inputs[0].name, "input_ids");
  EXPECT_EQ(held.seq, 1024);

  ImportOptions options;
  options.fix["attention_mask"] = "input";
  ImportedModel kept = import("gpt2", options);
  ASSERT_EQ(kept.inputs.size(), 2u);
  EXPECT_EQ(kept.inputs[1].name, "attention_mask");
  for (mlir::BlockArgument argument : functionOf(kept).getArguments().take_front(2))
    EXPECT_FALSE(argument.use_empty());
}

TEST_F(Models, RunningStatisticsAreStateWithNewValues) {
  ImportedModel model = import("tiny-resnet");
  mlir::func::FuncOp function = functionOf(model);
  unsigned states = 0, newStates = 0;
  for (const frontend::ParameterSource &source : model.parameters)
    states += source.isState;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    newStates += resultRole(function, i) == TensorRole::State;
  EXPECT_EQ(states, 18u);
  EXPECT_EQ(newStates, 18u);
  EXPECT_EQ(function.getResultAttrOfType<mlir::StringAttr>(1, "tbc.name").getValue(),
            "bn1.running_mean");
}

TEST_F(Models, GeneratedNamesShowTheirModule) {
  ImportedModel model = import("tiny-llama");
  std::map<std::string, std::string> display;
  for (const frontend::ParameterSource &source : model.parameters)
    display[source.displayName] = source.name;
  EXPECT_EQ(display.count("model.layers.0.self_attn.q_proj.weight"), 1u);
  EXPECT_EQ(display["model.layers.0.self_attn.q_proj.weight"].rfind("val_", 0), 0u);
  EXPECT_EQ(display["model.norm.weight"], "model.norm.weight");
}

TEST_F(Models, AbsentWeightsAreSaidSo) {
  ImportedModel model = import("gpt2");
  ASSERT_FALSE(model.parameters[0].present);
  auto tensor = frontend::loadParameter(model.parameters[0], Arith::Native);
  ASSERT_FALSE(bool(tensor));
  EXPECT_NE(tensor.error().message.find("gpt2.onnx.data is not there"), std::string::npos);
}

} // namespace
