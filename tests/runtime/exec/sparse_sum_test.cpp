//===- sparse_sum_test.cpp - Sums of the largest elements of gradients --------===//
//
// Compares with a serial model of the algorithm, written from its definition alone. The model has
// the gradients of all ranks and chooses elements by sorting.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/exec/LargestElements.h"
#include "runtime/exec/Packing.h"
#include "runtime/exec/SparseSum.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

namespace tbc::runtime {
namespace {

using kernels::DType;
using kernels::Shape;
using kernels::TensorType;
using program::Communication;
using program::Instruction;
using program::InstructionKind;
using Floats = std::vector<float>;
using Types = std::vector<TensorType>;

//===----------------------------------------------------------------------===//
// Choice of elements
//===----------------------------------------------------------------------===//

/// Returns the indices of the k largest magnitudes, ascending. Of equal magnitudes the lowest index
/// comes first. Example: the 2 largest of (1, -3, 3, 0) have the indices 1 and 2.
std::vector<int32_t> largestBySorting(const Floats &values, int64_t k) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    float one = std::fabs(values[size_t(a)]), other = std::fabs(values[size_t(b)]);
    return one != other ? one > other : a < b;
  });
  order.resize(size_t(k));
  std::sort(order.begin(), order.end());
  return order;
}

void expectLargest(const Floats &values, int64_t k) {
  Floats left = values, taken(static_cast<size_t>(k));
  std::vector<int32_t> indices(static_cast<size_t>(k));
  takeLargest(left.data(), int64_t(left.size()), k, indices.data(), taken.data());
  EXPECT_EQ(indices, largestBySorting(values, k)) << k << " of " << values.size();
  Floats expected = values;
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(taken[i], values[size_t(indices[i])]);
    expected[size_t(indices[i])] = 0;
  }
  EXPECT_EQ(left, expected);
}

TEST(LargestElements, AreThoseOfASort) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t count : {1, 2, 17, 1000}) {
    Floats values, coarse;
    for (int64_t i = 0; i < count; ++i) {
      // Magnitudes of all sizes down to denormals, and many values equal up to their sign.
      values.push_back(normal(random) * std::ldexp(1.0f, -int(random() % 150)));
      coarse.push_back(float(int(random() % 5) - 2));
    }
    for (int64_t k : {int64_t(0), int64_t(1), (count + 2) / 3, count}) {
      expectLargest(values, k);
      expectLargest(coarse, k);
      expectLargest(Floats(size_t(count), 0.0f), k);
    }
  }
}

