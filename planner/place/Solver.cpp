//===- Solver.cpp - The cheapest choice of strategies ----------------------===//

#include "planner/place/Solver.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <set>

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

double costOf(const PairwiseProblem &problem, const std::vector<int> &choices) {
  double cost = 0;
  for (size_t node = 0; node < problem.nodeCosts.size(); ++node)
    cost += problem.nodeCosts[node][choices[node]];
  for (const PairwiseProblem::Edge &edge : problem.edges)
    cost += edge.costs[choices[edge.a] * problem.nodeCosts[edge.b].size() + choices[edge.b]];
  return cost;
}

namespace {

/// A cost over the choices of some nodes, the last of `nodes` running fastest.
struct Table {
  std::vector<int> nodes; // ascending
  std::vector<double> costs;
};

/// Variable elimination: removes nodes one by one, and leaves a table over their neighbours.
class Elimination {
public:
  Elimination(const PairwiseProblem &problem, size_t maxTable)
      : problem(problem), maxTable(maxTable), numNodes(problem.nodeCosts.size()),
        neighbours(numNodes), tablesOf(numNodes) {
    for (size_t node = 0; node < numNodes; ++node)
      addTable({{int(node)}, problem.nodeCosts[node]});
    for (const PairwiseProblem::Edge &edge : problem.edges)
      addTable(orderedEdge(edge));
    for (size_t node = 0; node < numNodes; ++node)
      queue.insert({tableSize(node), int(node)});
  }

  /// Returns false if a table would exceed the limit.
  bool run(PairwiseSolution &solution) {
    while (!queue.empty()) {
      auto [size, node] = *queue.begin();
      if (size > double(maxTable))
        return false;
      queue.erase(queue.begin());
      eliminate(node);
    }
    solution.compared = compared;
    solution.choices.assign(numNodes, 0);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      size_t index = 0;
      for (int neighbour : step->scope)
        index = index * numChoices(neighbour) + solution.choices[neighbour];
      solution.choices[step->node] = step->best[index];
    }
    return true;
  }

private:
  struct Step {
    int node;
    std::vector<int> scope;
    std::vector<int> best; // the node's best choice for every choice of `scope`
  };

  size_t numChoices(int node) const { return problem.nodeCosts[node].size(); }

  double tableSize(int node) const {
    double size = double(numChoices(node));
    for (int neighbour : neighbours[node])
      size *= double(numChoices(neighbour));
    return size;
  }

  Table orderedEdge(const PairwiseProblem::Edge &edge) const {
    assert(edge.a != edge.b && "an edge joins two nodes");
    if (edge.a < edge.b)
      return {{edge.a, edge.b}, edge.costs};
    size_t rows = numChoices(edge.a), columns = numChoices(edge.b);
    Table table{{edge.b, edge.a}, std::vector<double>(rows * columns)};
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        table.costs[j * rows + i] = edge.costs[i * columns + j];
    return table;
  }

  void addTable(Table table) {
    int index = int(tables.size());
    for (int node : table.nodes) {
      tablesOf[node].push_back(index);
      for (int other : table.nodes)
        if (other != node)
          neighbours[node].insert(other);
    }
    tables.push_back(std::move(table));
  }

  /// Consecutive nodes of a scope, as one index into a table. The stride is 0 for nodes that the
  /// table lacks.
  struct Axis {
    size_t size = 1, stride = 0;
  };

  /// Returns the axes of `scope` in `table`, as few as possible. Example: a table over (b, d) in
  /// the scope (a, b, c, d) has four, and in (a, c, b, d) two.
  std::vector<Axis> axesOf(const Table &table, const std::vector<int> &scope) const {
    std::vector<size_t> strides(scope.size(), 0);
    size_t step = 1;
    for (size_t i = table.nodes.size(); i-- > 0; step *= numChoices(table.nodes[i]))
      strides[std::find(scope.begin(), scope.end(), table.nodes[i]) - scope.begin()] = step;
    std::vector<Axis> axes;
    for (size_t i = 0; i < scope.size(); ++i) {
      size_t size = numChoices(scope[i]);
      if (size > 1 && !axes.empty() && axes.back().stride == strides[i] * size)
        axes.back() = {axes.back().size * size, strides[i]};
      else if (size > 1)
        axes.push_back({size, strides[i]});
    }
    return axes;
  }

