//===- StrategiesTest.cpp - The axes allowed on each loop ------------------===//

#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

const Mesh mesh{{{"dp", 2}, {"tp", 4}}};
const AxisRef dp = wholeAxis(mesh, 0), tp = wholeAxis(mesh, 1);

std::vector<std::string> tags(const std::vector<OpStrategy> &strategies) {
  std::vector<std::string> result;
  for (const OpStrategy &s : strategies)
    result.push_back(s.tag);
  return result;
}

std::string loopTag(char letter) { return "loop:" + std::to_string(int(letter)); }

OpStrategy on(const Graph &graph, int op, char letter, const std::vector<AxisRef> &axes) {
  OpStrategy strategy;
  test::shard(graph, strategy, op, letter, axes);
  return strategy;
}

TEST(OperandSharding, FollowsTheLoops) {
  GraphBuilder g({{'b', 8}, {'i', 4}, {'o', 8}});
  g.forward("mm", "bi,io->bo", {g.input("x", "bi"), g.parameter("w", "io")});
  OpStrategy column = on(g.graph, 0, 'o', {tp}), row = on(g.graph, 0, 'i', {tp});
  test::shard(g.graph, column, 0, 'b', {dp});
  EXPECT_EQ(operandSharding(g.graph, 0, column, 0), (Sharding{{{0, 'b', {dp}}}, {}, {}}));
  EXPECT_EQ(operandSharding(g.graph, 0, column, 1), (Sharding{{{1, 'o', {tp}}}, {}, {}}));
  EXPECT_EQ(resultSharding(g.graph, 0, column, 0),
            (Sharding{{{0, 'b', {dp}}, {1, 'o', {tp}}}, {}, {}}));
  EXPECT_EQ(operandSharding(g.graph, 0, row, 1), (Sharding{{{0, 'i', {tp}}}, {}, {}}));
  EXPECT_EQ(resultSharding(g.graph, 0, row, 0), (Sharding{{}, {{tp}}, {}}));
}

TEST(ResultSharding, MaximumIsPartialAsAMaximum) {
  GraphBuilder g({{'b', 8}, {'i', 4}});
  g.forward("max", "bi->b", {g.input("x", "bi")});
  for (Loop &loop : g.graph.ops[0].loops)
    if (loop.factor == 'i')
      loop.kind = LoopKind::Max;
  EXPECT_EQ(resultSharding(g.graph, 0, on(g.graph, 0, 'i', {tp}), 0),
            (Sharding{{}, {{tp, ReduceKind::Max}}, {}}));
}

TEST(ResultSharding, ReductionThatOneResultKeepsIsPartialInTheOthersOnly) {
  // As in the gradient of attention: dq keeps the query loop, dk sums over it.
  GraphBuilder g({{'s', 8}, {'t', 8}, {'d', 4}});
  g.forward("grad", "sd,td->sd,td", {g.input("q", "sd"), g.input("k", "td")});
  for (Loop &loop : g.graph.ops[0].loops)
    if (loop.factor == 's')
      loop.kind = LoopKind::Reduction;
  OpStrategy strategy = on(g.graph, 0, 's', {tp});
  EXPECT_EQ(resultSharding(g.graph, 0, strategy, 0), (Sharding{{{0, 's', {tp}}}, {}, {}}));
  EXPECT_EQ(resultSharding(g.graph, 0, strategy, 1), (Sharding{{}, {{tp}}, {}}));
}

TEST(EnumerateStrategies, OffersEveryLoopThatTheAxisDivides) {
  GraphBuilder g({{'b', 8}, {'i', 6}, {'o', 12}});
  g.forward("mm", "bi,io->bo", {g.input("x", "bi"), g.parameter("w", "io")});
  EXPECT_EQ(tags(enumerateStrategies(g.graph, 0, {}, tp)),
            (std::vector<std::string>{"", loopTag('b'), loopTag('o')})); // 4 does not divide 6
  // After the batch: 8 / 2 is still divisible by 4, and 8 / 4 / 4 is not.
  OpStrategy base = batchStrategy(g.graph, 0, {dp});
  EXPECT_TRUE(base.loopAxes.empty()); // no batch factor named
  g.graph.batchFactor = 'b';
  base = batchStrategy(g.graph, 0, {dp});
  std::vector<OpStrategy> more = enumerateStrategies(g.graph, 0, base, tp);
  ASSERT_EQ(more.size(), 3u);
  EXPECT_EQ(operandSharding(g.graph, 0, more[1], 0), (Sharding{{{0, 'b', {dp, tp}}}, {}, {}}));
  base = more[1];
  EXPECT_EQ(enumerateStrategies(g.graph, 0, base, dp).size(), 1u); // dp is used in both operands
  EXPECT_EQ(enumerateStrategies(g.graph, 0, {}, {1, 4, 1}).size(), 1u);
}

TEST(EnumerateStrategies, FixedLoopsAndGeneratorsStayWhole) {
  GraphBuilder g({{'s', 8}, {'d', 8}});
  g.fix('d');
  g.forward("softmax", "sd->sd", {g.input("x", "sd")});
  EXPECT_EQ(tags(enumerateStrategies(g.graph, 0, {}, tp)),
            (std::vector<std::string>{"", loopTag('s')}));
  g.generator("mask", "s");
  EXPECT_EQ(enumerateStrategies(g.graph, 1, {}, tp).size(), 1u);
}

TEST(EnumerateStrategies, OneLoopThroughTwoDimsOfATensorIsImpossible) {
  GraphBuilder g({{'s', 8}});
  g.forward("diagonal", "ss->s", {g.input("x", "ss")});
  EXPECT_EQ(enumerateStrategies(g.graph, 0, {}, tp).size(), 1u);
}

