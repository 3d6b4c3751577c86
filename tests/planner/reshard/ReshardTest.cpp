//===- ReshardTest.cpp - The collectives between two shardings -------------===//

#include "planner/reshard/Collective.h"
#include "tests/planner/reshard/RandomShardings.h"
#include "tests/planner/reshard/Simulator.h"

#include "gtest/gtest.h"

namespace tbc::reshard {
namespace {

enum : FactorId { B = 1, H = 2, D = 4, S = 5 };

const Mesh mesh{{{"dp", 2}, {"fsdp", 4}, {"tp", 4}}};
const AxisRef dp = wholeAxis(mesh, 0), fsdp = wholeAxis(mesh, 1), tp = wholeAxis(mesh, 2);

DimLayout product(std::vector<Factor> factors) { return {{Segment{factors}}}; }

/// b x s x (h*d), 8 * 16 * (4*8) floats.
TensorLayout activation() {
  return {{product({{B, 8}}), product({{S, 16}}), product({{H, 4}, {D, 8}})}, 4};
}

std::string show(const std::vector<Collective> &steps, const Mesh &mesh) {
  std::string text;
  for (const Collective &c : steps) {
    text += (text.empty() ? "" : " ") + std::string(name(c.kind)) + "(" + toString(mesh, c.axes);
    if (c.kind != CollectiveKind::AllReduce)
      text += c.dim < 0 ? ",flat" : ",d" + std::to_string(c.dim);
    if (c.splitDim >= 0)
      text += "->d" + std::to_string(c.splitDim);
    text += "," + std::to_string(c.bytes) + ")";
  }
  return text;
}

std::string steps(const TensorLayout &layout, const Sharding &from, const Sharding &to) {
  return show(reshard(mesh, layout, from, to), mesh);
}

TEST(Reshard, EqualShardingsNeedNothing) {
  Sharding s{{{0, B, {dp}}}, {{tp}}, {}};
  EXPECT_TRUE(reshard(mesh, activation(), s, s).empty());
  // Axes of size 1 and unsorted entries make no difference.
  Sharding same{{{1, S, {}}, {0, B, {dp, {1, 4, 1}}}}, {{tp}, {tp}}, {}};
  EXPECT_TRUE(reshard(mesh, activation(), s, same).empty());
}

TEST(Reshard, PartialOverSeveralAxesIsOneAllReduce) {
  EXPECT_EQ(steps(activation(), {{{2, H, {tp}}}, {{dp}, {fsdp}}, {}}, {{{2, H, {tp}}}, {}, {}}),
            "all_reduce(dp+fsdp,4096)");
}

TEST(Reshard, OneOfTwoSumsMayBeLeftPartial) {
  EXPECT_EQ(steps(activation(), {{}, {{dp}, {tp}}, {}}, {{}, {{dp}}, {}}), "all_reduce(tp,16384)");
}

TEST(Reshard, SumIntoAShardIsAReduceScatter) {
  EXPECT_EQ(steps(activation(), {{}, {{tp}}, {}}, {{{1, S, {tp}}}, {}, {}}),
            "reduce_scatter(tp,d1,16384)");
  auto collectives = reshard(mesh, activation(), {{}, {{tp}}, {}}, {{{1, S, {tp}}}, {}, {}});
  EXPECT_EQ(collectives[0].segments, (std::vector<SegmentShape>{{1, 4, 1}}));
}

TEST(Reshard, MaximumHasNoReduceScatter) {
  Sharding from{{}, {{tp, ReduceKind::Max}}, {}};
  EXPECT_EQ(steps(activation(), from, {{{1, S, {tp}}}, {}, {}}),
            "all_reduce(tp,16384) shard_slice(tp,d1,16384)");
  EXPECT_EQ(reshard(mesh, activation(), from, {})[0].reduce, ReduceKind::Max);
}

TEST(Reshard, GatherOfAnInnerFactorNamesItsBlocks) {
  auto collectives =
      reshard(mesh, activation(), {{{2, D, {tp}}, {2, H, {dp}}}, {}, {}}, {{{2, H, {dp}}}, {}, {}});
  ASSERT_EQ(collectives.size(), 1u);
  // h is 4/2 on the rank, d is 8/4 on the local side.
  EXPECT_EQ(collectives[0].segments, (std::vector<SegmentShape>{{2, 2, 1}}));
}

TEST(Reshard, SeveralAxesOfOneFactorAreGatheredAtOnce) {
  Sharding from{{{1, S, {fsdp, tp}}}, {}, {}};
  EXPECT_EQ(steps(activation(), from, {}), "all_gather(fsdp+tp,d1,16384)");
  EXPECT_EQ(steps(activation(), {}, from), "shard_slice(fsdp+tp,d1,16384)");
  EXPECT_EQ(steps(activation(), from, {{{1, S, {fsdp}}}, {}, {}}), "all_gather(tp,d1,4096)");
}

TEST(Reshard, OuterAxisCannotBeGatheredAlone) {
  // s is split by fsdp, then tp. To keep tp only, both are gathered, or the pieces travel.
  auto collectives =
      reshard(mesh, activation(), {{{1, S, {fsdp, tp}}}, {}, {}}, {{{1, S, {tp}}}, {}, {}});
  EXPECT_GT(collectives.size(), 1u);
  for (const Collective &c : collectives)
    EXPECT_FALSE(c.kind == CollectiveKind::AllGather && c.dim == 1 &&
                 c.axes == std::vector<AxisRef>{fsdp} && &c == &collectives.front());
}

TEST(Reshard, MoveBetweenDimsIsAnAllToAll) {
  EXPECT_EQ(steps(activation(), {{{1, S, {tp}}}, {}, {}}, {{{2, H, {tp}}}, {}, {}}),
            "all_to_all(tp,d1->d2,4096)");
}

TEST(Reshard, GradientShardsOverZeroAxesAreReduceScattered) {
  TensorLayout weight{{product({{D, 5}}), product({{H, 3}})}, 4};
  // 15 elements over 4 ranks: chunks of 4.
  EXPECT_EQ(steps(weight, {{}, {{fsdp}}, {}}, {{}, {}, {fsdp}}), "reduce_scatter(fsdp,flat,64)");
  EXPECT_EQ(steps(weight, {{}, {}, {fsdp}}, {}), "all_gather(fsdp,flat,64)");
  // Hybrid: scatter over fsdp first, the sum over dp is then on a quarter.
  EXPECT_EQ(steps(weight, {{}, {{dp}, {fsdp}}, {}}, {{}, {}, {fsdp}}),
            "reduce_scatter(fsdp,flat,64) all_reduce(dp,16)");
  EXPECT_EQ(steps(weight, {{}, {{dp}, {fsdp}}, {}}, {{}, {{dp}}, {fsdp}}),
            "reduce_scatter(fsdp,flat,64)");
  EXPECT_EQ(steps(weight, {{}, {}, {dp, fsdp}}, {}), "all_gather(dp+fsdp,flat,64)");
}

TEST(Reshard, FlatCollectiveKnowsItsPadding) {
  TensorLayout weight{{product({{D, 5}}), product({{H, 3}})}, 2};
  auto c = reshard(mesh, weight, {{}, {}, {fsdp}}, {})[0];
  EXPECT_EQ(c.dim, -1);
  EXPECT_EQ(c.numElements, 15);
  EXPECT_EQ(c.segments, (std::vector<SegmentShape>{{1, 4, 1}}));
  EXPECT_EQ(c.bytes, 32);
}

TEST(Reshard, PartOfAnAxisIsGatheredAlone) {
  AxisRef major{2, 1, 2}, minor{2, 2, 2};
  EXPECT_EQ(steps(activation(), {{{1, S, {tp}}}, {}, {}}, {{{1, S, {major}}}, {}, {}}),
            "all_gather(tp:(2)2,d1,8192)");
  EXPECT_EQ(steps(activation(), {{{1, S, {major, minor}}}, {}, {}}, {}), "all_gather(tp,d1,16384)");
}

TEST(Reshard, SegmentsAreGatheredOneByOne) {
  DimLayout qkv{{Segment{{{H, 4}, {D, 8}}}, Segment{{{H, 4}}}}};
  auto c = reshard(mesh, {{qkv}, 4}, {{{0, H, {dp}}}, {}, {}}, {})[0];
  EXPECT_EQ(c.segments, (std::vector<SegmentShape>{{1, 2, 8}, {1, 2, 1}}));
  EXPECT_EQ(c.bytes, 36 * 4);
}

TEST(Reshard, CostDecides) {
  // Under a cost that forbids all_to_all, the move is a gather and a slice.
  CollectiveCost noAllToAll = [](const Collective &c) {
    return bytesOnWire(c) + (c.kind == CollectiveKind::AllToAll ? 1e12 : 0);
  };
  EXPECT_EQ(show(reshard(mesh, activation(), {{{1, S, {tp}}}, {}, {}}, {{{2, H, {tp}}}, {}, {}},
                         noAllToAll),
                 mesh),
            "all_gather(tp,d1,16384) shard_slice(tp,d2,16384)");
}

TEST(ReshardDeathTest, ImpossibleTargetsAreRefused) {
  EXPECT_DEATH(reshard(mesh, activation(), {}, {{}, {{tp}}, {}}), "no collective makes");
  EXPECT_DEATH(reshard(mesh, activation(), {}, {{{0, H, {tp}}}, {}, {}}), "invalid sharding");
}

TEST(BytesOnWire, FollowsTheRing) {
  Collective c;
  c.axes = {tp};
  c.bytes = 1000;
  EXPECT_DOUBLE_EQ(bytesOnWire(c), 1500);
  c.kind = CollectiveKind::AllGather;
  EXPECT_DOUBLE_EQ(bytesOnWire(c), 750);
  c.kind = CollectiveKind::Send;
  c.stages = {0, 1};
  EXPECT_DOUBLE_EQ(bytesOnWire(c), 1000);
  c.kind = CollectiveKind::AllReduce;
  c.stages = {0, 3};
  EXPECT_DOUBLE_EQ(bytesOnWire(c), 1000);
  c.kind = CollectiveKind::ShardSlice;
  EXPECT_DOUBLE_EQ(bytesOnWire(c), 0);
}

//===----------------------------------------------------------------------===//
// Simulation on random cases
//===----------------------------------------------------------------------===//

/// Shapes after each step cannot be read off a flat gather, so the caller's target gives them.
void simulate(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
              const Sharding &to) {
  std::string what = toString(mesh, from) + " -> " + toString(mesh, to);
  SCOPED_TRACE(what);
  auto ranks = test::distribute(mesh, layout, from);
  Sharding unflattened = from;
  unflattened.flat.clear();
  std::vector<Collective> sequence = reshard(mesh, layout, from, to);
  for (const Collective &c : sequence) {
    std::vector<int64_t> shape = localShape(layout, unflattened);
    int64_t numElements = 1;
    for (int64_t size : shape)
      numElements *= size;
    if (c.numElements != numElements)
      shape = {c.numElements}; // a chunk of a chunk
    test::execute(mesh, c, shape, ranks);
    EXPECT_GT(numParticipants(c), 1);
  }
  EXPECT_EQ(test::difference(mesh, layout, to, ranks), "") << show(sequence, mesh);
}

class ReshardRandom : public testing::TestWithParam<int> {};

TEST_P(ReshardRandom, SequencesDoWhatTheShardingsSay) {
  test::RandomShardings random(1000 + GetParam());
  int nonTrivial = 0;
  for (int i = 0; i < 700; ++i) {
    Mesh mesh = random.mesh(3);
    TensorLayout layout = random.layout(3, true);
    bool split = random.below(2), flat = random.below(2);
    Sharding from = random.sharding(mesh, layout, split, flat);
    Sharding to = random.target(mesh, layout, from, split, flat);
    ASSERT_EQ(whyInvalid(mesh, layout, from), "");
    ASSERT_EQ(whyInvalid(mesh, layout, to), "");
    simulate(mesh, layout, from, to);
    nonTrivial += from != to;
    if (HasFailure())
      return;
  }
  EXPECT_GT(nonTrivial, 400);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReshardRandom, testing::Range(0, 6));

TEST(Simulator, NoticesWrongData) {
  // The check can fail: for a value in another sharding, or an incomplete sum.
  auto ranks = test::distribute(mesh, activation(), {{{1, S, {tp}}}, {}, {}});
  EXPECT_EQ(test::difference(mesh, activation(), {{{1, S, {tp}}}, {}, {}}, ranks), "");
  EXPECT_NE(test::difference(mesh, activation(), {{{1, S, {fsdp}}}, {}, {}}, ranks), "");
  ranks = test::distribute(mesh, activation(), {{}, {{tp}}, {}});
  EXPECT_NE(test::difference(mesh, activation(), {}, ranks), "");
  EXPECT_EQ(test::difference(mesh, activation(), {{}, {{tp}}, {}}, ranks), "");
}

} // namespace
} // namespace tbc::reshard