  /// Adds `table` to `sum`, whose scope contains the table's.
  void accumulate(const Table &table, const std::vector<int> &scope,
                  std::vector<double> &sum) const {
    std::vector<Axis> axes = axesOf(table, scope);
    Axis inner;
    if (!axes.empty()) {
      inner = axes.back();
      axes.pop_back();
    }
    std::vector<size_t> choice(axes.size(), 0);
    const double *cost = table.costs.data();
    for (size_t first = 0; first < sum.size(); first += inner.size) {
      for (size_t i = 0; i < inner.size; ++i)
        sum[first + i] += cost[i * inner.stride];
      for (size_t i = axes.size(); i-- > 0;) {
        cost += axes[i].stride;
        if (++choice[i] < axes[i].size)
          break;
        cost -= axes[i].stride * choice[i];
        choice[i] = 0;
      }
    }
  }

  /// Minimizes over the choices of `node`. Leaves a table over its neighbours, and remembers its
  /// best choice for each of their choices.
  void eliminate(int node) {
    Step step{node, {neighbours[node].begin(), neighbours[node].end()}, {}};
    std::vector<int> scope = step.scope;
    scope.push_back(node); // runs fastest
    size_t rows = 1;
    for (int neighbour : step.scope)
      rows *= numChoices(neighbour);
    std::vector<double> sum(rows * numChoices(node), 0);
    compared += double(sum.size());
    for (int index : tablesOf[node])
      accumulate(tables[index], scope, sum);

    Table message{step.scope, std::vector<double>(rows)};
    step.best.resize(rows);
    for (size_t row = 0; row < rows; ++row) {
      auto first = sum.begin() + row * numChoices(node);
      auto best = std::min_element(first, first + numChoices(node));
      message.costs[row] = *best;
      step.best[row] = int(best - first);
    }
    retire(node, std::move(message));
    steps.push_back(std::move(step));
  }

  /// Replaces the tables of an eliminated node by `message`.
  void retire(int node, Table message) {
    std::vector<int> scope = message.nodes;
    for (int neighbour : scope)
      queue.erase({tableSize(neighbour), neighbour});
    std::vector<int> dead = tablesOf[node];
    for (int index : dead) {
      for (int other : tables[index].nodes) {
        auto &list = tablesOf[other];
        list.erase(std::find(list.begin(), list.end(), index));
      }
      tables[index].costs.clear();
    }
    for (int neighbour : scope)
      neighbours[neighbour].erase(node);
    if (!scope.empty())
      addTable(std::move(message));
    for (int neighbour : scope)
      queue.insert({tableSize(neighbour), neighbour});
  }

  const PairwiseProblem &problem;
  size_t maxTable;
  size_t numNodes;
  std::vector<std::set<int>> neighbours;
  std::vector<std::vector<int>> tablesOf;
  std::vector<Table> tables;
  std::set<std::pair<double, int>> queue; // by table size, then number
  std::vector<Step> steps;
  double compared = 0;
};

/// Max-product linear programming: every edge in turn hands half of its slack to each end.
class MessagePassing {
public:
  explicit MessagePassing(const PairwiseProblem &original) : problem(original) {
    // Messages subtract costs, so a forbidden choice gets a cost above the sum of all others.
    double total = 1;
    forEachCost([&](double &cost) {
      if (std::isfinite(cost))
        total += std::abs(cost);
    });
    forEachCost([&](double &cost) {
      if (!std::isfinite(cost))
        cost = total;
    });
    beliefs = problem.nodeCosts;
    for (const PairwiseProblem::Edge &edge : problem.edges) {
      toA.emplace_back(problem.nodeCosts[edge.a].size(), 0.0);
      toB.emplace_back(problem.nodeCosts[edge.b].size(), 0.0);
    }
  }

  void run(PairwiseSolution &solution) {
    double bound = lowerBound();
    for (int round = 0; round < 200; ++round) {
      for (size_t edge = 0; edge < problem.edges.size(); ++edge) {
        update(edge);
        solution.compared += double(problem.edges[edge].costs.size());
      }
      double improved = lowerBound();
      if (improved - bound <= 1e-9 * std::abs(bound))
        break;
      bound = improved;
    }
    solution.lowerBound = std::max(bound, lowerBound());
    solution.choices.clear();
    for (const std::vector<double> &belief : beliefs)
      solution.choices.push_back(
          int(std::min_element(belief.begin(), belief.end()) - belief.begin()));
    improve(solution.choices);
  }

private:
  template <typename Function> void forEachCost(Function function) {
    for (std::vector<double> &costs : problem.nodeCosts)
      for (double &cost : costs)
        function(cost);
    for (PairwiseProblem::Edge &edge : problem.edges)
      for (double &cost : edge.costs)
        function(cost);
  }

