//===- DeriveGenerators.cpp - Constants on the shards that are read -------===//

#include "planner/reshard/Derive.h"

#include "planner/reshard/SequenceOrder.h"

#include <algorithm>

namespace tbc::reshard {

/// Whether more than ops read `value`.
bool ShardingChooser::leavesBlocks(int value) const {
  return value == graph.loss || value == graph.count || index.stateFor[value] >= 0 ||
         !index.gradientsFor[value].empty();
}

/// Returns `sharding` without that of the sequence.
static Sharding withoutSequence(const Graph &graph, Sharding sharding) {
  auto isOfSequence = [&](const FactorSharding &split) {
    return split.factor == graph.sequenceFactor;
  };
  auto &factors = sharding.factors;
  factors.erase(std::remove_if(factors.begin(), factors.end(), isOfSequence), factors.end());
  return sharding;
}

/// Returns the strategy for making the result of generator `op` in this sharding; none if it has to
/// be whole. Elements made of operands can be made in parts. An iota has no operands: its elements
/// are their places.
std::optional<OpStrategy> ShardingChooser::strategyFor(int op, const Sharding &sharding) const {
  const GraphOp &o = graph.ops[op];
  OpStrategy strategy;
  if (!o.isLoopNest || o.operands.empty() || !sharding.partial.empty() || !sharding.flat.empty())
    return std::nullopt;
  for (const FactorSharding &factor : sharding.factors) {
    auto makesDim = [&](const TensorDim &place) { return place.dim == factor.dim; };
    auto loop = std::find_if(o.loops.begin(), o.loops.end(), [&](const Loop &candidate) {
      return candidate.factor == factor.factor && candidate.kind == LoopKind::Parallel &&
             std::any_of(candidate.resultDims.begin(), candidate.resultDims.end(), makesDim);
    });
    if (loop == o.loops.end() || loop->size % groupSize(factor.axes) != 0)
      return std::nullopt;
    strategy.loopAxes[int(loop - o.loops.begin())] = factor.axes;
  }
  if (resultSharding(graph, op, strategy, 0) != sharding)
    return std::nullopt;
  return strategy;
}

/// Evaluates each generator on the shard of its readers, if they agree. Else it is whole on every
/// rank, and readers cut their part. Example: a number added to activations, if whole, takes the
/// bytes of the activations of all ranks.
void ShardingChooser::splitGenerators() {
  const std::vector<bool> positions = positionValues(graph);
  auto take = [&](int op, const OpStrategy &strategy) {
    const GraphOp &o = graph.ops[op];
    for (size_t k = 0; k < o.operands.size(); ++k)
      out.operands[op][k].sharding = operandSharding(graph, op, strategy, int(k));
    for (size_t k = 0; k < o.results.size(); ++k)
      out.raw[o.results[k]] = resultSharding(graph, op, strategy, int(k));
  };
  for (int op = int(graph.ops.size()) - 1; op >= 0; --op) {
    const GraphOp &o = graph.ops[op];
    if (!o.generator || index.skipped[op] || o.results.size() != 1 || leavesBlocks(o.results[0]))
      continue;
    // Ranks may have positions in another order (SequenceOrder.h), so these are whole.
    std::vector<Sharding> wants;
    for (const Sharding *want : wantsOf(o.results[0]))
      wants.push_back(positions[o.results[0]] ? withoutSequence(graph, *want) : *want);
    auto isFirst = [&](const Sharding &want) { return want == wants[0]; };
    if (wants.empty() || wants[0].factors.empty() ||
        !std::all_of(wants.begin(), wants.end(), isFirst))
      continue;
    if (std::optional<OpStrategy> strategy = strategyFor(op, wants[0])) {
      take(op, *strategy);
      out.generatorStrategies[op] = std::move(*strategy);
    }
  }
  // Generators read others as these are made, without a cut. Where the two differ, one is whole.
  auto makeWhole = [&](int op) {
    take(op, OpStrategy());
    return out.generatorStrategies.erase(op) > 0;
  };
  for (bool changed = !out.generatorStrategies.empty(); changed;) {
    changed = false;
    for (size_t op = 0; op < graph.ops.size(); ++op)
      for (size_t k = 0; k < graph.ops[op].operands.size() && graph.ops[op].generator; ++k) {
        const int value = graph.ops[op].operands[k];
        if (!index.skipped[op] && out.raw[value] != out.operands[op][k].sharding)
          changed |= makeWhole(int(op)) || makeWhole(graph.values[value].producer);
      }
  }
}

} // namespace tbc::reshard
