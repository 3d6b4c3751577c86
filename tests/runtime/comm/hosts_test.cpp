//===- hosts_test.cpp - An all_reduce over several hosts ---------------------===//
//
// Ranks are processes with given hosts. Results have the bits of the reduction in group order. The
// bytes sent between hosts are counted.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/HostCourse.h"
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
using comm::Reduction;
using comm::Runs;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

/// Returns numbers of all sizes and signs, with zeros of both signs. With `isHard` also infinities
/// and NaN.
Tensor numbers(const ElementType &type, int64_t count, int64_t seed, bool isHard) {
  std::vector<double> values;
  std::vector<int64_t> integers;
  for (int64_t i = 0; i < count; ++i) {
    int64_t k = (i * 7919 + seed * 104729) % 1000;
    double number = std::ldexp(double(k - 500), int(k % 40) - 25);
    values.push_back(k == 1 && isHard   ? std::nan("")
                     : k == 2 && isHard ? std::numeric_limits<double>::infinity()
                     : k < 20           ? -0.0
                                        : number);
    integers.push_back(k - 500);
  }
  return kernels::isFloat(type.dtype)
             ? Tensor::fromDoubles({type.dtype, {count}}, type.arith, values)
             : Tensor::fromInts({type.dtype, {count}}, integers);
}

const std::vector<ElementType> types = {
    {DType::F32, Arith::Native},    {DType::BF16, Arith::Native},   {DType::F16, Arith::Native},
    {DType::F64, Arith::Native},    {DType::I32, Arith::Native},    {DType::F32, Arith::F64},
    {DType::F32, Arith::Residue61}, {DType::F32, Arith::Residue251}};

std::vector<Reduction> reductionsOf(const ElementType &type) {
  std::vector<Reduction> list = {ReduceKind::Sum,     ReduceKind::Avg, ReduceKind::Max,
                                 ReduceKind::Product, ReduceKind::Min, {ReduceKind::PremulSum, 3}};
  if (!kernels::isFloat(type.dtype))
    for (ReduceKind kind : {ReduceKind::BitAnd, ReduceKind::BitOr, ReduceKind::BitXor})
      list.push_back(kind);
  return list;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

TEST(HostShape, IsOfEqualHostsOneAfterTheOther) {
  auto shape = comm::hostShape({4, 4, 0, 0, 7, 7});
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->numHosts, 3u);
  EXPECT_EQ(shape->numLocal, 2u);
  ASSERT_TRUE(comm::hostShape({5, 5, 5}));
  EXPECT_EQ(comm::hostShape({5, 5, 5})->numHosts, 1u);
  EXPECT_FALSE(comm::hostShape({0, 1, 0, 1})); // alternating
  EXPECT_FALSE(comm::hostShape({0, 0, 1}));    // unequal
  EXPECT_FALSE(comm::hostShape({0, 1, 1, 1, 0, 0}));
  EXPECT_FALSE(comm::hostShape({0, 0, 1, 1, 0, 0}));
}