  /// Recomputes the messages of one edge from the beliefs of its ends.
  void update(size_t index) {
    const PairwiseProblem::Edge &edge = problem.edges[index];
    std::vector<double> &a = beliefs[edge.a], &b = beliefs[edge.b];
    for (size_t i = 0; i < a.size(); ++i)
      a[i] -= toA[index][i];
    for (size_t j = 0; j < b.size(); ++j)
      b[j] -= toB[index][j];
    std::vector<double> bestA(a.size(), infinity), bestB(b.size(), infinity);
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < b.size(); ++j) {
        double cost = edge.costs[i * b.size() + j];
        bestA[i] = std::min(bestA[i], cost + b[j]);
        bestB[j] = std::min(bestB[j], cost + a[i]);
      }
    }
    for (size_t i = 0; i < a.size(); ++i)
      toA[index][i] = (bestA[i] - a[i]) / 2;
    for (size_t j = 0; j < b.size(); ++j)
      toB[index][j] = (bestB[j] - b[j]) / 2;
    for (size_t i = 0; i < a.size(); ++i)
      a[i] += toA[index][i];
    for (size_t j = 0; j < b.size(); ++j)
      b[j] += toB[index][j];
  }

  /// Returns the dual at the current messages: a lower bound for any messages.
  double lowerBound() const {
    double bound = 0;
    for (const std::vector<double> &belief : beliefs)
      bound += *std::min_element(belief.begin(), belief.end());
    for (size_t index = 0; index < problem.edges.size(); ++index) {
      const PairwiseProblem::Edge &edge = problem.edges[index];
      double least = infinity;
      for (size_t i = 0; i < toA[index].size(); ++i)
        for (size_t j = 0; j < toB[index].size(); ++j)
          least = std::min(least,
                           edge.costs[i * toB[index].size() + j] - toA[index][i] - toB[index][j]);
      bound += least;
    }
    return bound;
  }

  /// Iterated conditional modes: one node at a time takes its best choice given the others.
  void improve(std::vector<int> &choices) const {
    std::vector<std::vector<int>> edgesOf(beliefs.size());
    for (size_t index = 0; index < problem.edges.size(); ++index) {
      edgesOf[problem.edges[index].a].push_back(int(index));
      edgesOf[problem.edges[index].b].push_back(int(index));
    }
    bool changed = true;
    for (int round = 0; changed && round < 1000; ++round) {
      changed = false;
      for (size_t node = 0; node < beliefs.size(); ++node) {
        std::vector<double> costs = problem.nodeCosts[node];
        for (int index : edgesOf[node]) {
          const PairwiseProblem::Edge &edge = problem.edges[index];
          size_t columns = problem.nodeCosts[edge.b].size();
          for (size_t i = 0; i < costs.size(); ++i)
            costs[i] += edge.a == int(node) ? edge.costs[i * columns + choices[edge.b]]
                                            : edge.costs[choices[edge.a] * columns + i];
        }
        int best = int(std::min_element(costs.begin(), costs.end()) - costs.begin());
        if (costs[best] < costs[choices[node]]) {
          choices[node] = best;
          changed = true;
        }
      }
    }
  }

  PairwiseProblem problem;
  std::vector<std::vector<double>> beliefs; // node costs plus messages
  std::vector<std::vector<double>> toA, toB;
};

} // namespace

PairwiseSolution solve(const PairwiseProblem &problem, size_t maxTable) {
  PairwiseSolution solution;
  Elimination elimination(problem, maxTable);
  if (elimination.run(solution)) {
    solution.cost = costOf(problem, solution.choices);
    solution.lowerBound = solution.cost;
    solution.exact = true;
    return solution;
  }
  MessagePassing(problem).run(solution);
  solution.cost = costOf(problem, solution.choices);
  return solution;
}

} // namespace tbc::planner
