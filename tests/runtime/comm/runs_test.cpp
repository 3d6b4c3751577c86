//===- runs_test.cpp - Calls on memory segments, on every backend -------------===//

#include "runtime/comm/Courses.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/ReduceRuns.h"
#include "tests/runtime/comm/Backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tbc::test {
namespace {

using comm::Communicator;
using comm::ElementType;
using comm::Group;
using comm::ReduceKind;
using comm::Run;
using comm::Runs;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

const ElementType f32{DType::F32, Arith::Native};

/// Memory of floats, and segments of it.
struct Floats {
  explicit Floats(size_t count, float value = -1) : values(count, value) {}
  Run run(size_t first, size_t count) {
    return {reinterpret_cast<unsigned char *>(values.data() + first), int64_t(count * 4)};
  }
  Tensor tensor() const { return Tensor({DType::F32, {int64_t(values.size())}}, values); }
  std::vector<float> values;
};

float value(int64_t rank, size_t i) { return float(100 * rank) + float(i % 89); }

Floats inputOf(int64_t rank, size_t count) {
  Floats input(count);
  for (size_t i = 0; i < count; ++i)
    input.values[i] = value(rank, i);
  return input;
}

class RunsConformance : public testing::TestWithParam<Backend> {
protected:
  std::vector<std::vector<float>> run(int64_t numRanks, const RankFn &function) {
    std::vector<std::vector<float>> lists;
    for (const Result<Tensor> &result : runRanks(GetParam(), numRanks, function)) {
      EXPECT_TRUE(bool(result)) << result.error().message;
      lists.push_back(result && *result ? result->data<float>() : std::vector<float>());
    }
    return lists;
  }
};

Result<Tensor> with(const Status &status, const Floats &result) {
  return status ? Result<Tensor>(result.tensor()) : Result<Tensor>(status.error());
}

// One element, some, more than a portion; contiguous, and in segments with some short ones.
const std::vector<size_t> sizes = {1, 7, 5000, 800001};

TEST_P(RunsConformance, AllReduceInPlaceAndApart) {
  const Group all = {0, 1, 2};
  for (size_t count : sizes)
    for (bool isInPlace : {true, false}) {
      auto results = run(3, [&](Communicator &c) {
        Floats input = inputOf(c.rank(), count), output(count);
        size_t cut = count / 3;
        Runs from = {input.run(0, cut), input.run(cut, count - cut)};
        Runs to = isInPlace ? from : Runs{output.run(0, cut), output.run(cut, count - cut)};
        Status status = c.allReduceRuns(all, ReduceKind::Sum, f32, from, to, "here");
        if (!isInPlace && input.values != inputOf(c.rank(), count).values)
          return Result<Tensor>(Error{ErrorCode::Other, "the input is another"});
        return with(status, isInPlace ? input : output);
      });
      for (const std::vector<float> &result : results) {
        ASSERT_EQ(result.size(), count);
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(result[i], value(0, i) + value(1, i) + value(2, i)) << "element " << i;
      }
    }
}

TEST_P(RunsConformance, ManyShortRunsAreOneMessage) {
  auto results = run(2, [&](Communicator &c) {
    // Every other element of 20,001, at even indices.
    Floats input = inputOf(c.rank(), 20001);
    Runs runs;
    for (size_t i = 0; i < 20001; i += 2)
      runs.push_back(input.run(i, 1));
    return with(c.allReduceRuns({0, 1}, ReduceKind::Max, f32, runs, runs, "here"), input);
  });
  for (int64_t rank : {0, 1})
    for (size_t i = 0; i < 20001; ++i)
      ASSERT_EQ(results[size_t(rank)][i], value(i % 2 ? rank : 1, i)) << "element " << i;
}

TEST_P(RunsConformance, PartsNeedNotHaveOneSize) {
  // As for a tensor whose last pieces are short or empty.
  const std::vector<std::vector<size_t>> lists = {
      {3, 3, 1}, {2, 2, 0}, {1, 0, 0}, {300000, 300000, 7}};
  for (const std::vector<size_t> &counts : lists) {
    size_t first[] = {0, counts[0], counts[0] + counts[1]};
    size_t total = first[2] + counts[2];
    auto results = run(3, [&](Communicator &c) {
      size_t self = size_t(c.rank());
      Floats whole = inputOf(c.rank(), total), gathered(total), sum(counts[self]);
      std::vector<Runs> inputs, outputs;
      for (size_t i = 0; i < 3; ++i) {
        inputs.push_back(counts[i] ? Runs{whole.run(first[i], counts[i])} : Runs());
        outputs.push_back(counts[i] ? Runs{gathered.run(first[i], counts[i])} : Runs());
      }
      Runs mine = counts[self] ? Runs{sum.run(0, counts[self])} : Runs();
      if (Status status = c.reduceScatterRuns({0, 1, 2}, f32, inputs, mine, "scatter"); !status)
        return with(status, sum);
      return with(c.allGatherRuns({0, 1, 2}, f32, mine, outputs, "gather"), gathered);
    });
    for (const std::vector<float> &result : results) {
      ASSERT_EQ(result.size(), total);
      for (size_t i = 0; i < total; ++i)
        ASSERT_EQ(result[i], value(0, i) + value(1, i) + value(2, i)) << "element " << i;
    }
  }
}

TEST_P(RunsConformance, AGatherTakesItsInputWhereItIs) {
  for (size_t count : sizes) {
    auto results = run(2, [&](Communicator &c) {
      Floats whole(2 * count);
      for (size_t i = 0; i < count; ++i)
        whole.values[size_t(c.rank()) * count + i] = value(c.rank(), i);
      std::vector<Runs> parts = {{whole.run(0, count)}, {whole.run(count, count)}};
      return with(c.allGatherRuns({0, 1}, f32, parts[size_t(c.rank())], parts, "here"), whole);
    });
    for (const std::vector<float> &result : results)
      for (size_t i = 0; i < 2 * count; ++i)
        ASSERT_EQ(result[i], value(int64_t(i / count), i % count));
  }
}

TEST_P(RunsConformance, AllToAllMayCutItsSidesDifferently) {
  for (size_t count : sizes) {
    auto results = run(2, [&](Communicator &c) {
      Floats input = inputOf(c.rank(), 2 * count), output(2 * count);
      std::vector<Runs> from = {{input.run(0, count)}, {input.run(count, count)}};
      std::vector<Runs> to = {{output.run(0, count / 2), output.run(count / 2, count - count / 2)},
                              {output.run(count, count)}};
      return with(c.allToAllRuns({0, 1}, f32, from, to, "here"), output);
    });
    for (size_t rank : {0, 1})
      for (size_t i = 0; i < 2 * count; ++i)
        ASSERT_EQ(results[rank][i], value(int64_t(i / count), rank * count + i % count));
  }
}

TEST_P(RunsConformance, MessagesMayChangeTheirForm) {
  auto results = run(2, [&](Communicator &c) -> Result<Tensor> {
    const kernels::TensorType type{DType::F32, {3, 4}};
    if (c.rank() == 0) {
      Floats input = inputOf(0, 12);
      if (Status status = c.sendBytes(1, 7, type, Arith::Native, input.run(0, 12).data, "send");
          !status)
        return status.error();
      std::fill(input.values.begin(), input.values.end(), -5.0F); // the input may be overwritten
      return c.send(1, {8, 1}, inputOf(1, 12).tensor().reshaped({3, 4}), "send")->wait();
    }
    Floats output(12);
    if (Status status = c.recvBytes(0, {8, 1}, type, Arith::Native, output.run(0, 12).data, "recv");
        !status)
      return status.error();
    auto first = c.recv(0, 7, type, "recv")->wait();
    if (!first || output.values != inputOf(1, 12).values)
      return first ? Result<Tensor>(Error{ErrorCode::Other, "another message"}) : first;
    return first;
  });
  EXPECT_EQ(results[1], inputOf(0, 12).values);
}

TEST_P(RunsConformance, ACallThatDoesNotMatchIsNamed) {
  auto results = runRanks(GetParam(), 2, [&](Communicator &c) {
    Floats input = inputOf(0, c.rank() == 0 ? 40000 : 40001);
    Runs runs = {input.run(0, input.values.size())};
    std::string place = "place " + std::to_string(c.rank());
    return with(c.allReduceRuns({0, 1}, ReduceKind::Sum, f32, runs, runs, place), input);
  });
  std::string messages;
  for (const Result<Tensor> &result : results) {
    ASSERT_FALSE(bool(result));
    messages += result.error().message + "\n";
  }
  for (const char *word : {"40000xf32", "40001xf32", "place 0", "place 1"})
    EXPECT_THAT(messages, testing::HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(Backends, RunsConformance, testing::ValuesIn(allBackends()),
                         [](const auto &info) { return name(info.param); });

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// Returns numbers of all sizes and signs, with zeros of both signs, infinities and NaN.
Tensor nasty(DType dtype, int64_t count, int seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    int64_t k = (i * 7919 + seed * 104729) % 1000;
    double number = std::ldexp(double(k - 500), int(k % 40) - 25);
    values.push_back(k == 1   ? -0.0
                     : k == 2 ? std::numeric_limits<double>::infinity()
                     : k == 3 ? std::nan("")
                     : k < 20 ? -0.0
                              : number);
  }
  return kernels::isFloat(dtype)
             ? Tensor::fromDoubles({dtype, {count}}, Arith::Native, values)
             : Tensor::fromInts({dtype, {count}}, std::vector<int64_t>(size_t(count), seed + 3));
}

TEST(ReduceElements, HasTheBitsOfTheReference) {
  for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32, DType::Bool})
    for (int numInputs : {1, 2, 3, 5})
      for (int64_t count : {1, 17, 5001})
        for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Avg}) {
          std::vector<Tensor> tensors;
          std::vector<std::vector<unsigned char>> encoded;
          std::vector<const unsigned char *> inputs;
          for (int i = 0; i < numInputs; ++i) {
            tensors.push_back(nasty(dtype, count, i));
            encoded.push_back(comm::encode(tensors.back()));
          }
          for (const auto &bytes : encoded)
            inputs.push_back(bytes.data());
          // The result overwrites the last input.
          comm::reduceElements(kind, {dtype, Arith::Native}, inputs, encoded.back().data(), count);
          EXPECT_EQ(encoded.back(), comm::encode(comm::reduce(kind, tensors)))
              << name(dtype) << ", " << comm::name(kind) << " of " << numInputs << " times "
              << count;
        }
}

TEST(Runs, AreCutWhereverItIsAsked) {
  Floats memory = inputOf(0, 10);
  Runs runs = {memory.run(0, 3), {}, memory.run(3, 1), memory.run(6, 4)};
  comm::Cutter cutter(runs);
  std::vector<size_t> lengths;
  std::vector<float> seen;
  for (int64_t bytes : {8, 12, 100, 4}) {
    Runs piece = cutter.next(bytes);
    lengths.push_back(piece.size());
    std::vector<float> packed(size_t(comm::sizeBytes(piece) / 4));
    comm::pack(piece, reinterpret_cast<unsigned char *>(packed.data()));
    seen.insert(seen.end(), packed.begin(), packed.end());
  }
  EXPECT_THAT(lengths, testing::ElementsAre(1, 3, 1, 0));
  EXPECT_THAT(seen, testing::ElementsAre(0, 1, 2, 3, 6, 7, 8, 9));
}

} // namespace
} // namespace tbc::test
