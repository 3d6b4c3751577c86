//===- ContextTest.cpp - The sequence of a sample split over ranks ---------===//

#include "planner/reshard/SequenceOrder.h"
#include "tests/planner/reshard/GraphBuilder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <set>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;
using testing::HasSubstr;

const Mesh mesh{{{"cp", 4}, {"tp", 2}}};
const AxisRef cp = wholeAxis(mesh, 0), tp = wholeAxis(mesh, 1);

/// Queries s and keys t, both over the sequence, with heads h; o, and from o, q, k its gradients.
struct Attention {
  explicit Attention(LoopKind keys = LoopKind::Streamed, int64_t tokens = 16)
      : g({{'h', 8}, {'s', tokens}, {'t', tokens}, {'d', 2}}) {
    g.alias('t', 's');
    g.graph.sequenceFactor = 's';
    int q = g.input("q", "hsd"), k = g.input("k", "htd");
    int places = g.generator("places", "t");
    int o = g.forward("attend", "hsd,htd,t->hsd", {q, k, places});
    g.backward("attend.bwd", o, "hsd,hsd,htd,t->hsd,htd", {o, q, k, places}, {q, k});
    for (GraphOp &op : g.graph.ops)
      for (Loop &loop : op.loops) {
        bool isKeys = loop.operandDims.size() > 1 && loop.operandDims.back().dim == 0;
        if (op.generator || loop.factor != 's')
          continue;
        if (isKeys)
          loop.kind = keys;
        else if (op.phase == Phase::Backward)
          loop.kind = LoopKind::Reduction;
      }
  }
  OpStrategy strategy(ContextForm form, OpStrategy base = {}) const {
    return contextStrategy(g.graph, forward(), base, {cp}, form);
  }
  int forward() const { return g.opIndex("attend"); }
  int backward() const { return g.opIndex("attend.bwd"); }

  GraphBuilder g;
};

Sharding at(int dim, FactorId factor, std::vector<AxisRef> axes) {
  return Sharding{{{dim, factor, std::move(axes)}}, {}, {}};
}

TEST(ContextStrategy, GathersKeys) {
  Attention a;
  OpStrategy strategy = a.strategy(ContextForm::AllGather);
  EXPECT_EQ(operandSharding(a.g.graph, a.forward(), strategy, 0), at(1, 's', {cp}));
  EXPECT_EQ(operandSharding(a.g.graph, a.forward(), strategy, 1), Sharding());
  std::vector<OpStrategy> all(a.g.graph.ops.size());
  all[a.forward()] = strategy;
  OpStrategy backward = inheritStrategy(a.g.graph, a.backward(), all);
  EXPECT_EQ(resultSharding(a.g.graph, a.backward(), backward, 0), at(1, 's', {cp}));
  EXPECT_EQ(resultSharding(a.g.graph, a.backward(), backward, 1), (Sharding{{}, {{cp}}, {}}));
  EXPECT_TRUE(ringCollectives(a.g.graph, a.backward(), backward).empty());
}

TEST(ContextStrategy, SplitsHeadsInstead) {
  Attention a;
  EXPECT_EQ(operandSharding(a.g.graph, a.forward(), a.strategy(ContextForm::AllToAll), 1),
            at(0, 'h', {cp}));
  // It goes after the axes that lie there already: an all_to_all appends its axis.
  OpStrategy base;
  test::shard(a.g.graph, base, a.forward(), 'h', {tp});
  EXPECT_EQ(operandSharding(a.g.graph, a.forward(), a.strategy(ContextForm::AllToAll, base), 1),
            at(0, 'h', {tp, cp}));
}

