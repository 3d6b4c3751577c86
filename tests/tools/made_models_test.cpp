//===- made_models_test.cpp - Plans of small models of rare nodes ---------===//
//
// Nodes that no model in models/ has: random numbers, moved windows, signals, unsigned indices. A
// sample has the same random numbers on whatever rank and in whatever micro-batch it is.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;

namespace {

std::vector<float> weights(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(i * 37 % 19 - 9) / 16);
  return values;
}

/// y = bernoulli(0.75) relu((x + 0.1 normal) w1) + uniform of the samples, times w2.
test::ModelBuilder randomModel() {
  test::ModelBuilder b(22);
  b.input("x", {"batch", "8"});
  b.floats("w1", {8, 8}, weights(64));
  b.floats("w2", {8, 4}, weights(32));
  b.floats("scale", {}, {0.1F});
  b.floats("keep", {}, {0.75F});
  b.floats("zero", {}, {0});
  b.node("RandomNormalLike", {"x"}, {"z"}, "noise");
  b.node("Mul", {"z", "scale"}, {"small"});
  b.node("Add", {"x", "small"}, {"moved"});
  b.node("MatMul", {"moved", "w1"}, {"h"}, "first");
  b.node("Relu", {"h"}, {"r"});
  b.node("Mul", {"r", "zero"}, {"none"});
  b.node("Add", {"none", "keep"}, {"probability"});
  b.node("Bernoulli", {"probability"}, {"mask"}, "mask");
  b.node("Mul", {"r", "mask"}, {"masked"});
  b.node("RandomUniformLike", {"masked"}, {"u"}, "offset");
  b.node("Add", {"masked", "u"}, {"shifted"});
  b.node("MatMul", {"shifted", "w2"}, {"y"}, "second");
  return b;
}

/// A deformable convolution in two groups of channels, with trained offsets and a trained mask.
test::ModelBuilder movedModel() {
  test::ModelBuilder b(22);
  b.input("x", {"batch", "4", "5", "3"});
  b.floats("offsets.weight", {2 * 18, 4, 1, 1}, weights(144));
  b.floats("mask.weight", {2 * 9, 4, 1, 1}, weights(72));
  b.floats("weight", {6, 2, 3, 3}, weights(108));
  b.floats("bias", {6}, weights(6));
  b.floats("w2", {90, 4}, weights(360));
  b.node("Conv", {"x", "offsets.weight"}, {"offsets"}, "offsets");
  b.node("Conv", {"x", "mask.weight"}, {"scores"}, "mask");
  b.node("Sigmoid", {"scores"}, {"mask"});
  onnx::NodeProto &deform =
      b.node("DeformConv", {"x", "weight", "offsets", "bias", "mask"}, {"h"}, "deform");
  test::ModelBuilder::attr(deform, "pads", std::vector<int64_t>{1, 1, 1, 1});
  test::ModelBuilder::attr(deform, "group", int64_t(2));
  test::ModelBuilder::attr(deform, "offset_group", int64_t(2));
  b.node("Relu", {"h"}, {"r"});
  b.node("Flatten", {"r"}, {"f"});
  b.node("MatMul", {"f", "w2"}, {"y"}, "head");
  return b;
}

/// The difference of the last and the first frame's spectrum, selected from a sequence.
test::ModelBuilder signalModel() {
  test::ModelBuilder b(22);
  b.input("x", {"batch", "23"});
  b.ints("step", {}, {5});
  b.floats("window", {7}, {1, 2, 3, 4, 3, 2, 1});
  b.ints("zero", {}, {0});
  b.ints("last", {}, {-1});
  b.floats("w1", {8, 4}, weights(32));
  b.node("STFT", {"x", "step", "window"}, {"spectra"}, "stft");
  onnx::NodeProto &split = b.node("SplitToSequence", {"spectra"}, {"frames"}, "unbind");
  test::ModelBuilder::attr(split, "axis", int64_t(1));
  test::ModelBuilder::attr(split, "keepdims", int64_t(0));
  b.node("SequenceAt", {"frames", "zero"}, {"begin"});
  b.node("SequenceAt", {"frames", "last"}, {"end"});
  b.node("Sub", {"end", "begin"}, {"change"});
  b.node("Flatten", {"change"}, {"f"});
  b.node("MatMul", {"f", "w1"}, {"y"}, "head");
  return b;
}

