//===- DeriveTest.cpp - The rules of derive, one by one --------------------===//

#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

#include <algorithm>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

const Mesh mesh{{{"dp", 2}, {"tp", 4}}};
const AxisRef dp = wholeAxis(mesh, 0), tp = wholeAxis(mesh, 1);

/// Shards the letters given as {op id, letter} over tp.
void shardTp(const GraphBuilder &g, Assignment &a,
             const std::vector<std::pair<std::string, char>> &loops) {
  for (const auto &[id, letter] : loops) {
    int op = g.opIndex(id);
    test::shard(g.graph, a.strategies[op], op, letter, {tp});
  }
}

/// "kind(axes) value@op" per collective of the derivation, in program order.
std::vector<std::string> trace(const GraphBuilder &g, const Assignment &a, const Derivation &d,
                               Phase phase) {
  std::vector<std::string> result;
  for (const Reshard &reshard : d.reshards)
    for (const Collective &c : reshard.steps)
      if (reshard.phase == phase)
        result.push_back(std::string(name(c.kind)) + "(" + toString(a.mesh, c.axes) + ") " +
                         g.graph.values[reshard.value].name +
                         (reshard.op < 0 ? "" : " before " + g.graph.ops[reshard.op].id));
  return result;
}

using Trace = std::vector<std::string>;

//===----------------------------------------------------------------------===//
// Tensor parallelism
//===----------------------------------------------------------------------===//

/// x + fc2(gelu(fc1(x))), forward and backward; dy comes as an input.
struct MlpBlock {
  GraphBuilder g{{{'s', 8}, {'d', 8}, {'f', 16}}};
  Assignment a;

  MlpBlock() {
    int x = g.input("x", "sd"), dy = g.input("dy", "sd");
    int w1 = g.parameter("w1", "df"), w2 = g.parameter("w2", "fd");
    int h = g.forward("fc1", "sd,df->sf", {x, w1});
    int a1 = g.forward("gelu", "sf->sf", {h});
    int o = g.forward("fc2", "sf,fd->sd", {a1, w2});
    int y = g.sum("residual", Phase::Forward, {x, o});
    int z = g.forward("next", "sd->sd", {y});
    int dya = g.backward("next.bwd", z, "sd,sd->sd", {dy, y}, {y});
    int da = g.backward("fc2.bwd.x", o, "sd,fd->sf", {dya, w2}, {a1});
    int dw2 = g.backward("fc2.bwd.w", o, "sf,sd->fd", {a1, dya}, {w2});
    int dh = g.backward("gelu.bwd", a1, "sf,sf->sf", {h, da}, {h});
    int dx1 = g.backward("fc1.bwd.x", h, "sf,df->sd", {dh, w1}, {x});
    int dw1 = g.backward("fc1.bwd.w", h, "sd,sf->df", {x, dh}, {w1});
    int dx = g.sum("residual.bwd", Phase::Backward, {dya, dx1});
    g.backward("first.bwd", h, "sd->sd", {dx});
    g.gradient(w1, dw1);
    g.gradient(w2, dw2);
    a = test::replicated(g.graph, mesh);
    for (const char *id :
         {"fc1", "gelu", "fc2", "fc2.bwd.x", "fc2.bwd.w", "gelu.bwd", "fc1.bwd.x", "fc1.bwd.w"})
      shardTp(g, a, {{id, 'f'}});
  }
};

TEST(TensorParallel, MlpBlockIsOneAllReduceEachWay) {
  MlpBlock b;
  Derivation d = derive(b.g.graph, b.a);
  EXPECT_EQ(trace(b.g, b.a, d, Phase::Forward), (Trace{"all_reduce(tp) fc2"}));
  EXPECT_EQ(trace(b.g, b.a, d, Phase::Backward), (Trace{"all_reduce(tp) fc1.bwd.x"}));
  // Weights live on their tp shard, as do their gradients.
  EXPECT_EQ(d.stored[0], (Sharding{{{1, 'f', {tp}}}, {}, {}}));
  EXPECT_EQ(d.gradient[1], (Sharding{{{0, 'f', {tp}}}, {}, {}}));
}

