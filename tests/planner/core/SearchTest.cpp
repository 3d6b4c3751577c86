//===- SearchTest.cpp - The whole search -----------------------------------===//

#include "planner/search/Search.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/DeriveBest.h"
#include "planner/search/Explore.h"
#include "tests/planner/core/RefusedSearch.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::HasSubstr;

/// A graph may have another type than its job says.
TEST(Search, MfuIsOfTheTypeThatMatmulsHave) {
  const Graph graph = makeMlp(1, {4096, 4096, 4096}, 2);
  auto mfu = [&](Precision precision) {
    Job job = jobFor(1, 4096);
    job.precision = precision;
    Result<SearchAnswer> answer = search(graph, job, *loadCluster("h100-sxm"), {});
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? answer->plan.prediction.mfu : 0;
  };
  EXPECT_GT(mfu(Precision::BF16), 0);
  EXPECT_LT(mfu(Precision::BF16), 1);
  EXPECT_EQ(mfu(Precision::F32), mfu(Precision::BF16));
}

/// Sums of bytes would exceed 64 bits, and such a plan seemed to fit.
TEST(Search, RefusesMoreBytesThanItCounts) {
  const int64_t width = int64_t(1) << 29;
  EXPECT_THAT(errorOf(makeMlp(1, {width, width, 4}), jobFor(1, 1), {}),
              HasSubstr("parameters, gradients and optimizer states take 4096 PiB"));
  const std::vector<int64_t> layers(17, int64_t(1) << 20);
  Pins pins;
  pins.microBatch = int64_t(1) << 37;
  EXPECT_THAT(errorOf(makeMlp(1, layers), jobFor(1, *pins.microBatch), pins),
              HasSubstr("values of perhaps more than 2 EiB"));
}

/// Reshapes leave factors of size 1 in a parameter's dims that are absent in its gradient's dims.
TEST(Search, FactorsOfOneElementDoNotMatter) {
  StepBuilder builder;
  FactorId b = builder.factor(8), h = builder.factor(8),
           heads = builder.factor(3), // so tp splits d
      d = builder.factor(2), c = builder.factor(4);
  int x = builder.input("x", {{b}, {h}}), labels = builder.input("labels", {{b}}, 8);
  int w = builder.parameter("w", {{h}, {heads, d}}), v = builder.parameter("v", {{heads, d}, {c}});
  int y = builder.matmul("up", x, w, {{b}, {heads, d}});
  builder.loss("loss", builder.matmul("down", y, v, {{b}, {c}}), labels);
  Graph graph = builder.finish(b);
  Pins pins;
  pins.mesh = *parseMesh("tp=2");
  Result<SearchAnswer> without = search(graph, jobFor(2, 8), smallCluster(), pins);
  ASSERT_TRUE(without) << without.error().message;

  FactorId one = builder.factor(1);
  std::vector<reshard::Factor> &factors = graph.values[w].layout.dims[1].segments[0].factors;
  factors.insert(factors.begin() + 1, {one, 1});
  Result<SearchAnswer> with = search(graph, jobFor(2, 8), smallCluster(), pins);
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->plan.prediction.stepSeconds, without->plan.prediction.stepSeconds);
}

//===----------------------------------------------------------------------===//
// Properties
//===----------------------------------------------------------------------===//

TEST(Search, MoreMemoryIsNeverSlower) {
  Graph graph = makeChain({3, 1, 16, 4, 8, 64, 96});
  double before = INFINITY;
  int answers = 0;
  for (int64_t kib = 100; kib < 4000; kib = kib * 5 / 4) {
    Cluster cluster = everyTerm(smallCluster(kib * 1024));
    Result<SearchAnswer> answer = search(graph, jobFor(4, 16), cluster, {});
    if (!answer) {
      EXPECT_EQ(answer.error().code, ErrorCode::NoFeasiblePlan);
      EXPECT_EQ(before, INFINITY) << "what fitted in less memory does not fit in more";
      continue;
    }
    ++answers;
    EXPECT_LE(answer->plan.prediction.stepSeconds, before * (1 + 2e-3)) << kib;
    before = std::min(before, answer->plan.prediction.stepSeconds);
    EXPECT_LE(answer->plan.prediction.peakBytes, answer->plan.limitBytes());
  }
  EXPECT_GT(answers, 4);
}

