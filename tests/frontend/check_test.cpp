//===- check_test.cpp - The output of tbc check ------------------------------===//

#include "frontend/onnx/NodeContext.h"
#include "tests/frontend/ModelBuilder.h"
#include "tools/tbc/CheckCommand.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

using namespace tbc;

namespace {

cli::CheckReport check(const std::string &name, int64_t seq = -1) {
  frontend::ImportOptions options;
  options.seq = seq;
  auto report = cli::checkModel(TBC_SOURCE_DIR "/models/" + name + ".onnx", options);
  if (!report)
    throw std::runtime_error(report.error().message);
  return *report;
}

TEST(Check, CompositesAreFound) {
  cli::CheckReport gpt2 = check("gpt2");
  EXPECT_EQ(gpt2.composites["attention"], 12);
  EXPECT_EQ(gpt2.composites["gelu"], 12);
  EXPECT_EQ(gpt2.composites["layer_norm"], 25);
  EXPECT_FALSE(gpt2.weightsPresent);
  cli::CheckReport moe = check("moe-8l");
  EXPECT_EQ(moe.composites["routed_experts"], 8);
  cli::CheckReport llama = check("tiny-llama");
  EXPECT_EQ(llama.composites["attention"], 2);
  EXPECT_EQ(llama.composites["rms_norm"], 5);
  EXPECT_EQ(llama.composites["rotary"], 4);
  EXPECT_EQ(llama.composites["swiglu"], 2);
}

TEST(Check, FactorsOfFusedProjections) {
  cli::CheckReport report = check("gpt2");
  auto weight =
      std::find_if(report.parameters.begin(), report.parameters.end(), [](const auto &tensor) {
        return tensor.name == "transformer.h.0.attn.c_attn.weight";
      });
  ASSERT_NE(weight, report.parameters.end());
  EXPECT_EQ(weight->factors, "768 x (12*64 + 12*64 + 12*64)");
  EXPECT_EQ(report.inputs[0].factors, "b x 1024");
}

TEST(Check, JsonHasTheKeysThatOthersReadAndParses) {
  auto json = nlohmann::json::parse(cli::toJson(check("tiny-resnet")));
  EXPECT_EQ(json["format"], "tbc-check");
  EXPECT_EQ(json["parameters"], 78042);
  EXPECT_EQ(json["state_elements"], 672);
  EXPECT_EQ(json["state_tensors"].size(), 18u);
}

TEST(Check, ReportNamesWhatMatters) {
  std::ostringstream out;
  cli::printReport(check("gpt2"), out);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("parameters 124,439,808 in 148 tensors"));
  EXPECT_THAT(out.str(), ::testing::HasSubstr("warning: input 'attention_mask' is held at ones"));
}

/// Twelve blocks take as many lines as one.
TEST(Check, RepeatedTensorsAreFolded) {
  std::ostringstream out;
  cli::printReport(check("gpt2"), out);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("  transformer.h.*.ln_1.weight x 12  f32  768\n"));
  EXPECT_THAT(out.str(), ::testing::Not(::testing::HasSubstr("transformer.h.3.")));
  EXPECT_THAT(out.str(), ::testing::HasSubstr("GFLOP per sample, forward"));
  std::string text = out.str();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 40);
}

TEST(Check, SaysWhatIsFrozen) {
  driver::StepOptions options;
  options.modelPath = TBC_SOURCE_DIR "/models/gpt2.onnx";
  options.freeze = {"lm_head*"};
  auto report = cli::checkModel(options);
  ASSERT_TRUE(bool(report)) << report.error().message;
  std::ostringstream out;
  cli::printReport(*report, out);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("  frozen   38,597,376 in 1 tensor\n"));
  EXPECT_THAT(out.str(), ::testing::HasSubstr("  trained  85,842,432 in 147 tensors\n"));
  EXPECT_TRUE(nlohmann::json::parse(cli::toJson(*report))["parameter_tensors"].back()["frozen"]);
}

/// Names missing in the model are errors of the command line, with a suggestion.
TEST(Check, WrongNamesAreUsageErrors) {
  auto errorOf = [](const driver::StepOptions &options) {
    auto report = cli::checkModel(options);
    if (report)
      return std::string();
    EXPECT_EQ(int(report.error().code), int(ErrorCode::Usage));
    return report.error().message;
  };
  driver::StepOptions options;
  options.modelPath = TBC_SOURCE_DIR "/models/gpt2.onnx";
  driver::StepOptions changed = options;
  changed.freeze = {"lm_hed*"};
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("did you mean 'lm_head.weight'?"));
  changed = options;
  changed.loss = "focal";
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("expected cross-entropy, mse, or an output"));
  changed.loss = "cross-entrpy";
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("did you mean 'cross-entropy'?"));
  changed = options;
  changed.import.dims["sequence_lenght"] = 3;
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("the model has no such dim; it has"));
  changed = options;
  changed.import.fix["atention_mask"] = "ones";
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("did you mean 'attention_mask'?"));
  changed = options;
  changed.import.constants = {"transformer.wpe.weigth"};
  EXPECT_THAT(errorOf(changed), ::testing::HasSubstr("did you mean 'transformer.wpe.weight'?"));
}