TEST(HostShape, PaysWhereTheBusiestHostSendsLess) {
  const ElementType f32{DType::F32, Arith::Native}, f64{DType::F64, Arith::Native},
      bf16{DType::BF16, Arith::Native};
  // Bytes per element that leave the busiest host: hierarchical and direct.
  EXPECT_FALSE(comm::paysByHost({2, 2}, f32));  // 8 and 8
  EXPECT_TRUE(comm::paysByHost({2, 3}, f32));   // 8 and 12
  EXPECT_FALSE(comm::paysByHost({3, 2}, f32));  // 12 and 10.7
  EXPECT_TRUE(comm::paysByHost({3, 3}, f32));   // 12 and 16
  EXPECT_TRUE(comm::paysByHost({2, 2}, f64));   // 8 and 16
  EXPECT_FALSE(comm::paysByHost({2, 4}, bf16)); // 8 and 8
  EXPECT_TRUE(comm::paysByHost({2, 5}, bf16));  // 8 and 10
  EXPECT_FALSE(comm::paysByHost({1, 4}, f32));
  EXPECT_FALSE(comm::paysByHost({4, 1}, f32));
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

TEST(FoldElements, HasTheBitsOfTheWhole) {
  constexpr int64_t count = 3001, numInputs = 5;
  for (const ElementType &type : types)
    for (const Reduction &reduction : reductionsOf(type))
      for (size_t cut : {1, 2, 4}) {
        bool isHard = type.arith == Arith::Native;
        std::vector<Tensor> tensors;
        std::vector<std::vector<unsigned char>> encoded;
        std::vector<const unsigned char *> first, second;
        for (int64_t i = 0; i < numInputs; ++i) {
          tensors.push_back(numbers(type, count, i, isHard));
          encoded.push_back(comm::encode(tensors.back()));
        }
        for (size_t i = 0; i < encoded.size(); ++i)
          (i < cut ? first : second).push_back(encoded[i].data());
        std::vector<unsigned char> states(size_t(count * comm::stateWidth(type))),
            result(size_t(count * type.width()));
        comm::foldElements(reduction, type, nullptr, first, states.data(), count);
        comm::foldElements(reduction, type, states.data(), second, states.data(), count);
        comm::endFolds(reduction, type, states.data(), numInputs, result.data(), count);
        EXPECT_EQ(result, comm::encode(comm::reduce(reduction, tensors)))
            << name(type.dtype) << " in arithmetic " << int(type.arith) << ", "
            << comm::name(reduction.kind) << " after " << cut;
      }
}

//===----------------------------------------------------------------------===//
// Over processes
//===----------------------------------------------------------------------===//

RunOptions onHosts(int64_t numLocal) {
  RunOptions options;
  options.hostKey = [=](int64_t rank) { return "host " + std::to_string(rank / numLocal); };
  return options;
}

Group everyone(int64_t numRanks) {
  Group group;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    group.push_back(rank);
  return group;
}

/// Returns the bytes sent during `call`, summed over ranks: within hosts, and between hosts.
std::vector<int64_t> sentBytes(int64_t numRanks, const RunOptions &options,
                               const std::function<Status(Communicator &)> &call) {
  auto results = runRanks(
      Backend::Gloo, numRanks,
      [&](Communicator &c) -> Result<Tensor> {
        comm::SentBytes before = *c.sent();
        if (Status status = call(c); !status)
          return status.error();
        comm::SentBytes after = *c.sent();
        return Tensor::fromInts({DType::I64, {2}}, {after.withinHost - before.withinHost,
                                                    after.acrossHosts - before.acrossHosts});
      },
      options);
  std::vector<int64_t> sums(2);
  for (const Result<Tensor> &result : results) {
    EXPECT_TRUE(bool(result)) << result.error().message;
    for (size_t i = 0; result && i < 2; ++i)
      sums[i] += result->data<int64_t>()[i];
  }
  return sums;
}

struct Grid {
  int64_t numHosts, numLocal;
};

class Hosts : public testing::TestWithParam<Grid> {};

/// A reduction of the numbers of all ranks, with the bytes of its result.
struct ReducedNumbers {
  ElementType type;
  Reduction reduction;
  std::vector<unsigned char> result;
};

/// Returns the reductions of `count` numbers of each rank, without those that are too slow.
std::vector<ReducedNumbers> reducedNumbers(int64_t count, int64_t numRanks) {
  std::vector<ReducedNumbers> all;
  for (const ElementType &type : types) {
    std::vector<Tensor> tensors;
    for (int64_t rank = 0; rank < numRanks; ++rank)
      tensors.push_back(numbers(type, count, rank, type.arith == Arith::Native));
    for (const Reduction &reduction : reductionsOf(type)) {
      bool isLong = count > 100000;
      if (isLong && (reduction.kind != ReduceKind::Sum || type.arith == Arith::Residue61))
        continue;
      all.push_back({type, reduction, comm::encode(comm::reduce(reduction, tensors))});
    }
  }
  return all;
}

TEST_P(Hosts, ReduceWithTheBitsOfGroupOrder) {
  const int64_t numHosts = GetParam().numHosts, numLocal = GetParam().numLocal;
  int64_t numRanks = numHosts * numLocal;
  // More than one portion with unequal parts, and less than a portion.
  for (int64_t count : {int64_t(400003), int64_t(20001)}) {
    const std::vector<ReducedNumbers> all = reducedNumbers(count, numRanks);
    EXPECT_GE(all.size(), 7u);
    auto results = runRanks(
        Backend::Gloo, numRanks,
        [&](Communicator &c) -> Result<Tensor> {
          int64_t numWrong = 0, numCalls = 0;
          for (const auto &[type, reduction, expected] : all) {
            Tensor mine = numbers(type, count, c.rank(), type.arith == Arith::Native);
            Result<Tensor> sum = c.allReduce(everyone(numRanks), reduction, mine, "here")->wait();
            if (!sum)
              return sum;
            ++numCalls;
            numWrong += comm::encode(*sum) != expected;
          }
          return Tensor::fromInts({DType::I64, {2}}, {numWrong, numCalls});
        },
        onHosts(numLocal));
    for (const Result<Tensor> &result : results) {
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(result->data<int64_t>()[0], 0);
      EXPECT_EQ(result->data<int64_t>()[1], int64_t(all.size()));
    }
  }
}

TEST_P(Hosts, RunsInPlaceAndApart) {
  const int64_t numHosts = GetParam().numHosts, numLocal = GetParam().numLocal;
  int64_t numRanks = numHosts * numLocal, count = 600011;
  const ElementType f32{DType::F32, Arith::Native};
  for (bool isInPlace : {true, false}) {
    auto results = runRanks(
        Backend::Gloo, numRanks,
        [&](Communicator &c) -> Result<Tensor> {
          std::vector<float> values(static_cast<size_t>(count)), output(values.size(), -1);
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = float(c.rank() + 1) * float(i % 1000);
          auto runs = [&](std::vector<float> &memory) {
            auto *bytes = reinterpret_cast<unsigned char *>(memory.data());
            int64_t cut = 4 * 70001;
            return Runs{{bytes, cut}, {bytes + cut, count * 4 - cut}};
          };
          Runs from = runs(values), to = isInPlace ? from : runs(output);
          Status status =
              c.allReduceRuns(everyone(numRanks), ReduceKind::Sum, f32, from, to, "here");
          if (!status)
            return status.error();
          const std::vector<float> &result = isInPlace ? values : output;
          float factor = float(numRanks * (numRanks + 1) / 2);
          for (size_t i = 0; i < result.size(); ++i)
            if (result[i] != factor * float(i % 1000))
              return Error{ErrorCode::Other, "element " + std::to_string(i) + " is wrong"};
          for (size_t i = 0; !isInPlace && i < values.size(); ++i)
            if (values[i] != float(c.rank() + 1) * float(i % 1000))
              return Error{ErrorCode::Other, "the input is another"};
          return Tensor();
        },
        onHosts(numLocal));
    for (const Result<Tensor> &result : results)
      EXPECT_TRUE(bool(result)) << result.error().message;
  }
}

TEST_P(Hosts, SendFewerBytesAcross) {
  const int64_t numHosts = GetParam().numHosts, numLocal = GetParam().numLocal;
  int64_t numRanks = numHosts * numLocal, count = 120000; // numRanks divides it
  auto call = [&](Communicator &c) {
    Tensor input = Tensor::zeros({DType::F32, {count}}, Arith::Native);
    Result<Tensor> sum = c.allReduce(everyone(numRanks), ReduceKind::Sum, input, "here")->wait();
    return sum ? Status::ok() : Status(sum.error());
  };
  RunOptions options = onHosts(numLocal);
  std::vector<int64_t> byHost = sentBytes(numRanks, options, call);
  options.byHost = comm::ByHost::Never;
  std::vector<int64_t> straight = sentBytes(numRanks, options, call);
  // Per element a sum of 8 bytes goes to the next host, and a result of 4 bytes comes back.
  EXPECT_EQ(byHost[1], (numHosts - 1) * (8 + 4) * count);
  // On each host, every rank sends its terms to the adding rank; results go to all ranks.
  EXPECT_EQ(byHost[0], numHosts * 2 * (numLocal - 1) * 4 * count);
  // Direct: every rank sends 1/n to each rank of other hosts, twice.
  EXPECT_EQ(straight[1], 2 * (numRanks - numLocal) * 4 * count);
  options.byHost = comm::ByHost::WhereItPays;
  EXPECT_EQ(sentBytes(numRanks, options, call), numLocal > 2 ? byHost : straight);
}

INSTANTIATE_TEST_SUITE_P(Grids, Hosts, testing::Values(Grid{2, 2}, Grid{3, 2}, Grid{2, 3}),
                         [](const auto &info) {
                           return std::to_string(info.param.numHosts) + "x" +
                                  std::to_string(info.param.numLocal);
                         });

TEST(HostsInTurns, GoStraight) {
  // A group whose neighbours are on different hosts cannot sum within a host.
  const Group turns = {0, 2, 1, 3};
  constexpr int64_t count = 40000;
  auto sent = sentBytes(4, onHosts(2), [&](Communicator &c) {
    std::vector<Tensor> all;
    for (int64_t rank : turns)
      all.push_back(numbers({DType::F32, Arith::Native}, count, rank, true));
    Tensor mine = numbers({DType::F32, Arith::Native}, count, c.rank(), true);
    Result<Tensor> sum = c.allReduce(turns, ReduceKind::Sum, mine, "here")->wait();
    if (!sum)
      return Status(sum.error());
    bool isRight = comm::encode(*sum) == comm::encode(comm::reduce(ReduceKind::Sum, all));
    return isRight ? Status::ok() : Status(Error{ErrorCode::Other, "another sum"});
  });
  EXPECT_EQ(sent[1], 2 * 2 * 4 * count);
}

TEST(SentBytes, CountMessages) {
  auto sent = sentBytes(2, onHosts(1), [](Communicator &c) {
    const kernels::TensorType type{DType::BF16, {100}};
    if (c.rank() == 1) {
      Result<Tensor> received = c.recv(0, 1, type, "here")->wait();
      return received ? Status::ok() : Status(received.error());
    }
    Result<Tensor> gone = c.send(1, 1, Tensor::zeros(type, Arith::Native), "here")->wait();
    return gone ? Status::ok() : Status(gone.error());
  });
  EXPECT_THAT(sent, testing::ElementsAre(0, 200));
}

} // namespace
} // namespace tbc::test
