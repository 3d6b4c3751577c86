//===- Fp8Test.cpp - Matmuls in 8 bits in plans ----------------------------===//

#include "planner/reshard/Fp8.h"
#include "planner/bound/WholeWork.h"
#include "planner/cost/Cost.h"
#include "planner/graph/Fp8Matmuls.h"
#include "planner/memory/Memory.h"
#include "planner/plan/JobGraph.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Search.h"
#include "runtime/memory/Fp8Workspace.h"
#include "tests/planner/core/SmallCluster.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using reshard::OpStrategy;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

Job fp8Job(int64_t gpus, int64_t batch) {
  Job job = jobFor(gpus, batch);
  job.precision = Precision::BF16;
  job.matmulPrecision = MatmulPrecision::Fp8;
  return job;
}

std::vector<int> matmulsOf(const Graph &graph) {
  std::vector<int> ops;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].kernelClass == KernelClass::Matmul)
      ops.push_back(int(op));
  return ops;
}

/// Every strategy of `op` over one axis after the other of `mesh`.
std::vector<OpStrategy> strategiesOver(const Graph &graph, int op,
                                       const std::vector<int64_t> &mesh) {
  std::vector<OpStrategy> all{{}};
  for (size_t axis = 0; axis < mesh.size(); ++axis) {
    std::vector<OpStrategy> next;
    for (const OpStrategy &base : all)
      for (OpStrategy &more :
           reshard::enumerateStrategies(graph, op, base, {int(axis), 1, mesh[axis]}))
        next.push_back(std::move(more));
    all = std::move(next);
  }
  return all;
}

} // namespace

TEST(Fp8, ExecutorsRoundMatmulsByTheirRule) {
  Graph graph = makeMlp(64, {32, 64, 16}, 2);
  Executor own, none;
  none.fp8.exists = false;
  size_t rounded = 0;
  for (const reshard::GraphOp &op : withFp8Matmuls(graph, own).ops) {
    EXPECT_EQ(op.fp8.isRounded, op.kernelClass == KernelClass::Matmul) << op.id;
    rounded += op.fp8.isRounded;
  }
  EXPECT_GT(rounded, 4u);
  for (const reshard::GraphOp &op : withFp8Matmuls(graph, none).ops)
    EXPECT_FALSE(op.fp8.isRounded);

  // The product that makes logits stays, with its gradients; one without a parameter as well.
  Executor linear;
  linear.fp8.linearOnly = true;
  const std::vector<int> matmuls = matmulsOf(graph);
  const int first = matmuls[0], head = matmuls[1];
  ASSERT_EQ(graph.ops[size_t(head)].phase, reshard::Phase::Forward);
  for (reshard::GraphOp &op : graph.ops)
    for (size_t k = 0; k < op.operands.size(); ++k)
      if (op.phase == reshard::Phase::Forward &&
          op.operands[k] == graph.ops[size_t(head)].results[0])
        op.logitsOperand = int(k);
  for (const reshard::GraphOp &op : withFp8Matmuls(graph, linear).ops)
    EXPECT_EQ(op.fp8.isRounded, op.kernelClass == KernelClass::Matmul && op.forwardOp == first)
        << op.id;
  for (reshard::GraphValue &value : graph.values)
    value.role =
        value.role == reshard::ValueRole::Parameter ? reshard::ValueRole::Input : value.role;
  for (const reshard::GraphOp &op : withFp8Matmuls(graph, linear).ops)
    EXPECT_FALSE(op.fp8.isRounded) << op.id;
}

TEST(Fp8, ASplitMayLeaveSizesThatAreNoMultiplesOf16) {
  const Graph graph = withFp8Matmuls(makeMlp(64, {32, 48, 16}, 2), Executor());
  int split = 0;
  for (int op : matmulsOf(graph)) {
    EXPECT_TRUE(isInFp8(graph, op, {})) << graph.ops[size_t(op)].id;
    for (const OpStrategy &strategy : strategiesOver(graph, op, {2, 2})) {
      // Independently: by the shapes of both operands and of the result on a rank.
      std::vector<int64_t> sizes;
      for (size_t l = 0; l < graph.ops[size_t(op)].loops.size(); ++l) {
        auto axes = strategy.loopAxes.find(int(l));
        sizes.push_back(graph.ops[size_t(op)].loops[l].size /
                        (axes == strategy.loopAxes.end() ? 1 : reshard::groupSize(axes->second)));
      }
      const bool expected =
          std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size % 16 == 0; });
      EXPECT_EQ(isInFp8(graph, op, strategy), expected) << graph.ops[size_t(op)].id;
      split += !expected;
    }
  }
  EXPECT_GT(split, 10);
}