/// The bound on memory is at most the memory of every plan.
TEST(Search, NoPlanTakesLessThanTheBoundOnMemory) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  for (const char *mesh :
       {"dp=4", "fsdp=4", "tp=4", "pp=4", "dp=2,fsdp=2", "tp=2,fsdp=2", "pp=2,tp=2", "tp=3"})
    for (const char *recompute : {"none", "selective", "full"})
      for (int64_t microBatch : {1, 4}) {
        Pins pins;
        pins.mesh = *parseMesh(mesh);
        pins.recompute = recompute;
        pins.microBatch = microBatch;
        const Job job = jobFor(std::string(mesh) == "tp=3" ? 3 : 4, 16);
        const Cluster cluster = smallCluster();
        Result<Exploration> found = explore(graph, job, cluster, pins, 1, Purpose::Answer);
        ASSERT_TRUE(found) << found.error().message;
        ASSERT_FALSE(found->exact.empty());
        for (const ExactCandidate &exact : found->exact) {
          EXPECT_GT(exact.candidate.leastBytes, 0);
          // With the margin at its upper end, because the goal is Fits.
          EXPECT_LE(exact.candidate.leastBytes, double(exact.plan.prediction.highBytes))
              << describe(exact.plan);
        }
      }
}

/// With SHARD_GRAD_OP, each micro-batch in flight keeps the parameters that it gathered: a score
/// grows with their number as the derived memory does.
TEST(Search, ScoresCountGatheredParametersOfAllMicroBatchesInFlight) {
  Graph graph = makeMlp(1, std::vector<int64_t>(9, 256));
  std::vector<double> scored, derived;
  for (int64_t batch : {4, 16}) { // 2 and 8 micro-batches, of which 2 and 4 are in flight
    Pins pins;
    pins.mesh = *parseMesh("pp=4,fsdp=2");
    pins.strategy = "shard-grad-op";
    pins.schedule = "1f1b";
    pins.recompute = "none";
    pins.bucketSize = pins.prefetch = "none";
    pins.microBatch = 1;
    Result<Exploration> found =
        explore(graph, jobFor(8, batch), smallCluster(), pins, 1, Purpose::Answer);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_FALSE(found->exact.empty());
    scored.push_back(found->exact.front().candidate.peakBytes);
    derived.push_back(double(found->exact.front().plan.prediction.highBytes));
  }
  EXPECT_GT(derived[1], 1.3 * derived[0]);
  EXPECT_NEAR((scored[1] - scored[0]) / (derived[1] - derived[0]), 1, 0.1);
}

