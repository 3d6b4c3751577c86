//===- launches_test.cpp - Predicted launches are emitted -------------------===//
//
// The planner counts the launches of each stage's optimizer step (updateKernels, joinLaunches). The
// compiled Program for GPUs has them as regions of its update blocks. It also counts the sums over
// rows that have no launch of their own (Kernel::joinsPrevious). Programs are not run.
//
//===----------------------------------------------------------------------===//

#include "planner/memory/Buffers.h"
#include "planner/reshard/Kernels.h"
#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace tbc;

namespace {

struct Case {
  const char *model, *mesh;
  const char *strategy = "auto";
  const char *optimizer = "adamw";
  const char *precision = "f32";
  std::map<std::string, double> settings = {};
  const char *offload = "none";
};

std::string nameOf(const Case &c) {
  std::string name = std::string(c.model) + "_" + c.mesh + "_" + c.strategy + "_" + c.optimizer +
                     "_" + c.precision + "_" + c.offload;
  for (const auto &[setting, value] : c.settings)
    name += "_" + setting;
  for (char &letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter)))
      letter = '_';
  return name;
}
void PrintTo(const Case &c, std::ostream *out) { *out << nameOf(c); }

const std::set<std::string> normGradients = {"layer_norm_grad", "rms_norm_grad"};
const std::set<std::string> scaleGradients = {"norm_scale_grad", "rms_scale_grad"};

/// Returns the parameters stepped by each launch of an update block. The momentum of Muon is no
/// whole step.
std::vector<int> emitted(const program::Block &block) {
  const std::set<std::string> steps = {"adamw",     "adam",           "sgd",    "sgd_momentum",
                                       "muon_step", "adafactor_step", "adagrad"};
  std::vector<int> launches;
  for (const program::Region &region : block.regions) {
    int count = 0;
    for (int i = region.first; i < region.first + region.count; ++i)
      count += int(steps.count(block.instructions[size_t(i)].op));
    if (count > 0)
      launches.push_back(count);
  }
  return launches;
}

/// Returns how many gradients of a norm's scale are priced in the launch of the norm's gradient.
int predictedSums(const reshard::Graph &graph) {
  int count = 0;
  for (const auto &[block, kernels] : reshard::planUnsplitKernels(graph))
    for (const reshard::Kernel &kernel : kernels)
      for (int op : kernel.ops)
        count += int(kernel.joinsPrevious && scaleGradients.count(graph.ops[size_t(op)].kind));
  return count;
}

/// Returns the regions of a program with the gradients of a norm and of its scale. A last backward
/// has those of the backward.
int emittedSums(const program::Program &program) {
  int count = 0;
  for (const program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks())
      for (const program::Region &region : stage.block(id).regions) {
        if (id.kind == schedule::Action::Kind::LastBackward)
          continue;
        bool ofRows = false, ofColumns = false;
        for (int i = region.first; i < region.first + region.count; ++i) {
          const std::string &op = stage.block(id).instructions[size_t(i)].op;
          ofRows |= normGradients.count(op) > 0;
          ofColumns |= scaleGradients.count(op) > 0;
        }
        count += int(ofRows && ofColumns);
      }
  return count;
}

class Launches : public testing::TestWithParam<Case> {};

TEST_P(Launches, PredictedAreEmitted) {
  const Case &c = GetParam();
  test::Model model = test::loadModel(c.model, c.optimizer, c.settings, "", c.precision);
  test::PlanRequest request{c.mesh, c.strategy};
  request.offload = c.offload;
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = test::compileForGpus(model, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const planner::PlannedStep &planned = compiled->planned;
  int64_t tableBytes = 0;
  for (int stage = 0; stage < compiled->program.numStages(); ++stage) {
    std::vector<int> predicted;
    auto kernels = planner::updateKernels(planned.graph, planned.assignment, compiled->derivation,
                                          compiled->overlap, plan->job, stage);
    auto next = kernels.begin();
    for (int count : reshard::joinLaunches(kernels, tableBytes)) {
      if (!next->tensors.empty()) // steps a parameter
        predicted.push_back(count);
      next += count;
    }
    EXPECT_EQ(predicted, emitted(compiled->program.stages[size_t(stage)].update))
        << "stage " << stage;
  }
  // Prices are of an unsplit step; gathers of a norm's scale part some kernels of a split one.
  const int sums = emittedSums(compiled->program);
  EXPECT_LE(sums, predictedSums(planned.graph));
  if (planned.assignment.mesh.numRanks() == 1)
    EXPECT_EQ(sums, predictedSums(planned.graph));
}

TEST(ColumnSums, HaveNoLaunchOfTheirOwn) {
  for (auto [name, norms] : {std::pair("tiny-gpt2", 5), std::pair("tiny-llama", 5)}) {
    test::Model model = test::loadModel(name, "adamw", {}, "", "bf16");
    auto plan = test::makePlan(model, {"dp=1", "auto"});
    ASSERT_TRUE(plan) << plan.error().message;
    auto compiled = test::compileForGpus(model, *plan);
    ASSERT_TRUE(compiled) << compiled.error().message;
    EXPECT_EQ(emittedSums(compiled->program), norms);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Updates, Launches,
    testing::Values(Case{"tiny-gpt2", "dp=1"}, Case{"tiny-gpt2", "dp=1", "auto", "adamw", "bf16"},
                    Case{"tiny-mlp", "dp=1", "auto", "sgd", "f32", {{"momentum", 0.9}}},
                    Case{"tiny-llama", "dp=1", "auto", "muon", "bf16"},
                    Case{"tiny-llama", "dp=1", "auto", "adafactor", "bf16"},
                    Case{"tiny-llama", "dp=1", "auto", "rowwise-adagrad", "bf16"},
                    Case{"unet-8l", "dp=1", "auto", "adam"},
                    Case{"tiny-resnet", "dp=2", "auto", "sgd"},
                    Case{"tiny-gpt2", "dp=2", "ddp", "adamw", "f32", {{"clip_norm", 1.0}}},
                    Case{"tiny-gpt2", "dp=2", "zero1", "adamw", "bf16"},
                    Case{"tiny-llama", "fsdp=2", "fsdp", "adamw", "bf16"},
                    Case{"tiny-llama", "pp=2,dp=2"}, Case{"moe-8l", "ep=2,tp=2"},
                    Case{"tiny-gpt2", "tp=2", "auto", "adamw", "bf16", {}, "optimizer"}),
    [](const testing::TestParamInfo<Case> &info) { return nameOf(info.param); });

} // namespace
