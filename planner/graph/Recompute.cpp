//===- Recompute.cpp - Choice of recomputed forward ops -------------------===//

#include "planner/graph/Recompute.h"
#include "planner/devices/Cluster.h"
#include "planner/graph/Values.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

/// Whether `value` is computed from data by a forward op: neither input nor constant-derived.
static bool isActivation(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  return producer >= 0 && graph.ops[producer].phase == Phase::Forward &&
         !graph.ops[producer].generator;
}

std::vector<int> singleValueCuts(const Graph &graph) {
  int numForward = numForwardOps(graph);
  std::vector<std::vector<int>> starts(numForward), ends(numForward);
  for (size_t value = 0; value < graph.values.size(); ++value) {
    if (!isActivation(graph, int(value)))
      continue;
    int last = -1;
    for (int user : graph.values[value].users)
      if (user < numForward)
        last = std::max(last, user);
    int first = graph.values[value].producer;
    if (last > first) { // live between op `first` and op `last`
      starts[first].push_back(int(value));
      ends[last].push_back(int(value));
    }
  }
  std::vector<int> cuts(numForward, -1);
  std::set<int> live;
  for (int op = 0; op < numForward; ++op) {
    live.insert(starts[op].begin(), starts[op].end());
    for (int value : ends[op])
      live.erase(value);
    if (live.size() == 1)
      cuts[op] = *live.begin();
  }
  return cuts;
}

static bool isHeavy(const GraphOp &op) { return isMatrixClass(op.kernelClass); }

/// Whether keeping the results of `op` takes less than 1/ratio of the bytes of its activations.
static bool resultsAreSmall(const Graph &graph, const GraphOp &op, double ratio) {
  double in = 0, out = 0;
  for (int value : op.operands)
    if (isActivation(graph, value))
      in += fullBytes(graph, value);
  for (int value : op.results)
    out += fullBytes(graph, value);
  return out * ratio < in;
}

/// Whether a library may execute `op`, which reads `value`, in the call of a matmul, and so reads
/// the value from memory. Only the gradient of gelu has such an operand: its input.
static bool mayJoinMatmul(const Graph &graph, const GraphOp &op, int value) {
  constexpr size_t input = 0, cotangent = 1;
  if (op.function != ElementFunction::GeluGradient || op.operands[input] != value)
    return false;
  int producer = graph.values[size_t(op.operands[cotangent])].producer;
  while (producer >= 0 && isView(graph.ops[size_t(producer)]))
    producer = graph.values[size_t(graph.ops[size_t(producer)].operands[0])].producer;
  return producer >= 0 && graph.ops[size_t(producer)].kernelClass == KernelClass::Matmul;
}

/// Whether `value`, seen through views, has one reader in forward and one in backward, both able to
/// read it from registers.
static bool mayStayInRegisters(const Graph &graph, int value, bool joinsMatmuls) {
  int readers[] = {0, 0};
  std::vector<int> pending{value};
  while (!pending.empty()) {
    int at = pending.back();
    pending.pop_back();
    for (int user : graph.values[at].users) {
      const GraphOp &op = graph.ops[user];
      if (isView(op)) {
        pending.push_back(op.results[0]);
        continue;
      }
      if (!readsRegisters(op.kernelClass) || (joinsMatmuls && mayJoinMatmul(graph, op, at)))
        return false;
      ++readers[op.phase == Phase::Forward ? 0 : 1];
    }
  }
  return readers[0] == 1 && readers[1] == 1;
}

std::vector<bool> freeToRecompute(const Graph &graph, bool joinsMatmuls) {
  std::vector<bool> flags(graph.ops.size(), false);
  for (int i = 0; i < numForwardOps(graph); ++i) {
    const GraphOp &op = graph.ops[i];
    if (op.kernelClass != KernelClass::Elementwise || op.generator || op.results.size() != 1 ||
        !mayStayInRegisters(graph, op.results[0], joinsMatmuls))
      continue;
    int activations = 0;
    bool isFree = true;
    std::vector<int> views{i};
    for (int value : op.operands) {
      for (int view = graph.values[value].producer; view >= 0 && isView(graph.ops[view]);
           view = graph.values[value].producer) {
        views.push_back(view);
        value = graph.ops[view].operands[0];
      }
      if (!isActivation(graph, value))
        continue;
      ++activations;
      // An operand from registers would have to be recomputed as well.
      isFree &= graph.ops[graph.values[value].producer].kernelClass != KernelClass::Elementwise &&
                fullBytes(graph, value) <= fullBytes(graph, op.results[0]);
    }
    if (isFree && activations == 1)
      for (int view : views) // or they would be kept
        flags[view] = true;
  }
  return flags;
}

