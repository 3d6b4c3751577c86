//===- module_names_test.cpp - Modules of the ops of real exports ---------===//
//
// Tables and messages name every op by a module, also those for which the exporter wrote none.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/NameModel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

using namespace tbc;

namespace {

struct Export {
  const char *name;
  /// Some ops without a module of their own, and where they are shown.
  std::map<std::string, std::string> shown;
};

std::ostream &operator<<(std::ostream &os, const Export &file) { return os << file.name; }

using ModuleNames = testing::TestWithParam<Export>;

TEST_P(ModuleNames, EveryOpIsShownInOne) {
  test::Model model = test::loadModel(GetParam().name, "adamw", {}, "", "bf16");
  const reshard::Graph &graph = model.step->step.graph;
  planner::Job job;
  job.names = driver::nameModel(*model.step);
  std::map<std::string, std::string> found;
  for (int op = 0; op < planner::numForwardOps(graph); ++op) {
    if (graph.ops[size_t(op)].generator)
      continue;
    const std::string &id = graph.ops[size_t(op)].id;
    EXPECT_NE(planner::shownModuleOf(job, graph, op), "") << id;
    if (GetParam().shown.count(id)) {
      EXPECT_EQ(planner::moduleOf(job, graph, op), "") << id;
      found[id] = planner::shownModuleOf(job, graph, op);
    }
  }
  EXPECT_EQ(found, GetParam().shown);
}

using ModuleErrors = testing::TestWithParam<const char *>;

TEST_P(ModuleErrors, NameTheNodeItself) {
  test::Model model = test::loadModel(GetParam(), "adamw", {}, "", "bf16");
  const reshard::Graph &graph = model.step->step.graph;
  auto plan = test::makePlan(model, {"pp=2", "auto", "1f1b"});
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<bool> mayBegin = planner::stageMayBegin(graph);
  auto refused = std::find(mayBegin.begin() + 1, mayBegin.end(), false);
  ASSERT_LT(refused - mayBegin.begin(), planner::numForwardOps(graph));
  const std::string &id = graph.ops[size_t(refused - mayBegin.begin())].id;
  plan->stages = {graph.ops[0].id, id};
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_FALSE(compiled);
  EXPECT_NE(compiled.error().message.find(id), std::string::npos) << compiled.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Models, ModuleNames,
    testing::Values(Export{"tiny-mlp", {{"node_linear.cast", "fc1"}, {"node_relu", "fc2"}}},
                    Export{"unet-8l", {{"node_cat", "merge.0"}, {"node_cat_3", "merge.3"}}},
                    Export{"tiny-resnet", {{"/Relu", "pool"}, {"/conv1/Conv.cast", "conv1"}}},
                    Export{"masked-bert", {}}, Export{"tiny-gpt2", {}}),
    [](const auto &info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

INSTANTIATE_TEST_SUITE_P(Models, ModuleErrors,
                         testing::Values("tiny-mlp", "tiny-gpt2", "masked-bert"));

} // namespace
