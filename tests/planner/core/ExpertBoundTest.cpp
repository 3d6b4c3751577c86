//===- ExpertBoundTest.cpp - Bounds for experts and gathered parameters ------===//

#include "planner/graph/Fold.h"
#include "planner/graph/Stages.h"
#include "planner/plan/Describe.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Explore.h"
#include "planner/search/KeptBytesBound.h"
#include "planner/search/ReaderBytes.h"
#include "planner/search/Searcher.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

/// Layers of a matmul and of `experts` experts, each with all samples: y[n, o] = x[n, i] w[e, i,
/// o]. `copies`: the experts that need a sample, if not all.
static Graph makeExperts(int64_t layers, int64_t experts, int64_t width, int64_t copies = 0) {
  StepBuilder builder;
  FactorId n = builder.factor(1), in = builder.factor(width), e = builder.factor(experts);
  int x = builder.input("x", {{n}, {in}}), labels = builder.input("labels", {{n}}, 8);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    FactorId middle = builder.factor(width), out = builder.factor(width);
    x = builder.matmul(name + ".fc", x, builder.parameter(name + ".fc.w", {{in}, {middle}}),
                       {{n}, {middle}});
    int w = builder.parameter(name + ".experts.w", {{e}, {middle}, {out}});
    x = builder.matmul(name + ".experts", x, w, {{n}, {out}});
    in = out;
  }
  FactorId classes = builder.factor(width);
  x = builder.matmul("head", x, builder.parameter("head.w", {{in}, {classes}}), {{n}, {classes}});
  builder.loss("loss", x, labels);
  Graph graph = builder.finish(n);
  for (reshard::GraphOp &op : graph.ops)
    for (size_t loop = 0; loop < op.loops.size(); ++loop)
      if (op.loops[loop].factor == e) {
        op.expertLoop = int(loop);
        op.routing = {int(loop), int(loop), copies, 1};
      }
  return graph;
}

namespace {

/// Every mesh of 4 devices with axes pp, dp, fsdp and ep, with every ZeRO mode, micro-batch and
/// cut.
struct EveryPlan {
  const Graph &graph;
  const Job job = jobFor(4, 8);
  const Cluster cluster = smallCluster();

  explicit EveryPlan(const Graph &graph, const Cluster &cluster = smallCluster())
      : graph(graph), cluster(cluster) {}

  template <typename Visit> void forEach(Visit visit) const {
    const std::vector<bool> mayBegin = stageMayBegin(graph);
    for (int64_t pp : {1, 2})
      for (int64_t fsdp : {1, 2, 4})
        for (int64_t ep : {1, 2, 4})
          for (int mode = 2; mode < 5; ++mode)
            for (int64_t micro : {1, 2}) {
              if (pp * fsdp * ep > 4 || reshard::commonExperts(graph) % ep != 0)
                continue;
              const Plan plan = planFor({pp, 4 / pp / fsdp / ep, fsdp, ep}, mode, micro);
              for (size_t cut = 1; cut < (pp == 1 ? 2 : mayBegin.size()); ++cut) {
                if (pp > 1 && !mayBegin[cut])
                  continue;
                Plan staged = plan;
                staged.stages = {graph.ops[0].id};
                if (pp > 1)
                  staged.stages.push_back(graph.ops[cut].id);
                Result<Prediction> prediction = predict(graph, staged);
                ASSERT_TRUE(prediction) << prediction.error().message;
                visit(staged, *prediction);
              }
            }
  }

private:
  /// `mode`: 2 and 3 are ZeRO stages, 4 keeps gathered parameters for backward.
  Plan planFor(const MeshShape &mesh, int mode, int64_t micro) const {
    Plan plan;
    plan.job = job;
    plan.cluster = cluster;
    plan.mesh = mesh;
    plan.microBatch = micro;
    plan.accumulation = job.globalBatch / (micro * mesh.dataRanks());
    if (mesh.pp > 1)
      plan.schedule = ScheduleKind::OneFOneB;
    ParameterDecision &data = plan.parameterDefault;
    data.zero = std::min(mode, 3);
    data.keepGathered = mode == 4;
    for (const auto &[axis, size] : mesh.axes())
      if (size > 1 && std::string(axis) != "pp")
        (std::string(axis) != "dp" || mesh.fsdp == 1 ? data.zeroAxes : data.reduceAxes)
            .push_back(axis);
    return plan;
  }
};

} // namespace

