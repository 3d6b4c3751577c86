//===- RecomputeTest.cpp - Recomputed ops and their positions ---------------===//

#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/plan/PlanApply.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

using namespace tbc::planner;
using namespace tbc::planner::test;
using namespace tbc::reshard;

static std::vector<std::string> idsOf(const Graph &graph, const std::vector<int> &ops) {
  std::vector<std::string> ids;
  for (int op : ops)
    ids.push_back(graph.ops[op].id);
  return ids;
}

static int opCalled(const Graph &graph, const std::string &id) {
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].id == id)
      return int(op);
  ADD_FAILURE() << "no op " << id;
  return 0;
}

/// The forward values that the backward reads directly, not from clones.
static std::set<int> residualsOf(const Graph &graph) {
  std::set<int> values;
  for (const GraphOp &op : graph.ops)
    if (op.phase == Phase::Backward)
      for (int value : op.operands) {
        int producer = graph.values[value].producer;
        if (producer >= 0 && graph.ops[producer].phase == Phase::Forward)
          values.insert(value);
      }
  return values;
}

static void checkConsistent(const Graph &graph) {
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (int value : graph.ops[op].operands) {
      EXPECT_LT(graph.values[value].producer, int(op)) << graph.ops[op].id;
      const auto &users = graph.values[value].users;
      EXPECT_TRUE(std::find(users.begin(), users.end(), int(op)) != users.end());
    }
    for (size_t r = 0; r < graph.ops[op].results.size(); ++r)
      EXPECT_EQ(graph.values[graph.ops[op].results[r]].producer, int(op));
  }
}

TEST(Recompute, TextsReadBackEqual) {
  EXPECT_EQ(toString(Recompute{}), "none");
  EXPECT_EQ(toString({RecomputeMode::Full, BlockShare::share(8, 8)}), "full");
  EXPECT_EQ(toString({RecomputeMode::Selective, BlockShare::share(3, 8)}), "selective 3/8");
  for (RecomputeMode mode : recomputeModes())
    EXPECT_EQ(parseRecompute(name(mode)), Recompute{mode});
  EXPECT_EQ(parseRecompute("full 3/8"), (Recompute{RecomputeMode::Full, {3, 8}}));
  EXPECT_EQ(parseRecompute("full 8/8"), Recompute{RecomputeMode::Full});
  for (const char *wrong : {"", "ful", "full ", "full 3", "full 9/8", "full 0/0", "full -1/8",
                            "full 3/8 ", "none 3/8", "3/8"})
    EXPECT_EQ(parseRecompute(wrong), std::nullopt) << wrong;
}

TEST(Offload, TextsReadBackEqual) {
  for (const char *text : {"none", "optimizer", "residuals", "residuals 0/8", "residuals 3/8",
                           "optimizer and residuals", "optimizer and residuals 3/8"}) {
    std::optional<Offload> offload = parseOffload(text);
    ASSERT_TRUE(offload) << text;
    EXPECT_EQ(offloadText(*offload), text);
  }
  for (const char *wrong : {"", "all", "residuals 9/8", "residuals 8/8", "residuals none",
                            "optimizer and", "optimizer 3/8"})
    EXPECT_FALSE(parseOffload(wrong)) << wrong;
  std::optional<BlockShare> residuals;
  EXPECT_TRUE(parseResiduals("none", residuals) && !residuals);
  EXPECT_TRUE(parseResiduals("all", residuals) && residuals->isAll());
  EXPECT_TRUE(parseResiduals("3/8", residuals) && *residuals == BlockShare::share(3, 8));
  EXPECT_FALSE(parseResiduals("3", residuals));
}

TEST(Recompute, NoneChangesNothing) {
  Graph graph = makeChain({});
  EXPECT_TRUE(reexecutedOps(graph, recomputeFlags(graph, RecomputeMode::None)).empty());
  EXPECT_EQ(withRecompute(graph, recomputeFlags(graph, RecomputeMode::None)).ops.size(),
            graph.ops.size());
}

TEST(Recompute, FullKeepsTheJoints) {
  Graph graph = makeChain({});
  std::vector<bool> flags = recomputeFlags(graph, RecomputeMode::Full);
  std::vector<std::string> again = idsOf(graph, reexecutedOps(graph, flags));
  EXPECT_EQ(again,
            (std::vector<std::string>{"h.0.ln1", "h.0.q", "h.0.k", "h.0.v", "h.0.attn", "h.0.ln2",
                                      "h.0.up", "h.0.act", "h.1.ln1", "h.1.q", "h.1.k", "h.1.v",
                                      "h.1.attn", "h.1.ln2", "h.1.up", "h.1.act", "ln_f"}));
  Graph cloned = withRecompute(graph, flags);
  checkConsistent(cloned);
  // Kept: the embedding, the sum after each half of a layer, and the logits.
  std::set<std::string> kept;
  for (int value : residualsOf(cloned))
    kept.insert(graph.values[value].name);
  EXPECT_EQ(kept, (std::set<std::string>{"embed", "h.0.add1", "h.0.add2", "h.1.add1", "h.1.add2",
                                         "head"}));
}