TEST(Search, MemoryHasAMarginUnlessRiskIsAskedFor) {
  Graph graph = makeChain({12, 1, 64, 4, 8, 64, 96});
  Cluster cluster = smallCluster();
  cluster.allocatorUncertainty = 0.1;
  auto plan = [&](int64_t limitBytes, MemoryVerdict goal, const char *recompute = "auto") {
    Pins pins;
    pins.mesh = *parseMesh("dp=2");
    pins.zero = 0;
    pins.microBatch = 64;
    pins.recompute = recompute;
    pins.memoryLimitBytes = limitBytes;
    pins.memoryGoal = goal;
    return search(graph, jobFor(2, 128), cluster, pins);
  };
  const int64_t enough = int64_t(1) << 30;
  Result<SearchAnswer> none = plan(enough, MemoryVerdict::Fits, "none"),
                       all = plan(enough, MemoryVerdict::Fits, "selective");
  ASSERT_TRUE(none && all);
  const Prediction &p = none->plan.prediction;
  ASSERT_LT(p.peakBytes, p.highBytes);
  // The limit is between the middle and the upper end of the fastest plan.
  const int64_t limit = (p.peakBytes + p.highBytes) / 2;
  Result<SearchAnswer> sure = plan(limit, MemoryVerdict::Fits),
                       risky = plan(limit, MemoryVerdict::Tight);
  ASSERT_TRUE(sure && risky);
  EXPECT_EQ(sure->plan.prediction.memory, MemoryVerdict::Fits);
  EXPECT_LE(sure->plan.prediction.highBytes, limit);
  EXPECT_TRUE(sure->plan.warnings.empty());
  EXPECT_EQ(risky->plan.prediction.memory, MemoryVerdict::Tight);
  EXPECT_EQ(toString(risky->plan.recompute), "none");
  EXPECT_LT(risky->plan.prediction.stepSeconds, sure->plan.prediction.stepSeconds);
  EXPECT_THAT(risky->plan.warnings, testing::Contains(HasSubstr("without --memory-risk")));
  // The cost of the margin is reported as an alternative.
  EXPECT_THAT(sure->plan.alternatives,
              testing::Contains(testing::Field(&Alternative::memory, MemoryVerdict::Tight)));
  EXPECT_LE(sure->plan.lowerBoundSeconds, sure->plan.prediction.stepSeconds);
  EXPECT_LE(risky->plan.lowerBoundSeconds, risky->plan.prediction.stepSeconds);
  // A pinned plan is taken if it may fit.
  Result<SearchAnswer> pinned = plan(limit, MemoryVerdict::Fits, "none");
  ASSERT_TRUE(pinned) << pinned.error().message;
  EXPECT_EQ(pinned->plan.prediction.memory, MemoryVerdict::Tight);
  EXPECT_THAT(pinned->plan.warnings, testing::Contains(HasSubstr("no plan was found that fits")));
  Result<Plan> read = readPlan(writePlan(pinned->plan), "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->prediction.memory, MemoryVerdict::Tight);
  EXPECT_EQ(read->warnings, pinned->plan.warnings);
  EXPECT_FALSE(plan(p.peakBytes * 4 / 5, MemoryVerdict::Fits, "none"));
}

TEST(Search, EndsAtItsBudgetOrInTimeAndSaysSo) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  const Job job = jobFor(8, 16);
  Pins pins;
  Result<SearchAnswer> whole = search(graph, job, smallCluster(), pins);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->plan.searchEnd, SearchEnd::Complete);
  EXPECT_EQ(writePlan(whole->plan).find("search_end"), std::string::npos);
  for (auto [candidates, scored] : {std::pair<int64_t, int64_t>{40, 20000}, {1 << 19, 3}}) {
    pins.budget = {candidates, scored};
    Result<SearchAnswer> some = search(graph, job, smallCluster(), pins);
    ASSERT_TRUE(some) << some.error().message;
    EXPECT_EQ(some->plan.searchEnd, SearchEnd::Budget);
    EXPECT_GE(some->plan.prediction.stepSeconds, whole->plan.prediction.stepSeconds * (1 - 2e-3));
    // The bound also holds for candidates outside the budget.
    EXPECT_LE(some->plan.lowerBoundSeconds, whole->plan.prediction.stepSeconds);
    Result<Plan> read = readPlan(writePlan(some->plan), "plan.json");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->searchEnd, SearchEnd::Budget);
  }
  pins.budget = {};
  pins.deadline = Deadline::after(0); // over before anything is looked at
  Result<SearchAnswer> late = search(graph, job, smallCluster(), pins);
  ASSERT_TRUE(late) << late.error().message;
  EXPECT_EQ(late->plan.searchEnd, SearchEnd::TimeLimit);
  EXPECT_LE(late->plan.lowerBoundSeconds, whole->plan.prediction.stepSeconds);
}

