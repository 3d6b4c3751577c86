//===- ShardingTest.cpp - Axes, local shapes, local indices, validity -----===//

#include "planner/reshard/Sharding.h"
#include "tests/planner/reshard/Simulator.h"

#include "gtest/gtest.h"

namespace tbc::reshard {
namespace {

enum : FactorId { B = 1, H = 2, G = 3, D = 4, S = 5, C = 6 };

const Mesh mesh{{{"dp", 2}, {"fsdp", 3}, {"tp", 4}}};
const AxisRef dp = wholeAxis(mesh, 0), fsdp = wholeAxis(mesh, 1), tp = wholeAxis(mesh, 2);

DimLayout product(std::vector<Factor> factors) { return {{Segment{factors}}}; }

/// b x (h*g*d + h*d + h*d): a fused QKV activation with fewer KV heads.
TensorLayout fusedQkv() {
  Segment q{{{H, 4}, {G, 2}, {D, 8}}}, kv{{{H, 4}, {D, 8}}};
  return {{product({{B, 6}}), DimLayout{{q, kv, kv}}}, 4};
}

TEST(Mesh, RanksAreRowMajor) {
  EXPECT_EQ(mesh.numRanks(), 24);
  EXPECT_EQ(mesh.coordinates(1 * 12 + 2 * 4 + 3), (std::vector<int64_t>{1, 2, 3}));
  for (int64_t rank = 0; rank < 24; ++rank)
    EXPECT_EQ(mesh.rankOf(mesh.coordinates(rank)), rank);
  EXPECT_EQ(mesh.axisIndex("fsdp"), 1);
  EXPECT_EQ(mesh.axisIndex("pp"), -1);
}

TEST(AxisRef, SubAxesAreDigitsOfTheCoordinate) {
  AxisRef major{2, 1, 2}, minor{2, 2, 2};
  for (int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(groupIndex(mesh, {major}, {0, 0, c}), c / 2);
    EXPECT_EQ(groupIndex(mesh, {minor}, {0, 0, c}), c % 2);
    EXPECT_EQ(groupIndex(mesh, {major, minor}, {0, 0, c}), c);
    EXPECT_EQ(groupIndex(mesh, {minor, major}, {0, 0, c}), c % 2 * 2 + c / 2);
  }
  EXPECT_EQ(groupIndex(mesh, {dp, tp}, {1, 2, 3}), 7);
  EXPECT_FALSE(overlap(major, minor));
  EXPECT_TRUE(overlap(major, tp));
  EXPECT_TRUE(overlap(tp, minor));
  EXPECT_FALSE(overlap(dp, tp));
  // 2 x 3 and 3 x 2 of an axis of 6 are not digits of one number.
  EXPECT_TRUE(overlap(AxisRef{0, 1, 2}, AxisRef{0, 3, 2}));
  EXPECT_FALSE(overlap(AxisRef{0, 1, 2}, AxisRef{0, 2, 3}));
}

TEST(Sharding, NormalizeSortsAndDropsAxesOfSizeOne) {
  AxisRef one{1, 3, 1};
  Sharding s{{{1, H, {tp}}, {0, B, {one}}, {0, S, {}}}, {{fsdp}, {one}, {dp}}, {one}};
  normalize(s);
  EXPECT_EQ(s, (Sharding{{{1, H, {tp}}}, {{dp}, {fsdp}}, {}}));
  EXPECT_EQ(toString(mesh, s), "[d1.2@tp] partial{dp+fsdp}");
  EXPECT_EQ(toString(mesh, {AxisRef{2, 1, 2}, dp}), "tp:(1)2+dp");
}

TEST(Sharding, LocalShapeDividesEverySegment) {
  TensorLayout layout = fusedQkv();
  EXPECT_EQ(layout.shape(), (std::vector<int64_t>{6, 128}));
  Sharding s{{{0, B, {dp, fsdp}}, {1, H, {tp}}}, {}, {}};
  EXPECT_EQ(whyInvalid(mesh, layout, s), "");
  EXPECT_EQ(localShape(layout, s), (std::vector<int64_t>{1, 32}));
  EXPECT_EQ(localBytes(layout, s), 128);
}

TEST(Sharding, FlatChunksAreCeilShares) {
  TensorLayout layout{{product({{S, 50257}}), product({{C, 3}})}, 2};
  EXPECT_EQ(localShape(layout, {{}, {}, {fsdp, tp}}), (std::vector<int64_t>{(150771 + 11) / 12}));
  EXPECT_EQ(localShape(layout, {{{1, C, {fsdp}}}, {}, {tp}}), (std::vector<int64_t>{12565}));
  EXPECT_EQ(localBytes(layout, {{{1, C, {fsdp}}}, {}, {tp}}), 2 * 12565);
}

TEST(Sharding, ShardOfFusedQkvHoldsItsHeadsOfEachSegment) {
  // Head group 3 of 4: q columns 48..63 of 64, k 64+24.., v 96+24...
  std::vector<int64_t> expected;
  for (int64_t i = 48; i < 64; ++i)
    expected.push_back(i);
  for (int64_t i = 64 + 24; i < 96; ++i)
    expected.push_back(i);
  for (int64_t i = 96 + 24; i < 128; ++i)
    expected.push_back(i);
  EXPECT_EQ(test::localIndices(mesh, fusedQkv(), {{{1, H, {tp}}}, {}, {}}, 1, {0, 0, 3}), expected);
}

TEST(Sharding, LocalIndicesOfAnInnerFactorAreStrided) {
  TensorLayout layout{{product({{H, 2}, {D, 6}})}, 4};
  EXPECT_EQ(test::localIndices(mesh, layout, {{{0, D, {fsdp}}}, {}, {}}, 0, {0, 1, 0}),
            (std::vector<int64_t>{2, 3, 8, 9}));
}

TEST(Sharding, LocalIndicesOfAllRanksCoverTheDimOnce) {
  TensorLayout layout = fusedQkv();
  Sharding s{{{1, D, {dp}}, {1, H, {tp}}}, {}, {}};
  std::vector<int> seen(128);
  for (int64_t rank = 0; rank < 24; ++rank) {
    std::vector<int64_t> indices = test::localIndices(mesh, layout, s, 1, mesh.coordinates(rank));
    EXPECT_EQ(static_cast<int64_t>(indices.size()), localShape(layout, s)[1]);
    for (int64_t i : indices)
      ++seen[i];
  }
  EXPECT_EQ(seen, std::vector<int>(128, 3)); // fsdp holds replicas
}

TEST(WhyInvalid, NamesTheCulprit) {
  TensorLayout layout = fusedQkv();
  auto why = [&](Sharding s) { return whyInvalid(mesh, layout, s); };
  EXPECT_EQ(why({{{0, B, {tp}}}, {}, {}}), "factor 1 of dim 0 has size 6, which 4 does not divide");
  EXPECT_EQ(why({{{0, B, {dp}}, {1, H, {dp}}}, {}, {}}), "mesh axis 'dp' is used twice");
  EXPECT_EQ(why({{{0, B, {dp}}}, {{dp}}, {}}), "mesh axis 'dp' is used twice");
  EXPECT_EQ(why({{}, {{dp}}, {dp}}), "mesh axis 'dp' is used twice");
  EXPECT_EQ(why({{{1, H, {{2, 1, 2}}}}, {{tp}}, {}}), "mesh axis 'tp' is used twice");
  EXPECT_EQ(why({{{1, H, {{2, 1, 2}}}}, {{{2, 2, 2}}}, {}}), "");
  // q has the group factor, k and v have not: they would be replicas inside a sharded tensor.
  EXPECT_EQ(why({{{1, G, {dp}}}, {}, {}}), "factor 3 of dim 1 is not in every segment of the dim");
  EXPECT_EQ(why({{{0, S, {dp}}}, {}, {}}), "factor 5 of dim 0 is not in every segment of the dim");
  EXPECT_EQ(why({{{2, B, {dp}}}, {}, {}}), "there is no dim 2");
  EXPECT_EQ(why({{{0, B, {dp}}, {0, B, {fsdp}}}, {}, {}}), "factor 1 of dim 0 is listed twice");
  EXPECT_EQ(why({{}, {{dp, ReduceKind::Sum}, {tp, ReduceKind::Max}}, {}}),
            "partial over a sum and a maximum at once");
  EXPECT_EQ(why({{}, {{{0, 1, 3}}}, {}}), "'dp:(1)3' is no part of an axis of size 2");
  EXPECT_EQ(why({{}, {{{7, 1, 3}}}, {}}), "the mesh has no axis number 7");
  TensorLayout square{{product({{S, 4}, {S, 4}})}, 4};
  EXPECT_EQ(whyInvalid(mesh, square, {{{0, S, {dp}}}, {}, {}}),
            "factor 5 of dim 0 occurs twice in one segment");
}

} // namespace
} // namespace tbc::reshard