// More than 2 GiB of operands keep their types on one rank, and not on two.
TEST(Fp8, OperandsBesideTheMemoryPlanAreFew) {
  const Graph graph = withFp8Matmuls(makeMlp(1 << 17, {1 << 14, 16, 16}, 2), Executor());
  const int op = matmulsOf(graph)[0];
  EXPECT_GT(fp8OperandBytes(graph, op, {}), program::fp8::mostWorkspaceBytes);
  EXPECT_FALSE(isInFp8(graph, op, {}));
  const OpStrategy halves = reshard::batchStrategy(graph, op, {{0, 1, 2}});
  EXPECT_TRUE(isInFp8(graph, op, halves));
  EXPECT_EQ(fp8OperandBytes(graph, op, halves),
            program::fp8::workspaceBytes(int64_t(1) << 30, int64_t(16) << 14));
}

TEST(Fp8, AllRanksOfDivisorsStay) {
  const Graph graph = withFp8Matmuls(makeMlp(64, {96, 192, 384}, 2), Executor());
  for (int op : matmulsOf(graph)) {
    const int64_t ranks = ranksInFp8(graph, op);
    ASSERT_GT(ranks, 0);
    for (const std::vector<int64_t> &mesh :
         std::vector<std::vector<int64_t>>{{2}, {2, 2}, {4}, {3}, {6}, {3, 2}})
      if (ranks % std::accumulate(mesh.begin(), mesh.end(), int64_t(1), std::multiplies<>()) == 0)
        for (const OpStrategy &strategy : strategiesOver(graph, op, mesh))
          EXPECT_TRUE(isInFp8(graph, op, strategy)) << graph.ops[size_t(op)].id;
  }
}

// No strategy has a kernel that is faster than the divided work, whether it keeps a matmul in 8
// bits or not.
TEST(Fp8, DividedWorkBoundsEveryStrategy) {
  Cluster cluster = smallCluster();
  for (double rate : {1e10, 1e11, 4e9}) {
    cluster.peakFlopsPerSecond["f8"] = rate;
    for (const std::vector<int64_t> &sizes :
         std::vector<std::vector<int64_t>>{{32, 48, 16}, {64, 256, 64}, {24, 16, 32}}) {
      const Graph graph = withFp8Matmuls(makeMlp(64, sizes, 2), cluster.executor);
      const std::vector<KernelShare> shares = kernelShares(cluster, graph);
      const WholeWork whole(graph, shares);
      for (const std::vector<int64_t> &mesh : std::vector<std::vector<int64_t>>{{2}, {2, 2}, {8}}) {
        const int64_t ranks =
            std::accumulate(mesh.begin(), mesh.end(), int64_t(1), std::multiplies<>());
        const std::vector<double> least = whole.dividedSeconds(cluster, ranks);
        for (int op : matmulsOf(graph))
          for (const OpStrategy &strategy : strategiesOver(graph, op, mesh))
            EXPECT_LE(least[size_t(op)],
                      opKernelSeconds(cluster, graph, op, strategy, shares[size_t(op)]) *
                          (1 + 1e-12))
                << graph.ops[size_t(op)].id;
      }
    }
  }
}