/// Checks a model of x[batch, 4] times a weight, with one more node before the output.
Result<cli::CheckReport> checkWith(const std::string &last, const std::string &loss) {
  test::ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  b.floats("weight", {4, 4}, std::vector<float>(16, 1));
  b.node("MatMul", {"x", "weight"}, {"h"});
  onnx::NodeProto &node = b.node(last, {"h"}, {"y"}, "the last node");
  if (last == "ReduceMean")
    test::ModelBuilder::attr(node, "keepdims", int64_t(0));
  test::TemporaryFolder folder;
  driver::StepOptions options;
  options.modelPath = folder.write("model.onnx", b.bytes());
  options.loss = loss;
  return cli::checkModel(options);
}

/// A check builds the training step as a plan does.
TEST(Check, ModelsWithoutADerivativeAreRefused) {
  EXPECT_TRUE(bool(checkWith("Tanh", "cross-entropy")));
  auto report = checkWith("Floor", "cross-entropy");
  ASSERT_FALSE(bool(report));
  EXPECT_EQ(int(report.error().code), int(ErrorCode::ModelRejected));
  EXPECT_THAT(report.error().message, ::testing::HasSubstr("whose derivative is 0 everywhere"));
}

/// Another --loss may fit, so the report is given.
TEST(Check, ALossThatDoesNotFitIsAWarning) {
  auto report = checkWith("Transpose", "cross-entropy");
  ASSERT_TRUE(bool(report)) << report.error().message;
  EXPECT_THAT(report->warnings,
              ::testing::Contains(::testing::HasSubstr("--loss cross-entropy does not fit")));
}

TEST(Check, AnOutputThatIsTheLossIsNamed) {
  auto report = checkWith("ReduceMean", "cross-entropy");
  ASSERT_TRUE(bool(report)) << report.error().message;
  EXPECT_THAT(report->warnings,
              ::testing::Contains(::testing::AllOf(
                  ::testing::HasSubstr("no derivative was looked at"),
                  ::testing::HasSubstr("the model computes its loss itself; train on it with "
                                       "--loss y"),
                  ::testing::Not(::testing::HasSubstr("[TBC")))));
  EXPECT_TRUE(bool(checkWith("ReduceMean", "y")));
}

TEST(Check, RepeatedBlocksAreCounted) {
  cli::CheckReport gpt2 = check("gpt2");
  ASSERT_EQ(gpt2.blocks.size(), 1u);
  EXPECT_EQ(gpt2.blocks[0].name, "transformer.h");
  EXPECT_EQ(gpt2.blocks[0].count, 12);
  EXPECT_EQ(gpt2.blocks[0].parameters, 7087872);
  auto tensor = [](const std::string &name, const std::string &factors) {
    cli::CheckedTensor result;
    result.name = result.displayName = name;
    result.factors = factors;
    result.shape = {2};
    return result;
  };
  // The third differs; a module by itself is no block.
  auto blocks = cli::findRepeatedBlocks(
      {tensor("a.0.w", "2"), tensor("a.1.w", "2"), tensor("a.2.w", "3"), tensor("b.0.w", "2")});
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].count, 2);
}

/// After binding no op computes a shape: integers are positions, tokens and values computed from
/// them.
TEST(Check, NoShapeArithmeticIsLeft) {
  for (const char *name : {"gpt2", "gpt2-8l", "llama-8l", "tiny-gpt2", "tiny-llama", "tiny-mlp",
                           "tiny-resnet", "resnet-8b", "unet-8l"}) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    auto model =
        frontend::importOnnx(context, TBC_SOURCE_DIR "/models/" + std::string(name) + ".onnx", {});
    ASSERT_TRUE(bool(model)) << model.error().message;
    model->module->walk([&](mlir::Operation *op) {
      for (mlir::Value result : op->getResults()) {
        auto type = llvm::dyn_cast<mlir::RankedTensorType>(result.getType());
        if (type && type.getElementType().isInteger(64)) {
          EXPECT_TRUE(op->getName().stripDialect() == "iota" ||
                      op->getName().stripDialect() == "broadcast")
              << name << ": " << op->getName().getStringRef().str();
        }
      }
    });
  }
}

/// docs/onnx-ops.md lists the importer's tables.
TEST(Check, DocumentedOpsAreTheImportedOnes) {
  std::set<std::string> imported, documented;
  for (llvm::ArrayRef<frontend::OpImporter> family : frontend::opFamilies())
    for (const frontend::OpImporter &op : family)
      imported.insert(op.type);
  std::ifstream file(TBC_SOURCE_DIR "/docs/onnx-ops.md");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) != 0)
      continue;
    std::istringstream words(line.substr(0, line.find('|', 1)));
    for (std::string word; words >> word;)
      if (word.size() > 2 && word.front() == '`')
        documented.insert(word.substr(1, word.size() - 2));
  }
  EXPECT_EQ(documented, imported);
}

} // namespace
