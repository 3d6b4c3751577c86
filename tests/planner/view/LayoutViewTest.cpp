//===- LayoutViewTest.cpp - Parameters and causes in a report ---------------===//

#include "planner/view/LayoutView.h"
#include "tests/planner/view/Plans.h"

#include <gmock/gmock.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

TEST(LayoutView, DescribesPlacements) {
  TensorPlacement placement;
  placement.dims.resize(2);
  EXPECT_EQ(toString(placement), "(-, -)");
  placement.dims[0].axes = {"tp"};
  placement.partial = {"dp", "cp"};
  EXPECT_EQ(toString(placement), "(tp, -) partial dp+cp");
  placement.partial.clear();
  placement.dims[0] = {{}, {{{12, {"tp"}}, {64, {}}}, {{12, {"tp"}}, {64, {}}}}};
  placement.flat = {"fsdp"};
  EXPECT_EQ(toString(placement), "([12/tp 64][12/tp 64], -) flat fsdp");
}

TEST(LayoutView, HasEveryParameterOnce) {
  const Plan plan = planOf("fsdp=4,tp=2");
  const LayoutView view = layoutView(plan);
  int64_t rows = 0, parameters = 0;
  for (const ParameterRow &row : view.parameters)
    rows += row.count;
  for (const LayoutParameters &group : plan.layout.parameters)
    parameters += int64_t(group.names.size());
  EXPECT_EQ(rows, parameters);
  EXPECT_GT(rows, 0);
  EXPECT_EQ(view.boundaries.size(), plan.layout.boundaries.size());
}

TEST(LayoutView, CausesHaveTheSecondsOfThePrediction) {
  const Plan plan = planOf("pp=2,dp=2,tp=2", "1f1b");
  const LayoutView view = layoutView(plan);
  ASSERT_EQ(view.causes.size(), plan.layout.collectives.size());
  ASSERT_FALSE(view.causes.empty());
  double caused = 0, predicted = 0;
  for (const CauseRow &row : view.causes) {
    EXPECT_GT(row.seconds, 0) << row.kind << " for " << row.cause;
    EXPECT_LE(row.seconds, view.causes.front().seconds);
    caused += row.seconds * double(row.stages.size());
  }
  for (const CollectiveLine &line : plan.prediction.collectives)
    predicted += line.seconds * double(line.count.count);
  EXPECT_NEAR(caused, predicted, 0.01 * predicted);
}

TEST(LayoutView, ShowsNoLayoutOfOtherDecisions) {
  Plan plan = planOf("dp=8");
  EXPECT_EQ(layoutView(plan).stale, "");
  plan.microBatch *= 2;
  const LayoutView view = layoutView(plan);
  EXPECT_NE(view.stale, "");
  EXPECT_TRUE(view.parameters.empty());
  plan.layout = Layout();
  EXPECT_EQ(layoutView(plan).stale, "");
}
