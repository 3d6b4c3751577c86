//===- OverlapTest.cpp - Buckets, and gathers ahead of their use -----------===//

#include "planner/reshard/Overlap.h"
#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <limits>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

const Mesh mesh{{{"dp", 2}, {"fsdp", 4}}};
const AxisRef dp = wholeAxis(mesh, 0), fsdp = wholeAxis(mesh, 1);
constexpr int64_t unbounded = std::numeric_limits<int64_t>::max() / 2;

/// An MLP over dp and fsdp: gradients of 140, 28, 84 and 12 bytes.
struct Step {
  GraphBuilder g = test::mlp(24, 5, 7, 3);
  Assignment a = test::dataParallel(g.graph, mesh, {dp, fsdp});
  Derivation derivation;

  explicit Step(int zero, int64_t microBatches = 3) {
    a.microBatches = microBatches;
    for (ParameterPlan &plan : a.parameterPlans)
      plan = {zero, false, {fsdp}, {dp}};
    derivation = derive(g.graph, a);
  }
  Overlap overlap(int64_t bucketBytes, int64_t prefetch = 0, int64_t gatherBytes = 0) const {
    return planOverlap(g.graph, derivation, {bucketBytes, prefetch, gatherBytes});
  }
  std::vector<CollectiveCount> counts(const Overlap &overlap) const {
    return countCollectives(g.graph, a, derivation, overlap);
  }
};

int64_t bytesOf(const std::vector<CollectiveCount> &counts) {
  int64_t bytes = 0;
  for (const CollectiveCount &count : counts)
    bytes += count.bytes * count.count;
  return bytes;
}

TEST(Buckets, NoneWithoutASize) {
  Step step(0);
  Overlap overlap = step.overlap(0);
  EXPECT_TRUE(overlap.buckets.empty());
  EXPECT_EQ(test::show(step.counts(overlap)),
            test::show(countCollectives(step.g.graph, step.a, step.derivation)));
}

TEST(Buckets, JoinTheReductionsOfAStep) {
  Step step(0);
  Overlap overlap = step.overlap(unbounded);
  ASSERT_EQ(overlap.buckets.size(), 1u);
  std::vector<Collective> messages = jointMessages(step.derivation, overlap.buckets[0]);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].kind, CollectiveKind::AllReduce);
  EXPECT_EQ(messages[0].bytes, 140 + 28 + 84 + 12);
  // The bucket and the loss.
  EXPECT_EQ(test::show(step.counts(overlap)),
            "stage 0 all_reduce(dp+fsdp) 4 x 1\nstage 0 all_reduce(dp+fsdp) 264 x 1\n");
}

TEST(Buckets, HaveAMessageForEachKindAndGroup) {
  // Scattered each micro-batch over fsdp, then summed over dp once per step.
  Step step(2);
  Overlap overlap = step.overlap(unbounded);
  // Of the scatters, of the sums, and of the gathers of new parameters.
  ASSERT_EQ(overlap.buckets.size(), 3u);
  // 35, 7, 21 and 3 elements, padded to whole shares of 4 ranks.
  constexpr int64_t padded = (36 + 8 + 24 + 4) * 4;
  std::vector<CollectiveCount> counts = step.counts(overlap);
  EXPECT_EQ(test::executions(counts, CollectiveKind::ReduceScatter, "fsdp"), 3);
  EXPECT_EQ(test::executions(counts, CollectiveKind::AllReduce, "dp"), 1);
  for (const CollectiveCount &count : counts) {
    if (count.kind == CollectiveKind::ReduceScatter)
      EXPECT_EQ(count.bytes, padded);
    else if (count.axes == "dp")
      EXPECT_EQ(count.bytes, padded / 4);
  }
}

