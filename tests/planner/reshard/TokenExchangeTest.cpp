//===- TokenExchangeTest.cpp - Tokens that travel to their experts ---------===//

#include "planner/reshard/TokenExchange.h"
#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

const Mesh expertMesh{{{"dp", 2}, {"ep", 4}, {"tp", 2}}};
const AxisRef data = wholeAxis(expertMesh, 0), ep = wholeAxis(expertMesh, 1),
              tensor = wholeAxis(expertMesh, 2);

/// 16 tokens b of width h, each routed to 2 of 4 experts e with inner width f; forward and
/// backward.
struct Experts {
  GraphBuilder g{{{'b', 16}, {'h', 8}, {'o', 8}, {'e', 4}, {'f', 32}}};
  Assignment a;
  int x, weights, y, dy, dx;

  Experts() {
    int input = g.input("input", "bh"), seed = g.input("seed", "bo");
    int router = g.parameter("router", "he");
    int in = g.parameter("in", "efh"), out = g.parameter("out", "eof");
    x = g.forward("pre", "bh->bh", {input});
    weights = g.forward("score", "bh,he->be", {x, router});
    y = g.forward("experts", "bh,be,efh,eof->bo", {x, weights, in, out});
    int z = g.forward("post", "bo->bo", {y});
    dy = g.backward("post.bwd", z, "bo,bo->bo", {seed, y}, {y});
    dx = g.backward("experts.bwd", y, "bo,bh,be,efh,eof->bh", {dy, x, weights, in, out}, {x});
    g.backward("pre.bwd", x, "bh->bh", {dx});
    for (int value : {y, dx}) {
      GraphOp &op = g.opOf(value);
      auto loopOf = [&](char letter) {
        for (size_t i = 0; i < op.loops.size(); ++i)
          if (op.loops[i].factor == letter)
            return int(i);
        return -1;
      };
      op.routing = {loopOf('e'), loopOf('f'), /*copies=*/2, /*inner=*/3};
    }
    a = test::replicated(g.graph, expertMesh);
    a.exchangesTokens = true;
    for (size_t op = 0; op < g.graph.ops.size(); ++op) {
      const bool isExperts = g.graph.ops[op].routing.copies > 0;
      shard(op, 'b', isExperts ? std::vector<AxisRef>{data} : std::vector<AxisRef>{data, ep});
      if (isExperts)
        shard(op, 'e', {ep});
    }
  }

  void shard(size_t op, char letter, const std::vector<AxisRef> &axes) {
    test::shard(g.graph, a.strategies[op], int(op), letter, axes);
  }
};