/// Removes the joints inside graph blocks from `cuts`, a result of singleValueCuts. Those into a
/// block and out of the last one remain.
static void keepBlockInputs(const Graph &graph, std::vector<int> &cuts) {
  const std::vector<int> starts = blockStarts(graph);
  if (starts.size() < 2)
    return;
  const int end = std::min(int(cuts.size()), 2 * starts.back() - starts[starts.size() - 2]);
  const std::set<int> isStart(starts.begin(), starts.end());
  for (int op = starts.front() + 1; op < end; ++op)
    if (!isStart.count(op))
      cuts[size_t(op - 1)] = -1;
}

std::vector<bool> recomputeFlags(const Graph &graph, RecomputeMode mode, bool wholeBlocks) {
  std::vector<bool> flags(graph.ops.size(), false);
  if (mode == RecomputeMode::None)
    return flags;

  std::vector<int> cuts = singleValueCuts(graph);
  if (wholeBlocks && mode == RecomputeMode::Full)
    keepBlockInputs(graph, cuts);
  std::set<int> joints(cuts.begin(), cuts.end());
  int numForward = numForwardOps(graph);
  for (int i = 0; i < numForward; ++i) {
    const GraphOp &op = graph.ops[i];
    if (op.generator)
      continue;
    bool keeps = false;
    for (int value : op.results)
      keeps |= joints.count(value) != 0;
    // A joint computed by a light op from joints only need not be kept.
    if (keeps && !isHeavy(op)) {
      bool fromJoints = true;
      for (int value : op.operands)
        fromJoints &= !isActivation(graph, value) || joints.count(value) != 0;
      if (fromJoints && i > 0)
        keeps = false;
    }
    switch (mode) {
    case RecomputeMode::None:
      break;
    case RecomputeMode::Selective:
      flags[i] = !keeps && !isHeavy(op) && !resultsAreSmall(graph, op, 4);
      break;
    case RecomputeMode::Full:
      flags[i] = !keeps && !resultsAreSmall(graph, op, 64);
      break;
    }
  }
  return flags;
}

std::vector<bool> offloadFlags(const Graph &graph) {
  std::vector<bool> flags(graph.ops.size(), false);
  for (int op = 0; op < numForwardOps(graph); ++op)
    flags[op] = !graph.ops[op].generator && !resultsAreSmall(graph, graph.ops[op], 64);
  return flags;
}

double leastKeptBytes(const Graph &graph, const std::vector<bool> &recompute) {
  std::vector<bool> runsAgain(graph.ops.size(), false);
  for (int op : reexecutedOps(graph, recompute))
    runsAgain[size_t(op)] = true;
  std::vector<double> kept(graph.values.size(), 0);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].phase != Phase::Backward && !runsAgain[i])
      continue;
    for (int value : graph.ops[i].operands) {
      double bytes = fullBytes(graph, value);
      int producer = graph.values[size_t(value)].producer;
      while (isActivation(graph, value) && isView(graph.ops[size_t(producer)])) {
        value = graph.ops[size_t(producer)].operands[0];
        producer = graph.values[size_t(value)].producer;
        bytes = std::min(bytes, fullBytes(graph, value));
      }
      if (isActivation(graph, value) && !runsAgain[size_t(producer)] &&
          hasFactor(graph.values[size_t(value)].layout, graph.batchFactor))
        kept[size_t(value)] = std::max(kept[size_t(value)], bytes);
    }
  }
  return std::accumulate(kept.begin(), kept.end(), 0.0);
}

} // namespace tbc::planner