TEST(TensorParallel, ZeroOnTopCutsTheLocalTensorFlat) {
  MlpBlock b;
  for (ParameterPlan &plan : b.a.parameterPlans)
    plan = {3, false, {dp}, {}};
  Derivation d = derive(b.g.graph, b.a);
  Sharding expected{{{1, 'f', {tp}}}, {}, {dp}};
  EXPECT_EQ(d.stored[0], expected);
  EXPECT_EQ(d.state[0], expected);
  EXPECT_EQ(d.gradient[0], expected);
  EXPECT_EQ(localShape(b.g.graph.values[b.g.valueIndex("w1")].layout, d.stored[0]),
            (std::vector<int64_t>{8 * 16 / 4 / 2}));
  auto counts = countCollectives(b.g.graph, b.a, d);
  for (const CollectiveCount &c : counts)
    if (c.kind == CollectiveKind::AllGather) {
      EXPECT_EQ(c.bytes, 8 * 16 / 4 * 4);
    }
  EXPECT_EQ(test::executions(counts, CollectiveKind::AllGather, "dp"), 4);
}

TEST(TensorParallel, ZeroAxisThatShardsTheParameterAnyhowIsLeftOut) {
  MlpBlock b;
  for (ParameterPlan &plan : b.a.parameterPlans)
    plan = {3, false, {dp, tp}, {}};
  EXPECT_EQ(derive(b.g.graph, b.a).stored[0], (Sharding{{{1, 'f', {tp}}}, {}, {dp}}));
}

TEST(TensorParallel, GradientPartialOverTpIsCompletedEachMicroBatch) {
  // Rows of s on tp (sequence parallel weights of a norm): dw is partial over tp and dp.
  GraphBuilder g({{'b', 4}, {'s', 8}, {'d', 8}});
  g.graph.batchFactor = 'b';
  int x = g.input("x", "bsd"), w = g.parameter("w", "d");
  int y = g.forward("norm", "bsd,d->bsd", {x, w});
  g.gradient(w, g.backward("norm.bwd.w", y, "bsd,bsd->d", {x, y}, {w}));
  Assignment a = test::dataParallel(g.graph, mesh, {dp});
  shardTp(g, a, {{"norm", 's'}, {"norm.bwd.w", 's'}});
  a.microBatches = 5;
  auto counts = countCollectives(g.graph, a, derive(g.graph, a));
  EXPECT_EQ(test::show(counts), "stage 0 all_reduce(dp) 32 x 1\nstage 0 all_reduce(tp) 32 x 5\n");
}

TEST(TensorParallel, SumsOfQkvGradientsAreDeferred) {
  GraphBuilder g({{'s', 8}, {'d', 8}, {'h', 16}});
  int x = g.input("x", "sd"), dout = g.input("dout", "sh");
  std::vector<int> weights, products, cotangents, dx;
  for (const char *n : {"q", "k", "v"}) {
    weights.push_back(g.parameter(std::string("w") + n, "dh"));
    products.push_back(g.forward(n, "sd,dh->sh", {x, weights.back()}));
  }
  int o = g.forward("attention", "sh,sh,sh->sh", products);
  int dq = g.backward("attention.bwd", o, "sh,sh,sh,sh->sh,sh,sh",
                      {dout, products[0], products[1], products[2]}, products);
  for (int i = 0; i < 3; ++i)
    dx.push_back(g.backward(std::string("qkv"[i] + std::string(".bwd.x")), products[i], "sh,dh->sd",
                            {dq + i, weights[i]}, {x}));
  int dqk = g.sum("dqk", Phase::Backward, {dx[0], dx[1]});
  int dqkv = g.sum("dqkv", Phase::Backward, {dqk, dx[2]});
  g.backward("first.bwd", products[0], "sd->sd", {dqkv});
  Assignment a = test::replicated(g.graph, mesh);
  for (const char *id :
       {"q", "k", "v", "attention", "attention.bwd", "q.bwd.x", "k.bwd.x", "v.bwd.x"})
    shardTp(g, a, {{id, 'h'}});
  Derivation d = derive(g.graph, a);
  EXPECT_EQ(trace(g, a, d, Phase::Forward), Trace{});
  EXPECT_EQ(trace(g, a, d, Phase::Backward), (Trace{"all_reduce(tp) dqkv"}));
  EXPECT_EQ(d.home[dqk], (Sharding{{}, {{tp}}, {}}));
  EXPECT_EQ(d.home[dqkv], Sharding{});
}

TEST(TensorParallel, SumWithACompleteValueIsNotDeferred) {
  MlpBlock b;
  Derivation d = derive(b.g.graph, b.a);
  EXPECT_TRUE(d.home[b.g.valueIndex("fc2")].partial.empty());
  EXPECT_FALSE(d.raw[b.g.valueIndex("fc2")].partial.empty());
}