/// The pins leave a case in which only a search could find that no plan fits.
TEST(Search, SaysThatTimeWasShortWhereNothingFitsYet) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  Pins pins;
  Result<SearchAnswer> fits = search(graph, jobFor(8, 16), smallCluster(), pins);
  ASSERT_TRUE(fits);
  pins.deadline = Deadline::after(0);
  int unproven = 0;
  for (int64_t memory = fits->plan.prediction.peakBytes; memory > 1000; memory = memory * 9 / 10) {
    Result<SearchAnswer> answer = search(graph, jobFor(8, 16), smallCluster(memory), pins);
    if (answer)
      continue;
    EXPECT_EQ(answer.error().code, ErrorCode::NoFeasiblePlan);
    const bool isProven = answer.error().message.find("no plan exists") != std::string::npos;
    unproven += !isProven;
    if (!isProven)
      EXPECT_THAT(answer.error().message, HasSubstr("--time-limit"));
  }
  EXPECT_GT(unproven, 0);
}

TEST(Search, MoreBandwidthIsNeverSlower) {
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  double before = INFINITY;
  for (double factor : {0.1, 0.3, 1.0, 3.0, 10.0, 100.0}) {
    Cluster cluster = everyTerm(smallCluster());
    cluster.intraNode.bytesPerSecond *= factor;
    cluster.interNode.bytesPerSecond *= factor;
    cluster.intraNode.switchBytesPerSecond *= factor;
    Result<SearchAnswer> answer = search(graph, jobFor(8, 16), cluster, {});
    ASSERT_TRUE(answer);
    EXPECT_LE(answer->plan.prediction.stepSeconds, before * (1 + 2e-3)) << factor;
    before = answer->plan.prediction.stepSeconds;
  }
}

TEST(Search, PinnedIsNeverBetterThanFree) {
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  Cluster cluster = smallCluster();
  Result<SearchAnswer> open = search(graph, jobFor(8, 16), cluster, {});
  ASSERT_TRUE(open);
  for (const char *mesh : {"dp=8", "fsdp=8", "tp=8", "pp=8", "dp=2,fsdp=2,tp=2", "pp=2,dp=4"}) {
    Pins pins;
    pins.mesh = *parseMesh(mesh);
    Result<SearchAnswer> pinned = search(graph, jobFor(8, 16), cluster, pins);
    ASSERT_TRUE(pinned) << mesh << ": " << pinned.error().message;
    EXPECT_GE(pinned->plan.prediction.stepSeconds, open->plan.prediction.stepSeconds * (1 - 2e-3))
        << mesh;
    EXPECT_GE(pinned->plan.prediction.stepSeconds, pinned->plan.lowerBoundSeconds);
  }
}

// Parameters that are gathered around hundreds of devices take longer than their matmuls; TP inside
// nodes and PP between them do not gather. Within a node it is the other way around. Narayanan et
// al., SC 2021, table 2, measured both for 175e9 parameters: ZeRO-3 takes 81.6 s on 384 A100 (76.8
// s with TP and PP) and 66.7 s on 1,536 (20.8 s).
TEST(Search, ShardedStateCostsMoreOverMoreDevices) {
  constexpr int64_t tokens = 2048, layers = 32; // 151e6 parameters a layer
  const Graph graph = makeMlp(1, std::vector<int64_t>(layers + 1, 12288), 2);
  for (const char *preset : {"a100-80gb-sxm", "h100-sxm"}) {
    const Cluster cluster = *loadCluster(preset);
    auto seconds = [&](int64_t gpus, const std::string &mesh, int64_t microBatch) {
      Job job = jobFor(gpus, gpus * tokens);
      job.precision = Precision::BF16;
      Pins pins;
      pins.mesh = *parseMesh(mesh);
      pins.microBatch = microBatch;
      pins.recompute = "none";
      Result<SearchAnswer> answer = search(graph, job, cluster, pins);
      EXPECT_TRUE(answer) << mesh << ": " << (answer ? "" : answer.error().message);
      return answer ? answer->plan.prediction.stepSeconds : 0;
    };
    EXPECT_LT(seconds(8, "fsdp=8", tokens), seconds(8, "tp=8", tokens)) << preset;
    double least = 0; // of ZeRO-3: more devices do not take less, with the same tokens for each
    for (int64_t gpus : {256, 512, 1024, 2048}) {
      const std::string size = std::to_string(gpus);
      const double sharded = seconds(gpus, "fsdp=" + size, tokens);
      const double split =
          seconds(gpus, "pp=4,dp=" + std::to_string(gpus / 32) + ",tp=8", 2 * tokens);
      EXPECT_GT(sharded, split) << preset << ", " << size;
      EXPECT_GT(sharded, least) << preset << ", " << size;
      // Groups of one node gather without the slow steps.
      EXPECT_GT(sharded, seconds(gpus, "dp=" + std::to_string(gpus / 8) + ",fsdp=8", tokens))
          << preset << ", " << size;
      least = sharded;
    }
  }
}