TEST(Recompute, WholeBlocksKeepOneValuePerBlock) {
  ChainSizes sizes;
  sizes.layers = 4;
  Graph graph = makeChain(sizes);
  auto kept = [&](bool wholeBlocks) {
    std::set<std::string> names;
    for (int value :
         residualsOf(withRecompute(graph, recomputeFlags(graph, RecomputeMode::Full, wholeBlocks))))
      names.insert(graph.values[value].name);
    return names;
  };
  EXPECT_EQ(kept(true), (std::set<std::string>{"embed", "h.0.add2", "h.1.add2", "h.2.add2",
                                               "h.3.add2", "head"}));
  EXPECT_EQ(kept(false).size(), kept(true).size() + 4); // the sums after attention
  // The projection of attention runs again for the sum after it.
  std::vector<std::string> again =
      idsOf(graph, reexecutedOps(graph, recomputeFlags(graph, RecomputeMode::Full, true)));
  EXPECT_TRUE(std::count(again.begin(), again.end(), "h.2.proj"));
  EXPECT_FALSE(std::count(again.begin(), again.end(), "h.2.down"));
}

TEST(Recompute, SelectiveKeepsWhatIsDear) {
  Graph graph = makeChain({});
  std::vector<std::string> again =
      idsOf(graph, reexecutedOps(graph, recomputeFlags(graph, RecomputeMode::Selective)));
  EXPECT_EQ(again, (std::vector<std::string>{"h.0.ln1", "h.0.ln2", "h.0.act", "h.1.ln1", "h.1.ln2",
                                             "h.1.act", "ln_f"}));
}

TEST(Recompute, ClonesStandRightBeforeTheirFirstUser) {
  Graph graph = makeChain({});
  std::vector<int> cloneOf, sourceOf;
  Graph cloned =
      withRecompute(graph, recomputeFlags(graph, RecomputeMode::Selective), &cloneOf, &sourceOf);
  checkConsistent(cloned);
  ASSERT_EQ(cloneOf.size(), cloned.ops.size());
  int act = opCalled(cloned, "h.1.act.recompute");
  EXPECT_EQ(cloned.ops[act + 1].id, "h.1.down.bwd.dw");
  EXPECT_EQ(cloneOf[act], opCalled(graph, "h.1.act"));
  EXPECT_EQ(cloned.ops[act].phase, Phase::Backward);
  EXPECT_EQ(cloned.ops[act].forwardOp, cloneOf[act]);
  EXPECT_EQ(sourceOf[act + 1], opCalled(graph, "h.1.down.bwd.dw"));
  for (int op = 0; op < numForwardOps(graph); ++op)
    EXPECT_EQ(cloned.ops[op].id, graph.ops[op].id);
}

TEST(Recompute, StopsAtStageBoundaries) {
  Graph graph = makeChain({});
  std::vector<bool> all(graph.ops.size(), false);
  for (int op = 0; op < numForwardOps(graph); ++op)
    all[op] = true;
  setChunks(graph, {0, opCalled(graph, "h.1.ln1")});
  std::vector<int> cloneOf;
  Graph cloned = withRecompute(graph, all, &cloneOf);
  checkConsistent(cloned);
  for (size_t op = 0; op < cloned.ops.size(); ++op) {
    if (cloneOf[op] < 0)
      continue;
    EXPECT_EQ(cloned.ops[op].chunk, graph.ops[cloneOf[op]].chunk);
    for (int value : cloned.ops[op].operands) {
      int producer = cloned.values[value].producer;
      if (producer >= 0 && cloned.ops[producer].chunk != cloned.ops[op].chunk)
        EXPECT_LT(producer, numForwardOps(cloned)); // received values are kept, not recomputed
    }
  }
}

TEST(Stages, BackwardOpsFollowTheirForwardOp) {
  Graph graph = makeChain({});
  int cut = opCalled(graph, "h.1.ln1");
  setChunks(graph, {0, cut});
  for (size_t op = 0; op < graph.ops.size(); ++op)
    EXPECT_EQ(graph.ops[op].chunk, graph.ops[op].forwardOp >= cut) << graph.ops[op].id;
}

TEST(Stages, AnOpWithoutForwardOpGoesWhereItsValueBelongs) {
  Graph graph = makeChain({});
  int sum = -1; // joins the two paths into h.0.add2
  for (size_t op = numForwardOps(graph); op < graph.ops.size(); ++op)
    if (graph.ops[op].id.rfind("h.0.add2.bwd.sum", 0) == 0)
      sum = int(op);
  ASSERT_GE(sum, 0);
  graph.ops[sum].forwardOp = -1;
  int &primal = graph.values[graph.ops[sum].results[0]].cotangentOf;
  primal = graph.ops[opCalled(graph, "h.0.add2")].results[0];
  EXPECT_EQ(forwardAnchors(graph)[sum], opCalled(graph, "h.0.add2"));
  // Without a primal value: the earliest forward op among the terms of the sum, which the backward
  // reaches last.
  primal = -1;
  int earliest = numForwardOps(graph);
  for (int value : graph.ops[sum].operands)
    earliest = std::min(earliest, graph.ops[graph.values[value].producer].forwardOp);
  EXPECT_EQ(forwardAnchors(graph)[sum], earliest);
}

TEST(Rebatch, ScalesLayoutsLoopsAndFlops) {
  Graph two = makeChain({2, 2}), six = makeChain({2, 6});
  Graph again = withBatch(two, 6);
  ASSERT_EQ(again.ops.size(), six.ops.size());
  for (size_t op = 0; op < six.ops.size(); ++op) {
    EXPECT_DOUBLE_EQ(again.ops[op].flops, six.ops[op].flops) << six.ops[op].id;
    for (size_t loop = 0; loop < six.ops[op].loops.size(); ++loop)
      EXPECT_EQ(again.ops[op].loops[loop].size, six.ops[op].loops[loop].size);
  }
  for (size_t value = 0; value < six.values.size(); ++value)
    EXPECT_EQ(again.values[value].layout.shape(), six.values[value].layout.shape());
}