TEST(TensorParallel, ValueWithTwoUsersIsNotDeferred) {
  GraphBuilder g({{'s', 8}, {'f', 8}, {'d', 4}});
  int x = g.input("x", "sf"), w = g.input("w", "fd");
  int p = g.forward("p", "sf,fd->sd", {x, w}), q = g.forward("q", "sf,fd->sd", {x, w});
  int r = g.sum("r", Phase::Forward, {p, q});
  g.forward("use", "sd,sd->sd", {r, p});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"p", 'f'}, {"q", 'f'}});
  EXPECT_EQ(trace(g, a, derive(g.graph, a), Phase::Forward),
            (Trace{"all_reduce(tp) p", "all_reduce(tp) q"}));
}

TEST(TensorParallel, VocabularyParallelEmbeddingIsOneAllReduce) {
  GraphBuilder g({{'v', 16}, {'d', 8}, {'s', 4}});
  int ids = g.input("ids", "s"), e = g.parameter("wte", "vd");
  int y = g.forward("embed", "vd,s->sd", {e, ids});
  int z = g.forward("next", "sd->sd", {y});
  int dy = g.backward("next.bwd", z, "sd->sd", {z}, {y});
  g.gradient(e, g.backward("embed.bwd", y, "sd,s->vd", {dy, ids}, {e}));
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"embed", 'v'}, {"embed.bwd", 'v'}});
  Derivation d = derive(g.graph, a);
  EXPECT_EQ(trace(g, a, d, Phase::Forward), (Trace{"all_reduce(tp) embed"}));
  EXPECT_EQ(trace(g, a, d, Phase::Backward), Trace{});
  EXPECT_EQ(d.gradient[0], (Sharding{{{0, 'v', {tp}}}, {}, {}}));
}

//===----------------------------------------------------------------------===//
// Rule 1: completion
//===----------------------------------------------------------------------===//

/// A partial value with two users.
struct TwoUsers {
  GraphBuilder g{{{'s', 8}, {'f', 8}, {'d', 8}}};
  Assignment a;
  TwoUsers() {
    int p = g.forward("p", "sf,fd->sd", {g.input("x", "sf"), g.input("w", "fd")});
    g.forward("one", "sd->sd", {p});
    g.forward("two", "sd->sd", {p});
    a = test::replicated(g.graph, mesh);
    shardTp(g, a, {{"p", 'f'}});
  }
};

TEST(Completion, ScattersWhereAllUsersAgree) {
  TwoUsers t;
  shardTp(t.g, t.a, {{"one", 's'}, {"two", 's'}});
  Derivation d = derive(t.g.graph, t.a);
  EXPECT_EQ(trace(t.g, t.a, d, Phase::Forward), (Trace{"reduce_scatter(tp) p"}));
  EXPECT_EQ(d.home[t.g.valueIndex("p")], (Sharding{{{0, 's', {tp}}}, {}, {}}));
}

TEST(Completion, ReducesWhereOneUserWantsItWhole) {
  TwoUsers t;
  shardTp(t.g, t.a, {{"one", 's'}});
  EXPECT_EQ(trace(t.g, t.a, derive(t.g.graph, t.a), Phase::Forward),
            (Trace{"all_reduce(tp) p", "shard_slice(tp) p before one"}));
}

TEST(Completion, ReducesWhereUsersDisagree) {
  TwoUsers t;
  shardTp(t.g, t.a, {{"one", 's'}, {"two", 'd'}});
  EXPECT_EQ(
      trace(t.g, t.a, derive(t.g.graph, t.a), Phase::Forward),
      (Trace{"all_reduce(tp) p", "shard_slice(tp) p before one", "shard_slice(tp) p before two"}));
}

TEST(Completion, BackwardUsersCountToo) {
  TwoUsers t;
  t.g.backward("one.bwd", t.g.valueIndex("one"), "sd->sd", {t.g.valueIndex("p")});
  t.a = test::replicated(t.g.graph, mesh);
  shardTp(t.g, t.a, {{"p", 'f'}, {"one", 's'}, {"two", 's'}});
  EXPECT_EQ(trace(t.g, t.a, derive(t.g.graph, t.a), Phase::Forward)[0], "all_reduce(tp) p");
}

