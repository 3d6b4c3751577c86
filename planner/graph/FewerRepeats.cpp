//===- FewerRepeats.cpp - A graph with fewer of its repeated blocks --------===//

#include "planner/graph/FewerRepeats.h"
#include "planner/graph/Fold.h"
#include "planner/graph/Stages.h"
#include "planner/reshard/Recompute.h"

#include <algorithm>
#include <cassert>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The occurrences that stay: the third stands for the removed ones, which end before the last two.
constexpr int representative = 2, lastKept = 2;

/// Returns the block with the most ops in occurrences, or one of a single occurrence.
Block largestBlock(const Graph &graph) {
  Block best;
  for (const Block &block : foldBlocks(graph))
    if (block.count > representative + 1 + lastKept &&
        block.count * block.length > best.count * best.length)
      best = block;
  return best;
}

bool haveEqualLoops(const GraphOp &a, const GraphOp &b) {
  auto areEqual = [](const std::vector<TensorDim> &x, const std::vector<TensorDim> &y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](TensorDim p, TensorDim q) {
      return p.tensor == q.tensor && p.dim == q.dim;
    });
  };
  return std::equal(a.loops.begin(), a.loops.end(), b.loops.begin(), b.loops.end(),
                    [&](const Loop &x, const Loop &y) {
                      return x.size == y.size && x.kind == y.kind && x.isReduced == y.isReduced &&
                             areEqual(x.operandDims, y.operandDims) &&
                             areEqual(x.resultDims, y.resultDims);
                    });
}

bool haveEqualSizes(const GraphValue &a, const GraphValue &b) {
  return a.role == b.role && a.dtype == b.dtype && a.layout.elementBytes == b.layout.elementBytes &&
         a.layout.shape() == b.layout.shape();
}

/// Removes occurrences of one block.
class Remover {
public:
  Remover(const Graph &graph, const Block &block)
      : graph(graph), block(block), anchors(forwardAnchors(graph)), place(graph.ops.size(), -1),
        ops(size_t(block.count)) {
    for (int op = 0; op < int(graph.ops.size()); ++op)
      if (int at = occurrence(op); at >= 0) {
        place[size_t(op)] = int(ops[size_t(at)].size());
        ops[size_t(at)].push_back(op);
      }
  }

  std::optional<FewerRepeats> run() {
    for (int i = 1; i + 2 < block.count; ++i)
      if (!areAlike(i, i + 1))
        return std::nullopt;
    for (auto [state, updated] : graph.stateUpdates)
      if (isInBlock(state) || isInBlock(updated))
        return std::nullopt;
    copyValues();
    for (int op = 0; op < int(graph.ops.size()) && isPossible; ++op)
      if (!isRemoved(op))
        copyOp(op);
    copyRest();
    if (!isPossible)
      return std::nullopt;
    mapForward();
    return std::move(result);
  }

private:
  /// The occurrence with the op's anchor, or -1.
  int occurrence(int op) const {
    const int at = anchors[size_t(op)] - block.first;
    return at < 0 || at >= block.length * block.count ? -1 : at / block.length;
  }
  int occurrenceOfValue(int value) const {
    const int producer = graph.values[size_t(value)].producer;
    return producer < 0 ? -1 : occurrence(producer);
  }
  bool isRemovedOccurrence(int i) const { return i > representative && i < block.count - lastKept; }
  bool isRemoved(int op) const { return isRemovedOccurrence(occurrence(op)); }

  /// Whether an op of the block reads or makes the value.
  bool isInBlock(int value) const {
    const std::vector<int> &users = graph.values[size_t(value)].users;
    return occurrenceOfValue(value) >= 0 ||
           std::any_of(users.begin(), users.end(), [&](int user) { return occurrence(user) >= 0; });
  }

  /// Whether occurrences `i` and `i + 1` have the same ops on corresponding operands.
  bool areAlike(int i, int next) const {
    const std::vector<int> &here = ops[size_t(i)], &there = ops[size_t(next)];
    if (here.size() != there.size())
      return false;
    for (size_t k = 0; k < here.size(); ++k) {
      const GraphOp &a = graph.ops[size_t(here[k])], &b = graph.ops[size_t(there[k])];
      if (a.kind != b.kind || a.phase != b.phase || a.kernelClass != b.kernelClass ||
          a.flops != b.flops || a.additive != b.additive || a.generator != b.generator ||
          a.expertLoop != b.expertLoop || a.routing.copies != b.routing.copies ||
          a.operands.size() != b.operands.size() || a.results.size() != b.results.size() ||
          !haveEqualLoops(a, b))
        return false;
      for (size_t r = 0; r < a.results.size(); ++r)
        if (!haveEqualSizes(graph.values[size_t(a.results[r])], graph.values[size_t(b.results[r])]))
          return false;
      for (size_t o = 0; o < a.operands.size(); ++o)
        if (!correspond(a.operands[o], b.operands[o], i))
          return false;
    }
    return true;
  }