TEST(LargestElements, WhatIsNoNumberGoesFirst) {
  float infinity = std::numeric_limits<float>::infinity();
  Floats values = {1e30f, NAN, -infinity, 3, infinity}, taken(3);
  std::vector<int32_t> indices(3);
  takeLargest(values.data(), 5, 3, indices.data(), taken.data());
  EXPECT_EQ(indices, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_TRUE(std::isnan(taken[0]));
  EXPECT_EQ(values, (Floats{1e30f, 0, 0, 3, 0}));
}

TEST(LargestElements, TheirNumber) {
  EXPECT_EQ(numLargest(0.01, 1000), 10);
  EXPECT_EQ(numLargest(0.01, 1001), 11);
  EXPECT_EQ(numLargest(0.01, 5), 1);
  EXPECT_EQ(numLargest(1, 5), 5);
  EXPECT_EQ(numLargest(0.5, 0), 0);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// A sum: its kind, ranks and tensors.
struct Case {
  InstructionKind kind;
  int64_t numRanks;
  double share;
  Types full, local; // operands and results
  int dim = Communication::flatDim;
  std::vector<program::SegmentShape> segments = {};
  std::vector<bool> isWhole = {}; // by tensor: true if it is never compressed
};

/// Returns the elements of tensor `t` for each destination, in order.
std::vector<Indices> slicesOf(const Case &sum, size_t t) {
  std::vector<Indices> slices;
  if (sum.kind == InstructionKind::AllReduce) {
    slices.emplace_back(size_t(kernels::numElements(sum.full[t].shape)));
    std::iota(slices[0].begin(), slices[0].end(), 0);
    return slices;
  }
  for (int64_t index = 0; index < sum.numRanks; ++index)
    slices.push_back(shardIndices(sum.full[t].shape, sum.dim, sum.segments, sum.numRanks, index));
  return slices;
}

/// Computes the sum serially for all ranks, element by element.
struct SerialModel {
  explicit SerialModel(const Case &sum) : sum(sum), residual(size_t(sum.numRanks)) {
    for (Types::value_type type : sum.full)
      for (std::vector<Floats> &ofRank : residual)
        ofRank.emplace_back(size_t(kernels::numElements(type.shape)), 0.0f);
  }

  /// Returns the full sum of tensor `t` from each rank's gradient.
  Floats step(size_t t, const std::vector<Floats> &gradients) {
    std::vector<double> total(gradients[0].size(), 0.0);
    for (size_t rank = 0; rank < gradients.size(); ++rank) {
      Floats &left = residual[rank][t];
      Floats sent(left.size(), 0.0f);
      if (sum.isWhole[t]) {
        sent = gradients[rank];
      } else {
        for (size_t i = 0; i < left.size(); ++i)
          left[i] += gradients[rank][i];
        std::vector<Indices> slices = slicesOf(sum, t);
        for (const Indices &slice : slices)
          choose(slice, left, sent, slices[0].size());
      }
      for (size_t i = 0; i < sent.size(); ++i)
        total[i] += double(sent[i]);
    }
    return Floats(total.begin(), total.end());
  }

  void choose(const Indices &slice, Floats &left, Floats &sent, size_t largestSlice) const {
    Floats part;
    std::vector<size_t> where;
    for (int64_t index : slice)
      if (index >= 0) { // no padding
        part.push_back(left[size_t(index)]);
        where.push_back(size_t(index));
      }
    auto k = int64_t(std::ceil(sum.share * double(largestSlice)));
    for (int32_t chosen : largestBySorting(part, std::min(k, int64_t(part.size())))) {
      sent[where[size_t(chosen)]] = part[size_t(chosen)];
      left[where[size_t(chosen)]] = 0;
    }
  }

  const Case &sum;
  std::vector<std::vector<Floats>> residual; // by rank and tensor
};

/// Runs each rank as a thread, once per step, with its residuals.
class Ranks {
public:
  explicit Ranks(const Case &sum) : sum(sum) {
    instruction.kind = sum.kind;
    instruction.comm.dim = sum.dim;
    instruction.comm.segments = sum.segments;
    for (int64_t rank = 0; rank < sum.numRanks; ++rank) {
      layouts.emplace_back(instruction, groupOf(rank),
                           memoryLayout(instruction, groupOf(rank), sum.full, sum.local), sum.full,
                           sum.share);
      sums.emplace_back(instruction, layouts.back());
    }
  }

  GroupPlace groupOf(int64_t rank) const {
    GroupPlace group;
    group.ranks.resize(size_t(sum.numRanks));
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    group.index = rank;
    return group;
  }

  /// Returns the results by rank and tensor. With `isOver` each result overlaps its operand.
  std::vector<std::vector<Floats>> step(const std::vector<std::vector<Floats>> &gradients,
                                        bool isOver) {
    comm::SimulatedWorld world(sum.numRanks, std::chrono::seconds(20));
    std::vector<std::vector<Floats>> results(sums.size());
    auto runRank = [&](size_t rank) {
      std::vector<Floats> memory = gradients[rank], apart;
      std::vector<PlacedTensor> from, to;
      for (size_t t = 0; t < sum.full.size(); ++t)
        apart.emplace_back(size_t(kernels::numElements(sum.local[t].shape)), NAN);
      for (size_t t = 0; t < sum.full.size(); ++t) {
        from.push_back({reinterpret_cast<unsigned char *>(memory[t].data()), sum.full[t]});
        to.push_back(
            {reinterpret_cast<unsigned char *>((isOver ? memory : apart)[t].data()), sum.local[t]});
      }
      Status status = sums[rank].run(world.communicator(int64_t(rank)), from, to, "");
      EXPECT_TRUE(status) << status.error().message;
      for (size_t t = 0; t < to.size(); ++t) {
        auto *first = reinterpret_cast<const float *>(to[t].data);
        results[rank].emplace_back(first, first + kernels::numElements(sum.local[t].shape));
      }
      world.finish(int64_t(rank));
    };
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < sums.size(); ++rank)
      threads.emplace_back(runRank, rank);
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_TRUE(world.status());
    return results;
  }

  const Case &sum;
  Instruction instruction;
  std::vector<SparseLayout> layouts;
  std::vector<SparseSum> sums;
};

/// Returns rank `rank`'s part of the sum of tensor `t`, padding included.
Floats localOf(const Case &sum, size_t t, size_t rank, const Floats &full) {
  if (sum.kind == InstructionKind::AllReduce)
    return full;
  Floats local;
  Indices slice = slicesOf(sum, t)[rank];
  for (int64_t index : slice)
    local.push_back(index >= 0 ? full[size_t(index)] : 0.0f);
  return local;
}

/// Returns the residuals of a rank in the order of SparseSum: by destination, then by tensor.
Floats flattened(const Case &sum, const std::vector<Floats> &residual) {
  Floats flat;
  size_t numPlaces = slicesOf(sum, 0).size();
  for (size_t place = 0; place < numPlaces; ++place)
    for (size_t t = 0; t < sum.full.size(); ++t) {
      Indices slice = slicesOf(sum, t)[place];
      for (int64_t index : slice)
        if (index >= 0 && !sum.isWhole[t])
          flat.push_back(residual[t][size_t(index)]);
    }
  return flat;
}

/// Expects the sums and residuals of several steps to equal the model's bit for bit.
void expectAsModel(const Case &sum) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (bool isOver : {false, true}) {
    SerialModel model(sum);
    Ranks ranks(sum);
    for (int step = 0; step < 6; ++step) {
      std::vector<std::vector<Floats>> gradients(size_t(sum.numRanks));
      for (std::vector<Floats> &ofRank : gradients)
        for (const TensorType &type : sum.full) {
          Floats &gradient = ofRank.emplace_back();
          for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
            gradient.push_back(normal(random));
        }
      auto results = ranks.step(gradients, isOver);
      for (size_t t = 0; t < sum.full.size(); ++t) {
        std::vector<Floats> ofTensor;
        for (const std::vector<Floats> &ofRank : gradients)
          ofTensor.push_back(ofRank[t]);
        Floats expected = model.step(t, ofTensor);
        for (size_t rank = 0; rank < results.size(); ++rank)
          EXPECT_EQ(results[rank][t], localOf(sum, t, rank, expected))
              << "step " << step << ", rank " << rank << ", tensor " << t;
      }
      for (size_t rank = 0; rank < results.size(); ++rank)
        EXPECT_EQ(ranks.sums[rank].residuals(), flattened(sum, model.residual[rank]))
            << "step " << step << ", rank " << rank;
    }
  }
}