TEST(Completion, ScatteredAxisGoesBehindTheOthersOnItsFactor) {
  // s lies on dp already. Users want [dp, tp], so tp may be appended; for [tp, dp] it may not.
  for (bool appended : {true, false}) {
    TwoUsers t;
    int p = t.g.opIndex("p");
    test::shard(t.g.graph, t.a.strategies[p], p, 's', {dp});
    for (const char *id : {"one", "two"}) {
      int op = t.g.opIndex(id);
      std::vector<AxisRef> axes = {dp, tp};
      if (!appended)
        std::reverse(axes.begin(), axes.end());
      test::shard(t.g.graph, t.a.strategies[op], op, 's', axes);
    }
    Derivation d = derive(t.g.graph, t.a);
    EXPECT_EQ(d.home[t.g.valueIndex("p")].factors[0].axes.size(), appended ? 2u : 1u);
    EXPECT_EQ(d.reshards[0].steps[0].kind,
              appended ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce);
  }
}

TEST(Completion, UnusedValueIsLeftPartial) {
  GraphBuilder g({{'s', 8}, {'f', 8}, {'d', 4}});
  g.forward("p", "sf,fd->sd", {g.input("x", "sf"), g.input("w", "fd")});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"p", 'f'}});
  EXPECT_TRUE(derive(g.graph, a).reshards.empty());
}

TEST(Completion, NewStateComesHome) {
  // Running statistics: a mean over the batch, with the sharding of the state that it replaces.
  GraphBuilder g({{'b', 8}, {'c', 8}});
  int x = g.input("x", "bc"), mean = g.state("mean", "c");
  g.forward("normalise", "bc,c->bc", {x, mean});
  int fresh = g.forward("statistics", "bc,c->c", {x, mean});
  g.graph.stateUpdates.push_back({mean, fresh});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"normalise", 'c'}, {"statistics", 'b'}});
  Derivation d = derive(g.graph, a);
  EXPECT_EQ(d.home[mean], (Sharding{{{0, 'c', {tp}}}, {}, {}})); // the first of two wishes
  EXPECT_EQ(d.home[fresh], d.home[mean]);
  EXPECT_EQ(d.reshards.back().value, fresh);
  EXPECT_EQ(d.reshards.back().steps[0].kind, CollectiveKind::ReduceScatter);
}

TEST(Completion, LossIsCompletedOncePerStep) {
  GraphBuilder g = test::mlp(8, 3, 5, 2);
  Assignment a = test::dataParallel(g.graph, mesh, {dp});
  a.microBatches = 7;
  Derivation d = derive(g.graph, a);
  auto loss = std::find_if(d.reshards.begin(), d.reshards.end(),
                           [](const Reshard &r) { return r.where == Where::Loss; });
  ASSERT_NE(loss, d.reshards.end());
  EXPECT_TRUE(loss->perStep);
  EXPECT_EQ(loss->steps[0].bytes, 4);
  EXPECT_FALSE(d.home[g.graph.loss].partial.empty());
}

//===----------------------------------------------------------------------===//
// Rules 2 and 3: reuse and residuals
//===----------------------------------------------------------------------===//

TEST(Reuse, SecondUseInTheSameShardingIsFree) {
  GraphBuilder g({{'s', 8}, {'d', 8}, {'f', 8}});
  int y = g.forward("y", "sd->sd", {g.input("x", "sd")}), w = g.input("w", "df");
  g.forward("one", "sd,df->sf", {y, w});
  g.forward("two", "sd,df->sf", {y, w});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"y", 's'}, {"one", 'f'}, {"two", 'f'}});
  Derivation d = derive(g.graph, a);
  EXPECT_EQ(trace(g, a, d, Phase::Forward), (Trace{"all_gather(tp) y before one"}));
  EXPECT_EQ(d.operands[g.opIndex("one")][0].reshard, 0);
  EXPECT_EQ(d.operands[g.opIndex("two")][0].reshard, 0);
  EXPECT_EQ(d.operands[g.opIndex("one")][1].reshard, -1);
}

/// y with s on tp, gathered in forward; backward reads it.
struct Kept {
  GraphBuilder g{{{'s', 8}, {'d', 8}, {'f', 8}}};
  int y;
  Assignment a;
  Kept() {
    y = g.forward("y", "sd->sd", {g.input("x", "sd")});
    int z = g.forward("z", "sd,df->sf", {y, g.input("w", "df")});
    g.backward("first.bwd", z, "sf,sd->df", {z, y});
    g.backward("second.bwd", z, "sf,sd->df", {z, y});
    a = test::replicated(g.graph, mesh);
    shardTp(g, a, {{"y", 's'}, {"z", 'f'}, {"first.bwd", 'f'}, {"second.bwd", 'f'}});
  }
  Sharding residual(const Derivation &d) const {
    auto found = std::find_if(d.residuals.begin(), d.residuals.end(),
                              [&](const Residual &r) { return r.value == y; });
    return found == d.residuals.end() ? Sharding{{}, {{tp}}, {}} : found->sharding;
  }
};

