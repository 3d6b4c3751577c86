//===- ClosedFormTest.cpp - Closed forms of data parallelism ---------------===//
//
// The closed forms of docs/design.md, section 3, against derive and countCollectives. Expected
// lists are written from the table alone.
//
//===----------------------------------------------------------------------===//

#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

#include <algorithm>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

constexpr int64_t kMicroBatches = 3;
// Ragged on purpose: 35, 7, 21 and 3 elements.
const int64_t kIn = 5, kHidden = 7, kOut = 3;
const std::vector<int64_t> kNumel = {kIn * kHidden, kHidden, kHidden *kOut, kOut};
// Backward reads w2 (for the cotangent of the hidden layer) and no other parameter.
const std::vector<bool> kReadInBackward = {false, false, true, false};

int64_t ceilShares(int64_t numel, int64_t n) { return n * ((numel + n - 1) / n) * 4; }

/// Merges equal lines as countCollectives does.
class Expected {
public:
  void add(CollectiveKind kind, const std::string &axes, int64_t bytes, int64_t count) {
    CollectiveCount line{kind, axes, 0, bytes, 0};
    counts[line] += count;
  }
  /// The loss: one float, once per step.
  void addLoss(const std::string &axes) { add(CollectiveKind::AllReduce, axes, 4, 1); }
  std::vector<CollectiveCount> list() const {
    std::vector<CollectiveCount> result;
    for (const auto &[line, count] : counts) {
      result.push_back(line);
      result.back().count = count;
    }
    return result;
  }

private:
  std::map<CollectiveCount, int64_t> counts;
};

std::vector<CollectiveCount> count(const Mesh &mesh, int zero, bool keepGathered,
                                   const std::vector<AxisRef> &zeroAxes,
                                   const std::vector<AxisRef> &reduceAxes) {
  GraphBuilder g = test::mlp(24, kIn, kHidden, kOut);
  std::vector<AxisRef> data = reduceAxes;
  data.insert(data.end(), zeroAxes.begin(), zeroAxes.end());
  Assignment assignment = test::dataParallel(g.graph, mesh, data);
  assignment.microBatches = kMicroBatches;
  for (ParameterPlan &plan : assignment.parameterPlans)
    plan = {zero, keepGathered, zeroAxes, reduceAxes};
  return countCollectives(g.graph, assignment, derive(g.graph, assignment));
}

const Mesh dp4{{{"dp", 4}}};
const std::vector<AxisRef> dp = {wholeAxis(dp4, 0)};

#define EXPECT_COUNTS(actual, expected) EXPECT_EQ(test::show(actual), test::show((expected).list()))

TEST(ClosedForm, DistributedDataParallel) {
  Expected expected;
  expected.addLoss("dp");
  for (int64_t numel : kNumel)
    expected.add(CollectiveKind::AllReduce, "dp", numel * 4, 1);
  EXPECT_COUNTS(count(dp4, 0, false, {}, dp), expected);
  EXPECT_COUNTS(count(dp4, 0, false, dp, {}), expected); // zero axes are data axes too
}

TEST(ClosedForm, Zero1) {
  Expected expected;
  expected.addLoss("dp");
  for (int64_t numel : kNumel) {
    expected.add(CollectiveKind::ReduceScatter, "dp", ceilShares(numel, 4), 1);
    expected.add(CollectiveKind::AllGather, "dp", ceilShares(numel, 4), 1);
  }
  EXPECT_COUNTS(count(dp4, 1, false, dp, {}), expected);
}

TEST(ClosedForm, Zero2) {
  Expected expected;
  expected.addLoss("dp");
  for (int64_t numel : kNumel) {
    expected.add(CollectiveKind::ReduceScatter, "dp", ceilShares(numel, 4), kMicroBatches);
    expected.add(CollectiveKind::AllGather, "dp", ceilShares(numel, 4), 1);
  }
  EXPECT_COUNTS(count(dp4, 2, false, dp, {}), expected);
}

