//===- experts_test.cpp - Mixtures of experts in the forms of exporters -----===//
//
// Compares the files of experts/, written by PyTorch's exporters, with PyTorch's results, before
// and after raising. Data-dependent selections are refused.
//
//===----------------------------------------------------------------------===//

#include "ir/Experts.h"
#include "ir/Interpreter.h"
#include "passes/raise/RaiseComposites.h"
#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <fstream>
#include <sstream>

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

const std::string folder = TBC_SOURCE_DIR "/tests/frontend/experts/";

struct Form {
  std::string file;
  std::vector<double> expected;
};
void PrintTo(const Form &form, std::ostream *stream) { *stream << form.file; }

std::vector<Form> readForms() {
  std::vector<Form> forms;
  std::ifstream file(folder + "expected.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Form form;
    words >> form.file;
    for (double number; words >> number;)
      form.expected.push_back(number);
    forms.push_back(std::move(form));
  }
  return forms;
}

class ExpertForms : public ::testing::TestWithParam<Form> {};

std::vector<double> evaluate(const frontend::ImportedModel &model, mlir::func::FuncOp function) {
  const frontend::ModelValue &x = model.inputs.at(0);
  std::vector<double> elements;
  for (int64_t i = 0; i < kernels::numElements(x.shape); ++i)
    elements.push_back(0.05 * double((7 * i) % 41) - 1);
  llvm::SmallVector<kernels::Tensor> arguments{
      kernels::Tensor::fromDoubles({x.dtype, x.shape}, kernels::Arith::F64, elements)};
  for (const frontend::ParameterSource &source : model.parameters)
    arguments.push_back(*frontend::loadParameter(source, kernels::Arith::F64));
  auto results = evaluateFunction(function, arguments, kernels::Arith::F64);
  return mlir::succeeded(results) ? (*results)[0].toDoubles() : std::vector<double>{};
}

