//===- packing_test.cpp - Shards as lists of indices -----------------------===//

#include "runtime/exec/Packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::runtime {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using program::Communication;
using ::testing::ElementsAre;

TEST(ShardIndices, CutsADimInTheMiddle) {
  // [2, 4, 2] over 2 ranks along dim 1: index 1 has positions 2 and 3.
  EXPECT_THAT(shardIndices({2, 4, 2}, 1, {{1, 2, 1}}, 2, 1),
              ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
}

TEST(ShardIndices, CutsAFactorInsideADim) {
  // A dim of 2 x 4 x 3 (outer, heads, inner) over 2 ranks: 2 heads of each outer.
  EXPECT_THAT(shardIndices({24}, 0, {{2, 2, 3}}, 2, 0),
              ElementsAre(0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17));
}

TEST(ShardIndices, TakesAShardOfEachSegment) {
  // Fused q (4 heads) and k, v (2 heads each), one element per head.
  EXPECT_THAT(shardIndices({8}, 0, {{1, 2, 1}, {1, 1, 1}, {1, 1, 1}}, 2, 1),
              ElementsAre(2, 3, 5, 7));
}

TEST(ShardIndices, PadsTheLastFlatChunk) {
  EXPECT_THAT(shardIndices({5}, Communication::flatDim, {}, 3, 0), ElementsAre(0, 1));
  EXPECT_THAT(shardIndices({5}, Communication::flatDim, {}, 3, 2), ElementsAre(4, -1));
}

TEST(Packing, PlaceUndoesPick) {
  std::vector<double> values;
  for (int i = 0; i < 24; ++i)
    values.push_back(i + 1);
  for (Arith arith : {Arith::Native, Arith::F64, Arith::Residue61}) {
    Tensor tensor = Tensor::fromDoubles({DType::F32, {2, 4, 3}}, arith, values);
    for (int dim : {0, 1, Communication::flatDim}) {
      std::vector<program::SegmentShape> segments = {{1, dim == 0 ? 1 : 2, 1}};
      if (dim == Communication::flatDim)
        segments.clear();
      std::vector<Tensor> parts;
      std::vector<Indices> indices;
      for (int64_t i = 0; i < 2; ++i) {
        indices.push_back(shardIndices({2, 4, 3}, dim, segments, 2, i));
        parts.push_back(pick(tensor, indices[i], {DType::F32, {12}}));
      }
      EXPECT_TRUE(bitwiseEqual(place(parts, indices, tensor.type()), tensor));
    }
  }
}

TEST(Convert, RoundsInNativeOnly) {
  double third = 1.0 / 3;
  Tensor native = Tensor::fromDoubles({DType::F32, {1}}, Arith::Native, {third});
  EXPECT_EQ(convert(native, {DType::BF16, {1}}, Arith::Native).toDoubles()[0],
            kernels::roundTo(DType::BF16, float(third)));
  Tensor exact = Tensor::fromDoubles({DType::F32, {1}}, Arith::F64, {third});
  EXPECT_EQ(convert(exact, {DType::BF16, {1}}, Arith::F64).toDoubles()[0], third);
}

TEST(Convert, RefusesOtherShapesAndKinds) {
  Tensor tensor = Tensor::fromDoubles({DType::F32, {2}}, Arith::Native, {1});
  EXPECT_THROW(convert(tensor, {DType::F32, {3}}, Arith::Native), kernels::KernelError);
  EXPECT_THROW(convert(tensor, {DType::I64, {2}}, Arith::Native), kernels::KernelError);
  EXPECT_THROW(convert(tensor, {DType::F32, {2}}, Arith::Residue61), kernels::KernelError);
  EXPECT_THROW(convert(Tensor(), {DType::F32, {2}}, Arith::Native), kernels::KernelError);
}

} // namespace
} // namespace tbc::runtime