TEST(EnumerateStrategies, FactorMissingInASegmentIsImpossible) {
  GraphBuilder g({{'s', 8}, {'d', 4}});
  int x = g.input("x", "sd");
  int y = g.forward("copy", "sd->sd", {x});
  for (int value : {x, y}) // a class token in front of the patches
    g.graph.values[value].layout.dims[0].segments.insert(
        g.graph.values[value].layout.dims[0].segments.begin(), Segment{});
  EXPECT_EQ(tags(enumerateStrategies(g.graph, 0, {}, tp)),
            (std::vector<std::string>{"", loopTag('d')}));
}

TEST(BatchStrategy, LeavesWholeWhatTheAxesDoNotDivide) {
  GraphBuilder g({{'b', 6}, {'i', 4}});
  g.graph.batchFactor = 'b';
  g.forward("copy", "bi->bi", {g.input("x", "bi")});
  EXPECT_EQ(batchStrategy(g.graph, 0, {dp}).loopAxes.size(), 1u);
  EXPECT_TRUE(batchStrategy(g.graph, 0, {tp}).loopAxes.empty());
  EXPECT_TRUE(batchStrategy(g.graph, 0, {}).loopAxes.empty());
}

//===----------------------------------------------------------------------===//
// Backward ops
//===----------------------------------------------------------------------===//

/// A convolution with one factor c for input and output channels, as residual networks force it.
struct Convolution {
  GraphBuilder g{{{'n', 8}, {'o', 8}, {'c', 8}, {'x', 5}, {'k', 3}}};
  int dx, dw;

  Convolution() {
    g.alias('o', 'c');
    g.fix('x');
    g.fix('k');
    int x = g.input("x", "ncx"), w = g.parameter("w", "ock");
    int y = g.forward("conv", "ncx,ock->nox", {x, w});
    int dy = g.generator("dy", "nox");
    g.graph.values[dy].cotangentOf = y;
    dx = g.backward("conv.bwd.x", y, "nox,ock->ncx", {dy, w}, {x});
    dw = g.backward("conv.bwd.w", y, "ncx,nox->ock", {x, dy}, {w});
  }
  /// Returns the loop of op `op` through dim `dim` of operand `operand`.
  int loopAt(int op, int operand, int dim) const {
    const std::vector<Loop> &loops = g.graph.ops[op].loops;
    for (size_t i = 0; i < loops.size(); ++i)
      for (const TensorDim &d : loops[i].operandDims)
        if (d.tensor == operand && d.dim == dim)
          return static_cast<int>(i);
    return -1;
  }
  Sharding result(int value, char forwardLoop) {
    std::vector<OpStrategy> strategies(g.graph.ops.size());
    strategies[0].loopAxes[loopAt(0, 1, forwardLoop == 'o' ? 0 : 1)] = {tp};
    int op = g.graph.values[value].producer;
    return resultSharding(g.graph, op, inheritStrategy(g.graph, op, strategies), 0);
  }
};

TEST(InheritStrategy, TellsInputFromOutputChannelsOfOneFactor) {
  Convolution c;
  // Output channels sharded (column): dx is a partial sum, dw is sharded on its first dim.
  EXPECT_EQ(c.result(c.dx, 'o'), (Sharding{{}, {{tp}}, {}}));
  EXPECT_EQ(c.result(c.dw, 'o'), (Sharding{{{0, 'c', {tp}}}, {}, {}}));
  // Input channels sharded (row): dx is sharded on its channels, dw on its second dim.
  EXPECT_EQ(c.result(c.dx, 'i'), (Sharding{{{1, 'c', {tp}}}, {}, {}}));
  EXPECT_EQ(c.result(c.dw, 'i'), (Sharding{{{1, 'c', {tp}}}, {}, {}}));
}

TEST(InheritStrategy, LoopsElsewhereGoByTheirFactorIfItIsUnique) {
  GraphBuilder g({{'s', 8}, {'f', 8}});
  int x = g.input("x", "sf");
  int y = g.forward("gelu", "sf->sf", {x});
  int other = g.input("saved", "sf"); // no operand, result or cotangent of the forward op
  int dx = g.backward("gelu.bwd", y, "sf->sf", {other});
  std::vector<OpStrategy> strategies(g.graph.ops.size());
  test::shard(g.graph, strategies[0], 0, 'f', {tp});
  int op = g.graph.values[dx].producer;
  EXPECT_EQ(resultSharding(g.graph, op, inheritStrategy(g.graph, op, strategies), 0),
            (Sharding{{{1, 'f', {tp}}}, {}, {}}));
  g.graph.ops[op].forwardOp = -1;
  EXPECT_TRUE(inheritStrategy(g.graph, op, strategies).loopAxes.empty());
}

TEST(InheritStrategy, FixedLoopStaysWhole) {
  GraphBuilder g({{'s', 8}, {'f', 8}});
  int x = g.input("x", "sf");
  int y = g.forward("op", "sf->sf", {x});
  g.fix('f');
  int dx = g.backward("op.bwd", y, "sf->sf", {y}, {x});
  std::vector<OpStrategy> strategies(g.graph.ops.size());
  test::shard(g.graph, strategies[0], 0, 'f', {tp});
  int op = g.graph.values[dx].producer;
  EXPECT_TRUE(inheritStrategy(g.graph, op, strategies).loopAxes.empty());
}

} // namespace
} // namespace tbc::reshard
