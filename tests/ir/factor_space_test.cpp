//===- factor_space_test.cpp - Dims as sums of products of factors -----------===//

#include "ir/FactorSpace.h"

#include <gtest/gtest.h>

using namespace tbc;

namespace {

/// The sizes of a dim's factors, segment by segment: {{12, 64}, {12, 64}}.
std::vector<std::vector<int64_t>> sizes(const reshard::DimLayout &layout) {
  std::vector<std::vector<int64_t>> result;
  for (const reshard::Segment &segment : layout.segments) {
    result.emplace_back();
    for (const reshard::Factor &factor : segment.factors)
      result.back().push_back(factor.size);
  }
  return result;
}

using Sizes = std::vector<std::vector<int64_t>>;

TEST(FactorSpace, EqualSizesAreNotOneFactor) {
  FactorSpace space;
  auto a = space.leaf(64), b = space.leaf(64);
  space.seal({a, b});
  EXPECT_NE(space.layout(a).segments[0].factors[0].id, space.layout(b).segments[0].factors[0].id);
}

TEST(FactorSpace, ReshapeSplitsAtCommonPrefixProducts) {
  FactorSpace space;
  auto flat = space.leaf(4096); // [b*s] seen as 2 x 2048 and as 2 x 16 x 128
  space.unify(flat, space.product({space.leaf(2), space.leaf(2048)}));
  space.unify(flat, space.product({space.leaf(2), space.leaf(16), space.leaf(128)}));
  space.seal({flat});
  EXPECT_EQ(sizes(space.layout(flat)), (Sizes{{2, 16, 128}}));
}

TEST(FactorSpace, RefinementIsSeenWhereverTheFactorGoes) {
  FactorSpace space;
  auto hidden = space.leaf(768), other = space.leaf(768);
  space.unify(hidden, other);
  space.unify(other, space.product({space.leaf(12), space.leaf(64)}));
  space.seal({hidden, other});
  EXPECT_EQ(sizes(space.layout(hidden)), (Sizes{{12, 64}}));
  EXPECT_EQ(space.layout(hidden), space.layout(other));
}

TEST(FactorSpace, FusedQkvIsASumOfProducts) {
  FactorSpace space;
  auto fused = space.leaf(2304);
  auto q = space.leaf(768), k = space.leaf(768), v = space.leaf(768);
  space.unify(fused, space.sum({q, k, v}));
  auto heads = space.leaf(12);
  for (auto part : {q, k, v})
    space.unify(part, space.product({heads, space.leaf(64)}));
  space.seal({fused, q, k, v});
  reshard::DimLayout layout = space.layout(fused);
  EXPECT_EQ(sizes(layout), (Sizes{{12, 64}, {12, 64}, {12, 64}}));
  EXPECT_EQ(layout.segments[0].factors[0].id, layout.segments[2].factors[0].id);
  EXPECT_NE(layout.segments[0].factors[1].id, layout.segments[2].factors[1].id);
}

TEST(FactorSpace, SlicesOfAProductCutItsLeadingFactor) {
  FactorSpace space;
  auto dim = space.product({space.leaf(3), space.leaf(12), space.leaf(64)});
  space.unify(dim, space.sum({space.leaf(768), space.leaf(768), space.leaf(768)}));
  space.seal({dim});
  EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{1, 12, 64}, {1, 12, 64}, {1, 12, 64}}));
}

TEST(FactorSpace, SlicesThatMeetElsewhereAreCutAgain) {
  FactorSpace space;
  auto dim = space.leaf(10);
  space.unify(dim, space.sum({space.leaf(4), space.leaf(6)}));
  space.unify(dim, space.sum({space.leaf(2), space.leaf(8)}));
  space.seal({dim});
  EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{2}, {2}, {6}}));
}

TEST(FactorSpace, WithoutACommonSplitTheSpanIsUnshardable) {
  FactorSpace space;
  auto six = space.leaf(6), four = space.leaf(4);
  auto dim = space.product({six, four});
  space.unify(dim, space.product({space.leaf(4), space.leaf(6)}));
  space.seal({dim, six, four});
  EXPECT_FALSE(space.isShardable(space.layout(six).segments[0].factors[0].id));
  EXPECT_FALSE(space.isShardable(space.layout(four).segments[0].factors[0].id));
  EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{24}}));
}

/// Only the sum is unshardable, in every dim that has it; the batch in front of it is not.
TEST(FactorSpace, ASumBehindAFactorIsOneFactor) {
  FactorSpace space;
  auto batch = space.leaf(8);
  auto tokens = space.sum({space.leaf(1), space.leaf(196)});
  auto rows = space.product({batch, tokens});
  auto own = space.product({tokens, space.leaf(3)}); // the sum in front alone would be sealable
  space.seal({rows, own});
  EXPECT_EQ(sizes(space.layout(rows)), (Sizes{{8, 197}}));
  EXPECT_EQ(sizes(space.layout(own)), (Sizes{{197, 3}}));
  EXPECT_TRUE(space.isShardable(space.layout(batch).segments[0].factors[0].id));
  EXPECT_FALSE(space.isShardable(space.layout(rows).segments[0].factors[1].id));
  EXPECT_FALSE(space.isShardable(space.layout(own).segments[0].factors[0].id));
}

TEST(FactorSpace, ASumInFrontIsASumOfProducts) {
  FactorSpace space;
  auto dim = space.product({space.sum({space.leaf(1), space.leaf(196)}), space.leaf(3)});
  space.seal({dim});
  EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{1, 3}, {196, 3}}));
}

