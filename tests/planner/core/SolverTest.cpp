//===- SolverTest.cpp - Exact choice against brute force -------------------===//

#include "planner/place/Solver.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

using namespace tbc::planner;

static PairwiseProblem randomProblem(std::mt19937_64 &random, int nodes, double density,
                                     double forbidden) {
  auto uniform = [&] { return double(random() % 1000003) / 1000003; };
  PairwiseProblem problem;
  for (int node = 0; node < nodes; ++node) {
    problem.nodeCosts.emplace_back();
    for (size_t choice = 0; choice < 1 + random() % 4; ++choice)
      problem.nodeCosts.back().push_back(uniform());
  }
  for (int a = 0; a < nodes; ++a)
    for (int b = 0; b < nodes; ++b) {
      if (a == b || uniform() > density)
        continue;
      PairwiseProblem::Edge edge{a, b, {}};
      size_t entries = problem.nodeCosts[a].size() * problem.nodeCosts[b].size();
      for (size_t i = 0; i < entries; ++i)
        edge.costs.push_back(
            i > 0 && uniform() < forbidden ? std::numeric_limits<double>::infinity() : uniform());
      problem.edges.push_back(std::move(edge));
    }
  return problem;
}

static double bruteForce(const PairwiseProblem &problem) {
  std::vector<int> choices(problem.nodeCosts.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    best = std::min(best, costOf(problem, choices));
    size_t node = 0;
    while (node < choices.size() && ++choices[node] == int(problem.nodeCosts[node].size()))
      choices[node++] = 0;
    if (node == choices.size())
      return best;
  }
}

TEST(Solver, EqualsBruteForceOnRandomGraphs) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    PairwiseProblem problem =
        randomProblem(random, 1 + int(random() % 8), 0.1 + 0.1 * double(random() % 5), 0.2);
    PairwiseSolution solution = solve(problem);
    EXPECT_TRUE(solution.exact);
    double best = bruteForce(problem);
    if (std::isinf(best))
      EXPECT_TRUE(std::isinf(solution.cost));
    else
      EXPECT_NEAR(solution.cost, best, 1e-12) << "round " << round;
  }
}

TEST(Solver, BoundsWhatItCannotSolveExactly) {
  std::mt19937_64 random(2);
  int optimal = 0;
  for (int round = 0; round < 100; ++round) {
    PairwiseProblem problem = randomProblem(random, 7, 0.4, 0);
    PairwiseSolution solution = solve(problem, /*maxTable=*/4);
    double best = bruteForce(problem);
    if (solution.exact)
      continue;
    EXPECT_LE(solution.lowerBound, best + 1e-12);
    EXPECT_GE(solution.cost, best - 1e-12);
    EXPECT_NEAR(solution.cost, costOf(problem, solution.choices), 1e-12);
    optimal += solution.cost < best + 1e-12;
  }
  EXPECT_GT(optimal, 20);
}

TEST(Solver, LongChainsWithSkipsStayExact) {
  std::mt19937_64 random(3);
  PairwiseProblem problem;
  constexpr int nodes = 2000;
  for (int node = 0; node < nodes; ++node)
    problem.nodeCosts.push_back({double(random() % 100), double(random() % 100), 50, 60, 70});
  for (int node = 0; node + 3 < nodes; ++node)
    for (int step : {1, 3}) {
      PairwiseProblem::Edge edge{node, node + step, {}};
      for (int i = 0; i < 25; ++i)
        edge.costs.push_back(double(random() % 100));
      problem.edges.push_back(std::move(edge));
    }
  PairwiseSolution solution = solve(problem);
  EXPECT_TRUE(solution.exact);
  EXPECT_EQ(solution.choices, solve(problem).choices);
  // No single change helps.
  std::vector<int> choices = solution.choices;
  for (int node = 0; node < nodes; node += 37)
    for (int choice = 0; choice < 5; ++choice) {
      std::swap(choices[node], choice);
      EXPECT_GE(costOf(problem, choices), solution.cost - 1e-9);
      std::swap(choices[node], choice);
    }
}
