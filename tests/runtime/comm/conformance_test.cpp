//===- conformance_test.cpp - Requirements on every backend ----------------===//
//
// Expected values are computed here by plain loops over all ranks' inputs.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/comm/Backends.h"

#include "runtime/comm/Reduce.h"
#include "runtime/kernels/Residue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <unistd.h>

namespace tbc::test {
namespace {

using comm::Communicator;
using comm::Group;
using comm::ReduceKind;
using kernels::Arith;
using kernels::DType;
using kernels::Residue;
using kernels::Tensor;
using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr DType allTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64,
                              DType::I32, DType::I16, DType::I8,   DType::U8,  DType::Bool};

/// Returns element i of rank r's input: small integers, exact in every type. Example: rank 1, i = 2
/// gives 13 % 7 = 6.
int64_t element(int64_t rank, int64_t i) { return (3 * rank + 5 * i) % 7; }

Tensor input(int64_t rank, DType dtype, int64_t count, Arith arith = Arith::Native) {
  std::vector<int64_t> ints(count);
  for (int64_t i = 0; i < count; ++i)
    ints[i] = element(rank, i);
  if (kernels::isFloat(dtype))
    return count == 0 ? Tensor::zeros({dtype, {0}}, arith)
                      : Tensor::fromDoubles({dtype, {count}}, arith,
                                            std::vector<double>(ints.begin(), ints.end()));
  return count == 0 ? Tensor::zeros({dtype, {0}}, arith) : Tensor::fromInts({dtype, {count}}, ints);
}

std::vector<int64_t> ints(const Tensor &tensor) {
  std::vector<int64_t> result;
  for (double value : tensor.toDoubles())
    result.push_back(int64_t(value));
  return result;
}

/// Returns the values and expects no error.
std::vector<double> doubles(const Result<Tensor> &result) {
  EXPECT_TRUE(bool(result)) << result.error().message;
  return result ? result->toDoubles() : std::vector<double>();
}

class Conformance : public testing::TestWithParam<Backend> {
protected:
  std::vector<Result<Tensor>> run(int64_t numRanks, const RankFn &function,
                                  RunOptions options = {}) {
    return runRanks(GetParam(), numRanks, function, std::move(options));
  }
  /// Runs `function`, expects no error, and returns each rank's results as integers.
  std::vector<std::vector<int64_t>> runInts(int64_t numRanks, const RankFn &function) {
    std::vector<std::vector<int64_t>> lists;
    for (const Result<Tensor> &result : run(numRanks, function)) {
      EXPECT_TRUE(bool(result)) << result.error().message;
      lists.push_back(result && *result ? ints(*result) : std::vector<int64_t>{-999});
    }
    return lists;
  }
};

Group everyone(Communicator &c) {
  Group all;
  for (int64_t rank = 0; rank < c.numRanks(); ++rank)
    all.push_back(rank);
  return all;
}

TEST_P(Conformance, AllReduceOfEveryKind) {
  // Results are joined, so that one process start serves all kinds.
  auto fold = [](auto op) {
    return [op](int64_t i) {
      int64_t value = element(0, i);
      for (int64_t rank = 1; rank < 3; ++rank)
        value = op(value, element(rank, i));
      return value;
    };
  };
  auto sum = fold([](int64_t a, int64_t b) { return a + b; });
  std::vector<std::pair<comm::Reduction, std::function<int64_t(int64_t)>>> cases = {
      {ReduceKind::Sum, sum},
      {ReduceKind::Max, fold([](int64_t a, int64_t b) { return std::max(a, b); })},
      {ReduceKind::Min, fold([](int64_t a, int64_t b) { return std::min(a, b); })},
      {ReduceKind::Product, fold([](int64_t a, int64_t b) { return a * b; })},
      {ReduceKind::Avg, [=](int64_t i) { return sum(i) / 3; }},
      {ReduceKind::BitAnd, fold([](int64_t a, int64_t b) { return a & b; })},
      {ReduceKind::BitOr, fold([](int64_t a, int64_t b) { return a | b; })},
      {ReduceKind::BitXor, fold([](int64_t a, int64_t b) { return a ^ b; })},
      {{ReduceKind::PremulSum, 3}, [=](int64_t i) { return 3 * sum(i); }}};
  ASSERT_EQ(cases.size(), size_t(comm::numReduceKinds));
  constexpr int64_t count = 13;
  auto results = runInts(3, [&](Communicator &c) -> Result<Tensor> {
    std::vector<Tensor> all;
    for (auto &[reduction, expected] : cases) {
      auto reduced =
          c.allReduce(everyone(c), reduction, input(c.rank(), DType::I32, count), "here")->wait();
      if (!reduced)
        return reduced;
      all.push_back(*reduced);
    }
    return comm::joinFlat(all);
  });
  for (const std::vector<int64_t> &result : results)
    for (size_t k = 0; k < cases.size(); ++k)
      for (int64_t i = 0; i < count; ++i)
        EXPECT_EQ(result[k * count + i], cases[k].second(i))
            << comm::name(cases[k].first.kind) << " of element " << i;
}

TEST_P(Conformance, FloatsAreAveragedAndScaled) {
  for (Result<Tensor> &result : run(2, [](Communicator &c) -> Result<Tensor> {
         Tensor mine = Tensor::fromDoubles({DType::F32, {1}}, Arith::Native, {double(c.rank())});
         Tensor mean = *c.allReduce(everyone(c), ReduceKind::Avg, mine, "here")->wait();
         return c.allReduce(everyone(c), {ReduceKind::PremulSum, 0.25}, mean, "here")->wait();
       }))
    EXPECT_THAT(doubles(result), testing::ElementsAre(0.25));
}

TEST_P(Conformance, EveryTypeAndOddAndEmptySizes) {
  constexpr int64_t n = 3;
  // Large tensors are reduced in parts.
  for (int64_t count : {int64_t(0), int64_t(1), int64_t(5), int64_t(5003)}) {
    auto results = runInts(n, [&](Communicator &c) -> Result<Tensor> {
      std::vector<Tensor> all;
      for (DType dtype : allTypes) {
        Tensor mine = input(c.rank(), dtype, count);
        auto sum = c.allReduce(everyone(c), ReduceKind::Max, mine, "max")->wait();
        auto gathered = c.allGather(everyone(c), mine, "gather")->wait();
        auto sent = c.broadcast(everyone(c), 1, mine, "broadcast")->wait();
        Tensor three = comm::joinFlat({mine, mine, mine});
        auto swapped = c.allToAll(everyone(c), three, "all to all")->wait();
        for (auto *result : {&sum, &gathered, &sent, &swapped}) {
          if (!*result)
            return *result;
          if ((*result)->dtype() != dtype)
            return Error{ErrorCode::Other, "another type"};
          std::vector<double> values = (*result)->toDoubles();
          if (!values.empty())
            all.push_back(
                Tensor::fromDoubles({DType::F64, {int64_t(values.size())}}, Arith::Native, values));
        }
      }
      return all.empty() ? input(0, DType::I32, 0) : comm::joinFlat(all);
    });
    for (int64_t rank = 0; rank < n; ++rank) {
      std::vector<int64_t> expected;
      for (DType dtype : allTypes) {
        auto value = [&](int64_t from, int64_t i) {
          return dtype == DType::Bool ? int64_t(element(from, i) != 0) : element(from, i);
        };
        for (int64_t i = 0; i < count; ++i)
          expected.push_back(std::max({value(0, i), value(1, i), value(2, i)}));
        for (int64_t from = 0; from < n; ++from)
          for (int64_t i = 0; i < count; ++i)
            expected.push_back(value(from, i));
        for (int64_t i = 0; i < count; ++i)
          expected.push_back(value(1, i));
        for (int64_t from = 0; from < n; ++from)
          for (int64_t i = 0; i < count; ++i)
            expected.push_back(value(from, i));
      }
      EXPECT_EQ(results[rank], expected) << count << " elements on rank " << rank;
    }
  }
}

TEST_P(Conformance, ReduceScatterKeepsAShare) {
  for (int64_t share : {0, 1, 7, 2000}) {
    auto results = runInts(3, [&](Communicator &c) {
      return c.reduceScatter(everyone(c), input(c.rank(), DType::I64, 3 * share), "here")->wait();
    });
    for (int64_t rank = 0; rank < 3; ++rank) {
      std::vector<int64_t> expected;
      for (int64_t i = rank * share; i < (rank + 1) * share; ++i)
        expected.push_back(element(0, i) + element(1, i) + element(2, i));
      EXPECT_EQ(results[rank], expected);
    }
  }
}

TEST_P(Conformance, ResiduesAndUnroundedFloatsKeepAllTheirBits) {
  Residue third = inverse(Residue::fromInt(3));
  for (Result<Tensor> &result : run(3, [&](Communicator &c) -> Result<Tensor> {
         Tensor mine({DType::BF16, {1}}, std::vector<Residue>{third});
         return c.allReduce(everyone(c), ReduceKind::Sum, mine, "here")->wait();
       }))
    EXPECT_EQ(result->data<Residue>()[0], Residue::fromInt(1));
  for (Result<Tensor> &result : run(2, [&](Communicator &c) -> Result<Tensor> {
         // 1/3 is not exact in f32.
         Tensor mine = Tensor::fromDoubles({DType::F32, {1}}, Arith::F64, {1.0 / 3});
         return c.allGather(everyone(c), mine, "here")->wait();
       }))
    EXPECT_THAT(result->data<double>(), testing::ElementsAre(1.0 / 3, 1.0 / 3));
}

TEST_P(Conformance, SumsAreTakenInGroupOrderAndRoundedOnce) {
  if (GetParam() == Backend::Nccl || GetParam() == Backend::NcclDevices)
    GTEST_SKIP() << "NCCL sums floats in an order of its own (runtime/cuda/NcclCommunicator.h)";
  // In double 2^60 + 1 - 2^60 is 0; in another order it is 1. Small and large tensors use different
  // algorithms.
  double big = 1152921504606846976.0;
  for (int64_t count : {1, 9000})
    for (Result<Tensor> &result : run(3, [&](Communicator &c) {
           std::vector<double> terms = {big, 1, -big};
           Tensor mine =
               Tensor::fromDoubles({DType::F32, {count}}, Arith::Native, {terms[c.rank()]});
           return c.allReduce(everyone(c), ReduceKind::Sum, mine, "here")->wait();
         }))
      EXPECT_EQ(ints(*result), std::vector<int64_t>(count, 0));
}

TEST_P(Conformance, ShapesAreKept) {
  for (Result<Tensor> &result : run(2, [&](Communicator &c) {
         Tensor mine = input(c.rank(), DType::F32, 9000).reshaped({90, 100});
         return c.allReduce(everyone(c), ReduceKind::Sum, mine, "here")->wait();
       }))
    EXPECT_EQ(result->shape(), (kernels::Shape{90, 100}));
}

TEST_P(Conformance, GroupsHaveTheirOwnOrder) {
  auto results = runInts(3, [](Communicator &c) {
    return c.allGather({2, 0, 1}, input(c.rank(), DType::I32, 1), "here")->wait();
  });
  for (const std::vector<int64_t> &result : results)
    EXPECT_THAT(result, testing::ElementsAre(element(2, 0), element(0, 0), element(1, 0)));
}

TEST_P(Conformance, GroupsDoNotDisturbEachOther) {
  auto results = runInts(4, [](Communicator &c) -> Result<Tensor> {
    Group row = c.rank() < 2 ? Group{0, 1} : Group{2, 3};
    Group column = c.rank() % 2 ? Group{1, 3} : Group{0, 2};
    Tensor value = Tensor::fromInts({DType::I64, {1}}, {c.rank()});
    for (int repeat = 0; repeat < 20; ++repeat) {
      Tensor sum = *c.allReduce(row, ReduceKind::Sum, value, "row")->wait();
      Tensor all = *c.allReduce(column, ReduceKind::Sum, sum, "column")->wait();
      if (ints(all)[0] != 6)
        return Error{ErrorCode::Other, "another sum"};
      if (auto here = c.barrier({0, 1, 2, 3}, "barrier")->wait(); !here)
        return here;
    }
    return value;
  });
  EXPECT_EQ(results.size(), 4u);
}

TEST_P(Conformance, SendsDoNotWaitAndLanesDoNotMix) {
  auto results = runInts(2, [](Communicator &c) -> Result<Tensor> {
    int64_t other = 1 - c.rank();
    kernels::TensorType type{DType::I32, {3000}};
    auto value = [&](int64_t from, int64_t k) { return Tensor::fromInts(type, {10 * from + k}); };
    // Both ranks send everything before either receives.
    for (int64_t k = 0; k < 4; ++k)
      if (auto sent = c.send(other, {k, int(k % 2)}, value(c.rank(), k), "send")->wait(); !sent)
        return sent;
    std::vector<comm::RequestPtr> requests;
    for (int64_t k : {1, 3, 0, 2}) // lane 1 first
      requests.push_back(c.recv(other, {k, int(k % 2)}, type, "recv"));
    std::vector<Tensor> heads;
    // Waits are in another order than the requests.
    for (size_t i : {1, 0, 3, 2}) {
      auto received = requests[i]->wait();
      if (!received)
        return received;
      heads.push_back(comm::cutFlat(*received, 0, 1));
    }
    return comm::joinFlat(heads);
  });
  EXPECT_THAT(results[0], testing::ElementsAre(13, 11, 12, 10));
  EXPECT_THAT(results[1], testing::ElementsAre(3, 1, 2, 0));
}

TEST_P(Conformance, MessagesOfEveryTypeAndEmptyOnesArrive) {
  auto results = runInts(2, [](Communicator &c) -> Result<Tensor> {
    std::vector<Tensor> all;
    for (DType dtype : allTypes)
      for (int64_t count : {0, 3}) {
        if (c.rank() == 0) {
          if (auto sent = c.send(1, 5, input(0, dtype, count), "send")->wait(); !sent)
            return sent;
          continue;
        }
        auto received = c.recv(0, 5, {dtype, {count}}, "recv")->wait();
        if (!received)
          return received;
        for (double value : received->toDoubles())
          all.push_back(Tensor::fromInts({DType::I32, {1}}, {int64_t(value)}));
      }
    return all.empty() ? input(0, DType::I32, 0) : comm::joinFlat(all);
  });
  ASSERT_EQ(results[1].size(), 30u);
  EXPECT_THAT(std::vector<int64_t>(results[1].begin(), results[1].begin() + 3),
              testing::ElementsAre(0, 5, 3));
}

TEST_P(Conformance, OneRankIsAGroupToo) {
  auto results = runInts(1, [](Communicator &c) -> Result<Tensor> {
    Tensor mine = input(0, DType::I32, 3);
    Tensor sum = *c.allReduce({0}, ReduceKind::Sum, mine, "here")->wait();
    Tensor gathered = *c.allGather({0}, sum, "here")->wait();
    Tensor kept = *c.reduceScatter({0}, gathered, "here")->wait();
    if (auto here = c.barrier({0}, "here")->wait(); !here)
      return here;
    return c.allToAll({0}, kept, "here")->wait();
  });
  EXPECT_THAT(results[0], testing::ElementsAre(0, 5, 3));
}

TEST_P(Conformance, UnevenCallsAreErrorsThatNameBothSides) {
  using Calls = std::function<Result<Tensor>(Communicator &)>;
  std::vector<std::pair<Calls, std::vector<std::string>>> cases = {
      {[](Communicator &c) {
         Tensor mine = input(0, DType::F32, 4 + c.rank());
         return c.allReduce({0, 1}, ReduceKind::Sum, mine, "place " + std::to_string(c.rank()))
             ->wait();
       },
       {"all_reduce sum", "4xf32", "5xf32", "place 0", "place 1"}},
      {[](Communicator &c) {
         Tensor mine = input(0, DType::F32, 4);
         return c.rank() == 0 ? c.allGather({0, 1}, mine, "left")->wait()
                              : c.allToAll({0, 1}, mine, "right")->wait();
       },
       {"all_gather", "all_to_all", "left", "right"}},
      {[](Communicator &c) {
         auto kind = c.rank() == 0 ? ReduceKind::Sum : ReduceKind::Min;
         return c.allReduce({0, 1}, kind, input(0, DType::F32, 4), "here")->wait();
       },
       {"all_reduce sum", "all_reduce min"}},
      {[](Communicator &c) {
         if (c.rank() == 0) {
           (void)c.send(1, 7, input(0, DType::F32, 4), "sender")->wait();
           return c.recv(1, 9, {DType::F32, {4}}, "never")->wait();
         }
         return c.recv(0, 8, {DType::F32, {4}}, "receiver")->wait();
       },
       {"send 7", "recv 8", "sender", "receiver"}}};
  for (auto &[call, words] : cases) {
    auto results = run(2, call, {std::chrono::seconds(10), {}});
    // The first rank to notice names both calls; the other stops because of it.
    std::string messages;
    for (const Result<Tensor> &result : results) {
      ASSERT_FALSE(bool(result));
      EXPECT_EQ(result.error().code, ErrorCode::RankFailed) << result.error().message;
      messages += result.error().message + "\n";
    }
    for (const std::string &word : words)
      EXPECT_THAT(messages, HasSubstr(word));
  }
}

TEST_P(Conformance, ARankThatStaysAwayIsNamed) {
  auto results = run(
      3,
      [](Communicator &c) -> Result<Tensor> {
        if (c.rank() == 2) {
          usleep(6000000);
          return Tensor();
        }
        return c.allReduce({0, 1, 2}, ReduceKind::Sum, input(0, DType::F32, 4), "my place")->wait();
      },
      {milliseconds(3000), {}});
  // The first rank to time out stops, and the other may report this instead.
  std::string messages;
  bool hang = false;
  for (int64_t rank : {0, 1}) {
    ASSERT_FALSE(bool(results[rank]));
    EXPECT_THAT(results[rank].error().code, AnyOf(ErrorCode::HangDetected, ErrorCode::RankFailed));
    hang |= results[rank].error().code == ErrorCode::HangDetected;
    messages += results[rank].error().message + "\n";
  }
  EXPECT_TRUE(hang) << messages;
  for (const char *word : {"my place", "rank 2", "3000 ms"})
    EXPECT_THAT(messages, HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(allBackends()),
                         [](const auto &info) { return name(info.param); });

//===----------------------------------------------------------------------===//
// Processes only
//===----------------------------------------------------------------------===//

class GlooProcesses : public testing::TestWithParam<Backend> {};

TEST_P(GlooProcesses, AKilledRankEndsTheCallAtOnce) {
  auto begin = std::chrono::steady_clock::now();
  auto results = runRanks(GetParam(), 3, [](Communicator &c) -> Result<Tensor> {
    if (c.rank() == 1)
      raise(SIGKILL);
    return c.allReduce({0, 1, 2}, ReduceKind::Sum, input(0, DType::F32, 9000), "my place")->wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(results[1].error().message, "died");
  for (int64_t rank : {0, 2}) {
    ASSERT_FALSE(bool(results[rank]));
    EXPECT_EQ(results[rank].error().code, ErrorCode::RankFailed);
    EXPECT_THAT(results[rank].error().message, HasSubstr("my place, all_reduce sum of 9000xf32"));
    EXPECT_THAT(results[rank].error().message, HasSubstr("gone"));
  }
}

TEST_P(GlooProcesses, AnErrorStays) {
  auto results = runRanks(GetParam(), 2, [](Communicator &c) -> Result<Tensor> {
    if (c.rank() == 1)
      raise(SIGKILL);
    (void)c.barrier({0, 1}, "first")->wait();
    return c.barrier({0, 1}, "second")->wait();
  });
  ASSERT_FALSE(bool(results[0]));
  EXPECT_THAT(results[0].error().message, HasSubstr("first"));
}

TEST_P(GlooProcesses, AnotherTokenIsRefused) {
  auto results = runRanks(
      GetParam(), 2, [](Communicator &c) { return c.barrier({0, 1}, "here")->wait(); },
      {std::chrono::seconds(5), [](int64_t rank) { return "token " + std::to_string(rank); }});
  for (const Result<Tensor> &result : results) {
    ASSERT_FALSE(bool(result));
    EXPECT_EQ(result.error().code, ErrorCode::RankFailed);
  }
  EXPECT_THAT(results[0].error().message + results[1].error().message, HasSubstr("token"));
}

TEST_P(GlooProcesses, ARankThatNeverComesIsAnError) {
  auto results =
      runRanks(GetParam(), 2, [](Communicator &c) { return c.barrier({0, 1}, "here")->wait(); },
               {milliseconds(700), [](int64_t rank) {
                  if (rank == 1)
                    raise(SIGKILL); // before it connects
                  return std::string("shared");
                }});
  ASSERT_FALSE(bool(results[0]));
  EXPECT_THAT(results[0].error().message, HasSubstr("700 ms"));
}

INSTANTIATE_TEST_SUITE_P(Backends, GlooProcesses,
                         testing::Values(Backend::Gloo, Backend::GlooSockets),
                         [](const auto &info) { return name(info.param); });

} // namespace
} // namespace tbc::test
