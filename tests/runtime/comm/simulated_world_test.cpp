//===- simulated_world_test.cpp - Ranks as threads -------------------------===//

#include "runtime/comm/SimulatedWorld.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

namespace tbc::comm {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Residue;
using kernels::Tensor;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds longTime(60000), shortTime(50);

Tensor floats(std::vector<double> values) {
  int64_t count = int64_t(values.size());
  return Tensor::fromDoubles({DType::F32, {count}}, Arith::Native, values);
}

using RankFn = std::function<Result<Tensor>(Communicator &)>;

/// Runs one function per rank and returns the result of each.
std::vector<Result<Tensor>> runRanks(SimulatedWorld &world, const std::vector<RankFn> &functions) {
  std::vector<Result<Tensor>> results(functions.size(), Tensor());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < functions.size(); ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = functions[rank](world.communicator(int64_t(rank)));
      world.finish(int64_t(rank));
    });
  }
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

/// Runs the same function on every rank.
std::vector<Result<Tensor>> runAll(int64_t numRanks, const RankFn &function) {
  SimulatedWorld world(numRanks, longTime);
  return runRanks(world, std::vector<RankFn>(numRanks, function));
}

TEST(Collectives, AllReduceSums) {
  for (Result<Tensor> &result : runAll(3, [](Communicator &c) {
         double r = double(c.rank());
         return c.allReduce({0, 1, 2}, ReduceKind::Sum, floats({r, 10 * r}), "here")->wait();
       }))
    EXPECT_THAT(result->toDoubles(), ElementsAre(3, 30));
}

TEST(Collectives, AllReduceTakesTheMaximum) {
  for (Result<Tensor> &result : runAll(3, [](Communicator &c) {
         double r = double(c.rank());
         return c.allReduce({0, 1, 2}, ReduceKind::Max, floats({r, -r}), "here")->wait();
       }))
    EXPECT_THAT(result->toDoubles(), ElementsAre(2, 0));
}

TEST(Collectives, MaximaAndMinimaKeepNan) {
  for (ReduceKind kind : {ReduceKind::Max, ReduceKind::Min})
    for (Result<Tensor> &result : runAll(3, [&](Communicator &c) {
           auto of = [&](int rank) { return c.rank() == rank ? std::nan("") : 1; };
           return c.allReduce({0, 1, 2}, kind, floats({of(0), of(1), of(2)}), "here")->wait();
         }))
      for (double value : result->toDoubles())
        EXPECT_TRUE(std::isnan(value));
}

TEST(Collectives, SumsAreTakenInGroupOrderAndRoundedOnce) {
  // In double 2^60 + 1 - 2^60 is 0; in another order it is 1.
  double big = 1152921504606846976.0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (Result<Tensor> &result : runAll(3, [&](Communicator &c) {
           std::vector<double> terms = {big, 1, -big};
           return c.allReduce({0, 1, 2}, ReduceKind::Sum, floats({terms[c.rank()]}), "here")
               ->wait();
         }))
      EXPECT_THAT(result->toDoubles(), ElementsAre(0));
  }
}

TEST(Collectives, AllGatherFollowsTheGroupsOrder) {
  for (Result<Tensor> &result : runAll(3, [](Communicator &c) {
         return c.allGather({2, 0, 1}, floats({double(c.rank())}), "here")->wait();
       }))
    EXPECT_THAT(result->toDoubles(), ElementsAre(2, 0, 1));
}

TEST(Collectives, ReduceScatterKeepsAShareOfTheSum) {
  auto results = runAll(2, [](Communicator &c) {
    return c.reduceScatter({0, 1}, floats({1, 2, 3, 4}), "here")->wait();
  });
  EXPECT_THAT(results[0]->toDoubles(), ElementsAre(2, 4));
  EXPECT_THAT(results[1]->toDoubles(), ElementsAre(6, 8));
}

