//===- loss_scale_test.cpp - Loss scaling on many ranks -------------------===//
//
// An overflow on one rank counts for all: every rank skips the step and lowers the scale. The flag
// needs no collective of its own.
//
//===----------------------------------------------------------------------===//

#include "passes/optimizer/LossScale.h"
#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/StepSettings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;
using reshard::CollectiveKind;

namespace {

struct Case {
  const char *model;
  test::PlanRequest request;
  const char *optimizer = "adamw";
  std::map<std::string, double> settings = {};
  const char *precision = "f16";
};

/// For the test name in CTest.
void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.model << " " << testCase.request.mesh << " " << testCase.request.strategy;
}

test::Model load(const Case &testCase) {
  return test::loadModel(testCase.model, testCase.optimizer, testCase.settings, "",
                         testCase.precision);
}

class LossScalePlans : public testing::TestWithParam<Case> {};

TEST_P(LossScalePlans, ParallelEqualsSerial) {
  test::Model model = load(GetParam());
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  driver::VerifyOptions options;
  options.steps = 3;
  auto report = driver::verifyPlan(*model.step, *plan, options);
  ASSERT_TRUE(report) << report.error().message;
  for (auto *lines : {&report->residues, &report->overflow, &report->floats}) {
    EXPECT_FALSE(lines->empty());
    for (const driver::Comparison &line : *lines)
      EXPECT_TRUE(line.equal) << line.name << ": error " << line.error << ", bound " << line.bound;
  }
}

/// Returns a parameter that only this stage has.
std::string parameterOf(const driver::CompiledPlan &compiled, int stage) {
  const reshard::Graph &graph = compiled.planned.graph;
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    if (graph.parameters[p].gradient >= 0 &&
        compiled.derivation.parameterStages[p] == std::vector<int>{stage})
      return graph.values[graph.parameters[p].value].name;
  return "";
}

/// The overflow is planted in the first step. Every rank skips that step, but not the second.
TEST_P(LossScalePlans, AnOverflowOnOneRankIsOneForAll) {
  test::Model model = load(GetParam());
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  for (int stage : {0, compiled->program.numStages() - 1}) {
    std::string parameter = parameterOf(*compiled, stage);
    ASSERT_FALSE(parameter.empty());
    SCOPED_TRACE(parameter);
    for (int steps : {1, 2}) {
      auto data = driver::makeRunData(*model.step, *plan, steps, kernels::Arith::Residue61, 3);
      ASSERT_TRUE(data) << data.error().message;
      auto planted = driver::plantOverflow(*model.step, *plan, *data, 3, parameter);
      ASSERT_TRUE(planted) << planted.error().message;
      EXPECT_EQ(planted->parameter, parameter);
      auto serial = driver::runSerial(*model.step, *plan, *data, planted->context);
      auto parallel = driver::runParallel(compiled->program, *data, planted->context);
      ASSERT_TRUE(serial) << serial.error().message;
      ASSERT_TRUE(parallel) << parallel.error().message;
      for (const driver::Comparison &line : driver::compareExactly(*serial, *parallel))
        EXPECT_TRUE(line.equal) << line.name;
      for (const auto &[name, value] : data->initial) {
        if (name.find("running") != std::string::npos)
          continue;
        const kernels::Tensor &now = parallel->at(name);
        auto before = value.data<kernels::Residue>(), after = now.data<kernels::Residue>();
        EXPECT_EQ(before == after, steps == 1) << name;
      }
      if (driver::lossScale(model.step->options).isDynamic()) {
        EXPECT_EQ(parallel->at(kLossScaleName.str()).data<kernels::Residue>()[0].v, 32768u);
        EXPECT_EQ(parallel->at(kGrowthTrackerName.str()).data<int64_t>()[0], steps - 1);
      }
      if (std::string(GetParam().optimizer) == "adamw") {
        EXPECT_EQ(parallel->at(kStepsTakenName.str()).data<int64_t>()[0], steps - 1);
      }
    }
  }
}

/// Collectives by stage, kind and axes; bytes of the step's scalars by stage.
struct Lists {
  std::map<std::tuple<int, CollectiveKind, std::string>, int64_t> counts;
  std::map<int, std::vector<int64_t>> scalarBytes;
};

