//===- ContextSearchTest.cpp - Meshes with context parallelism ---------------===//

#include "planner/search/Search.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

/// A chain whose attention has independent rows, so that cp may split the sequence.
Graph graphWithSequence() {
  Graph graph = makeChain({8, 1, 64, 4, 8, 64, 96});
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  for (reshard::GraphOp &op : graph.ops)
    for (reshard::Loop &loop : op.loops)
      if (op.kernelClass == KernelClass::Attention && loop.factor == graph.sequenceFactor)
        loop.kind = reshard::LoopKind::Parallel;
  return graph;
}

// Without cp their meshes are slow or do not fit, so no near mesh leads to them. The second one is
// faster than meshes with cp whose scores promise more.
TEST(Search, FindsMeshesWithContextsBehindSlowOnes) {
  Graph graph = graphWithSequence();
  struct Case {
    int64_t gpus;
    double bytesPerSecond; // between nodes
    const char *mesh;
  };
  for (const Case &c : {Case{32, 1e8, "pp=4,cp=8"}, Case{16, 1e9, "pp=2,dp=2,cp=2,tp=2"}}) {
    Cluster cluster = smallCluster(300000);
    cluster.interNode.bytesPerSecond = c.bytesPerSecond;
    Pins free, pins;
    free.tie = 0;
    pins.mesh = *parseMesh(c.mesh);
    Result<SearchAnswer> open = search(graph, jobFor(c.gpus, 16), cluster, free);
    Result<SearchAnswer> pinned = search(graph, jobFor(c.gpus, 16), cluster, pins);
    ASSERT_TRUE(open && pinned) << c.mesh;
    EXPECT_LE(open->plan.prediction.stepSeconds, pinned->plan.prediction.stepSeconds * (1 + 2e-3))
        << c.mesh;
    EXPECT_LE(open->plan.lowerBoundSeconds, pinned->plan.prediction.stepSeconds) << c.mesh;
  }
}

// Forms of cp differ in exchanges only, so most meshes need one form to be ruled out.
TEST(Search, ScoresOtherFormsOfContextsOnlyNearTheBest) {
  const Graph graph = graphWithSequence();
  Cluster cluster = smallCluster(300000);
  cluster.interNode.bytesPerSecond = 1e8;
  auto pricedWith = [&](const std::string &form) {
    Pins pins;
    pins.threads = 1;
    pins.context = form;
    Result<SearchAnswer> answer = search(graph, jobFor(32, 16), cluster, pins);
    EXPECT_TRUE(answer) << form;
    return answer ? double(answer->counts.priced) : 0;
  };
  const double one = pricedWith("all-gather"), any = pricedWith("");
  EXPECT_LT(any, 1.4 * one);
}

} // namespace