Types f32(const std::vector<Shape> &shapes) {
  Types types;
  for (const Shape &shape : shapes)
    types.push_back({DType::F32, shape});
  return types;
}

TEST(SparseSum, OfAllReduces) {
  for (int64_t numRanks : {2, 3}) {
    Types one = f32({{7, 30}}), several = f32({{3}, {50, 2}, {5}, {40}});
    expectAsModel({InstructionKind::AllReduce, numRanks, 0.05, one, one, -1, {}, {false}});
    expectAsModel({InstructionKind::AllReduce,
                   numRanks,
                   0.1,
                   several,
                   several,
                   Communication::flatDim,
                   {},
                   {numRanks >= 3, false, false, false}});
  }
}

TEST(SparseSum, OfReduceScatters) {
  // Along a dim of two segments; flat with a short or fully padded last chunk.
  expectAsModel({InstructionKind::ReduceScatter,
                 3,
                 0.1,
                 f32({{4, 18, 5}}),
                 f32({{4, 6, 5}}),
                 1,
                 {{1, 2, 2}, {2, 1, 1}},
                 {false}});
  expectAsModel(
      {InstructionKind::ReduceScatter, 3, 0.2, f32({{7, 5}}), f32({{12}}), -1, {}, {false}});
  expectAsModel({InstructionKind::ReduceScatter, 3, 0.3, f32({{4}}), f32({{2}}), -1, {}, {true}});
  expectAsModel({InstructionKind::ReduceScatter,
                 4,
                 0.2,
                 f32({{9}, {2}, {31}}),
                 f32({{3}, {1}, {8}}),
                 Communication::flatDim,
                 {},
                 {false, true, false}});
}

