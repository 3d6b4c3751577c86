//===- stage_cuts_test.cpp - Possible cuts of pipeline stages -------------===//
//
// The planner cuts exactly at positions where the stages can be compiled.
//
//===----------------------------------------------------------------------===//

#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

using namespace tbc;

namespace {

using StageCuts = testing::TestWithParam<const char *>;

TEST_P(StageCuts, MayBeginIsWhatCompiles) {
  test::Model model = test::loadModel(GetParam());
  auto plan = test::makePlan(model, {"pp=2", "auto", "1f1b"});
  ASSERT_TRUE(plan) << plan.error().message;
  const reshard::Graph &graph = model.step->step.graph;
  std::vector<bool> mayBegin = planner::stageMayBegin(graph);
  int allowed = 0, refused = 0;
  for (int op = 1; op < planner::numForwardOps(graph); ++op) {
    plan->stages = {graph.ops[0].id, graph.ops[op].id};
    auto compiled = driver::compilePlan(*model.step, *plan);
    EXPECT_EQ(bool(compiled), mayBegin[op])
        << graph.ops[op].id << ": " << (compiled ? "compiles" : compiled.error().message);
    if (!compiled)
      EXPECT_EQ(compiled.error().code, ErrorCode::Usage) << compiled.error().message;
    ++(mayBegin[op] ? allowed : refused);
  }
  EXPECT_GT(allowed, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, StageCuts,
                         testing::Values("tiny-gpt2", "tiny-llama", "tiny-resnet"));

} // namespace
