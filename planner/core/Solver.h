//===- Solver.h - The cheapest choice of strategies ------------------------===//
//
// Plain C++. Nodes with a few choices each, costs on nodes and on pairs of nodes: the minimum,
// exactly by variable elimination where the tables stay small, else by message passing with a
// proven bound.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_SOLVER_H
#define TBC_PLANNER_CORE_SOLVER_H

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
  std::vector<Edge> edges;                    // several between the same nodes add up
};

struct PairwiseSolution {
  std::vector<int> choices;
  double cost = 0;
  double lowerBound = 0; // equal to cost where exact
  bool exact = false;
  double compared = 0; // choices of a node beside those of its neighbours
};

double costOf(const PairwiseProblem &problem, const std::vector<int> &choices);

/// The cheapest choices; among equal ones the same at every call.
///
/// Variable elimination in min-degree order (the node whose neighbours span the smallest table
/// first; Bertele and Brioschi 1972). Where a table would exceed `maxTable` entries: max-product
/// linear programming (Globerson and Jaakkola, NIPS 2007), whose dual is the lower bound, then
/// iterated conditional modes.
PairwiseSolution solve(const PairwiseProblem &problem, size_t maxTable = size_t(1) << 20);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SOLVER_H