TEST(Residuals, AreKeptAsBackwardWantsThemIfForwardHadThem) {
  Kept k;
  Derivation d = derive(k.g.graph, k.a);
  EXPECT_EQ(k.residual(d), Sharding{}); // gathered in forward, for z
  EXPECT_EQ(trace(k.g, k.a, d, Phase::Backward), Trace{});
}

TEST(Residuals, AreKeptAtHomeElseAndReshardedInBackward) {
  Kept k;
  // Backward wants d on tp; forward never had it.
  for (const char *id : {"first.bwd", "second.bwd"}) {
    int op = k.g.opIndex(id);
    k.a.strategies[op] = {};
    test::shard(k.g.graph, k.a.strategies[op], op, 'd', {tp});
  }
  Derivation d = derive(k.g.graph, k.a);
  EXPECT_EQ(k.residual(d), (Sharding{{{0, 's', {tp}}}, {}, {}}));
  Trace expected{"all_gather(tp) z before first.bwd", "all_to_all(tp) y before first.bwd"};
  EXPECT_EQ(trace(k.g, k.a, d, Phase::Backward), expected); // the second use shares both
}

TEST(Residuals, InputsThatBackwardReadsAreKept) {
  GraphBuilder g = test::mlp(8, 3, 5, 2);
  Assignment a = test::dataParallel(g.graph, mesh, {dp});
  Derivation d = derive(g.graph, a);
  std::vector<std::string> kept;
  for (const Residual &r : d.residuals)
    kept.push_back(g.graph.values[r.value].name);
  EXPECT_EQ(kept, (std::vector<std::string>{"bias2", "labels", "relu", "bias1", "x"}));
}

//===----------------------------------------------------------------------===//
// Rule 4: homes of parameters and inputs
//===----------------------------------------------------------------------===//

TEST(Homes, MajorityDecidesAndTheFirstOnATie) {
  GraphBuilder g({{'s', 8}, {'d', 8}, {'f', 8}});
  int x = g.input("x", "sd"), w = g.parameter("w", "df");
  g.forward("one", "sd,df->sf", {x, w});
  g.forward("two", "sd,df->sf", {x, w});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"one", 'f'}, {"two", 'd'}});
  EXPECT_EQ(derive(g.graph, a).stored[0], (Sharding{{{1, 'f', {tp}}}, {}, {}}));
  GraphBuilder h = g;
  h.forward("three", "sd,df->sf", {x, w});
  a = test::replicated(h.graph, mesh);
  shardTp(h, a, {{"one", 'f'}, {"two", 'd'}, {"three", 'd'}});
  EXPECT_EQ(derive(h.graph, a).stored[0], (Sharding{{{0, 'd', {tp}}}, {}, {}}));
}

TEST(Homes, GatheredParameterMayBeReshardedFurther) {
  GraphBuilder g({{'s', 8}, {'d', 8}, {'f', 8}});
  int x = g.input("x", "sd"), w = g.parameter("w", "df");
  g.forward("one", "sd,df->sf", {x, w});
  g.forward("two", "sd,df->sf", {x, w});
  Assignment a = test::replicated(g.graph, mesh);
  shardTp(g, a, {{"one", 'f'}});
  a.parameterPlans[0] = {3, false, {dp}, {}};
  Derivation d = derive(g.graph, a);
  EXPECT_EQ(trace(g, a, d, Phase::Forward),
            (Trace{"all_gather(dp) w before one", "all_gather(tp) w before two"}));
  EXPECT_EQ(d.operands[0][1].reshard, 0);
  EXPECT_EQ(d.operands[1][1].reshard, 1);
}

TEST(Homes, UnusedParameterLivesOnTheFirstStage) {
  GraphBuilder g({{'d', 8}});
  g.parameter("unused", "d");
  Assignment a = test::replicated(g.graph, mesh);
  EXPECT_EQ(derive(g.graph, a).parameterStages[0], std::vector<int>{0});
}

TEST(DeriveDeathTest, AssignmentMustFitTheGraph) {
  GraphBuilder g = test::mlp(8, 3, 5, 2);
  Assignment a = test::replicated(g.graph, mesh);
  a.strategies.pop_back();
  EXPECT_DEATH(derive(g.graph, a), "a strategy for every op");
}

} // namespace
} // namespace tbc::reshard
