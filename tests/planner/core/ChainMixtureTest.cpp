//===- ChainMixtureTest.cpp - Chains of a schedule against its cuts -----------===//

#include "tests/planner/core/PipelineCuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

namespace {

TEST(ChainMixture, IsBelowEveryCut) {
  std::mt19937 random(5);
  double tightest = 0, tightestWithSends = 0;
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  for (const ScheduleCase &c : {ScheduleCase{ScheduleKind::OneFOneB, 4, 1, false, 8},
                                {ScheduleKind::ZeroBubble, 2, 1, false, 1},
                                {ScheduleKind::ZeroBubble, 4, 1, false, 8},
                                {ScheduleKind::ZeroBubble, 4, 2, true, 4},
                                {ScheduleKind::ZeroBubble, 4, 2, true, 16},
                                {ScheduleKind::Interleaved, 4, 2, false, 8},
                                {ScheduleKind::Interleaved, 2, 4, false, 2},
                                {ScheduleKind::Interleaved, 8, 3, false, 16}}) {
    PipelineSchedule schedule = make(c);
    int numChunks = schedule.pipeline.numChunks();
    std::vector<WorkShare> parts;
    WorkShare total;
    for (int p = 0; p < 6 * numChunks; ++p) {
      parts.push_back({uniform(), uniform(), uniform() * double(random() % 2)});
      total.forward += parts.back().forward;
      total.backward += parts.back().backward;
      total.weight += parts.back().weight;
    }
    std::vector<bool> mayBegin(parts.size(), true);
    for (size_t p = 5; p < parts.size(); p += 6)
      mayBegin[p] = false;
    const WorkInOrder work(parts, mayBegin);
    const ChainMixture mixture(schedule, total), fine(schedule, total, 0, /*isFine=*/true);
    constexpr double sendSeconds = 0.3;
    double least = mixture.leastSeconds(work, 0, {}, 0, false), best = INFINITY,
           bestWithSends = INFINITY;
    double leastWithSends = mixture.leastSeconds(work, 0, {sendSeconds, {}, {}}, 0, false);
    double inOrder = mixture.leastSeconds(work, 0, {}, 0, true);
    const double fineAnyhow = fine.leastSeconds(work, 0, {sendSeconds, {}, {}}, 0, false);
    const double fineInOrder = fine.leastSeconds(work, 0, {}, 0, true);
    SendSeconds overCuts;
    for (size_t p = 0; p < parts.size(); ++p) {
      overCuts.forward.push_back(uniform());
      overCuts.backward.push_back(0.5 * uniform());
    }
    const double inOrderWithSends = ChainMixture(schedule, total, /*sendSeconds=*/0.5, c.stages < 4)
                                        .leastSeconds(work, 0, overCuts, 0, true);
    EXPECT_GE(leastWithSends, least);
    EXPECT_GE(inOrder, least);
    for (int round = 0; round < 400; ++round) {
      // Cuts in the order of the model, as the planner makes them, even or uneven; and cuts in no
      // order.
      std::vector<int> chunkOf;
      for (size_t p = 0; p < parts.size(); ++p)
        chunkOf.push_back(round == 0 ? int(p) * numChunks / int(parts.size())
                                     : int(random() % unsigned(numChunks)));
      bool isInOrder = round % 2;
      if (isInOrder)
        chunkOf = randomCut(random, mayBegin, numChunks);
      double makespan = makespanOf(schedule, parts, chunkOf);
      best = std::min(best, makespan);
      EXPECT_LE(isInOrder ? inOrder : least, makespan * (1 + 1e-12))
          << schedule::name(c.kind) << " " << c.stages;
      EXPECT_LE(isInOrder ? fineInOrder : 0, makespan * (1 + 1e-12))
          << schedule::name(c.kind) << " " << c.stages;
      EXPECT_LE(std::max(leastWithSends, fineAnyhow),
                makespanOf(schedule, parts, chunkOf, sendSeconds) * (1 + 1e-12))
          << schedule::name(c.kind) << " " << c.stages;
      if (!isInOrder)
        continue;
      const double withSends = makespanOf(schedule, parts, chunkOf, overCuts);
      bestWithSends = std::min(bestWithSends, withSends);
      EXPECT_LE(inOrderWithSends, withSends * (1 + 1e-12))
          << schedule::name(c.kind) << " " << c.stages;
    }
    tightestWithSends = std::max(tightestWithSends, inOrderWithSends / bestWithSends);
    tightest = std::max(tightest, inOrder / best);
  }
  EXPECT_GT(tightest, 0.99) << "it says something";
  EXPECT_GT(tightestWithSends, 0.9) << "it says something";
}

// With 1F1B a micro-batch comes back to a stage only after two sends for each stage after it.
TEST(ChainMixture, CountsTheSendsOfEveryMicroBatch) {
  const std::vector<WorkShare> parts(8, WorkShare{1.0 / 24, 1.0 / 24, 1.0 / 24});
  const WorkInOrder work(parts, std::vector<bool>(parts.size(), true));
  const PipelineSchedule schedule = make({ScheduleKind::OneFOneB, 8, 1, false, 32});
  constexpr double send = 0.02;
  const SendSeconds sends{send, {}, {}};
  const double without = ChainMixture(schedule, work.total, 0, true)
                             .leastSeconds(work, 0, sends, 0, /*isInOrder=*/true);
  const double with = ChainMixture(schedule, work.total, send, true)
                          .leastSeconds(work, 0, sends, 0, /*isInOrder=*/true);
  std::vector<int> chunkOf{0, 1, 2, 3, 4, 5, 6, 7};
  const double makespan = makespanOf(schedule, parts, chunkOf, send);
  EXPECT_LE(with, makespan * (1 + 1e-12));
  EXPECT_GT(with, 0.99 * makespan);
  EXPECT_LT(without, 0.97 * makespan);
}

TEST(ChainMixture, ProvesNearlyTheBestCutOfManyStages) {
  const std::vector<WorkShare> parts(512, WorkShare{0.34 / 512, 0.33 / 512, 0.33 / 512});
  const WorkInOrder work(parts, std::vector<bool>(parts.size(), true));
  const ChainMixture mixture(make({ScheduleKind::OneFOneB, 64, 1, false, 32}), work.total, 0, true);
  const double least = mixture.leastSeconds(work, 0, {}, 0, /*isInOrder=*/true);
  EXPECT_GT(least, 1.37); // an uneven cut takes 1.40 s
  EXPECT_LE(least, 95.0 / 64) << "an even cut";
}

// A stage with several chunks waits before its first chunk, or before a later one.
TEST(ChainMixture, ProvesABubbleOfManyChunks) {
  const std::vector<WorkShare> parts(1024, WorkShare{0.34 / 1024, 0.33 / 1024, 0.33 / 1024});
  const WorkInOrder work(parts, std::vector<bool>(parts.size(), true));
  const ChainMixture mixture(make({ScheduleKind::Interleaved, 64, 4, false, 256}), work.total, 0,
                             true);
  const double least = mixture.leastSeconds(work, 0, {}, 0, /*isInOrder=*/true);
  EXPECT_GT(least, 4 * 1.02) << "4 s without a bubble";
  EXPECT_LE(least, 4 * (1 + 63.0 / 256 / 4)) << "an even cut";
}

// Recomputed parts save memory in one phase and cost time in another, partly in other parts.
TEST(ChainMixture, IsBelowEveryCutWhateverRunsAgain) {
  std::mt19937 random(23);
  auto uniform = [&] { return double(random() % 1000 + 1) / 1000; };
  double tightest = 0;
  for (const ScheduleCase &c : {ScheduleCase{ScheduleKind::OneFOneB, 3, 1, false, 6},
                                {ScheduleKind::ZeroBubble, 3, 1, false, 4},
                                {ScheduleKind::ZeroBubble, 2, 2, true, 4},
                                {ScheduleKind::Interleaved, 2, 3, false, 4}}) {
    PipelineSchedule schedule = make(c);
    const int numChunks = schedule.pipeline.numChunks();
    const size_t numParts = size_t(4) * size_t(numChunks);
    std::vector<WorkShare> parts;
    WorkShare total;
    std::vector<double> found; // in each phase, of the recomputed part after each
    for (size_t p = 0; p < numParts; ++p) {
      WorkShare part{1 + uniform(), 1 + uniform(), 1 + uniform()};
      part.lessForward = 0.5 * uniform();
      part.moreBackward = 0.8 * uniform();
      found.push_back(p + 1 < numParts ? 0.2 * uniform() : 0);
      part.foundForward = p > 0 ? found[p - 1] : 0;
      (p % 2 ? part.foundBackward : part.foundWeight) = part.foundForward;
      parts.push_back(part);
      total.add(part, 1);
    }
    const std::vector<bool> mayBegin(numParts, true);
    const WorkInOrder work(parts, mayBegin);
    const ChainMixture mixture(schedule, total, 0, /*isFine=*/true);
    double best = INFINITY, leastOfBest = 0;
    for (int round = 0; round < 300; ++round) {
      std::vector<WorkShare> run = parts;
      double again = 0;
      for (size_t p = 0; p < numParts; ++p) {
        if (round % 3 == 0 ? random() % 2 == 0 : round % 3 == 1)
          continue;
        run[p].forward -= run[p].lessForward;
        run[p].backward += run[p].moreBackward;
        again += run[p].moreBackward - run[p].lessForward;
        if (p + 1 == numParts)
          continue;
        run[p + 1].forward -= found[p];
        ((p + 1) % 2 ? run[p + 1].backward : run[p + 1].weight) -= found[p];
        again -= 2 * found[p];
      }
      const std::vector<int> chunkOf = randomCut(random, mayBegin, numChunks);
      const double makespan = makespanOf(schedule, run, chunkOf);
      const double least = mixture.leastSeconds(work, 0, {}, again, true);
      EXPECT_LE(least, makespan * (1 + 1e-12)) << schedule::name(c.kind) << " round " << round;
      EXPECT_LE(mixture.leastSeconds(work, 0, {}, again, false), least * (1 + 1e-12));
      if (makespan < best) {
        best = makespan;
        leastOfBest = least;
      }
    }
    tightest = std::max(tightest, leastOfBest / best);
  }
  EXPECT_GT(tightest, 0.85) << "it says something";
}

} // namespace