TEST(FactorSpace, OpaqueLeavesStayOpaqueWhenSplit) {
  FactorSpace space;
  auto dim = space.leaf(12);
  space.makeOpaque(dim);
  space.unify(dim, space.product({space.leaf(3), space.leaf(4)}));
  space.seal({dim});
  reshard::DimLayout layout = space.layout(dim);
  for (const reshard::Factor &factor : layout.segments[0].factors)
    EXPECT_FALSE(space.isShardable(factor.id));
}

/// One of two equal sums is the second factor of a product, which no layout has.
TEST(FactorSpace, ADimThatBecomesOpaqueIsSoOnBothSidesOfABoundary) {
  FactorSpace space;
  auto parameter = space.sum({space.leaf(2), space.leaf(3)});
  auto gradient = space.sum({space.leaf(2), space.leaf(3)});
  space.unify(parameter, gradient);
  auto product = space.product({space.leaf(7), parameter});
  space.seal({product}, {{parameter, gradient}});
  for (auto dim : {parameter, gradient}) {
    EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{5}}));
    EXPECT_FALSE(space.isShardable(space.layout(dim).segments[0].factors[0].id));
  }
}

/// 40 nodes with 2^41 leaves, if the leaves of a shared child are counted once per use.
TEST(FactorSpace, ASumOfTooManyTermsIsOneOpaqueDim) {
  FactorSpace space;
  auto part = space.leaf(4), dim = part;
  std::vector<FactorSpace::Node> all{part};
  for (int i = 0; i < 40; ++i) {
    auto first = space.leaf(space.size(dim)), second = space.leaf(space.size(dim));
    space.unify(dim, first);
    space.unify(dim, second);
    all.push_back(dim = space.sum({first, second}));
  }
  space.seal(all);
  EXPECT_EQ(sizes(space.layout(dim)), (Sizes{{int64_t(4) << 40}}));
  EXPECT_FALSE(space.isShardable(space.layout(part).segments[0].factors[0].id));
}

/// The same from the other end: a dim is twice its half, 30 times over.
TEST(FactorSpace, ADimOfTooManyHalvesIsOneOpaqueDim) {
  FactorSpace space;
  auto whole = space.leaf(int64_t(1) << 40), half = whole;
  std::vector<FactorSpace::Node> all{whole};
  for (int i = 0; i < 30; ++i) {
    auto part = space.leaf(space.size(half) / 2);
    space.unify(half, space.sum({part, part}));
    all.push_back(half = part);
  }
  space.unify(whole, space.sum({space.leaf(5), space.leaf((int64_t(1) << 40) - 5)}));
  space.seal(all);
  EXPECT_EQ(sizes(space.layout(whole)), (Sizes{{int64_t(1) << 40}}));
  EXPECT_FALSE(space.isShardable(space.layout(half).segments[0].factors[0].id));
}

/// A loss of flattened scores [:, :-1] and labels [:, 1:]: both are one dim, so each token is one.
/// The tokens become opaque, and the batch in front of them does not.
TEST(FactorSpace, ATokenShiftOfALongSequenceKeepsTheBatch) {
  for (int64_t tokens : {12, 4096}) {
    FactorSpace space;
    auto batch = space.leaf(8), scores = space.leaf(tokens - 1), labels = space.leaf(tokens - 1);
    auto before = space.sum({scores, space.leaf(1)}), behind = space.sum({space.leaf(1), labels});
    space.unify(before, behind);
    auto left = space.product({batch, scores}), right = space.product({batch, labels});
    space.unify(left, right);
    space.seal({left, right, before, behind});
    reshard::DimLayout layout = space.layout(left);
    EXPECT_EQ(sizes(layout), (Sizes{{8, tokens - 1}}));
    EXPECT_EQ(space.layout(right).segments[0].factors[0], layout.segments[0].factors[0]);
    EXPECT_TRUE(space.isShardable(layout.segments[0].factors[0].id));
    EXPECT_FALSE(space.isShardable(layout.segments[0].factors[1].id));
  }
}

TEST(FactorSpace, ASequenceOfAThousandStepsKeepsThem) {
  FactorSpace space;
  std::vector<FactorSpace::Node> steps;
  for (int i = 0; i < 1000; ++i)
    steps.push_back(space.leaf(1));
  auto sequence = space.sum(steps);
  space.seal({sequence});
  EXPECT_EQ(space.layout(sequence).segments.size(), 1000u);
}

// Each step appends to the sequence so far, as unrolled recurrences do. Copies of inner sums in
// outer ones would take minutes here.
TEST(FactorSpace, ASequenceBuiltStepByStepKeepsItsStepsAndFactors) {
  FactorSpace space;
  auto columns = space.product({space.leaf(4), space.leaf(8)});
  std::vector<FactorSpace::Node> sequences{space.leaf(1)};
  for (int i = 1; i < 500; ++i)
    sequences.push_back(space.sum({sequences.back(), space.leaf(1)}));
  auto flat = space.product({sequences.back(), columns});
  space.seal({flat});
  for (int repeat = 0; repeat < 10; ++repeat)
    for (size_t i = 0; i < sequences.size(); ++i)
      ASSERT_EQ(space.layout(sequences[i]).segments.size(), i + 1);
  reshard::DimLayout layout = space.layout(flat);
  ASSERT_EQ(layout.segments.size(), 500u);
  for (const reshard::Segment &segment : layout.segments)
    ASSERT_EQ(segment.factors.size(), 3u);
  EXPECT_EQ(layout.segments[7].factors[2], layout.segments[0].factors[2]);
}

} // namespace