/// `stages`: first modules of the stages; if empty, it is set to the planner's choice.
Lists listsOf(const Case &testCase, std::vector<std::string> &stages) {
  test::Model model = load(testCase);
  // One schedule and one cut for both, even if another is a little faster.
  test::PlanRequest request = testCase.request;
  if (request.mesh.find("pp") != std::string::npos)
    request.schedule = "1f1b";
  auto plan = test::makePlan(model, request);
  EXPECT_TRUE(plan) << plan.error().message;
  if (stages.empty())
    stages = plan->stages;
  plan->stages = stages;
  auto compiled = driver::compilePlan(*model.step, *plan); // compares with the prediction
  EXPECT_TRUE(compiled) << compiled.error().message;
  std::string all;
  for (const auto &axis : compiled->program.mesh.axes)
    all += (all.empty() ? "" : "+") + axis.name;
  Lists lists;
  for (const reshard::CollectiveCount &line : driver::countInstructions(compiled->program)) {
    lists.counts[{line.stage, line.kind, line.axes}] += line.count;
    if (line.kind == CollectiveKind::AllReduce && line.axes == all && line.bytes <= 16)
      lists.scalarBytes[line.stage].insert(lists.scalarBytes[line.stage].end(), line.count,
                                           line.bytes);
  }
  return lists;
}

/// The scalars: loss, count of labels, flag, sum of squares: 4 bytes each, over every axis.
TEST_P(LossScalePlans, TheFlagTravelsWithTheOtherScalars) {
  Case scaled = GetParam(), plain = scaled;
  plain.settings = {{"loss_scale", 0}};
  bool isClipped = scaled.settings.count("clip_norm");
  if (isClipped)
    plain.settings["clip_norm"] = scaled.settings["clip_norm"];
  std::vector<std::string> stages;
  Lists with = listsOf(scaled, stages), without = listsOf(plain, stages);
  EXPECT_EQ(with.counts, without.counts);
  ASSERT_FALSE(with.scalarBytes.empty());
  for (const auto &[stage, bytes] : with.scalarBytes)
    EXPECT_EQ(bytes, std::vector<int64_t>{isClipped ? 16 : 12}) << "stage " << stage;
  for (const auto &[stage, bytes] : without.scalarBytes)
    EXPECT_EQ(bytes, std::vector<int64_t>{isClipped ? 12 : 8}) << "stage " << stage;
}

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const char *model : {"tiny-mlp", "tiny-gpt2"}) {
    for (const char *mesh : {"dp=2", "tp=2", "pp=2", "pp=2,fsdp=2,tp=2"})
      cases.push_back({model, {mesh}});
    for (const char *strategy : {"zero1", "zero2", "zero3"})
      cases.push_back({model, {"fsdp=2", strategy}, "sgd-momentum"});
  }
  cases.push_back({"tiny-resnet", {"pp=2,dp=2"}, "sgd"});
  cases.push_back({"tiny-mlp", {"pp=2,dp=2"}, "adamw", {{"clip_norm", 0.01}}});
  cases.push_back({"tiny-mlp", {"pp=2,dp=2"}, "sgd", {{"loss_scale_interval", 2}}});
  cases.push_back({"tiny-gpt2",
                   {"fsdp=2,tp=2"},
                   "adamw",
                   {{"loss_scale", 128}, {"loss_scale_interval", 0}},
                   "bf16"});
  return cases;
}

std::string caseName(const testing::TestParamInfo<Case> &info) {
  const Case &testCase = info.param;
  std::string name = std::string(testCase.model) + "_" + testCase.request.mesh + "_" +
                     testCase.request.strategy + "_" + testCase.precision;
  for (const auto &[setting, value] : testCase.settings)
    name += "_" + setting;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, LossScalePlans, testing::ValuesIn(allCases()), caseName);

/// x[batch, 8] times a matrix, all in f16.
std::string modelInF16() {
  test::ModelBuilder builder;
  builder.input("x", {"batch", "8"});
  builder.floats("w", {8, 4}, std::vector<float>(32));
  builder.node("MatMul", {"x", "w"}, {"logits"});
  builder.output("logits");
  onnx::GraphProto &graph = *builder.proto.mutable_graph();
  for (auto *list : {graph.mutable_input(), graph.mutable_output()})
    for (onnx::ValueInfoProto &value : *list)
      value.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT16);
  onnx::TensorProto &w = *graph.mutable_initializer(0);
  w.set_data_type(onnx::TensorProto::FLOAT16);
  w.clear_float_data();
  std::string bytes;
  for (int i = 0; i < 32; ++i) // 0.125 and the numbers after it
    bytes += {char(i), char(i % 2 ? 0x30 : 0xb0)};
  w.set_raw_data(bytes);
  return builder.bytes();
}