TEST(Collectives, AllToAllTransposes) {
  auto results = runAll(2, [](Communicator &c) {
    double r = 10 * double(c.rank());
    return c.allToAll({0, 1}, floats({r, r + 1, r + 2, r + 3}), "here")->wait();
  });
  EXPECT_THAT(results[0]->toDoubles(), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(results[1]->toDoubles(), ElementsAre(2, 3, 12, 13));
}

TEST(Collectives, WorkOnResiduesAndIntegers) {
  for (Result<Tensor> &result : runAll(2, [](Communicator &c) {
         Tensor third =
             Tensor({DType::F32, {1}}, std::vector<Residue>{inverse(Residue::fromInt(3))});
         return c.allReduce({0, 1}, ReduceKind::Sum, third, "here")->wait();
       }))
    EXPECT_EQ(result->data<Residue>()[0] * Residue::fromInt(3), Residue::fromInt(2));
  for (Result<Tensor> &result : runAll(2, [](Communicator &c) {
         return c
             .allReduce({0, 1}, ReduceKind::Max, Tensor::fromInts({DType::I32, {1}}, {c.rank()}),
                        "here")
             ->wait();
       }))
    EXPECT_EQ(result->data<int64_t>()[0], 1);
}

TEST(Collectives, GroupsDoNotDisturbEachOther) {
  auto results = runAll(4, [](Communicator &c) {
    Group row = c.rank() < 2 ? Group{0, 1} : Group{2, 3};
    Group column = c.rank() % 2 ? Group{1, 3} : Group{0, 2};
    Tensor sum = *c.allReduce(row, ReduceKind::Sum, floats({double(c.rank())}), "row")->wait();
    return c.allReduce(column, ReduceKind::Sum, sum, "column")->wait();
  });
  for (Result<Tensor> &result : results)
    EXPECT_THAT(result->toDoubles(), ElementsAre(6));
}

TEST(Messages, ArriveInOrderWithoutTheSenderWaiting) {
  SimulatedWorld world(2, longTime);
  auto results =
      runRanks(world, {[](Communicator &c) -> Result<Tensor> {
                         for (int i = 0; i < 3; ++i)
                           EXPECT_TRUE(c.send(1, i, floats({double(i)}), "send")->wait());
                         return c.recv(1, 9, {DType::F32, {1}}, "recv")->wait();
                       },
                       [](Communicator &c) -> Result<Tensor> {
                         EXPECT_TRUE(c.send(0, 9, floats({7}), "send")->wait());
                         Result<Tensor> last = Tensor();
                         for (int i = 0; i < 3; ++i)
                           last = c.recv(0, i, {DType::F32, {1}}, "recv")->wait();
                         return last;
                       }});
  EXPECT_THAT(results[0]->toDoubles(), ElementsAre(7));
  EXPECT_THAT(results[1]->toDoubles(), ElementsAre(2));
}

TEST(Barrier, HoldsUntilAllAreThere) {
  std::atomic<int> arrived = 0;
  runAll(4, [&](Communicator &c) {
    ++arrived;
    Result<Tensor> result = c.barrier({0, 1, 2, 3}, "barrier")->wait();
    EXPECT_EQ(arrived, 4);
    return result;
  });
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

TEST(Failure, CallsThatDoNotMatchNameBothSides) {
  struct Case {
    const char *what;
    RankFn first, second;
    const char *expected;
  };
  Group all = {0, 1};
  auto reduce = [all](std::vector<double> values, ReduceKind kind = ReduceKind::Sum) {
    return [=](Communicator &c) {
      return c.allReduce(all, kind, floats(values), "place " + std::to_string(c.rank()))->wait();
    };
  };
  auto gather = [all](Communicator &c) {
    return c.allGather(all, floats({1}), "place " + std::to_string(c.rank()))->wait();
  };
  std::vector<Case> cases = {
      {"kind", reduce({1}), gather, "all_gather of 1xf32"},
      {"size", reduce({1}), reduce({1, 2}), "all_reduce sum of 2xf32"},
      {"reduction", reduce({1}), reduce({1}, ReduceKind::Max), "all_reduce max of 1xf32"},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(test.what);
    SimulatedWorld world(2, longTime);
    auto results = runRanks(world, {test.first, test.second});
    for (Result<Tensor> &result : results) {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, ErrorCode::RankFailed);
      for (const char *part : {"place 0", "place 1", "all_reduce sum of 1xf32", test.expected})
        EXPECT_THAT(result.error().message, HasSubstr(part));
    }
  }
}

TEST(Failure, AMessageOfAnotherTagOrTypeNamesBothSides) {
  for (kernels::TensorType type :
       {kernels::TensorType{DType::F32, {1}}, kernels::TensorType{DType::F32, {2}}}) {
    SimulatedWorld world(2, longTime);
    auto results = runRanks(
        world, {[](Communicator &c) { return c.send(1, 3, floats({1}), "the send")->wait(); },
                [&](Communicator &c) {
                  int64_t tag = type.shape[0] == 1 ? 4 : 3;
                  return c.recv(0, tag, type, "the recv")->wait();
                }});
    ASSERT_FALSE(results[1]);
    EXPECT_THAT(results[1].error().message, HasSubstr("the send"));
    EXPECT_THAT(results[1].error().message, HasSubstr("the recv"));
  }
}

TEST(Failure, AFailingRankWakesTheOthersAtOnce) {
  SimulatedWorld world(3, longTime);
  auto begin = std::chrono::steady_clock::now();
  RankFn waits = [](Communicator &c) {
    return c.allReduce({0, 1, 2}, ReduceKind::Sum, floats({1}), "here")->wait();
  };
  auto results = runRanks(world, {waits, waits, [&](Communicator &c) -> Result<Tensor> {
                                    world.fail(c.rank(), {ErrorCode::RankFailed, "out of luck"});
                                    return Tensor();
                                  }});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, longTime / 4);
  for (int rank : {0, 1}) {
    ASSERT_FALSE(results[rank]);
    EXPECT_THAT(results[rank].error().message, HasSubstr("rank 2: out of luck"));
  }
  EXPECT_EQ(world.status().error().code, ErrorCode::RankFailed);
}