// Attention skips hidden keys, and the order of the sequence is free.
TEST(Search, SequencesAreSplitSoThatAllRanksSkipAlike) {
  Graph graph = makeChain({2, 1, 16, 4, 8, 64, 96});
  graph.sequenceFactor =
      graph.values[graph.ops[0].results[0]].layout.dims[1].segments[0].factors[0].id;
  for (reshard::GraphOp &op : graph.ops)
    if (op.kernelClass == KernelClass::Attention) {
      op.kernelClass = KernelClass::CausalAttention;
      for (reshard::Loop &loop : op.loops) // as if rows were independent
        if (loop.factor == graph.sequenceFactor)
          loop.kind = reshard::LoopKind::Parallel;
    }
  Cluster cluster = smallCluster();
  KernelEfficiency &kernel = cluster.kernels[KernelClass::CausalAttention] =
      cluster.kernels[KernelClass::Attention];
  auto plan = [&](const char *order, double executed) {
    kernel.executedFraction = executed;
    Pins pins;
    pins.mesh = *parseMesh("cp=4");
    pins.sequenceOrder = order;
    Result<SearchAnswer> answer = search(graph, jobFor(4, 16), cluster, pins);
    EXPECT_TRUE(answer) << answer.error().message;
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds);
    EXPECT_EQ(predict(graph, answer->plan)->stepSeconds, answer->plan.prediction.stepSeconds);
    return answer->plan;
  };
  Plan open = plan("", 0.5), inOrder = plan("contiguous", 0.5);
  EXPECT_TRUE(open.zigzag);
  EXPECT_FALSE(inOrder.zigzag);
  EXPECT_LT(open.prediction.stepSeconds, inOrder.prediction.stepSeconds);
  EXPECT_EQ(plan("zigzag", 0.5).prediction.stepSeconds, open.prediction.stepSeconds);
  // The same axis by a condition, with the others open.
  Pins pins;
  pins.conditions = *parseConditions("cp=2");
  Result<SearchAnswer> asked = search(graph, jobFor(4, 16), cluster, pins);
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_EQ(asked->plan.mesh.cp, 2);
  // Zigzag saves no time without skipped work.
  EXPECT_FALSE(plan("", 1).zigzag);
  EXPECT_GT(plan("contiguous", 1).prediction.stepSeconds, inOrder.prediction.stepSeconds);
}

