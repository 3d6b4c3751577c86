//===- InfeasibleTest.cpp - Jobs without a plan ----------------------------===//

#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

static std::string errorOf(const Graph &graph, const Job &job, const Pins &pins) {
  Result<SearchAnswer> answer = search(graph, job, smallCluster(), pins);
  if (answer)
    return "no error";
  EXPECT_EQ(int(answer.error().code), int(ErrorCode::NoFeasiblePlan)) << answer.error().message;
  return answer.error().message;
}

TEST(Infeasible, SaysWhatIsShortAndWhatHelps) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Job job = jobFor(2, 16);
  Pins pins;
  pins.mesh = {{"dp", 2}};
  pins.zero = 0;
  pins.recompute = "none";
  pins.memoryLimitBytes = 600 * 1024;
  std::string message = errorOf(graph, job, pins);
  EXPECT_THAT(message, HasSubstr("stage 0 needs"));
  EXPECT_THAT(message, HasSubstr("short by"));
  EXPECT_THAT(message, HasSubstr("what would make it fit"));
  EXPECT_THAT(message, HasSubstr("--memory-limit"));
  EXPECT_THAT(message, HasSubstr("wte"));

  pins.memoryLimitBytes = 1024;
  message = errorOf(graph, job, pins);
  EXPECT_THAT(message, HasSubstr("leave out --memory-limit"));
}

// Decided by a bound, before any candidate is scored.
TEST(Infeasible, APlanThatCannotExistIsNotFoundAndOneThatMayIs) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Job job = jobFor(4, 16);
  Pins pins;
  pins.memoryLimitBytes = 20 * 1024;
  std::string proven = errorOf(graph, job, pins);
  EXPECT_THAT(proven, HasSubstr("no plan exists: each of 4 devices of small holds at least"));
  pins.mesh = {{"dp", 4}};
  pins.memoryLimitBytes = 200 * 1024;
  EXPECT_THAT(errorOf(graph, job, pins), HasSubstr("on the mesh that is pinned"));
  // The error says so if only the search can know it.
  pins.microBatch = 4;
  pins.zero = 0;
  pins.recompute = "none";
  Pins ample = pins;
  ample.memoryLimitBytes.reset();
  Result<SearchAnswer> answer = search(graph, job, smallCluster(), ample);
  ASSERT_TRUE(answer) << answer.error().message;
  pins.memoryLimitBytes = answer->plan.prediction.peakBytes * 4 / 5;
  EXPECT_THAT(errorOf(graph, job, pins), HasSubstr("no plan found: "));
}

TEST(Infeasible, TooManyStages) {
  Graph graph = makeMlp(1, {8, 8, 8});
  Pins pins;
  pins.mesh = {{"pp", 16}};
  EXPECT_THAT(errorOf(graph, jobFor(16, 16), pins), HasSubstr("too few ops"));
}
