//===- pairs_test.cpp - Plans of losses over pairs of samples --------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

using namespace tbc;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// CLIP: two towers of one layer, cross entropy along both dims of the scores u v^T.
std::string clip() {
  test::ModelBuilder b;
  for (const char *side : {"u", "v"}) {
    const std::string name = side;
    b.input("x_" + name, {"batch", "6"});
    std::vector<float> weights;
    for (int i = 0; i < 6 * 4; ++i)
      weights.push_back(float(std::sin(i + 30 * (name == "v"))));
    b.floats("w_" + name, {6, 4}, weights);
    b.node("MatMul", {"x_" + name, "w_" + name}, {"h_" + name}, "tower_" + name);
    b.node("Tanh", {"h_" + name}, {name});
  }
  b.output("loss");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.floats("half", {}, {0.5});
  b.node("Shape", {"x_u"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
  test::ModelBuilder::attr(b.node("Transpose", {"v"}, {"vt"}), "perm", std::vector<int64_t>{1, 0});
  b.node("MatMul", {"u", "vt"}, {"rows"}, "scores");
  test::ModelBuilder::attr(b.node("Transpose", {"rows"}, {"columns"}), "perm",
                           std::vector<int64_t>{1, 0});
  b.node("SoftmaxCrossEntropyLoss", {"rows", "numbers"}, {"l"});
  b.node("SoftmaxCrossEntropyLoss", {"columns", "numbers"}, {"r"});
  b.node("Add", {"l", "r"}, {"both"});
  b.node("Mul", {"both", "half"}, {"loss"});
  return b.bytes();
}

class Pairs : public testing::Test {
protected:
  Pairs() {
    model.context = driver::makeContext();
    driver::StepOptions options;
    options.modelPath = folder.write("clip.onnx", clip());
    options.loss = "loss";
    options.optimizer = planner::Optimizer::Sgd; // floats compare the updated parameters too
    options.precision = planner::Precision::F32;
    auto step = driver::buildTrainingStep(*model.context, options);
    if (step)
      model.step = std::move(*step);
    else
      message = step.error().message;
  }

  Result<planner::Plan> plan(const std::string &mesh, int64_t microBatch,
                             const std::string &recompute = "none") {
    test::PlanRequest request{mesh};
    request.microBatch = microBatch;
    request.recompute = recompute;
    return test::makePlan(model, request);
  }

  test::TemporaryFolder folder;
  test::Model model;
  std::string message;
};

/// Each mesh splits the samples, the columns or the layers in another way.
TEST_F(Pairs, ParallelEqualsSerial) {
  ASSERT_TRUE(model.step) << message;
  struct Case {
    const char *mesh;
    int64_t microBatch;
    const char *recompute;
  };
  for (const Case &c : {Case{"dp=4", 2, "none"}, Case{"dp=2,tp=2", 4, "full"},
                        Case{"fsdp=4", 2, "none"}, Case{"pp=2,dp=2", 4, "none"}}) {
    SCOPED_TRACE(c.mesh);
    auto plan = this->plan(c.mesh, c.microBatch, c.recompute);
    ASSERT_TRUE(plan) << plan.error().message;
    auto report = driver::verifyPlan(*model.step, *plan, {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_FALSE(report->residues.empty());
    for (const auto *lines : {&report->residues, &report->floats})
      for (const driver::Comparison &line : *lines)
        EXPECT_TRUE(line.equal) << line.name;
  }
}

/// One embedding is gathered, and its gradient comes back the same way.
TEST_F(Pairs, EmbeddingsAreGatheredOverTheDataRanks) {
  ASSERT_TRUE(model.step) << message;
  auto plan = this->plan("dp=4", 2);
  ASSERT_TRUE(plan) << plan.error().message;
  int64_t gathered = 0, scattered = 0;
  for (const planner::CollectiveLine &predicted : plan->prediction.collectives) {
    const reshard::CollectiveCount &line = predicted.count;
    gathered += line.kind == reshard::CollectiveKind::AllGather ? line.count * line.bytes : 0;
    scattered += line.kind == reshard::CollectiveKind::ReduceScatter ? line.count * line.bytes : 0;
  }
  EXPECT_EQ(gathered, 8 * 4 * 4); // [8, 4] in f32
  EXPECT_EQ(scattered, 8 * 4 * 4);
}

TEST_F(Pairs, SeveralMicroBatchesAreRefused) {
  ASSERT_TRUE(model.step) << message;
  auto pinned = plan("dp=2", 2);
  ASSERT_FALSE(pinned);
  EXPECT_THAT(pinned.error().message,
              AllOf(HasSubstr("--micro-batch 2 splits --batch 8 into several micro-batches"),
                    HasSubstr("op \"scores\" joins the samples of the whole batch"),
                    HasSubstr("or choose --batch 4")));
  auto edited = plan("dp=2", 4);
  ASSERT_TRUE(edited) << edited.error().message;
  edited->microBatch = 2;
  edited->accumulation = 2;
  auto applied = planner::applyPlan(model.step->step.graph, *edited);
  ASSERT_FALSE(applied);
  EXPECT_THAT(applied.error().message,
              HasSubstr("plan key \"accumulation\": op \"scores\" joins the samples"));
}

} // namespace