/// A precision does not change the narrow types of a file, so another one is an error.
TEST(LossScaleModel, AnotherPrecisionThanTheFilesIsRefused) {
  test::TemporaryFolder folder;
  driver::StepOptions options;
  options.modelPath = folder.write("half.onnx", modelInF16());
  for (auto precision : {planner::Precision::F32, planner::Precision::BF16}) {
    auto context = driver::makeContext();
    options.precision = precision;
    auto step = driver::buildTrainingStep(*context, options);
    ASSERT_FALSE(step) << planner::name(precision);
    EXPECT_EQ(step.error().code, ErrorCode::Usage);
    EXPECT_THAT(
        step.error().message,
        testing::AllOf(testing::HasSubstr("--precision " + std::string(planner::name(precision))),
                       testing::HasSubstr("parameters are f16 in the file"),
                       testing::HasSubstr("choose --precision f16")));
  }
  auto context = driver::makeContext();
  options.precision = planner::Precision::F16;
  EXPECT_TRUE(driver::buildTrainingStep(*context, options));
}

/// The model needs no narrowing, but still gets master weights and a scale.
TEST(LossScaleModel, AnF16FileIsTrainedInF16) {
  test::TemporaryFolder folder;
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = folder.write("half.onnx", modelInF16());
  options.precision.reset();
  auto step = driver::buildTrainingStep(*model.context, options);
  ASSERT_TRUE(step) << step.error().message;
  model.step = std::move(*step);
  EXPECT_EQ(model.step->options.precision, planner::Precision::F16);
  EXPECT_EQ(model.step->options.settings.at("loss_scale"), 65536);
  for (const char *mesh : {"dp=2", "fsdp=2"}) {
    auto plan = test::makePlan(model, {mesh});
    ASSERT_TRUE(plan) << plan.error().message;
    std::map<std::string, int64_t> lines;
    for (const planner::MemoryLine &line : plan->prediction.stages[0].lines)
      lines[line.name] = line.bytes;
    // Optimizer state: a master copy and two moments; the scale, its tracker and Adam's count,
    // which are computed beside the old values. Each begins at a multiple of 256 bytes.
    const reshard::Graph &graph = model.step->step.graph;
    int64_t master = 0, count = int64_t(graph.parameters.size());
    for (const reshard::GraphParameter &parameter : graph.parameters)
      master += 4 * graph.values[parameter.value].layout.numElements() / (mesh[0] == 'f' ? 2 : 1);
    EXPECT_GE(lines["master weights"], master);
    EXPECT_LT(lines["master weights"], master + 256 * count);
    EXPECT_GE(lines["optimizer state"], 2 * master + 4 + 8 + 8);
    EXPECT_LT(lines["optimizer state"], 2 * master + 256 * (2 * count + 2 * 3));
    auto report = driver::verifyPlan(*model.step, *plan, {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->passed());
    EXPECT_FALSE(report->overflow.empty());
  }
}

/// f16 overflows at this scale. Floats are compared at a lower one, without overflow.
TEST(LossScaleVerify, FloatsRunWhereNothingOverflows) {
  Case testCase = {"tiny-mlp", {"dp=2"}, "sgd", {{"loss_scale", 0x1p60}}};
  test::Model model = load(testCase);
  auto plan = test::makePlan(model, testCase.request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto report = driver::verifyPlan(*model.step, *plan, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->passed());
  ASSERT_TRUE(report->lossScale);
  EXPECT_LT(*report->lossScale, 0x1p40);
  EXPECT_GE(*report->lossScale, 1);
}

TEST(LossScaleVerify, AStaticScaleThatOverflowsIsNoneToCompare) {
  Case testCase = {
      "tiny-mlp", {"dp=2"}, "sgd", {{"loss_scale", 0x1p60}, {"loss_scale_interval", 0}}};
  test::Model model = load(testCase);
  auto plan = test::makePlan(model, testCase.request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto report = driver::verifyPlan(*model.step, *plan, {});
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("--residues-only"), std::string::npos)
      << report.error().message;
}

} // namespace