TEST_P(ExpertForms, AreRaisedAndComputeWhatPyTorchDoes) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  frontend::ImportOptions options;
  options.batch = 3;
  options.seq = 7;
  auto model = frontend::importOnnx(context, folder + GetParam().file, options);
  ASSERT_TRUE(bool(model)) << model.error().message;
  auto function = *model->module->getOps<mlir::func::FuncOp>().begin();
  std::vector<double> before = evaluate(*model, function);
  ASSERT_TRUE(mlir::succeeded(raiseComposites(function)));
  std::vector<double> after = evaluate(*model, function);
  const std::vector<double> &expected = GetParam().expected;
  ASSERT_EQ(before.size(), expected.size());
  ASSERT_EQ(after.size(), expected.size());
  // PyTorch's are in f32; a model in bf16 also rounds the numbers of gelu, which raising undoes.
  bool isBF16 = GetParam().file.rfind("bf16", 0) == 0;
  double tolerance = isBF16 ? 1e-3 : 1e-5;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(before[i], expected[i], tolerance) << i;
    ASSERT_NEAR(after[i], before[i], isBF16 ? tolerance : 1e-7) << i; // f32 rounds gelu
  }
  auto routed = llvm::to_vector(function.getOps<RoutedExpertsOp>());
  ASSERT_EQ(routed.size(), 1u);
  EXPECT_EQ(routed[0].getTop(), 2);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertForms, ::testing::ValuesIn(readForms()),
                         [](const ::testing::TestParamInfo<Form> &info) {
                           std::string name = info.param.file.substr(0, info.param.file.size() - 5);
                           for (char &c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

/// Selects the tokens x [batch, 4] with a positive sum: `index` [rows, 1].
class Selected : public ::testing::Test {
protected:
  Selected() : model(18) {
    model.input("x", {"batch", "4"});
    model.floats("zero", {}, {0});
    model.ints("last", {1}, {1});
    ModelBuilder::attr(model.node("ReduceSum", {"x", "last"}, {"sum"}), "keepdims", 0);
    model.node("Greater", {"sum", "zero"}, {"mask"});
    model.node("NonZero", {"mask"}, {"found"}, "select");
    model.node("Transpose", {"found"}, {"index"});
    model.output("y");
  }
  std::vector<double> run(const std::vector<double> &x) {
    ModelRunner runner;
    runner.inputs["x"] = x;
    return runner.run(model);
  }
  ModelBuilder model;
};

TEST_F(Selected, RowsAreAddedToThoseOfTheirTokens) {
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("Mul", {"rows", "rows"}, {"squares"});
  onnx::NodeProto &scatter = model.node("ScatterND", {"x", "index", "squares"}, {"y"});
  ModelBuilder::attr(scatter, "reduction", std::string("add"));
  EXPECT_EQ(run({1, 2, 3, 4, -1, -2, -3, -4}), (std::vector<double>{2, 6, 12, 20, -1, -2, -3, -4}));
}

TEST_F(Selected, RowsReplaceThoseOfTheirTokens) {
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("Neg", {"rows"}, {"negative"});
  model.node("ScatterND", {"x", "index", "negative"}, {"y"});
  EXPECT_EQ(run({1, 2, 3, 4, -1, -2, -3, -4}),
            (std::vector<double>{-1, -2, -3, -4, -1, -2, -3, -4}));
}

TEST_F(Selected, WorkAcrossRowsIsRefused) {
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("ReduceMean", {"rows"}, {"y"}, "mean");
  std::string error = importError(model.bytes());
  EXPECT_THAT(error, HasSubstr("node 'mean' (ReduceMean)"));
  EXPECT_THAT(error, HasSubstr("rows that node 'select' selects by data"));
  EXPECT_THAT(error, HasSubstr("Export the experts in another form"));
}

TEST_F(Selected, TheNumberOfRowsIsRefusedAsNumber) {
  model.node("Shape", {"index"}, {"shape"});
  ModelBuilder::attr(model.node("Cast", {"shape"}, {"y"}, "count"), "to", 1);
  EXPECT_THAT(importError(model.bytes()), HasSubstr("node 'count' (Cast)"));
}

/// A loop over the rows that an exporter has unrolled, as over the experts that got tokens: y is
/// the sum over the 3 chosen of [1, 5, 2] of weight * number.
ModelBuilder unrolledLoop(int64_t parts) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3"});
  b.output("y");
  b.floats("zero", {}, {0});
  b.floats("weights", {3}, {1, 5, 2});
  b.ints("first", {1}, {0});
  ModelBuilder::attr(b.node("ReduceSum", {"x", "first"}, {"counts"}), "keepdims", int64_t(0));
  b.node("Greater", {"counts", "zero"}, {"hit"});
  b.node("NonZero", {"hit"}, {"found"}, "select");
  b.node("Transpose", {"found"}, {"rows"});
  b.ints("sizes", {parts}, std::vector<int64_t>(size_t(parts), 1));
  std::vector<std::string> names, terms;
  for (int64_t i = 0; i < parts; ++i)
    names.push_back("row" + std::to_string(i));
  b.node("Split", {"rows", "sizes"}, names, "unroll");
  b.node("Transpose", {"x"}, {"columns"});
  for (int64_t i = 0; i < parts; ++i) {
    std::string at = std::to_string(i);
    b.ints("number" + at, {}, {i});
    b.node("Squeeze", {"row" + at, "first"}, {"place" + at});
    b.node("Gather", {"columns", "place" + at}, {"column" + at}); // [1, batch]
    b.node("Gather", {"weights", "number" + at}, {"weight" + at});
    b.node("Mul", {"column" + at, "weight" + at}, {"term" + at});
    terms.push_back("term" + at);
  }
  b.node("Sum", terms, {"total"});
  b.node("Transpose", {"total"}, {"y"});
  return b;
}

TEST(Unrolled, ALoopOverAllSelectedRowsIsOneOverAllRows) {
  ModelRunner runner;
  runner.inputs["x"] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(runner.run(unrolledLoop(3)), (std::vector<double>{17, 41}));
}

TEST(Unrolled, ALoopOverSomeRowsIsRefused) {
  EXPECT_THAT(importError(unrolledLoop(2).bytes()),
              AllOf(HasSubstr("node 'unroll' (Split): has one part for each of the 2 rows of 3"),
                    HasSubstr("'select'"), HasSubstr("an example that selects all")));
}

TEST_F(Selected, RowsAsOutputAreRefused) {
  model.node("GatherND", {"x", "index"}, {"y"});
  EXPECT_THAT(importError(model.bytes()),
              HasSubstr("the number of rows of 'y' depends on data: node 'select' selects them"));
}

TEST_F(Selected, RowsOfTwoSelectionsAreRefused) {
  model.node("Less", {"sum", "zero"}, {"mask2"});
  model.node("NonZero", {"mask2"}, {"found2"}, "other");
  model.node("Transpose", {"found2"}, {"index2"});
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("GatherND", {"x", "index2"}, {"rows2"});
  model.node("Add", {"rows", "rows2"}, {"y"}, "join");
  std::string error = importError(model.bytes());
  EXPECT_THAT(error, HasSubstr("node 'join'"));
  EXPECT_THAT(error, HasSubstr("'select'"));
  EXPECT_THAT(error, HasSubstr("'other'"));
}

TEST_F(Selected, RowsCombinedWithRowsOfAllTokensAreRefused) {
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("Add", {"rows", "x"}, {"y"}, "join");
  EXPECT_THAT(importError(model.bytes()), HasSubstr("combines other rows with"));
}

TEST_F(Selected, RowsMultipliedAcrossAreRefused) {
  model.node("GatherND", {"x", "index"}, {"rows"});
  model.node("Transpose", {"rows"}, {"columns"});
  model.node("MatMul", {"columns", "rows"}, {"y"}, "gram");
  EXPECT_THAT(importError(model.bytes()), HasSubstr("multiplies across"));
}

} // namespace