TEST(Search, RecomputesAsManyBlocksAsNeedBe) {
  Graph graph = makeChain({12, 1, 64, 4, 8, 64, 96});
  Cluster cluster = smallCluster();
  auto plan = [&](const std::string &recompute, int64_t limitBytes) {
    Pins pins;
    pins.mesh = *parseMesh("dp=2");
    pins.zero = 0;
    pins.microBatch = 64;
    pins.recompute = recompute;
    pins.memoryLimitBytes = limitBytes;
    return search(graph, jobFor(2, 128), cluster, pins);
  };
  int64_t enough = int64_t(1) << 30;
  Result<SearchAnswer> none = plan("none", enough), all = plan("selective", enough);
  ASSERT_TRUE(none && all);
  int64_t low = all->plan.prediction.peakBytes, high = none->plan.prediction.peakBytes;
  ASSERT_LT(low, high);
  double before = all->plan.prediction.stepSeconds;
  for (int part = 1; part < 4; ++part) {
    int64_t limit = low + (high - low) * part / 4;
    Result<SearchAnswer> answer = plan("auto", limit);
    ASSERT_TRUE(answer) << answer.error().message;
    const Plan &found = answer->plan;
    EXPECT_LE(found.prediction.peakBytes, limit);
    EXPECT_LT(found.prediction.stepSeconds, before) << "more memory, fewer blocks";
    EXPECT_GT(found.prediction.stepSeconds, none->plan.prediction.stepSeconds);
    before = found.prediction.stepSeconds;
    const std::string recompute = toString(found.recompute);
    const int64_t blocks = found.recompute.share.blocks;
    ASSERT_EQ(recompute, "selective " + std::to_string(blocks) + "/12");
    // The same plan by name; with one block less it does not fit.
    Result<SearchAnswer> pinned = plan("selective:" + std::to_string(blocks), limit);
    ASSERT_TRUE(pinned);
    EXPECT_EQ(pinned->plan.recomputeOps, found.recomputeOps);
    Result<SearchAnswer> fewer = plan("selective:" + std::to_string(blocks - 1), limit);
    EXPECT_FALSE(fewer && fewer->plan.prediction.fits()) << blocks;
    // A written plan can be read back, but not with another version number.
    std::string text = writePlan(found);
    EXPECT_TRUE(readPlan(text, "plan.json"));
    size_t at = text.find(recompute, text.find("\"mode\""));
    EXPECT_FALSE(readPlan(text.replace(at, recompute.size(), "selective 3"), "plan.json"));
  }
  EXPECT_NE(errorOf(graph, jobFor(2, 128),
                    [] {
                      Pins pins;
                      pins.recompute = "selective:13";
                      return pins;
                    }())
                .find("12 blocks"),
            std::string::npos);
  for (const char *wrong : {"none:3", "full:", "full:x", "full:0", "some"}) {
    Pins pins;
    pins.recompute = wrong;
    EXPECT_NE(errorOf(graph, jobFor(2, 128), pins).find("--recompute"), std::string::npos) << wrong;
  }
}

/// Of candidates that differ only by recomputation, one score may settle others: less recomputation
/// fits, or more does not.
TEST(Search, ScoresNoNeedlessRecomputation) {
  const Graph graph = makeChain({8, 1, 64, 4, 8, 64, 96});
  ASSERT_FALSE(isSmallGraph(graph));
  auto exploreWith = [&](const char *recompute, int64_t limitBytes) {
    Pins pins;
    pins.mesh = *parseMesh("dp=2");
    pins.zero = 0;
    pins.microBatch = 64;
    pins.recompute = recompute;
    pins.memoryLimitBytes = limitBytes;
    return explore(graph, jobFor(2, 128), smallCluster(), pins, /*top=*/1, Purpose::Cost);
  };
  const int64_t enough = int64_t(1) << 30;
  const Result<Exploration> all = exploreWith("auto", enough);
  ASSERT_TRUE(all && all->hasFit(MemoryVerdict::Fits));
  EXPECT_EQ(all->numScored, 1) << "without forced recomputation";

  const Result<Exploration> full = exploreWith("full", enough);
  ASSERT_TRUE(full && full->hasFit(MemoryVerdict::Fits));
  const Result<Exploration> none =
      exploreWith("auto", full->exact[0].plan.prediction.highBytes * 9 / 10);
  ASSERT_TRUE(none && !none->provesNothingFits);
  EXPECT_FALSE(none->hasFit(MemoryVerdict::Fits));
  EXPECT_EQ(none->numScored, 2) << "without and with the most recomputation";
}