// An operand is rounded for each matmul, or once for all that read it; parameters then once a step.
TEST(Fp8, RoundingIsPricedByTheExecutor) {
  Cluster own = *loadCluster("h100-sxm"), other = *runBy(own, "nemo"),
          apart = *runBy(own, "torchtitan");
  auto totals = [](const Cluster &cluster) {
    Executor executor = cluster.executor;
    executor.fp8.linearOnly = false; // the made model has no logits
    const Graph graph = withFp8Matmuls(makeMlp(256, {512, 1024, 256}, 2), executor);
    double bytes = 0, launches = 0;
    int count = 0;
    std::vector<KernelShare> shares = kernelShares(cluster, graph);
    for (int op : matmulsOf(graph)) {
      const LocalWork work = localWork(graph, op, {}, shares[size_t(op)]);
      EXPECT_EQ(work.dtype, reshard::DType::F8E4M3);
      bytes += work.roundingBytes, launches += work.roundingLaunches;
      ++count;
    }
    return std::tuple(bytes, launches, count);
  };
  auto [ownBytes, ownLaunches, count] = totals(own);
  EXPECT_EQ(ownLaunches, 6 * count);
  auto [apartBytes, apartLaunches, again] = totals(apart);
  EXPECT_EQ(apartLaunches, 4 * count);
  EXPECT_EQ(apartBytes, ownBytes); // read twice, written once, for each matmul
  auto [bytes, launches, same] = totals(other);
  // x, h and their cotangents: 256 x 512, 256 x 1024, and dh, dy of 256 x 1024 and 256 x 256.
  EXPECT_EQ(launches, 4);
  EXPECT_EQ(bytes, 4.0 * 256 * (512 + 1024 + 1024 + 256));
}

TEST(Fp8, APlanHasItsRateMemoryAndAWarningWhereItDoesNotPay) {
  const Graph small = makeMlp(1, std::vector<int64_t>(5, 512), 2),
              large = makeMlp(1, std::vector<int64_t>(5, 16384), 2);
  const Cluster cluster = *loadCluster("h100-sxm");
  auto plan = [&](const Graph &graph, MatmulPrecision precision) {
    Job job = fp8Job(8, 1 << 16);
    job.matmulPrecision = precision;
    Pins pins;
    pins.mesh = *parseMesh("dp=8");
    pins.recompute = "none";
    pins.zero = 0;
    pins.microBatch = 1 << 13;
    Result<SearchAnswer> answer = search(graph, job, cluster, pins);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    EXPECT_LE(answer->plan.lowerBoundSeconds, answer->plan.prediction.stepSeconds * (1 + 1e-9));
    return answer->plan;
  };
  const Plan slower = plan(small, MatmulPrecision::Fp8), faster = plan(large, MatmulPrecision::Fp8),
             own = plan(large, MatmulPrecision::Own);
  EXPECT_THAT(slower.warnings, Contains(HasSubstr("do not pay")));
  EXPECT_THAT(faster.warnings, Not(Contains(HasSubstr("do not pay"))));
  EXPECT_LT(faster.prediction.stepSeconds, own.prediction.stepSeconds);
  int64_t bytes = 0;
  for (const MemoryLine &line : faster.prediction.stages[0].lines)
    if (line.name == "fp8 operands")
      bytes = line.bytes;
  // The largest matmul has 8192 x 16384 and 16384 x 16384 elements.
  EXPECT_EQ(bytes, program::fp8::workspaceBytes(int64_t(1) << 27, int64_t(1) << 28));
  EXPECT_EQ(programBytes(faster.prediction.stages[0]), programBytes(own.prediction.stages[0]));

  Result<Plan> again = readPlan(writePlan(faster), "plan.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->job.matmulPrecision, MatmulPrecision::Fp8);
  EXPECT_EQ(again->cluster, faster.cluster);
  EXPECT_EQ(predict(large, *again)->stepSeconds, faster.prediction.stepSeconds);
}

TEST(Fp8, IsRefusedWhereNothingIsInFp8) {
  const Graph graph = makeMlp(1, {64, 64, 64}, 2);
  const Cluster h100 = *loadCluster("h100-sxm");
  auto refusal = [&](const Cluster &cluster) {
    Result<SearchAnswer> answer = search(graph, fp8Job(1, 64), cluster, {});
    EXPECT_FALSE(answer);
    return answer ? "" : answer.error().message;
  };
  EXPECT_THAT(refusal(*runBy(h100, "deepspeed")), HasSubstr("deepspeed has no matmuls in fp8"));
  EXPECT_THAT(refusal(*loadCluster("a100-80gb-sxm")),
              HasSubstr("no device.peak_flops_per_second.f8"));
  Graph none = graph;
  for (reshard::GraphOp &op : none.ops)
    if (op.kernelClass == KernelClass::Matmul)
      op.kernelClass = KernelClass::Elementwise;
  Result<SearchAnswer> answer = search(none, fp8Job(1, 64), h100, {});
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no matmul that tbc has in fp8"));
}