TEST(Buckets, HoldNoMoreThanTheirSizeInTheOrderOfTheReductions) {
  int joined = 0;
  for (int zero : {0, 1, 2, 3})
    for (int64_t limit = 1; limit <= 320; ++limit) {
      Step step(zero);
      Overlap overlap = step.overlap(limit);
      std::vector<CollectiveCount> with = step.counts(overlap),
                                   without = step.counts(step.overlap(0));
      int64_t saved = 0;
      for (size_t b = 0; b < overlap.buckets.size(); ++b) {
        const std::vector<int> &members = overlap.buckets[b].reshards;
        EXPECT_GE(members.size(), 2u);
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
        const Reshard &first = step.derivation.reshards[members[0]];
        int64_t largest = 0;
        for (int member : members) {
          EXPECT_EQ(overlap.bucketOf[member], int(b));
          EXPECT_EQ(step.derivation.reshards[member].where, first.where);
        }
        std::vector<Collective> messages = jointMessages(step.derivation, overlap.buckets[b]);
        for (const Collective &message : messages)
          largest = std::max(largest, message.bytes);
        EXPECT_LE(largest, limit);
        saved += int64_t((members.size() - 1) * messages.size()) *
                 (first.perStep ? 1 : step.a.microBatches);
        ++joined;
      }
      EXPECT_EQ(bytesOf(with), bytesOf(without)) << "zero " << zero << ", " << limit << " bytes";
      int64_t executions = 0;
      for (const CollectiveCount &count : without)
        executions += count.count;
      for (const CollectiveCount &count : with)
        executions -= count.count;
      EXPECT_EQ(executions, saved) << "zero " << zero << ", " << limit << " bytes";
    }
  EXPECT_GT(joined, 100);
}

TEST(Buckets, LeaveOutWhatSeveralStagesHold) {
  // A weight tied over two stages, and two untied ones.
  GraphBuilder g({{'b', 8}, {'d', 4}, {'e', 4}});
  g.graph.batchFactor = 'b';
  int x = g.input("x", "bd"), w = g.parameter("w", "de"), v = g.parameter("v", "ed"),
      u = g.parameter("u", "d");
  int y = g.forward("first", "bd,de->be", {x, w});
  int z = g.forward("second", "be,ed->bd", {y, v});
  int s = g.forward("scale", "bd,d->bd", {z, u});
  g.stage = 1;
  int t = g.forward("third", "bd,de->be", {s, w});
  int dw2 = g.backward("third.w", t, "bd,be->de", {s, t}, {w});
  int ds = g.backward("third.x", t, "be,de->bd", {t, w}, {s});
  g.stage = 0;
  g.gradient(u, g.backward("scale.w", s, "bd,bd->d", {z, ds}, {u}));
  int dz = g.backward("scale.x", s, "bd,d->bd", {ds, u}, {z});
  g.gradient(v, g.backward("second.w", z, "be,bd->ed", {y, dz}, {v}));
  int dy = g.backward("second.x", z, "bd,ed->be", {dz, v}, {y});
  int dw1 = g.backward("first.w", y, "bd,be->de", {x, dy}, {w});
  g.gradient(w, g.sum("dw", Phase::Backward, {dw1, dw2}));
  Mesh two{{{"pp", 2}, {"dp", 2}}};
  Assignment a = test::dataParallel(g.graph, two, {wholeAxis(two, 1)});
  a.pipelineAxis = 0;
  a.numStages = 2;
  a.microBatches = 4;
  for (ParameterPlan &plan : a.parameterPlans)
    plan = {0, false, {}, {wholeAxis(two, 1)}};
  ASSERT_EQ(whyInvalid(g.graph, a), "");
  Derivation derivation = derive(g.graph, a);
  Overlap overlap = planOverlap(g.graph, derivation, {unbounded, 0});
  ASSERT_EQ(overlap.buckets.size(), 1u);
  std::vector<int> values;
  for (int member : overlap.buckets[0].reshards)
    values.push_back(derivation.reshards[member].value);
  EXPECT_EQ(values.size(), 2u);
  EXPECT_EQ(std::count(values.begin(), values.end(), g.graph.parameters[0].gradient), 0);
}

TEST(Buckets, GoIntoTheBackwardOfASingleMicroBatch) {
  for (int zero : {0, 1, 2, 3}) {
    Step step(zero, 1);
    for (const Reshard &reshard : step.derivation.reshards)
      EXPECT_NE(reshard.where, Where::GradientStep);
    EXPECT_EQ(step.derivation.gradient, step.derivation.state) << "zero " << zero;
    Overlap overlap = step.overlap(unbounded);
    const bool gathersNew = zero == 1 || zero == 2;
    ASSERT_EQ(overlap.buckets.size(), gathersNew ? 2u : 1u);
    const Reshard &first = step.derivation.reshards[overlap.buckets[0].reshards[0]];
    EXPECT_EQ(first.where, Where::GradientMicro);
    EXPECT_EQ(jointMessages(step.derivation, overlap.buckets[0]).size(), zero == 0 ? 1u : 2u);
  }
  // Several are added up first.
  EXPECT_NE(Step(0, 2).derivation.gradient, Step(0, 2).derivation.state);
}