// All blocks recompute selectively by their score, and this is not enough: the score leaves out
// what an executor keeps. Some blocks recompute in full then, although no candidate said so.
TEST(Search, FitsWhereAStrongerRecomputationFits) {
  const Graph graph = makeChain({16, 1, 64, 4, 8, 64, 96});
  Cluster cluster = *runBy(smallCluster(), "megatron");
  cluster.executor.residualFactor = 1.5;
  cluster.executor.plans = {}; // stages may recompute different numbers of blocks
  auto plan = [&](const char *recompute, int64_t limitBytes) {
    Pins pins;
    pins.mesh = *parseMesh("pp=4");
    pins.microBatch = 4;
    pins.schedule = "1f1b";
    pins.recompute = recompute;
    pins.memoryLimitBytes = limitBytes;
    return search(graph, jobFor(4, 64), cluster, pins);
  };
  const Result<SearchAnswer> selective = plan("selective", int64_t(1) << 30),
                             full = plan("full", int64_t(1) << 30);
  ASSERT_TRUE(selective && full);
  int64_t limit = selective->plan.prediction.peakBytes;
  while (plan("selective", limit))
    limit = limit * 99 / 100;
  ASSERT_LT(full->plan.prediction.highBytes, limit);
  const Result<SearchAnswer> answer = plan("auto", limit);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(answer->plan.prediction.fits());
  EXPECT_EQ(answer->plan.recompute.mode, RecomputeMode::Full);
  EXPECT_LT(answer->plan.prediction.stepSeconds, full->plan.prediction.stepSeconds);
}

// A pinned axis dp does not pin DDP. Optimizer states on each rank would need more memory here.
TEST(Search, APinnedMeshLeavesZeroOpen) {
  const Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  auto plan = [&](std::optional<int> zero, int64_t limitBytes) {
    Pins pins;
    pins.mesh = *parseMesh("dp=4");
    pins.zero = zero;
    pins.microBatch = 4;
    pins.recompute = "none";
    pins.memoryLimitBytes = limitBytes;
    return search(graph, jobFor(4, 16), smallCluster(), pins);
  };
  const Result<SearchAnswer> ddp = plan(0, int64_t(1) << 30);
  ASSERT_TRUE(ddp);
  int64_t tooLittle = ddp->plan.prediction.peakBytes;
  while (plan(0, tooLittle))
    tooLittle = tooLittle * 99 / 100;
  const Result<SearchAnswer> sharded = plan(std::nullopt, tooLittle);
  ASSERT_TRUE(sharded) << sharded.error().message;
  EXPECT_GT(sharded->plan.parameterDefault.zero, 0);
}

TEST(Search, SchedulesCompeteByTheirBubbleAndTheirMemory) {
  Graph graph = makeChain({16, 1, 16, 4, 8, 64, 96});
  Cluster cluster = smallCluster();
  auto plan = [&](const char *schedule, int64_t chunks, const char *placement) {
    Pins pins;
    pins.mesh = *parseMesh("pp=4");
    pins.microBatch = 4;
    pins.recompute = "none";
    pins.schedule = schedule;
    pins.placement = placement;
    if (chunks > 0)
      pins.virtualStages = chunks;
    Result<SearchAnswer> answer = search(graph, jobFor(4, 32), cluster, pins);
    EXPECT_TRUE(answer) << schedule << ": " << answer.error().message;
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds);
    return answer->plan;
  };
  Plan open = plan("", 0, ""), plain = plan("1f1b", 0, "");
  EXPECT_NE(open.schedule, ScheduleKind::OneFOneB) << "its bubble is the longest";
  for (const Plan &pinned :
       {plain, plan("gpipe", 0, ""), plan("interleaved", 2, ""), plan("interleaved", 4, ""),
        plan("interleaved", 2, "v"), plan("zero-bubble", 1, ""), plan("zero-bubble", 2, "v"),
        plan("zero-bubble", 2, "loop")})
    EXPECT_LE(open.prediction.stepSeconds, pinned.prediction.stepSeconds * (1 + 2e-3))
        << scheduleText(pinned);
  EXPECT_EQ(plan("", 2, "v").chunkStage, (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));
  // ZB-H1 keeps as many micro-batches on every stage as 1F1B does on the first.
  auto residuals = [](const Plan &of, size_t stage) {
    for (const MemoryLine &line : of.prediction.stages[stage].lines)
      if (line.name == "saved residuals")
        return line.bytes;
    return int64_t(-1);
  };
  Plan parted = plan("zero-bubble", 1, "");
  EXPECT_GT(residuals(parted, 3), residuals(plain, 3));
}