/// With integers no value is rounded. So the gradients of all ranks and steps add up to the sums
/// plus the residuals.
TEST(SparseSum, LosesNothing) {
  Types type = f32({{40, 10}});
  Case sum{InstructionKind::AllReduce, 3, 0.02, type, type, -1, {}, {false}};
  Ranks ranks(sum);
  std::mt19937 random(3);
  std::vector<double> given(400, 0.0), got(400, 0.0);
  for (int step = 0; step < 20; ++step) {
    std::vector<std::vector<Floats>> gradients(3, {Floats(400)});
    for (std::vector<Floats> &ofRank : gradients)
      for (size_t i = 0; i < 400; ++i)
        given[i] += double(ofRank[0][i] = float(int(random() % 2001) - 1000));
    Floats result = ranks.step(gradients, false)[0][0];
    for (size_t i = 0; i < 400; ++i)
      got[i] += double(result[i]);
    size_t numSent = 0;
    for (float element : result)
      numSent += element != 0;
    EXPECT_LE(numSent, 3u * 8u);
  }
  EXPECT_NE(got, given);
  for (const SparseSum &ofRank : ranks.sums)
    for (size_t i = 0; i < 400; ++i)
      got[i] += double(ofRank.residuals()[i]);
  EXPECT_EQ(got, given);
}

TEST(SparseSum, IsNotMadeWhereItSavesNothing) {
  Types type = f32({{1000}});
  auto isSparse = [&](InstructionKind kind, int64_t numRanks, double share) {
    Case sum{kind,
             numRanks,
             share,
             type,
             kind == InstructionKind::AllReduce ? type : f32({{250}}),
             Communication::flatDim,
             {},
             {}};
    return Ranks(sum).layouts[0].isSparse();
  };
  // Sparse if n k < m for an all_reduce, and 2 k < m for a slice of a reduce_scatter. Example: n =
  // 4 ranks, share 0.249: 4 * 0.249 < 1.
  EXPECT_TRUE(isSparse(InstructionKind::AllReduce, 2, 0.499));
  EXPECT_FALSE(isSparse(InstructionKind::AllReduce, 2, 0.5));
  EXPECT_FALSE(isSparse(InstructionKind::AllReduce, 4, 0.25));
  EXPECT_TRUE(isSparse(InstructionKind::AllReduce, 4, 0.249));
  EXPECT_TRUE(isSparse(InstructionKind::ReduceScatter, 4, 0.496));
  EXPECT_FALSE(isSparse(InstructionKind::ReduceScatter, 4, 0.5));
  EXPECT_FALSE(isSparse(InstructionKind::AllReduce, 1, 0.01));
}

TEST(SparseSum, CountsWhatItSends) {
  Types type = f32({{1000}, {2}});
  Case sum{InstructionKind::AllReduce, 2, 0.01, type, type, -1, {}, {}};
  EXPECT_EQ(Ranks(sum).layouts[0].messageBytes(), 10 * 8 + 2 * 4);
  Case scattered{InstructionKind::ReduceScatter, 2, 0.01, type, f32({{500}, {1}}), -1, {}, {}};
  EXPECT_EQ(Ranks(scattered).layouts[0].messageBytes(), 2 * 5 * 8 + 2 * 4);
}

} // namespace
} // namespace tbc::runtime