TEST(ClosedForm, ShardGradOp) {
  Expected expected;
  expected.addLoss("dp");
  for (int64_t numel : kNumel) {
    expected.add(CollectiveKind::ReduceScatter, "dp", ceilShares(numel, 4), kMicroBatches);
    expected.add(CollectiveKind::AllGather, "dp", ceilShares(numel, 4), kMicroBatches);
  }
  EXPECT_COUNTS(count(dp4, 3, true, dp, {}), expected);
}

TEST(ClosedForm, FullShard) {
  Expected expected;
  expected.addLoss("dp");
  for (size_t p = 0; p < kNumel.size(); ++p) {
    expected.add(CollectiveKind::ReduceScatter, "dp", ceilShares(kNumel[p], 4), kMicroBatches);
    expected.add(CollectiveKind::AllGather, "dp", ceilShares(kNumel[p], 4),
                 (kReadInBackward[p] ? 2 : 1) * kMicroBatches);
  }
  EXPECT_COUNTS(count(dp4, 3, false, dp, {}), expected);
}

TEST(ClosedForm, HybridShard) {
  Mesh mesh{{{"dp", 2}, {"fsdp", 4}}};
  Expected expected;
  expected.addLoss("dp+fsdp");
  for (size_t p = 0; p < kNumel.size(); ++p) {
    int64_t padded = ceilShares(kNumel[p], 4);
    expected.add(CollectiveKind::ReduceScatter, "fsdp", padded, kMicroBatches);
    expected.add(CollectiveKind::AllGather, "fsdp", padded,
                 (kReadInBackward[p] ? 2 : 1) * kMicroBatches);
    expected.add(CollectiveKind::AllReduce, "dp", padded / 4, 1);
  }
  EXPECT_COUNTS(count(mesh, 3, false, {wholeAxis(mesh, 1)}, {wholeAxis(mesh, 0)}), expected);
}

TEST(ClosedForm, Zero1OnPartOfTheDataRanks) {
  Mesh mesh{{{"dp", 2}, {"fsdp", 4}}};
  Expected expected;
  expected.addLoss("dp+fsdp");
  for (int64_t numel : kNumel) {
    expected.add(CollectiveKind::ReduceScatter, "fsdp", ceilShares(numel, 4), 1);
    expected.add(CollectiveKind::AllReduce, "dp", ceilShares(numel, 4) / 4, 1);
    expected.add(CollectiveKind::AllGather, "fsdp", ceilShares(numel, 4), 1);
  }
  EXPECT_COUNTS(count(mesh, 1, false, {wholeAxis(mesh, 1)}, {wholeAxis(mesh, 0)}), expected);
}

TEST(ClosedForm, PaddingCountsWhereTheGroupDoesNotDivide) {
  // 24 ranks: every parameter but w1 is smaller than the group or leaves a remainder.
  Mesh mesh{{{"dp", 24}}};
  Expected expected;
  expected.addLoss("dp");
  for (int64_t bytes : {48 * 4, 24 * 4, 24 * 4, 24 * 4}) {
    expected.add(CollectiveKind::ReduceScatter, "dp", bytes, 1);
    expected.add(CollectiveKind::AllGather, "dp", bytes, 1);
  }
  EXPECT_COUNTS(count(mesh, 1, false, {wholeAxis(mesh, 0)}, {}), expected);
}

TEST(ClosedForm, DataGroupOfOneNeedsNothing) {
  Mesh mesh{{{"dp", 1}, {"fsdp", 1}, {"tp", 4}}};
  for (int zero = 0; zero <= 3; ++zero)
    EXPECT_TRUE(count(mesh, zero, false, {wholeAxis(mesh, 1)}, {wholeAxis(mesh, 0)}).empty());
}

