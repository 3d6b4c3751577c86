//===- FewerRepeatsTest.cpp - A graph with fewer of its repeated blocks -----===//

#include "planner/graph/FewerRepeats.h"
#include "planner/graph/Recompute.h"
#include "planner/reshard/Rebatch.h"
#include "planner/search/Profile.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using namespace tbc::reshard;

static Profile profileOf(const Graph &graph, const FewerRepeats *fewer, RecomputeMode mode) {
  Job job;
  job.precision = Precision::F32;
  MeshShape shape;
  shape.tp = 2;
  const Mesh mesh = shape.mesh();
  // Splits the first loop that two devices divide, if it is allowed.
  std::vector<OpStrategy> strategies;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    OpStrategy strategy;
    for (size_t loop = 0; loop < graph.ops[op].loops.size() && strategy.loopAxes.empty(); ++loop) {
      const Loop &of = graph.ops[op].loops[loop];
      if (of.kind == LoopKind::Parallel && of.factor != graph.batchFactor && of.size % 2 == 0)
        strategy.loopAxes[int(loop)] = {wholeAxis(mesh, 0)};
    }
    strategies.push_back(strategy);
  }
  return makeProfile(ProfiledGraph(graph, recomputeFlags(graph, mode), fewer), mesh, strategies,
                     job, *loadCluster("h100-sxm"), /*isInOrder=*/false);
}

/// A profile of the shorter graph has the numbers of the whole one, for every range of ops.
TEST(FewerRepeats, CostWhatAllRepeatsCost) {
  for (bool tied : {false, true}) {
    ChainSizes sizes;
    sizes.layers = 9;
    sizes.tied = tied;
    const Graph chain = makeChain(sizes);
    const std::optional<FewerRepeats> fewer = withFewerRepeats(chain);
    ASSERT_TRUE(fewer);
    const Graph five = makeChain([&] {
      ChainSizes small = sizes;
      small.layers = 5;
      return small;
    }());
    EXPECT_EQ(fewer->graph.ops.size(), five.ops.size());
    EXPECT_EQ(fewer->graph.parameters.size(), five.parameters.size());
    for (int64_t batch : {4, 8})
      for (RecomputeMode mode : recomputeModes()) {
        const Graph graph = withBatch(chain, batch);
        const Profile whole = profileOf(graph, nullptr, mode),
                      folded = profileOf(graph, &*fewer, mode);
        ASSERT_EQ(whole.numForward(), folded.numForward());
        EXPECT_EQ(whole.stageMayBegin, folded.stageMayBegin);
        EXPECT_EQ(whole.inputBytes, folded.inputBytes);
        for (int op = 0; op <= whole.numForward(); ++op) {
          const RangeSums a = whole.sums(0, op), b = folded.sums(0, op);
          for (auto member :
               {&RangeSums::forward, &RangeSums::backward, &RangeSums::recompute,
                &RangeSums::operandsForward, &RangeSums::operandsBackward,
                &RangeSums::residualBytes, &RangeSums::weight, &RangeSums::cotangentBytes})
            EXPECT_NEAR(a.*member, b.*member, 1e-12 * a.*member) << op; // summed in another order
          EXPECT_DOUBLE_EQ(a.parameters[0].bytes, b.parameters[0].bytes) << op;
          EXPECT_DOUBLE_EQ(a.parameters[0].trained, b.parameters[0].trained) << op;
          if (op == whole.numForward())
            continue;
          EXPECT_EQ(whole.crossingBytes(op), folded.crossingBytes(op)) << op;
          EXPECT_EQ(whole.liveBytes(op, op + 1), folded.liveBytes(op, op + 1)) << op;
          EXPECT_EQ(whole.largestParameter(op, op + 1), folded.largestParameter(op, op + 1)) << op;
        }
      }
  }
}

TEST(FewerRepeats, AreLeftWhereAValueSkipsBlocks) {
  const Graph chain = makeChain({9});
  ASSERT_TRUE(withFewerRepeats(chain));
  // The last op reads a result of the fifth block, which would be gone.
  Graph skips = chain;
  const int user = numForwardOps(skips) - 1;
  for (int op = 0; op < user; ++op)
    if (skips.ops[size_t(op)].id == "h.4.add1") {
      skips.ops[size_t(user)].operands.push_back(skips.ops[size_t(op)].results[0]);
      skips.values[size_t(skips.ops[size_t(op)].results[0])].users.push_back(user);
    }
  EXPECT_FALSE(withFewerRepeats(skips));
  // Too few to leave any out.
  EXPECT_FALSE(withFewerRepeats(makeChain({5})));
}
