//===- Recompute.cpp - Clones of forward ops in the backward ---------------===//

#include "planner/reshard/Recompute.h"

#include "planner/reshard/Chunks.h"

#include <map>
#include <set>

namespace tbc::reshard {

/// Adds the flagged ops of chunk `chunk` that produce `value` to `needed`, with their flagged
/// inputs in turn.
static void collect(const Graph &graph, const std::vector<bool> &recompute, int value, int chunk,
                    std::set<int> &needed) {
  std::vector<int> pending{value};
  while (!pending.empty()) {
    int producer = graph.values[pending.back()].producer;
    pending.pop_back();
    if (producer < 0 || graph.ops[producer].phase != Phase::Forward || !recompute[producer] ||
        graph.ops[producer].chunk != chunk || !needed.insert(producer).second)
      continue;
    const GraphOp &op = graph.ops[producer];
    pending.insert(pending.end(), op.operands.begin(), op.operands.end());
  }
}

std::vector<int> reexecutedOps(const Graph &graph, const std::vector<bool> &recompute) {
  std::set<int> needed;
  for (const GraphOp &op : graph.ops)
    if (op.phase == Phase::Backward)
      for (int value : op.operands)
        collect(graph, recompute, value, op.chunk, needed);
  return {needed.begin(), needed.end()};
}

std::vector<ClonedOp> recomputeOrder(const Graph &graph, const std::vector<bool> &recompute) {
  std::vector<ClonedOp> order;
  int numForward = numForwardOps(graph);
  std::set<int> done;
  for (int i = 0; i < int(graph.ops.size()); ++i) {
    std::set<int> needed;
    if (i >= numForward)
      for (int value : graph.ops[i].operands)
        collect(graph, recompute, value, graph.ops[i].chunk, needed);
    for (int forward : needed)
      if (done.insert(forward).second)
        order.push_back({forward, true});
    order.push_back({i, false});
  }
  return order;
}

/// Sets the producer and the users of each value.
static void linkValues(Graph &graph) {
  for (GraphValue &value : graph.values)
    value.users.clear();
  for (int i = 0; i < int(graph.ops.size()); ++i) {
    for (size_t r = 0; r < graph.ops[i].results.size(); ++r) {
      graph.values[graph.ops[i].results[r]].producer = i;
      graph.values[graph.ops[i].results[r]].producerResult = int(r);
    }
    for (int value : graph.ops[i].operands) {
      std::vector<int> &users = graph.values[value].users;
      if (users.empty() || users.back() != i)
        users.push_back(i);
    }
  }
}

Graph withClones(const Graph &graph, const std::vector<ClonedOp> &order, std::vector<int> *cloneOf,
                 std::vector<int> *sourceOf) {
  Graph result = graph;
  result.ops.clear();
  std::vector<int> clones, sources;
  std::map<int, int> cloned; // value -> the clone's value
  for (const ClonedOp &entry : order) {
    GraphOp op = graph.ops[entry.source];
    for (int &value : op.operands)
      if (auto found = cloned.find(value); found != cloned.end())
        value = found->second;
    if (entry.isClone) {
      op.id += cloneSuffix;
      op.phase = Phase::Backward;
      op.forwardOp = entry.source;
      for (int &made : op.results) {
        GraphValue value = graph.values[made];
        value.name += cloneSuffix;
        value.role = ValueRole::Activation;
        cloned[made] = int(result.values.size());
        made = int(result.values.size());
        result.values.push_back(std::move(value));
      }
    }
    result.ops.push_back(std::move(op));
    clones.push_back(entry.isClone ? entry.source : -1);
    sources.push_back(entry.source);
  }
  linkValues(result);
  if (cloneOf)
    *cloneOf = std::move(clones);
  if (sourceOf)
    *sourceOf = std::move(sources);
  return result;
}

Graph withRecompute(const Graph &graph, const std::vector<bool> &recompute,
                    std::vector<int> *cloneOf, std::vector<int> *sourceOf) {
  Graph result = withClones(graph, recomputeOrder(graph, recompute), cloneOf, sourceOf);
  for (int op = 0; op < numForwardOps(graph); ++op) // they stay in front
    result.ops[size_t(op)].isRecomputed = recompute[size_t(op)];
  return result;
}

} // namespace tbc::reshard
