//===- ThreadsTest.cpp - The search on several threads ---------------------===//

#include "planner/plan/PlanFile.h"
#include "planner/search/Search.h"
#include "planner/support/OnceMap.h"
#include "planner/support/Workers.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

/// Slow devices and a slow network, so every decision counts in a small model.
static Cluster slowCluster() {
  Cluster cluster = *loadCluster("h100-sxm");
  cluster.devicesPerNode = 4;
  cluster.memoryBytes = int64_t(1) << 30;
  cluster.contextBytes = 0;
  cluster.peakFlopsPerSecond = {{"bf16", 1e10}, {"f16", 1e10}, {"f32", 1e10}};
  cluster.vectorFlopsPerSecond = 1e10;
  cluster.memoryBytesPerSecond = 1e10;
  cluster.intraNode = {1e-6, 1e9, 1e-6};
  cluster.interNode = {5e-6, 1e8, 5e-6};
  return cluster;
}

/// The plan as text with its explanations, or the error.
static std::string answerOf(const Graph &graph, int64_t gpus, int64_t batch, Pins pins,
                            int threads) {
  Job job;
  job.gpus = gpus;
  job.globalBatch = batch;
  job.precision = Precision::F32;
  pins.threads = threads;
  Result<SearchAnswer> answer = search(graph, job, slowCluster(), pins);
  if (!answer)
    return answer.error().message;
  return writePlan(answer->plan) + std::to_string(answer->counts.bounded) + " bounded";
}

/// Returns the answer of one thread. Fails if more threads give another one.
static std::string sameAnswer(const Graph &graph, int64_t gpus, int64_t batch,
                              const Pins &pins = {}) {
  std::string alone = answerOf(graph, gpus, batch, pins, 1);
  for (int threads : {2, 5, 2})
    EXPECT_EQ(answerOf(graph, gpus, batch, pins, threads), alone) << threads << " threads";
  return alone;
}

TEST(Threads, DoNotChangeThePlan) {
  sameAnswer(makeMlp(1, {8, 16, 8}), 4, 16);
  sameAnswer(makeChain({3, 1, 16, 4, 8, 64, 96}), 8, 16);
  std::string deep = sameAnswer(makeChain({12, 1, 64, 4, 8, 64, 96}), 8, 32);
  EXPECT_NE(deep.find("\"lower_bound_seconds\""), std::string::npos) << deep;
}

/// One thread does only the requested work, always in the same order.
TEST(Threads, OneCountsAlike) {
  Graph graph = makeChain({12, 1, 64, 4, 8, 64, 96});
  Job job;
  job.gpus = 8;
  job.globalBatch = 32;
  job.precision = Precision::F32;
  Pins pins;
  pins.threads = 1;
  auto countsWith = [&](const Pins &asked) {
    Result<SearchAnswer> answer = search(graph, job, slowCluster(), asked);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? answer->counts : SearchCounts();
  };
  SearchCounts open = countsWith(pins), again = countsWith(pins);
  EXPECT_EQ(std::tie(open.bounded, open.priced, open.derived, open.strategies, open.cuts),
            std::tie(again.bounded, again.priced, again.derived, again.strategies, again.cuts));
  EXPECT_GT(open.bounded, open.derived);
  EXPECT_GT(open.priced, 0);
  EXPECT_GT(open.derived, 0);
  pins.mesh = *parseMesh("pp=2,dp=2,tp=2");
  SearchCounts split = countsWith(pins);
  EXPECT_LT(split.bounded, open.bounded);
  EXPECT_GT(split.strategies, 0);
  EXPECT_GT(split.cuts, 0);
  pins.mesh = *parseMesh("dp=8"); // no axis to split, no stages to cut
  SearchCounts whole = countsWith(pins);
  EXPECT_GT(whole.priced, 0);
  EXPECT_EQ(whole.strategies, 0);
  EXPECT_EQ(whole.cuts, 0);
}

TEST(Threads, DoNotChangeWhatIsRecomputedNorPipelines) {
  Graph graph = makeChain({10, 1, 64, 4, 8, 64, 96});
  Pins pins;
  pins.memoryLimitBytes = 3 << 20;
  pins.mesh = *parseMesh("pp=2,dp=2");
  std::string plan = sameAnswer(graph, 4, 64, pins);
  EXPECT_NE(plan.find("\"selective"), std::string::npos) << plan.substr(0, 4000);
  pins.mesh = *parseMesh("cp=2,dp=2");
  sameAnswer(graph, 4, 4, pins);
}

TEST(Threads, DoNotChangeWhyNothingFits) {
  Pins pins;
  pins.mesh = *parseMesh("dp=2");
  pins.zero = 0;
  pins.memoryLimitBytes = 600 * 1024;
  std::string why = sameAnswer(makeChain({4, 1, 16, 4, 8, 64, 96}), 2, 16, pins);
  EXPECT_NE(why.find("what would make it fit"), std::string::npos) << why;
}

TEST(Workers, DoEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    Workers workers(threads);
    EXPECT_EQ(workers.count(), threads);
    for (size_t number : {0, 1, 2, 100}) {
      std::vector<int> calls(number, 0);
      workers.run(number, [&](size_t i) { ++calls[i]; });
      EXPECT_EQ(calls, std::vector<int>(number, 1));
    }
  }
}

TEST(Workers, ThrowWhatTheFirstTaskThrew) {
  for (int threads : {1, 2, 5}) {
    Workers workers(threads);
    for (int turn = 0; turn < 20; ++turn) {
      std::string what;
      try {
        workers.run(100, [](size_t i) {
          if (i >= 30)
            throw std::runtime_error(std::to_string(i));
        });
      } catch (const std::runtime_error &error) {
        what = error.what();
      }
      EXPECT_EQ(what, "30") << threads << " threads";
    }
    std::atomic<int> calls = 0; // it is as before
    workers.run(10, [&](size_t) { ++calls; });
    EXPECT_EQ(calls, 10);
  }
}

TEST(Workers, AreNoMoreThanCoresByThemselves) {
  EXPECT_GE(Workers().count(), 1);
  EXPECT_LE(Workers().count(), 8);
}

TEST(OnceMap, MakesEachValueOnceWhoeverAsks) {
  OnceMap<int, int> squares;
  std::atomic<int> made = 0;
  Workers workers(4);
  workers.run(200, [&](size_t i) {
    int key = int(i % 10);
    int square = squares.get(key, [&] {
      ++made;
      return key * key;
    });
    EXPECT_EQ(square, key * key);
  });
  EXPECT_EQ(made, 10);
}