TEST(ClosedForm, FrozenParametersAreGatheredAndNoMore) {
  GraphBuilder g = test::mlp(24, kIn, kHidden, kOut);
  for (GraphParameter &p : g.graph.parameters)
    p.gradient = -1;
  Assignment assignment = test::dataParallel(g.graph, dp4, dp);
  for (ParameterPlan &plan : assignment.parameterPlans)
    plan = {3, false, dp, {}};
  auto counts = countCollectives(g.graph, assignment, derive(g.graph, assignment));
  EXPECT_EQ(test::executions(counts, CollectiveKind::AllGather, "dp"), 5);
  EXPECT_EQ(test::executions(counts, CollectiveKind::ReduceScatter), 0);
  EXPECT_EQ(test::executions(counts, CollectiveKind::AllReduce), 1); // the loss
  for (ParameterPlan &plan : assignment.parameterPlans)
    plan.zero = 1;
  counts = countCollectives(g.graph, assignment, derive(g.graph, assignment));
  EXPECT_EQ(test::executions(counts, CollectiveKind::AllGather), 0);
}

TEST(ClosedForm, OneMicroBatchMovesTheSame) {
  GraphBuilder g = test::mlp(24, kIn, kHidden, kOut);
  Mesh mesh{{{"dp", 2}, {"fsdp", 4}}};
  Assignment a = test::dataParallel(g.graph, mesh, {wholeAxis(mesh, 0), wholeAxis(mesh, 1)});
  for (int zero = 0; zero <= 3; ++zero) {
    for (ParameterPlan &plan : a.parameterPlans)
      plan = {zero, false, {wholeAxis(mesh, 1)}, {wholeAxis(mesh, 0)}};
    Expected expected;
    expected.addLoss("dp+fsdp");
    for (size_t p = 0; p < kNumel.size(); ++p) {
      int64_t padded = ceilShares(kNumel[p], 4);
      if (zero == 0) {
        expected.add(CollectiveKind::AllReduce, "dp+fsdp", 4 * kNumel[p], 1);
        continue;
      }
      expected.add(CollectiveKind::ReduceScatter, "fsdp", padded, 1);
      expected.add(CollectiveKind::AllReduce, "dp", padded / 4, 1);
      expected.add(CollectiveKind::AllGather, "fsdp", padded,
                   zero == 3 && kReadInBackward[p] ? 2 : 1);
    }
    EXPECT_COUNTS(countCollectives(g.graph, a, derive(g.graph, a)), expected);
  }
}

TEST(ClosedForm, ShardingsOfAParameter) {
  GraphBuilder g = test::mlp(24, kIn, kHidden, kOut);
  Mesh mesh{{{"dp", 2}, {"fsdp", 4}}};
  AxisRef d = wholeAxis(mesh, 0), f = wholeAxis(mesh, 1);
  Assignment a = test::dataParallel(g.graph, mesh, {d, f});
  a.microBatches = kMicroBatches;
  Sharding whole, flat{{}, {}, {f}};
  auto with = [&](int zero, bool keep) {
    for (ParameterPlan &plan : a.parameterPlans)
      plan = {zero, keep, {f}, {d}};
    return derive(g.graph, a);
  };
  Derivation z0 = with(0, false), z1 = with(1, false), z2 = with(2, false), z3 = with(3, true);
  EXPECT_EQ(z0.stored[0], whole);
  EXPECT_EQ(z0.state[0], whole);
  EXPECT_EQ(z0.gradient[0], (Sharding{{}, {{d}, {f}}, {}}));
  EXPECT_EQ(z1.stored[0], whole);
  EXPECT_EQ(z1.state[0], flat);
  EXPECT_EQ(z1.gradient[0], (Sharding{{}, {{d}, {f}}, {}}));
  EXPECT_EQ(z2.gradient[0], (Sharding{{}, {{d}}, {f}}));
  EXPECT_EQ(z3.stored[0], flat);
  // Kept gathered: w2 is handed from forward to backward.
  int w2 = g.valueIndex("w2");
  EXPECT_EQ(std::count_if(z3.residuals.begin(), z3.residuals.end(),
                          [&](const Residual &r) { return r.value == w2 && r.sharding == whole; }),
            1);
  Derivation again = with(3, false);
  EXPECT_EQ(std::count_if(again.residuals.begin(), again.residuals.end(),
                          [&](const Residual &r) { return r.value == w2; }),
            0);
}

} // namespace
} // namespace tbc::reshard