TEST(Hang, ARankThatFinishedIsMissedAtOnceAndByName) {
  SimulatedWorld world(3, longTime);
  auto begin = std::chrono::steady_clock::now();
  RankFn waits = [](Communicator &c) {
    return c.allReduce({0, 1, 2}, ReduceKind::Sum, floats({1}), "instruction 7")->wait();
  };
  auto results = runRanks(world, {waits, [](Communicator &) { return Tensor(); }, waits});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, longTime / 4);
  for (int rank : {0, 2}) {
    ASSERT_FALSE(results[rank]);
    EXPECT_EQ(results[rank].error().code, ErrorCode::HangDetected);
    EXPECT_THAT(results[rank].error().message, HasSubstr("instruction 7"));
    EXPECT_THAT(results[rank].error().message, HasSubstr("for rank 1"));
  }
}

TEST(Hang, RanksThatWaitForEachOtherAreFoundAtOnce) {
  SimulatedWorld world(2, longTime);
  auto waitsFor = [](int64_t from) {
    return [from](Communicator &c) {
      return c.recv(from, 0, {DType::F32, {1}}, "recv " + std::to_string(from))->wait();
    };
  };
  auto results = runRanks(world, {waitsFor(1), waitsFor(0)});
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().code, ErrorCode::HangDetected);
  EXPECT_THAT(results[0].error().message, HasSubstr("rank 0 waits at recv 1"));
  EXPECT_THAT(results[0].error().message, HasSubstr("rank 1 waits at recv 0"));
}

TEST(Hang, ARankThatComputesForeverIsMissedAfterTheTimeOut) {
  SimulatedWorld world(2, shortTime);
  std::atomic<bool> isOver = false;
  auto results = runRanks(world, {[&](Communicator &c) {
                                    auto result = c.barrier({0, 1}, "the barrier")->wait();
                                    isOver = true;
                                    return result;
                                  },
                                  [&](Communicator &) {
                                    while (!isOver)
                                      std::this_thread::sleep_for(milliseconds(1));
                                    return Tensor();
                                  }});
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().code, ErrorCode::HangDetected);
  EXPECT_THAT(results[0].error().message, HasSubstr("rank 1 has made no call yet"));
}

} // namespace
} // namespace tbc::comm
