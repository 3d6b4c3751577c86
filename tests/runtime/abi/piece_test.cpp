//===- piece_test.cpp - Pieces of global tensors ---------------------------===//

#include "runtime/abi/Piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace tbc::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Mesh mesh = {{{"dp", 2}, {"tp", 4}}};
const AxisRef dp = {0, 1, 2}, tp = {1, 1, 4}, tpMajor = {1, 1, 2}, tpMinor = {1, 2, 2};

TEST(Mesh, RanksAreRowMajor) {
  EXPECT_EQ(mesh.numRanks(), 8);
  EXPECT_THAT(mesh.coordinates(6), ElementsAre(1, 2));
  for (int64_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(mesh.rankOf(mesh.coordinates(rank)), rank);
}

TEST(Group, OfWholeAxesAndOfParts) {
  EXPECT_THAT(groupRanks(mesh, {tp}, {1, 2}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(groupRanks(mesh, {dp}, {1, 2}), ElementsAre(2, 6));
  EXPECT_THAT(groupRanks(mesh, {tpMinor}, {0, 2}), ElementsAre(2, 3));
  EXPECT_THAT(groupRanks(mesh, {tpMajor}, {0, 1}), ElementsAre(1, 3));
  EXPECT_THAT(groupRanks(mesh, {tpMinor, dp}, {0, 0}), ElementsAre(0, 4, 1, 5));
  for (const std::vector<AxisRef> &axes :
       std::vector<std::vector<AxisRef>>{{tp}, {tpMinor, dp}, {dp, tpMajor}, {}}) {
    for (int64_t rank = 0; rank < 8; ++rank) {
      std::vector<int64_t> coordinates = mesh.coordinates(rank);
      EXPECT_EQ(groupRanks(mesh, axes, coordinates)[groupIndex(mesh, axes, coordinates)], rank);
    }
  }
}

TEST(Group, ImpossibleAxes) {
  EXPECT_EQ(whyInvalid(mesh, {tpMinor, dp, tpMajor}), "");
  EXPECT_THAT(whyInvalid(mesh, {dp, dp}), HasSubstr("\"dp\" is used twice"));
  EXPECT_THAT(whyInvalid(mesh, {tp, tpMinor}), HasSubstr("\"tp\" is used twice"));
  EXPECT_THAT(whyInvalid(mesh, {AxisRef{1, 1, 3}}), HasSubstr("does not divide"));
  EXPECT_THAT(whyInvalid(mesh, {AxisRef{1, 0, 4}}), HasSubstr("does not divide"));
  EXPECT_THAT(whyInvalid(mesh, {AxisRef{2, 1, 1}}), HasSubstr("no axis number 2"));
}

TEST(Names, WholeAxesAndParts) {
  EXPECT_EQ(toString(mesh, std::vector<AxisRef>{dp, tpMinor}), "dp+tp:(2)2");
  Piece piece = {{{{{3, {}}, {4, {tp}}}, {{2, {}}}}, {{}}}, {dp}};
  EXPECT_EQ(toString(mesh, piece), "[3*4@tp + 2, 1] flat{dp}");
}

TEST(OwnedIndices, ReplicaHoldsAll) {
  EXPECT_THAT(ownedIndices(mesh, wholePiece({2, 3}), {1, 3}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ownedIndices(mesh, wholePiece({}), {1, 3}), ElementsAre(0));
}

TEST(OwnedIndices, RunsOfADim) {
  Piece piece = wholePiece({2, 8});
  piece.dims[1][0][0].axes = {tp};
  EXPECT_THAT(ownedIndices(mesh, piece, {0, 1}), ElementsAre(2, 3, 10, 11));
  EXPECT_EQ(localShape(piece), (std::vector<int64_t>{2, 2}));
}

TEST(OwnedIndices, AFactorInTheMiddle) {
  // (outer 2, heads 4 over tp, inner 2)
  Piece piece = {{{{{2, {}}, {4, {tp}}, {2, {}}}}}, {}};
  EXPECT_THAT(ownedIndices(mesh, piece, {0, 3}), ElementsAre(6, 7, 14, 15));
}

TEST(OwnedIndices, EachSegmentItsShare) {
  // Fused q, k, v with 8, 4 and 4 elements.
  Piece piece = {{{{{8, {tp}}}, {{4, {tp}}}, {{4, {tp}}}}}, {}};
  EXPECT_THAT(ownedIndices(mesh, piece, {0, 2}), ElementsAre(4, 5, 10, 14));
}

TEST(OwnedIndices, ZigzagHasAnEarlyAndALatePart) {
  // Zigzag: of 8 parts of 2 elements, rank 1 has parts 1 and 6.
  Piece piece = wholePiece({16});
  piece.dims[0][0][0] = {16, {tp}, 4};
  ASSERT_EQ(whyInvalid(mesh, piece, {16}), "");
  EXPECT_THAT(ownedIndices(mesh, piece, {0, 1}), ElementsAre(2, 3, 12, 13));
  EXPECT_EQ(toString(mesh, piece), "[16~4@tp]");
  // A whole tensor in zigzag order.
  piece.dims[0][0][0] = {4, {}, 2};
  EXPECT_THAT(ownedIndices(mesh, piece, {0, 1}), ElementsAre(0, 3, 1, 2));
  piece.dims[0][0][0].zigzag = 3;
  EXPECT_THAT(whyInvalid(mesh, piece, {4}), HasSubstr("has no zigzag order of 3 ranks"));
  piece.dims[0][0][0].zigzag = 0;
  EXPECT_THAT(whyInvalid(mesh, piece, {4}), HasSubstr("has no zigzag order of 0 ranks"));
}

TEST(OwnedIndices, FlatChunksWithPadding) {
  // Rows split over dp, then the local 3 x 3 elements flat over tp: chunks of 3, 3, 3 and padding.
  Piece piece = wholePiece({6, 3});
  piece.dims[0][0][0].axes = {dp};
  piece.flat = {tp};
  EXPECT_EQ(localShape(piece), (std::vector<int64_t>{3}));
  EXPECT_THAT(ownedIndices(mesh, piece, {1, 1}), ElementsAre(12, 13, 14));
  EXPECT_THAT(ownedIndices(mesh, piece, {1, 3}), ElementsAre(-1, -1, -1));
}

TEST(OwnedIndices, CutPiecesPartitionTheTensor) {
  Piece piece = {{{{{2, {dp}}, {3, {}}}, {{4, {dp}}}}, {{{4, {tpMajor}}, {2, {}}}}}, {tpMinor}};
  ASSERT_EQ(whyInvalid(mesh, piece, {10, 8}), "");
  EXPECT_EQ(globalShape(piece), (std::vector<int64_t>{10, 8}));
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<int64_t> indices = ownedIndices(mesh, piece, mesh.coordinates(rank));
    EXPECT_EQ(int64_t(indices.size()), localShape(piece)[0]);
    OwnedIndices owned(mesh, piece, mesh.coordinates(rank));
    for (int64_t begin = 0, size = 1; begin < owned.size(); begin += size, size = size % 7 + 1) {
      size = std::min(size, owned.size() - begin);
      EXPECT_EQ(owned.range(begin, begin + size),
                std::vector<int64_t>(indices.begin() + begin, indices.begin() + begin + size));
    }
    for (int64_t index : indices)
      if (index >= 0)
        seen.insert(index);
  }
  EXPECT_EQ(seen.size(), 80u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 80u);
}

TEST(WhyInvalid, NamesWhatDoesNotFit) {
  Piece piece = wholePiece({8, 4});
  EXPECT_THAT(whyInvalid(mesh, piece, {8}), HasSubstr("2 dims"));
  EXPECT_THAT(whyInvalid(mesh, piece, {8, 5}), HasSubstr("do not make up its size 5"));
  EXPECT_THAT(whyInvalid(mesh, piece, {8, 3}), HasSubstr("exceed its size 3"));
  piece.dims[0][0][0].axes = {tp};
  piece.dims[1][0][0].axes = {tp};
  EXPECT_THAT(whyInvalid(mesh, piece, {8, 4}), HasSubstr("\"tp\" is used twice"));
  piece.dims[1][0][0] = {6, {tp}};
  EXPECT_THAT(whyInvalid(mesh, piece, {8, 6}), HasSubstr("not divided by \"tp\""));
}

} // namespace
} // namespace tbc::program
