//===- SendBoundTest.cpp - Bytes between stages, against all cuts ---------===//

#include "planner/bound/SendBound.h"
#include "planner/bound/ShortestCut.h"
#include "planner/graph/Stages.h"
#include "planner/plan/MeshShape.h"
#include "planner/reshard/Graph.h"
#include "runtime/mesh/AxisIndex.h"
#include "tests/planner/core/PipelineCuts.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

/// Calls `visit` for every cut of `graph` into `numChunks` chunks with their first ops.
void forEachCut(const Graph &graph, size_t numChunks,
                const std::function<void(const std::vector<int> &)> &visit) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  for (int cuts = 1; cuts < 1 << mayBegin.size(); cuts += 2) {
    std::vector<int> firstOps;
    bool isPossible = true;
    for (int op = 0; op < int(mayBegin.size()); ++op)
      if (cuts >> op & 1) {
        firstOps.push_back(op);
        isPossible &= op == 0 || mayBegin[size_t(op)];
      }
    if (isPossible && firstOps.size() == numChunks)
      visit(firstOps);
  }
}

TEST(SendBound, IsBelowTheFirstSendOfEveryCut) {
  std::mt19937 random(11);
  int tight = 0, rounds = 0;
  for (const std::vector<int> &stageOf :
       {std::vector<int>{0, 1}, {0, 1, 2}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 2, 0, 1, 2}})
    for (int round = 0; round < 8; ++round, ++rounds) {
      const Graph graph = makeSkips(random, 8);
      const double least = leastSendBytes(firstSends(graph, chunksElsewhere(stageOf)), batch);
      double best = INFINITY;
      forEachCut(graph, stageOf.size(), [&](const std::vector<int> &firstOps) {
        best = std::min(best, sentByFirst(graph, firstOps, stageOf));
      });
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
      const CutSends sends = cutSends(whole, sentValues(whole));
      forEachCut(whole, stageOf.size(), [&](const std::vector<int> &firstOps) {
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
      });
    }
  EXPECT_GT(tight, numCuts / 8) << "it says something: " << tight << " of " << numCuts;
}

/// Returns the sends of `graph`, of `secondsPerByte`.
PieceSends pieceSendsOf(const Graph &graph, double secondsPerByte) {
  PieceSends sends;
  for (const SentValue &value : sentValues(graph))
    sends.sends.push_back(
        {value.isForward, value.producer, value.readers, value.bytes.at(batch) * secondsPerByte});
  return sends;
}

TEST(PassSends, AreBelowTheSendsOfEveryCut) {
  std::mt19937 random(29);
  int tight = 0, rounds = 0;
  for (const std::vector<int> &stageOf :
       {std::vector<int>{0, 1}, {0, 1, 2}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 2, 2, 1, 0}})
    for (int round = 0; round < 8; ++round) {
      const Graph whole = makeSkips(random, 8);
      double best = INFINITY;
      forEachCut(whole, stageOf.size(), [&](const std::vector<int> &firstOps) {
        Graph graph = whole;
        const std::vector<Transfer> transfers = transfersOf(graph, firstOps, stageOf);
        const double first = sentBy(graph, transfers, 0, Phase::Forward);
        double sum = 0;
        for (int chunk = 1; chunk < int(stageOf.size()); ++chunk)
          if (stageOf[size_t(chunk)] != stageOf[size_t(chunk) - 1])
            sum += std::max(first, sentBy(graph, transfers, chunk - 1, Phase::Forward)) +
                   std::max(first, sentBy(graph, transfers, chunk, Phase::Backward));
        best = std::min(best, sum);
      });
      if (!std::isfinite(best))
        continue;
      const std::vector<bool> mayBegin = stageMayBegin(whole);
      const auto numPieces = size_t(std::count(mayBegin.begin() + 1, mayBegin.end(), true) + 1);
      const double least = leastPassSends(stageOf, pieceSendsOf(whole, 1), numPieces);
      EXPECT_LE(least, best * (1 + 1e-12));
      tight += least == best;
      ++rounds;
    }
  EXPECT_GT(tight, rounds / 2) << "it says something: " << tight << " of " << rounds;
}