/// Returns the cluster with an executor that sends tokens to their experts.
static Cluster ofOthers(Cluster cluster) {
  cluster.executor.name = "other";
  return cluster;
}

/// Returns how `plan` distributes parameters, without network shapes.
static DataMode modeOf(const Plan &plan) {
  DataMode mode;
  mode.zero = plan.parameterDefault.zero;
  mode.keepGathered = plan.parameterDefault.keepGathered;
  mode.keepsGradientShards = true;
  const MeshShape &mesh = plan.mesh;
  const int64_t shards = mesh.fsdp == 1 ? mesh.dp : mesh.fsdp;
  mode.groups[0].zero.size = shards * mesh.ep;
  mode.groups[1].zero.size = shards;
  return mode;
}

TEST(ReaderBytes, AreAtMostTheMemoryOfEveryPlan) {
  double tightest = 0;
  int plans = 0;
  for (const Graph &graph : {makeExperts(2, 4, 48), makeMlp(1, {64, 256, 32, 96})}) {
    const EveryPlan every{graph};
    const std::vector<ParameterReaders> readers =
        parameterReaders(graph, every.job, structuralHashes(graph), /*tp=*/1);
    ASSERT_FALSE(readers.empty());
    every.forEach([&](const Plan &plan, const Prediction &prediction) {
      double least = 0;
      for (const ParameterReaders &of : readers)
        least = std::max(least, leastReaderBytes(plan.mesh, plan.microBatch, modeOf(plan), of));
      ASSERT_LE(least, double(prediction.peakBytes)) << describe(plan);
      tightest = std::max(tightest, least / double(prediction.peakBytes));
      ++plans;
    });
  }
  EXPECT_GT(plans, 100);
  EXPECT_GT(tightest, 0.6) << "it says something";
}

TEST(ReaderBytes, CountTheSamplesThatTravelToTheirExperts) {
  const Graph graph = makeExperts(2, 4, 48, /*copies=*/1);
  const EveryPlan every{graph, ofOthers(smallCluster())};
  const auto hashes = structuralHashes(graph);
  double tightest = 0, all = 0;
  every.forEach([&](const Plan &plan, const Prediction &prediction) {
    auto leastOf = [&](bool exchangesTokens) {
      double least = 0;
      for (const ParameterReaders &of :
           parameterReaders(graph, every.job, hashes, /*tp=*/1, exchangesTokens))
        least = std::max(least, leastReaderBytes(plan.mesh, plan.microBatch, modeOf(plan), of));
      return least;
    };
    ASSERT_LE(leastOf(true), double(prediction.peakBytes)) << describe(plan);
    tightest = std::max(tightest, leastOf(true) / double(prediction.peakBytes));
    all = std::max(all, leastOf(false) / leastOf(true));
  });
  EXPECT_GT(tightest, 0.5) << "it says something";
  EXPECT_GT(all, 1) << "all samples are more";
}

TEST(ReaderBytes, CountGathersAndGradientsBesideTheShareOfAStage) {
  const Graph graph = makeExperts(3, 4, 64);
  const std::vector<ParameterReaders> all =
      parameterReaders(graph, jobFor(8, 8), structuralHashes(graph), 1);
  auto ofExperts = std::max_element(all.begin(), all.end(),
                                    [](const ParameterReaders &a, const ParameterReaders &b) {
                                      return a.totals.divided[1].bytes < b.totals.divided[1].bytes;
                                    });
  ASSERT_EQ(ofExperts->count, 3);
  DataMode mode;
  mode.zero = 3;
  mode.keepsGradientShards = true;
  mode.groups[0].zero.size = mode.groups[1].zero.size = 4;
  const double weights = 4 * 64 * 64 * 4; // of one layer
  // Parameters, gradients and two moments of three layers in f32 on 4 shards and 2 stages; then
  // the weights and gradients of one layer, an operand and no result over the batch.
  const double sample = 64 * 4;
  EXPECT_EQ(leastReaderBytes({2, 1, 4}, 1, mode, *ofExperts),
            3 * weights * 4 / 4 / 2 + weights + sample * 2);
}

