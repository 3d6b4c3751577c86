//===- Solver.h - Minimum-cost choice of strategies -----------------------===//
//
// Plain C++. Minimizes a sum of costs on nodes and on pairs of nodes, with a few choices per node.
// Exact by variable elimination if the tables stay small, else message passing with a proven bound.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLACE_SOLVER_H
#define TBC_PLANNER_PLACE_SOLVER_H

#include <cstddef>
#include <vector>

namespace tbc::planner {

/// Costs are finite or +infinity (forbidden).
struct PairwiseProblem {
  struct Edge {
    int a = 0, b = 0;          // two different nodes
    std::vector<double> costs; // costs[i * choices(b) + j]
  };
  std::vector<std::vector<double>> nodeCosts; // at least one choice per node
  std::vector<Edge> edges;                    // parallel edges add up
};

struct PairwiseSolution {
  std::vector<int> choices;
  double cost = 0;
  double lowerBound = 0; // equal to cost if exact
  bool exact = false;
  double compared = 0; // pairs of choices of neighbouring nodes
};

double costOf(const PairwiseProblem &problem, const std::vector<int> &choices);

/// Returns the cheapest choices; deterministic among equal ones. Example: node costs {0, 3} and {0,
/// 3} with an edge cost of 5 for equal choices give cost 3.
///
/// Eliminates variables in min-degree order (the node whose neighbours span the smallest table
/// first; Bertele and Brioschi 1972). If a table would exceed `maxTable` entries: max-product
/// linear programming (Globerson and Jaakkola, NIPS 2007) with its dual as the lower bound, then
/// iterated conditional modes.
PairwiseSolution solve(const PairwiseProblem &problem, size_t maxTable = size_t(1) << 20);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLACE_SOLVER_H