TEST(Search, IsDeterministicToTheByte) {
  Graph graph = makeChain({4, 1, 16, 4, 8, 64, 96});
  auto plan = [&] { return writePlan(search(graph, jobFor(8, 16), smallCluster(), {})->plan); };
  EXPECT_EQ(plan(), plan());
}

TEST(Search, RenamingChangesNothing) {
  Graph graph = makeChain({3, 1, 16, 4, 8, 64, 96});
  Graph renamed = graph;
  for (auto &op : renamed.ops) {
    op.id = "z" + op.id;
    op.kind = "k" + op.kind;
  }
  for (auto &value : renamed.values) {
    value.name = "v" + value.name;
    for (auto &dim : value.layout.dims)
      for (auto &segment : dim.segments)
        for (auto &factor : segment.factors)
          factor.id = 5000 - factor.id;
  }
  for (auto &op : renamed.ops)
    for (auto &loop : op.loops)
      loop.factor = 5000 - loop.factor;
  renamed.batchFactor = 5000 - renamed.batchFactor;
  for (int64_t gpus : {2, 4, 8}) {
    Result<SearchAnswer> a = search(graph, jobFor(gpus, 16), smallCluster(), {});
    Result<SearchAnswer> b = search(renamed, jobFor(gpus, 16), smallCluster(), {});
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->plan.prediction.stepSeconds, b->plan.prediction.stepSeconds);
    EXPECT_TRUE(a->plan.mesh == b->plan.mesh);
  }
}

//===----------------------------------------------------------------------===//
// Devices and batches
//===----------------------------------------------------------------------===//

TEST(Search, RoundsUpADefaultBatchAndSaysSo) {
  Graph graph = makeMlp(1, {8, 8, 8});
  Job job = jobFor(4, 6);
  job.batchIsDefault = true;
  Pins pins;
  pins.mesh = {{"dp", 4}};
  Result<SearchAnswer> answer = search(graph, job, smallCluster(), pins);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.job.globalBatch, 8);
  EXPECT_THAT(answer->plan.assumptions, testing::Contains(HasSubstr("rounded up to 8")));
}

TEST(Search, SaysWhichDevicesStayIdle) {
  Graph graph = makeMlp(1, {8, 8, 8}); // 7 divides no size
  Result<SearchAnswer> answer = search(graph, jobFor(7, 512), smallCluster(), {});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.idleDevices, 7 - answer->plan.mesh.numRanks());
  EXPECT_GT(answer->plan.idleDevices, 0);
  EXPECT_THAT(answer->plan.assumptions, testing::Contains(HasSubstr("of 7 devices stay idle")));
}

TEST(Search, LeavesNoAxisWithoutWork) {
  Graph graph = makeMlp(1, {7, 11, 5}); // 2 divides only the batch
  Result<SearchAnswer> answer = search(graph, jobFor(4, 64), smallCluster(), {});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->plan.mesh.tp, 1);
  EXPECT_EQ(answer->plan.mesh.numRanks(), 4);
}
