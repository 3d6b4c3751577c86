//===- LayoutTest.cpp - Placements and the layout of a plan ----------------===//

#include "planner/layout/LayoutOf.h"
#include "planner/layout/LayoutTensors.h"
#include "planner/predict/Evaluate.h"
#include "planner/support/JsonText.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using namespace tbc::reshard;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The strategies of op `op` for `names`, one axis after another on any loops.
static std::vector<std::map<int, AxisNames>> manySplits(const Graph &graph, int op) {
  std::vector<std::map<int, AxisNames>> all{{}};
  const Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  for (const OpStrategy &first : enumerateStrategies(graph, op, {}, wholeAxis(mesh, 0)))
    for (const OpStrategy &both : enumerateStrategies(graph, op, first, wholeAxis(mesh, 1))) {
      std::map<int, AxisNames> split;
      for (const auto &[loop, axes] : both.loopAxes)
        for (const AxisRef &axis : axes)
          split[loop].push_back(mesh.axes[size_t(axis.axis)].name);
      all.push_back(split);
    }
  return all;
}

TEST(Layout, PlacementsOfOpsLeadBackToTheirLoops) {
  const Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  auto axesOf = [&](const AxisNames &names) {
    std::vector<AxisRef> axes;
    for (const std::string &name : names)
      axes.push_back(wholeAxis(mesh, mesh.axisIndex(name)));
    return axes;
  };
  const Graph graph = makeChain({2, 4, 16});
  size_t compared = 0;
  for (int op = 0; op < int(graph.ops.size()); ++op)
    for (const std::map<int, AxisNames> &split : manySplits(graph, op)) {
      const OpPlacement placement = placementOf(graph, op, split);
      OpStrategy strategy;
      ASSERT_EQ(strategyFrom(graph, op, placement, axesOf, strategy), "") << toString(placement);
      std::map<int, AxisNames> back;
      for (const auto &[loop, axes] : strategy.loopAxes)
        for (const AxisRef &axis : axes)
          back[loop].push_back(mesh.axes[size_t(axis.axis)].name);
      EXPECT_EQ(back, split) << graph.ops[op].id << ": " << toString(placement);
      ++compared;
    }
  EXPECT_GT(compared, 500u);
}

TEST(Layout, ASegmentedDimIsCutInEachSegment) {
  // 2304 columns are q, k and v of 12 heads of width 64.
  const FactorId rows = 0, heads = 1, q = 2, k = 3, v = 4;
  TensorLayout layout;
  auto segment = [&](FactorId width) { return Segment{{{heads, 12}, {width, 64}}}; };
  layout.dims = {{{{{{rows, 768}}}}}, {{segment(q), segment(k), segment(v)}}};
  layout.elementBytes = 2;
  const Mesh mesh{{{"fsdp", 5}, {"tp", 4}}};
  Sharding sharding{{{1, heads, {wholeAxis(mesh, 1)}}}, {}, {wholeAxis(mesh, 0)}};
  const TensorPlacement placement = placementOf(mesh, layout, sharding);
  ASSERT_EQ(placement.dims.size(), 2u);
  EXPECT_THAT(placement.dims[0].axes, IsEmpty());
  ASSERT_EQ(placement.dims[1].segments.size(), 3u);
  const std::vector<SplitFactor> expected{{12, {"tp"}}, {64, {}}};
  EXPECT_EQ(placement.dims[1].segments[2], expected);
  EXPECT_THAT(placement.flat, ElementsAre("fsdp"));
  // 768 x 576 = 442368 elements; 5 chunks of 88474 have 2 more.
  EXPECT_EQ(placement.padding, 2);
}

static Plan planWith(int zero, bool keepGathered) {
  Plan plan;
  plan.job.precision = Precision::F32;
  plan.job.gpus = 4;
  plan.job.globalBatch = 8;
  plan.cluster = *loadCluster("h100-sxm");
  plan.mesh.fsdp = 4;
  plan.microBatch = 1;
  plan.accumulation = 2;
  plan.parameterDefault = {zero, keepGathered, {"fsdp"}, {}};
  return plan;
}

TEST(Layout, LifetimesAndPlacementsFollowTheZeroStage) {
  const Graph graph = makeMlp(4, {8, 12, 8});
  struct Row {
    int zero;
    bool keepGathered;
    GatherLifetime lifetime;
    bool storesShard, gradientShard, stateShard;
  };
  for (const Row &row : {Row{0, false, GatherLifetime::Always, false, false, false},
                         Row{1, false, GatherLifetime::Step, false, false, true},
                         Row{2, false, GatherLifetime::Step, false, true, true},
                         Row{3, false, GatherLifetime::Use, true, true, true},
                         Row{3, true, GatherLifetime::ForwardAndBackward, true, true, true}}) {
    Plan plan = planWith(row.zero, row.keepGathered);
    plan.stages = {graph.ops[0].id};
    Result<Layout> layout = layoutOf(graph, plan);
    ASSERT_TRUE(layout) << layout.error().message;
    ASSERT_EQ(layout->parameters.size(), 2u);
    for (const LayoutParameters &group : layout->parameters) {
      EXPECT_EQ(group.lifetime, row.lifetime) << row.zero;
      EXPECT_EQ(!group.stored.flat.empty(), row.storesShard) << row.zero;
      EXPECT_EQ(!group.gradient.flat.empty(), row.gradientShard) << row.zero;
      EXPECT_EQ(!group.state.flat.empty(), row.stateShard) << row.zero;
      EXPECT_TRUE(group.used.flat.empty());
    }
  }
}

TEST(Layout, FingerprintChangesWithDecisionsAlone) {
  const Graph graph = makeMlp(4, {8, 12, 8});
  Plan plan = planWith(3, false);
  plan.stages = {graph.ops[0].id};
  EXPECT_THAT(whyLayoutIsStale(plan), HasSubstr("no key \"layout\""));
  plan.layout = *layoutOf(graph, plan);
  EXPECT_EQ(whyLayoutIsStale(plan), "");
  Plan moved = plan;
  moved.job.modelPath = "elsewhere/model.onnx";
  moved.warnings = {"a warning"};
  EXPECT_EQ(whyLayoutIsStale(moved), "");
  Plan edited = plan;
  edited.overlap.prefetch = 3;
  EXPECT_THAT(whyLayoutIsStale(edited), HasSubstr("decisions were edited"));
}

TEST(JsonText, PutsShortListsOnOneLine) {
  using Json = nlohmann::json;
  EXPECT_EQ(jsonText(Json::parse(R"({"b": [1, 2], "a": {}})")), "{\"a\": {}, \"b\": [1, 2]}\n");
  const std::string word(60, 'x');
  EXPECT_EQ(jsonText(Json{{"k", {word, word}}, {"l", {1}}}),
            "{\n \"k\": [\n  \"" + word + "\",\n  \"" + word + "\"\n ],\n \"l\": [1]\n}\n");
  for (const std::string &line : {jsonText(Json::array({std::string(96, 'y')})),
                                  jsonText(Json::array({std::string(95, 'y')}))})
    EXPECT_EQ(Json::parse(line).size(), 1u) << line;
  EXPECT_EQ(jsonText(Json::array({"\xff"})), "[\"\xef\xbf\xbd\"]\n");
}
