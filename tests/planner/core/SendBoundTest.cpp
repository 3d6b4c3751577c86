//===- SendBoundTest.cpp - Bytes between stages, against all cuts ---------===//

#include "planner/bound/SendBound.h"
#include "planner/graph/Stages.h"
#include "planner/plan/MeshShape.h"
#include "planner/reshard/Graph.h"
#include "runtime/mesh/AxisIndex.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::reshard;
using namespace tbc::planner::test;

namespace {

constexpr int64_t batch = 4;

/// A chain of matmuls, with adds of earlier values of the same width.
Graph makeSkips(std::mt19937 &random, int length) {
  StepBuilder b;
  const FactorId n = b.factor(batch);
  const std::vector<FactorId> widths{b.factor(2), b.factor(8), b.factor(32)};
  size_t width = 1;
  int x = b.input("x", {{n}, {widths[width]}}), labels = b.input("labels", {{n}}, 8);
  std::vector<std::vector<int>> made(widths.size()); // by width
  for (int i = 0; i < length; ++i) {
    const std::string id = "op" + std::to_string(i);
    if (random() % 2 && !made[width].empty() && made[width].back() != x) {
      x = b.add(id, x, made[width][random() % made[width].size()]);
    } else {
      const size_t next = random() % widths.size();
      const int w = b.parameter(id + ".w", {{widths[width]}, {widths[next]}});
      x = b.matmul(id, x, w, {{n}, {widths[next]}});
      width = next;
    }
    if (random() % 2)
      made[width].push_back(x);
  }
  b.loss("loss", x, labels);
  return b.finish(n);
}

/// Returns the sends between the stages of a cut.
std::vector<Transfer> transfersOf(Graph &graph, const std::vector<int> &firstOps,
                                  const std::vector<int> &stageOf) {
  setChunks(graph, firstOps);
  MeshShape shape;
  shape.pp = *std::max_element(stageOf.begin(), stageOf.end()) + 1;
  Assignment assignment;
  assignment.mesh = shape.mesh();
  assignment.pipelineAxis = axisIndex(assignment.mesh, Axis::Pipeline);
  assignment.numStages = int(shape.pp);
  assignment.chunkStage = stageOf;
  assignment.strategies.resize(graph.ops.size());
  assignment.parameterPlans.resize(graph.parameters.size());
  return derive(graph, assignment).transfers;
}

/// Returns the bytes that `chunk` sends in `phase`.
double sentBy(const Graph &graph, const std::vector<Transfer> &transfers, int chunk, Phase phase) {
  double bytes = 0;
  for (const Transfer &transfer : transfers)
    if (transfer.phase == phase && transfer.fromChunk == chunk)
      bytes += double(localBytes(graph.values[transfer.value].layout, transfer.sharding));
  return bytes;
}

/// Returns the bytes that chunk 0 sends in forward.
double sentByFirst(Graph graph, const std::vector<int> &firstOps, const std::vector<int> &stageOf) {
  const std::vector<Transfer> transfers = transfersOf(graph, firstOps, stageOf);
  return sentBy(graph, transfers, 0, Phase::Forward);
}

TEST(SendBound, IsBelowTheFirstSendOfEveryCut) {
  std::mt19937 random(11);
  int tight = 0, rounds = 0;
  for (const std::vector<int> &stageOf :
       {std::vector<int>{0, 1}, {0, 1, 2}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 2, 0, 1, 2}})
    for (int round = 0; round < 8; ++round, ++rounds) {
      const Graph graph = makeSkips(random, 8);
      const std::vector<bool> mayBegin = stageMayBegin(graph);
      const double least = leastSendBytes(firstSends(graph, chunksElsewhere(stageOf)), batch);
      double best = INFINITY;
      for (int cuts = 0; cuts < 1 << mayBegin.size(); ++cuts) {
        std::vector<int> firstOps;
        bool isPossible = cuts & 1;
        for (int op = 0; op < int(mayBegin.size()); ++op)
          if (cuts >> op & 1) {
            firstOps.push_back(op);
            isPossible &= op == 0 || mayBegin[size_t(op)];
          }
        if (isPossible && firstOps.size() == stageOf.size())
          best = std::min(best, sentByFirst(graph, firstOps, stageOf));
      }
      EXPECT_LE(least, best);
      tight += std::isfinite(best) && least == best;
    }
  EXPECT_GT(tight, rounds / 2) << "it says something";
}

TEST(SendBound, IsBelowTheSendsOverEveryCut) {
  std::mt19937 random(17);
  int tight = 0, numCuts = 0;
  for (const std::vector<int> &stageOf :
       {std::vector<int>{0, 1}, {0, 1, 2}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 2, 0, 1, 2}})
    for (int round = 0; round < 6; ++round) {
      const Graph whole = makeSkips(random, 8);
      const std::vector<bool> mayBegin = stageMayBegin(whole);
      const CutSends sends = cutSends(whole);
      for (int cuts = 1; cuts < 1 << mayBegin.size(); cuts += 2) {
        std::vector<int> firstOps;
        bool isPossible = true;
        for (int op = 0; op < int(mayBegin.size()); ++op)
          if (cuts >> op & 1) {
            firstOps.push_back(op);
            isPossible &= op == 0 || mayBegin[size_t(op)];
          }
        if (!isPossible || firstOps.size() != stageOf.size())
          continue;
        Graph graph = whole;
        const std::vector<Transfer> transfers = transfersOf(graph, firstOps, stageOf);
        for (int chunk = 1; chunk < int(stageOf.size()); ++chunk) {
          if (stageOf[size_t(chunk)] == stageOf[size_t(chunk) - 1])
            continue;
          const size_t first = size_t(firstOps[size_t(chunk)]);
          const double forward = sends.kinds[size_t(sends.forward[first])].at(batch);
          const double backward = sends.kinds[size_t(sends.backward[first])].at(batch);
          const double sentForward = sentBy(graph, transfers, chunk - 1, Phase::Forward);
          const double sentBackward = sentBy(graph, transfers, chunk, Phase::Backward);
          EXPECT_LE(forward, sentForward);
          EXPECT_LE(backward, sentBackward);
          ++numCuts;
          tight += forward == sentForward && backward == sentBackward && forward > 0;
        }
      }
    }
  EXPECT_GT(tight, numCuts / 8) << "it says something: " << tight << " of " << numCuts;
}

TEST(SendBound, CountsValuesReadOnOtherStages) {
  EXPECT_EQ(chunksElsewhere({0, 1, 2}), 3);
  EXPECT_EQ(chunksElsewhere({0, 1, 2, 0, 1, 2}), 2);
  EXPECT_EQ(chunksElsewhere({0, 1, 1, 0}), 2);
  // The residual stream crosses every position of a transformer: 4 samples of 16 tokens of 32 f32.
  const Graph graph = makeChain({});
  constexpr double stream = 4 * 16 * 32 * 4;
  EXPECT_EQ(leastSendBytes(firstSends(graph, 100), 4), stream);
  EXPECT_EQ(leastSendBytes(firstSends(graph, 8), 4), stream) << "the next layer reads it";
  EXPECT_EQ(leastSendBytes(firstSends(graph, 8), 1), stream / 4) << "one sample";
}

} // namespace