TEST(Gathers, OfAMicroBatchAreJoinedUpToTheirSize) {
  Step step(3);
  // Padded to whole shares of 4 ranks: 144, 32, 96 and 16 bytes, all read in forward.
  for (int64_t limit : {0, 100, 176, 280, 1000}) {
    Overlap overlap = step.overlap(0, 0, limit);
    EXPECT_EQ(bytesOf(step.counts(overlap)), bytesOf(step.counts(step.overlap(0)))) << limit;
    std::vector<int64_t> bytes;
    for (const Bucket &bucket : overlap.buckets) {
      int before = -1;
      for (int member : bucket.reshards) {
        const Reshard &reshard = step.derivation.reshards[member];
        EXPECT_EQ(reshard.where, Where::ParameterUse);
        if (before < 0)
          before = reshard.op;
        EXPECT_EQ(overlap.issuedBefore[member], before) << "together, before the first use";
      }
      std::vector<Collective> messages = jointMessages(step.derivation, bucket);
      ASSERT_EQ(messages.size(), 1u);
      EXPECT_EQ(messages[0].kind, CollectiveKind::AllGather);
      bytes.push_back(messages[0].bytes);
    }
    const std::vector<int64_t> expected = limit == 0     ? std::vector<int64_t>{}
                                          : limit == 100 ? std::vector<int64_t>{}
                                          : limit == 176 ? std::vector<int64_t>{176, 112}
                                          : limit == 280 ? std::vector<int64_t>{272}
                                                         : std::vector<int64_t>{288};
    EXPECT_EQ(bytes, expected) << limit;
  }
}

TEST(Gathers, OfNewParametersFollowTheSizeOfBuckets) {
  for (int zero : {1, 2}) {
    Step step(zero);
    Overlap overlap = step.overlap(unbounded);
    EXPECT_EQ(test::executions(step.counts(overlap), CollectiveKind::AllGather, "fsdp"), 1);
    EXPECT_EQ(test::executions(step.counts(step.overlap(0)), CollectiveKind::AllGather, "fsdp"), 4);
  }
}

TEST(Prefetch, CountsJointGathersAsOne) {
  Step step(3);
  Overlap overlap = step.overlap(0, 1, 176);
  ASSERT_EQ(overlap.buckets.size(), 2u);
  auto firstUse = [&](size_t bucket) {
    return step.derivation.reshards[overlap.buckets[bucket].reshards.front()].op;
  };
  for (int member : overlap.buckets[1].reshards)
    EXPECT_EQ(overlap.issuedBefore[member], firstUse(0));
}

TEST(Prefetch, IssuesGathersSoManyAhead) {
  Step step(3);
  std::vector<int> uses; // of forward
  for (const Reshard &reshard : step.derivation.reshards)
    if (reshard.where == Where::ParameterUse && reshard.phase == Phase::Forward)
      uses.push_back(reshard.op);
  ASSERT_EQ(uses.size(), 4u);
  for (int64_t ahead : {0, 1, 2, 3, 100}) {
    Overlap overlap = step.overlap(0, ahead);
    size_t number = 0;
    for (size_t r = 0; r < step.derivation.reshards.size(); ++r) {
      const Reshard &reshard = step.derivation.reshards[r];
      if (reshard.where != Where::ParameterUse) {
        EXPECT_EQ(overlap.issuedBefore[r], -1);
        continue;
      }
      if (reshard.phase != Phase::Forward) {
        // Only w2 is read there, and no op comes before it.
        EXPECT_EQ(overlap.issuedBefore[r], ahead == 0 ? -1 : reshard.op);
        continue;
      }
      int expected = uses[number >= size_t(ahead) ? number - size_t(ahead) : 0];
      EXPECT_EQ(overlap.issuedBefore[r], ahead == 0 ? -1 : expected) << ahead;
      ++number;
    }
    EXPECT_EQ(test::show(step.counts(overlap)), test::show(step.counts(step.overlap(0))));
  }
}

} // namespace
} // namespace tbc::reshard