TEST(PassSends, SeeThroughPartsThatReadParameters) {
  // Part 0 makes x, part 2 reads it, and part 1 only casts a parameter for part 2.
  PieceSends sends;
  sends.sends = {{true, 0, {2}, 4},
                 {true, 1, {2}, 1},
                 {true, 2, {3}, 4},
                 {false, 2, {0}, 4},
                 {false, 3, {2}, 4}};
  EXPECT_EQ(leastPassSends({0, 1}, sends, 4), 8) << "the cut before part 1, 2 or 3";
  EXPECT_EQ(leastPassSends({0, 1, 1, 0}, sends, 4), 16) << "no send is shorter than the first";
  EXPECT_EQ(leastPassSends({0, 1}, sends, 1), 0) << "no cut";
}

TEST(ShortestCut, CountsTheSendsOfEveryCut) {
  std::mt19937 random(23);
  constexpr double secondsPerByte = 1e-3;
  int tight = 0, rounds = 0;
  for (const ScheduleCase &c : {ScheduleCase{ScheduleKind::OneFOneB, 2, 1, false, 3},
                                {ScheduleKind::OneFOneB, 3, 1, false, 2},
                                {ScheduleKind::ZeroBubble, 2, 2, true, 1},
                                {ScheduleKind::ZeroBubble, 2, 2, true, 3},
                                {ScheduleKind::Interleaved, 2, 2, false, 2}})
    for (int round = 0; round < 6; ++round) {
      const PipelineSchedule schedule = make(c);
      const std::vector<int> &stageOf = schedule.pipeline.chunkStage;
      const Graph whole = makeSkips(random, 8);
      std::vector<WorkShare> ops(size_t(numForwardOps(whole)), {1, 1, 1});
      const PieceSends sends = pieceSendsOf(whole, secondsPerByte);
      double best = INFINITY; // by derived sends
      forEachCut(whole, stageOf.size(), [&](const std::vector<int> &firstOps) {
        Graph graph = whole;
        const std::vector<Transfer> transfers = transfersOf(graph, firstOps, stageOf);
        std::vector<schedule::ChunkTimes> times(stageOf.size());
        for (size_t chunk = 0; chunk < times.size(); ++chunk) {
          const size_t end = chunk + 1 < times.size() ? size_t(firstOps[chunk + 1]) : ops.size();
          const double count = double(end) - firstOps[chunk];
          const bool isParted = schedule::splitsBackward(c.kind);
          times[chunk] = {count, isParted ? count : 2 * count, isParted ? count : 0,
                          sentBy(graph, transfers, int(chunk), Phase::Forward) * secondsPerByte,
                          sentBy(graph, transfers, int(chunk), Phase::Backward) * secondsPerByte};
        }
        for (schedule::ChunkTimes &of : times) { // as chunkTimes
          of.sendBackwardSeconds = std::max(of.sendBackwardSeconds, times[0].sendForwardSeconds);
          of.sendForwardSeconds = std::max(of.sendForwardSeconds, times[0].sendForwardSeconds);
        }
        best = std::min(best, schedule::makespanSeconds(schedule.actions, schedule.pipeline, times,
                                                        schedule.accumulation));
      });
      const double least = shortestCutSeconds(schedule, ops, stageMayBegin(whole), sends, 1 << 20);
      if (!std::isfinite(best))
        continue;
      EXPECT_LE(least, best * (1 + 1e-12)) << schedule::name(c.kind) << " round " << round;
      const double without = shortestCutSeconds(schedule, ops, stageMayBegin(whole), {}, 1 << 20);
      tight += std::abs(least - best) < 1e-9 * best && least > without;
      ++rounds;
    }
  EXPECT_GT(tight, rounds / 2) << "it says something: " << tight << " of " << rounds;
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