TEST(ContextStrategy, StreamsKeysAndSumsTheirGradientsOnTheWay) {
  Attention a;
  OpStrategy strategy = a.strategy(ContextForm::Ring);
  EXPECT_EQ(streamedBlocks(a.g.graph, a.forward(), strategy), 4);
  EXPECT_EQ(operandSharding(a.g.graph, a.forward(), strategy, 1), at(1, 's', {cp}));
  EXPECT_EQ(resultSharding(a.g.graph, a.forward(), strategy, 0), at(1, 's', {cp}));
  std::vector<OpStrategy> all(a.g.graph.ops.size());
  all[a.forward()] = strategy;
  OpStrategy backward = inheritStrategy(a.g.graph, a.backward(), all);
  EXPECT_EQ(resultSharding(a.g.graph, a.backward(), backward, 0), at(1, 's', {cp}));
  EXPECT_EQ(resultSharding(a.g.graph, a.backward(), backward, 1), at(1, 's', {cp}));
  // k makes three passes around the ring, dk four, back to its rank. Positions are constant-derived
  // and do not travel.
  EXPECT_EQ(ringCollectives(a.g.graph, a.forward(), strategy).size(), 3u);
  std::vector<Collective> steps = ringCollectives(a.g.graph, a.backward(), backward);
  ASSERT_EQ(steps.size(), 3u + 4u);
  for (const Collective &step : steps) {
    EXPECT_EQ(step.kind, CollectiveKind::Permute);
    EXPECT_EQ(step.bytes, 8 * 4 * 2 * 4); // h, a fourth of t, d, 4 bytes each
  }
}

TEST(ContextStrategy, KeysStreamOnlyWhereQueriesAreSplitAlike) {
  Attention a;
  Assignment assignment = test::replicated(a.g.graph, mesh);
  assignment.strategies[a.forward()] = a.strategy(ContextForm::Ring);
  EXPECT_EQ(whyInvalid(a.g.graph, assignment), "");
  for (size_t loop = 0; loop < a.g.graph.ops[a.forward()].loops.size(); ++loop)
    if (a.g.graph.ops[a.forward()].loops[loop].kind != LoopKind::Streamed)
      assignment.strategies[a.forward()].loopAxes.erase(int(loop));
  EXPECT_THAT(whyInvalid(a.g.graph, assignment), HasSubstr("axes of another loop only"));
}

TEST(WhyNoContext, SaysWhatElseCanBe) {
  EXPECT_EQ(whyNoContext(Attention().g.graph, 4, ContextForm::Ring), "");
  EXPECT_THAT(whyNoContext(Attention(LoopKind::Fixed).g.graph, 4, ContextForm::Ring),
              HasSubstr("use --context all-gather or all-to-all"));
  EXPECT_EQ(whyNoContext(Attention(LoopKind::Fixed).g.graph, 4, ContextForm::AllGather), "");
  EXPECT_THAT(whyNoContext(Attention().g.graph, 16, ContextForm::AllToAll),
              HasSubstr("such as heads, that divides by 16"));
  EXPECT_THAT(whyNoContext(Attention().g.graph, 3, ContextForm::Ring),
              HasSubstr("16 tokens, which do not divide by 3"));
  EXPECT_THAT(whyNoContext(test::mlp(2, 2, 2, 2).graph, 2, ContextForm::Ring),
              HasSubstr("no sequence dim"));
}

TEST(Zigzag, EveryRankHasAnEarlyAndALatePart) {
  for (int64_t ranks : {1, 2, 4, 5}) {
    std::set<int64_t> parts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(zigzagPart(2 * rank, ranks) + zigzagPart(2 * rank + 1, ranks), 2 * ranks - 1);
      parts.insert({zigzagPart(2 * rank, ranks), zigzagPart(2 * rank + 1, ranks)});
    }
    EXPECT_EQ(int64_t(parts.size()), 2 * ranks);
  }
}

TEST(Zigzag, IsRefusedWhereTheOrderMatters) {
  EXPECT_EQ(whyNoZigzag(Attention().g.graph, 4), "");
  EXPECT_THAT(whyNoZigzag(Attention(LoopKind::Streamed, 12).g.graph, 4),
              HasSubstr("do not divide by twice 4"));
  Attention table;
  table.g.parameter("wpe", "sd");
  EXPECT_THAT(whyNoZigzag(table.g.graph, 4), HasSubstr("\"wpe\" has an entry for every place"));
  EXPECT_THAT(whyNoZigzag(Attention(LoopKind::Fixed).g.graph, 4),
              HasSubstr("takes the sequence in its original order"));
}

} // namespace
} // namespace tbc::reshard