/// An embedding of u32 tokens.
test::ModelBuilder unsignedModel() {
  test::ModelBuilder b(22);
  b.input("x", {"batch", "6"}, /*isFloat=*/false);
  b.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::UINT32);
  b.floats("table", {16, 8}, weights(128));
  b.floats("w1", {48, 4}, weights(192));
  test::ModelBuilder::attr(b.node("Cast", {"x"}, {"tokens"}), "to",
                           int64_t(onnx::TensorProto::INT64));
  b.node("Gather", {"table", "tokens"}, {"rows"}, "embed");
  b.node("Flatten", {"rows"}, {"f"});
  b.node("MatMul", {"f", "w1"}, {"y"}, "head");
  return b;
}

/// Gated delta attention over four tokens with two heads.
test::ModelBuilder stateModel() {
  test::ModelBuilder b(27);
  b.input("x", {"batch", "4", "6"});
  for (const char *name : {"q", "k", "v"}) {
    b.floats(std::string(name) + ".weight", {6, 8}, weights(48));
    b.node("MatMul", {"x", std::string(name) + ".weight"}, {name}, name);
  }
  b.floats("gate.weight", {6, 2}, weights(12));
  b.floats("rate.weight", {6, 2}, weights(12));
  b.floats("out.weight", {8, 4}, weights(32));
  b.node("MatMul", {"x", "gate.weight"}, {"gate"}, "gate");
  b.node("Sigmoid", {"gate"}, {"open"});
  b.node("Log", {"open"}, {"decay"});
  b.node("MatMul", {"x", "rate.weight"}, {"rate"}, "rate");
  b.node("Sigmoid", {"rate"}, {"beta"});
  onnx::NodeProto &node =
      b.node("LinearAttention", {"q", "k", "v", "", "decay", "beta"}, {"h"}, "state");
  test::ModelBuilder::attr(node, "q_num_heads", int64_t(2));
  test::ModelBuilder::attr(node, "kv_num_heads", int64_t(2));
  b.node("MatMul", {"h", "out.weight"}, {"y"}, "out");
  return b;
}

struct Case {
  const char *name;
  test::ModelBuilder (*model)();
  test::PlanRequest request;
  /// An op of the step, and how many there are at least.
  const char *op;
  int64_t count;
  const char *precision = "f32";
};

void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.name << " " << testCase.request.mesh << " " << testCase.request.recompute << " "
       << testCase.precision;
}

class MadeModels : public testing::TestWithParam<Case> {};

TEST_P(MadeModels, ParallelEqualsSerial) {
  test::TemporaryFolder folder;
  test::ModelBuilder builder = GetParam().model();
  builder.output("y");
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = folder.write("model.onnx", builder.bytes());
  options.optimizer = planner::Optimizer::Sgd;
  options.precision = planner::parsePrecision(GetParam().precision);
  auto step = driver::buildTrainingStep(*model.context, options);
  ASSERT_TRUE(step) << step.error().message;
  model.step = std::move(*step);
  const std::vector<reshard::GraphOp> &ops = model.step->step.graph.ops;
  EXPECT_GE(std::count_if(ops.begin(), ops.end(),
                          [](const auto &op) { return op.kind == GetParam().op; }),
            GetParam().count);
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  driver::VerifyOptions verify;
  verify.steps = 2;
  auto report = driver::verifyPlan(*model.step, *plan, verify);
  ASSERT_TRUE(report) << report.error().message;
  for (auto *lines : {&report->residues, &report->floats}) {
    EXPECT_FALSE(lines->empty());
    for (const driver::Comparison &line : *lines)
      EXPECT_TRUE(line.equal) << line.name << ": error " << line.error << ", bound " << line.bound;
  }
}

constexpr char kDraw[] = "random_uniform_train";

INSTANTIATE_TEST_SUITE_P(
    Plans, MadeModels,
    testing::Values(Case{"random", randomModel, {"dp=4"}, kDraw, 4},
                    Case{"random", randomModel, {"fsdp=2,tp=2"}, kDraw, 4},
                    Case{"random", randomModel, {"pp=2,dp=2"}, kDraw, 4},
                    Case{"random", randomModel, {"dp=2,tp=2", "auto", "", "full"}, kDraw, 4},
                    Case{"random", randomModel, {"pp=2,tp=2"}, kDraw, 4, "bf16"},
                    Case{"moved", movedModel, {"dp=2,tp=2"}, "gather_elements", 8},
                    Case{"moved", movedModel, {"pp=2,fsdp=2"}, "gather_elements", 8},
                    Case{"signal", signalModel, {"fsdp=2,tp=2"}, "gather", 1},
                    Case{"state", stateModel, {"dp=2,tp=2"}, "exp", 4},
                    Case{"unsigned", unsignedModel, {"dp=2,tp=2"}, "embedding_grad", 1}));

} // namespace