/// Scores with experts are at least the bound, and no plan is faster than the proven one.
static void checkBounds(const Graph &graph, bool isOwn) {
  double tightest = 0;
  for (const char *mesh : {"ep=4", "dp=2,ep=2", "fsdp=2,ep=2", "ep=2,tp=2", "pp=2,ep=2", ""})
    for (bool everything : {false, true}) {
      Pins pins;
      if (*mesh)
        pins.mesh = *parseMesh(mesh);
      Cluster cluster = everything ? everyTerm(smallCluster()) : smallCluster();
      if (!isOwn)
        cluster = ofOthers(std::move(cluster));
      const Job job = jobFor(4, 16);
      Result<Exploration> found = explore(graph, job, cluster, pins, 5, Purpose::Answer);
      ASSERT_TRUE(found) << found.error().message;
      for (const Candidate &candidate : found->scored) {
        EXPECT_LE(candidate.lowerBound, candidate.seconds * (1 + 1e-9))
            << mesh << " " << toString(candidate.mesh);
        tightest = std::max(tightest, candidate.lowerBound / candidate.seconds);
      }
      for (const ExactCandidate &exact : found->exact) {
        EXPECT_LE(exact.candidate.provenBound, exact.plan.prediction.stepSeconds * (1 + 1e-9));
        EXPECT_LE(found->lowerBoundSeconds, exact.plan.prediction.stepSeconds * (1 + 1e-9));
      }
    }
  EXPECT_GT(tightest, 0.8) << "it says something";
}

TEST(CandidateBound, IsAtMostTheScoreOfPlansWithExperts) {
  checkBounds(makeExperts(3, 4, 48), /*isOwn=*/true);
}

TEST(CandidateBound, IsAtMostTheScoreWhereTokensTravelToTheirExperts) {
  for (int64_t copies : {1, 2})
    checkBounds(makeExperts(3, 4, 48, copies), /*isOwn=*/false);
}

/// Compares the kept bytes without forced recomputation with those of scores.
static void checkKept(const Graph &graph, const Cluster &cluster) {
  const Job job = jobFor(8, 32);
  const Pins pins;
  Result<PinnedOps> pinned = PinnedOps::make(graph, job, pins.ops, cluster.executor.tensorParallel);
  ASSERT_TRUE(pinned) << pinned.error().message;
  Result<Space> space = Space::make(job, pins, reshard::commonExperts(graph), "",
                                    cluster.executor.plans, ExecutorSizes());
  ASSERT_TRUE(space) << space.error().message;
  Workers workers(1);
  Searcher searcher(graph, job, cluster, *space, cluster.memoryBytes, *pinned, workers);
  double tightest = 0;
  int fitting = 0, tooMuch = 0;
  for (Candidate candidate : searcher.enumerate(pins)) {
    if (candidate.recompute != RecomputeMode::None || !searcher.costs.models.mayPlace(candidate))
      continue;
    const MeshShape &mesh = candidate.mesh;
    const double kept = searcher.costs.models.unforcedKeptBytes(candidate.microBatch * mesh.ep) /
                        double(mesh.tp * mesh.cp * mesh.ep);
    const Profile &profile = searcher.costs.models.profileOf(candidate, RecomputeMode::None);
    const double scored = profile.sums(0, profile.numForward()).residualBytes;
    ASSERT_LE(kept, scored * (1 + 1e-9)) << toString(mesh);
    tightest = std::max(tightest, kept / scored);
    const bool isTooMuch = keepsTooMuch(searcher.boundTables, candidate);
    if (!searcher.pricer.score(candidate, /*refine=*/true))
      continue;
    ASSERT_FALSE(isTooMuch && candidate.feasible) << toString(mesh) << ", " << candidate.peakBytes;
    fitting += candidate.feasible;
    tooMuch += isTooMuch;
  }
  EXPECT_GT(tightest, 0.9) << "it says something";
  EXPECT_GT(fitting, 20);
  EXPECT_GT(tooMuch, 20);
}

TEST(KeptBytes, AreAtMostThoseOfScores) {
  checkKept(makeExperts(3, 4, 48), smallCluster(200'000));
  checkKept(makeExperts(3, 4, 48, /*copies=*/1), ofOthers(smallCluster(200'000)));
  checkKept(makeChain({4, 1, 64, 4, 8, 64, 96}), smallCluster(2'000'000));
}
