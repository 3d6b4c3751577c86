//===- random_graphs_test.cpp - Random plans on random graphs -------------===//
//
// Random graphs under random plans. Residues equal the serial program's bit for bit. The
// collectives equal those derived from the shardings of single ops (`IndependentCollectives`).
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/support/FullTests.h"
#include "tests/tools/IndependentCollectives.h"
#include "tests/tools/RandomModel.h"
#include "tests/tools/RandomPlan.h"
#include "tools/driver/Verify.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

using namespace tbc;

namespace {

/// Counts over all plans.
struct Tried {
  int64_t graphs = 0, ops = 0, plans = 0, collectives = 0;
  std::set<std::string> schedules, meshes;
};

void tryPlan(driver::TrainingStep &step, const planner::Plan &plan, Tried &tried) {
  auto compiled = driver::compilePlan(step, plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(test::signatureDifference(*compiled, plan), "");

  auto data = driver::makeRunData(step, plan, 1, kernels::Arith::Residue61, 7);
  ASSERT_TRUE(data) << data.error().message;
  auto serial = driver::runSerial(step, plan, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(serial) << serial.error().message;
  auto parallel = driver::runParallel(compiled->program, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(parallel) << parallel.error().message;
  for (const driver::Comparison &line : driver::compareExactly(*serial, *parallel))
    EXPECT_TRUE(line.equal) << "residue differs: " << line.name;
  ++tried.plans;
  for (const reshard::CollectiveCount &line : compiled->predicted)
    tried.collectives += line.count;
  tried.schedules.insert(planner::scheduleText(plan));
  tried.meshes.insert(planner::toString(plan.mesh));
}

constexpr int numShares = 8; // CTest may run them side by side
constexpr int plansPerGraph = 5;

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, ParallelEqualsSerial) {
  // 2,000 plans on 400 graphs with TBC_FULL_TESTS.
  const int numGraphs = test::sampleSize(10, 50);
  const char *only = std::getenv("TBC_RANDOM_GRAPH"); // the number of one graph, to repeat it
  Tried tried;
  for (int i = 0; i < numGraphs; ++i) {
    uint64_t seed = uint64_t(GetParam() + numShares * i);
    if (only && std::to_string(seed) != only)
      continue;
    SCOPED_TRACE("graph " + std::to_string(seed));
    auto model = test::makeRandomModel(seed);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_GE(model->numOps, 20);
    EXPECT_LE(model->numOps, 60);
    ++tried.graphs;
    tried.ops += model->numOps;
    for (uint64_t number = 0; number < plansPerGraph; ++number) {
      planner::Plan plan = test::randomPlan(*model->step, 8, seed * 1000 + number);
      SCOPED_TRACE("plan " + std::to_string(number) + ": " + test::describe(plan));
      tryPlan(*model->step, plan, tried);
    }
    if (HasFailure()) {
      std::cout << model->text;
      return;
    }
  }
  if (tried.graphs == 0)
    return;
  std::cout << tried.plans << " plans on " << tried.graphs << " graphs of "
            << tried.ops / tried.graphs << " ops on average, " << tried.meshes.size() << " meshes, "
            << tried.schedules.size() << " schedules, " << tried.collectives << " collectives\n";
}

INSTANTIATE_TEST_SUITE_P(Shares, RandomGraphs, testing::Range(0, numShares));

} // namespace