/// "kind(axes) value bytes" of the collectives over ep on activations with a row for each token.
std::vector<std::string> exchanges(const Experts &of, const Derivation &derivation) {
  std::vector<std::string> lines;
  for (const Reshard &reshard : derivation.reshards)
    for (const Collective &step : reshard.steps)
      if (reshard.where == Where::Operand && reshard.value != of.weights)
        lines.push_back(std::string(name(step.kind)) + "(" + toString(expertMesh, step.axes) +
                        ") " + of.g.graph.values[size_t(reshard.value)].name + " " +
                        std::to_string(step.bytes));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(TokenExchange, SendsEachCopyOnceInPlaceOfAGather) {
  Experts of;
  // A rank has 2 tokens of 32 bytes, and 2 copies of each.
  const Derivation exchanged = derive(of.g.graph, of.a);
  EXPECT_EQ(exchanges(of, exchanged),
            (Lines{"all_to_all(ep) pre 128", "all_to_all(ep) experts 128",
                   "all_to_all(ep) post.bwd 128", "all_to_all(ep) experts.bwd 128"}));
  of.a.exchangesTokens = false;
  const Derivation gathered = derive(of.g.graph, of.a);
  EXPECT_EQ(exchanges(of, gathered),
            (Lines{"all_gather(ep) pre 256", "reduce_scatter(ep) experts 256",
                   "all_gather(ep) post.bwd 256", "reduce_scatter(ep) experts.bwd 256"}))
      << "x is kept as gathered";
  EXPECT_TRUE(gathered.routed.empty());
}

TEST(TokenExchange, RanksHoldTheRowsOfTheirExperts) {
  const Experts of;
  const Derivation derivation = derive(of.g.graph, of.a);
  const Sharding &gathered = derivation.operands[size_t(of.g.opIndex("experts"))][0].sharding;
  EXPECT_EQ(localBytes(of.g.graph.values[size_t(of.x)].layout, gathered), 256);
  EXPECT_EQ(derivation.bytesOf(of.g.graph, of.x, gathered), 128);
  EXPECT_EQ(derivation.bytesOf(of.g.graph, of.x, derivation.home[size_t(of.x)]), 64);
  EXPECT_EQ(derivation.bytesOf(of.g.graph, of.y, derivation.raw[size_t(of.y)]), 128);
  // 4 rows, each with 3 * 32 inner values of 4 bytes.
  ASSERT_EQ(derivation.keptRows.size(), 1u);
  EXPECT_EQ(derivation.keptRows[0].bytes, 4 * (32 + 3 * 32 * 4));
}

/// Of 4 ranks, one cannot have more than all copies.
TEST(TokenExchange, TheFullestRankHasMoreThanTheMean) {
  for (const auto &[imbalance, times] : {std::pair(1.5, 1.5), {4.0, 4.0}, {100.0, 4.0}}) {
    Experts of;
    of.g.graph = withExpertImbalance(of.g.graph, imbalance);
    const Derivation derivation = derive(of.g.graph, of.a);
    const std::string bytes = std::to_string(int64_t(128 * times));
    EXPECT_EQ(exchanges(of, derivation),
              (Lines{"all_to_all(ep) pre " + bytes, "all_to_all(ep) experts " + bytes,
                     "all_to_all(ep) post.bwd " + bytes, "all_to_all(ep) experts.bwd " + bytes}));
    ASSERT_EQ(derivation.keptRows.size(), 1u);
    EXPECT_EQ(derivation.keptRows[0].bytes, int64_t(4 * (32 + 3 * 32 * 4) * times));
  }
}

TEST(TokenExchange, RanksWithAllExpertsHaveNoImbalance) {
  Experts of;
  of.g.graph = withExpertImbalance(of.g.graph, 1.5);
  EXPECT_TRUE(routesTokens(of.g.graph));
  for (size_t op = 0; op < of.g.graph.ops.size(); ++op) {
    of.a.strategies[op] = {};
    of.shard(op, 'b', {data, ep});
  }
  const Derivation derivation = derive(of.g.graph, of.a);
  ASSERT_EQ(derivation.keptRows.size(), 1u);
  EXPECT_EQ(derivation.keptRows[0].bytes, 4 * (32 + 3 * 32 * 4));
}

TEST(TokenExchange, RecomputedExpertsKeepNoRows) {
  Experts of;
  of.g.opOf(of.y).isRecomputed = true;
  const Derivation derivation = derive(of.g.graph, of.a);
  EXPECT_TRUE(derivation.keptRows.empty());
  EXPECT_FALSE(derivation.residuals.empty()) << "x is kept in their place";
}

TEST(TokenExchange, WithoutRanksForExpertsTheCopiesAreKeptBesideTheTokens) {
  Experts of;
  for (size_t op = 0; op < of.g.graph.ops.size(); ++op) {
    of.a.strategies[op] = {};
    of.shard(op, 'b', {data, ep});
  }
  const Derivation derivation = derive(of.g.graph, of.a);
  EXPECT_EQ(exchanges(of, derivation), Lines());
  ASSERT_EQ(derivation.keptRows.size(), 1u);
  EXPECT_EQ(derivation.keptRows[0].bytes, 4 * (32 + 3 * 32 * 4));
}

TEST(TokenExchange, AReaderOfAllTokensGathersThem) {
  Experts of;
  int other = of.g.forward("other", "bh->bh", {of.x});
  of.a.strategies.emplace_back();
  of.shard(size_t(of.g.opIndex("other")), 'b', {data});
  (void)other;
  // The op stands behind the backward ops, which derive does not mind.
  const Derivation derivation = derive(of.g.graph, of.a);
  EXPECT_EQ(exchanges(of, derivation).front(), "all_gather(ep) pre 256");
}

TEST(TokenExchange, OtherAxesAreGatheredBehindAndReducedBefore) {
  const ExpertRows rows{{ep}, 0.5};
  Collective gather;
  gather.kind = CollectiveKind::AllGather;
  gather.axes = {ep, tensor};
  gather.dim = 0;
  gather.bytes = 1024; // of 8 ranks
  std::vector<Collective> steps{gather};
  ASSERT_TRUE(exchangeTokens(steps, rows));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].kind, CollectiveKind::AllToAll);
  EXPECT_EQ(steps[0].tokens, TokenWay::Out);
  EXPECT_EQ(steps[0].bytes, 256);
  EXPECT_EQ(steps[1].kind, CollectiveKind::AllGather);
  EXPECT_EQ(steps[1].axes, std::vector<AxisRef>{tensor});
  EXPECT_EQ(steps[1].bytes, 512);

  gather.kind = CollectiveKind::ReduceScatter;
  steps = {gather};
  ASSERT_TRUE(exchangeTokens(steps, rows));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].kind, CollectiveKind::ReduceScatter);
  EXPECT_EQ(steps[1].tokens, TokenWay::Back);

  gather.axes = {tensor};
  steps = {gather};
  EXPECT_FALSE(exchangeTokens(steps, rows));
  EXPECT_EQ(steps.size(), 1u);
}

} // namespace
} // namespace tbc::reshard