  /// Whether what `v` is to occurrence `i`, `w` is to the next one.
  bool correspond(int v, int w, int i) const {
    const GraphValue &a = graph.values[size_t(v)], &b = graph.values[size_t(w)];
    if (!haveEqualSizes(a, b))
      return false;
    const int at = occurrenceOfValue(v);
    if (at < 0)
      return v == w || (a.producer < 0 && b.producer < 0 && a.role == ValueRole::Parameter);
    if (v == w) // of the first occurrence, for all: a table of positions
      return at == 0;
    if (std::abs(at - i) > 1 || occurrenceOfValue(w) != at + 1 ||
        a.producerResult != b.producerResult)
      return false;
    // The backward of the last occurrence may have other ops.
    const bool isLast = at + 1 == block.count - 1;
    return (isLast && graph.ops[size_t(a.producer)].phase != Phase::Forward) ||
           place[size_t(a.producer)] == place[size_t(b.producer)];
  }

  void copyValues() {
    valueOf.assign(graph.values.size(), -1);
    for (int v = 0; v < int(graph.values.size()); ++v) {
      const GraphValue &value = graph.values[size_t(v)];
      const bool isKept =
          value.producer >= 0
              ? !isRemoved(value.producer)
              : value.users.empty() || std::any_of(value.users.begin(), value.users.end(),
                                                   [&](int user) { return !isRemoved(user); });
      if (!isKept)
        continue;
      valueOf[size_t(v)] = int(result.graph.values.size());
      result.graph.values.push_back(value);
      result.graph.values.back().users.clear();
    }
  }

  /// Returns the new number of a value for an op of the occurrence `reader`. Those beside the gap
  /// read the other side of it instead.
  int mapped(int value, int reader) {
    if (value < 0 || valueOf[size_t(value)] >= 0)
      return value < 0 ? -1 : valueOf[size_t(value)];
    const int after = block.count - lastKept, at = occurrenceOfValue(value);
    const int producer = graph.values[size_t(value)].producer;
    int other = -1;
    if (reader == after && at == after - 1)
      other = representative;
    else if (reader == representative && at == representative + 1)
      other = after;
    if (other < 0 || producer < 0) {
      isPossible = false;
      return -1;
    }
    const int twin = ops[size_t(other)][size_t(place[size_t(producer)])];
    const int instead =
        graph.ops[size_t(twin)].results[size_t(graph.values[size_t(value)].producerResult)];
    // The reader's loops have the factors of the original value.
    isPossible &=
        graph.values[size_t(instead)].layout.dims == graph.values[size_t(value)].layout.dims;
    return valueOf[size_t(instead)];
  }

  void copyOp(int index) {
    const int number = int(result.graph.ops.size()), reader = occurrence(index);
    newOp.resize(graph.ops.size(), -1);
    newOp[size_t(index)] = number;
    result.opOf.push_back(index);
    GraphOp op = graph.ops[size_t(index)];
    for (int &value : op.operands) {
      value = mapped(value, reader);
      if (!isPossible)
        return;
      std::vector<int> &users = result.graph.values[size_t(value)].users;
      if (users.empty() || users.back() != number)
        users.push_back(number);
    }
    for (int &value : op.results) {
      value = valueOf[size_t(value)];
      GraphValue &made = result.graph.values[size_t(value)];
      made.producer = number;
      made.cotangentOf = mapped(made.cotangentOf, reader);
    }
    if (op.forwardOp >= 0)
      op.forwardOp = newOp[size_t(op.forwardOp)];
    isPossible &= graph.ops[size_t(index)].forwardOp < 0 || op.forwardOp >= 0;
    result.graph.ops.push_back(std::move(op));
  }

  void copyRest() {
    for (const GraphParameter &parameter : graph.parameters) {
      if (valueOf[size_t(parameter.value)] < 0)
        continue;
      const int gradient = parameter.gradient < 0 ? -1 : valueOf[size_t(parameter.gradient)];
      isPossible &= parameter.gradient < 0 || gradient >= 0;
      result.graph.parameters.push_back(
          {valueOf[size_t(parameter.value)], gradient, parameter.moments, parameter.matrices});
    }
    auto keep = [&](int value) {
      isPossible &= value < 0 || valueOf[size_t(value)] >= 0;
      return value < 0 ? -1 : valueOf[size_t(value)];
    };
    for (auto [state, updated] : graph.stateUpdates)
      result.graph.stateUpdates.push_back({keep(state), keep(updated)});
    result.graph.loss = keep(graph.loss);
    result.graph.count = keep(graph.count);
    result.graph.stepTotalBytes = graph.stepTotalBytes;
    result.graph.stepStateBytes = graph.stepStateBytes;
    result.graph.batchFactor = graph.batchFactor;
    result.graph.sequenceFactor = graph.sequenceFactor;
  }

  void mapForward() {
    for (int op = 0; op < numForwardOps(graph); ++op) {
      const int at = occurrence(op);
      const bool isMiddle = at >= 1 && at + 1 < block.count;
      const int like = isMiddle ? ops[representative][size_t(place[size_t(op)])] : op;
      result.sameAs.push_back(like);
      result.likeOf.push_back(newOp[size_t(isRemovedOccurrence(at) ? like : op)]);
    }
  }

  const Graph &graph;
  const Block block;
  const std::vector<int> anchors;
  std::vector<int> place;            // by op: its place among the ops of its occurrence
  std::vector<std::vector<int>> ops; // by occurrence
  std::vector<int> valueOf, newOp;   // by value and op of the original: the new one, or -1
  FewerRepeats result;
  bool isPossible = true;
};

} // namespace

std::optional<FewerRepeats> withFewerRepeats(const Graph &graph) {
  const Block block = largestBlock(graph);
  if (block.count == 1)
    return std::nullopt;
  return Remover(graph, block).run();
}

} // namespace tbc::planner
