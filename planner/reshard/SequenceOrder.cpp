//===- SequenceOrder.cpp - Order of the tokens of a sequence --------------===//

#include "planner/reshard/SequenceOrder.h"

#include <algorithm>

namespace tbc::reshard {

int64_t zigzagPart(int64_t place, int64_t ranks) {
  return place % 2 == 0 ? place / 2 : 2 * ranks - 1 - place / 2;
}

static int64_t countOf(const Segment &segment, FactorId factor) {
  return std::count_if(segment.factors.begin(), segment.factors.end(),
                       [&](const Factor &f) { return f.id == factor; });
}

/// Whether tokens are a factor of a dim of `layout`. Clears `isPlain` if their position prevents
/// reordering.
static bool hasTokens(const TensorLayout &layout, FactorId factor, bool &isPlain) {
  bool has = false;
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      if (int64_t count = countOf(segment, factor); count > 0) {
        has = true;
        isPlain &= count == 1 && dim.segments.size() == 1;
      }
  return has;
}

std::string whyNoZigzag(const Graph &graph, int64_t ranks) {
  FactorId factor = graph.sequenceFactor;
  if (factor < 0)
    return "the inputs of the model have no sequence dim of their own";
  for (const GraphValue &value : graph.values) {
    bool isPlain = true,
         isStored = value.role == ValueRole::Parameter || value.role == ValueRole::State;
    if (!hasTokens(value.layout, factor, isPlain))
      continue;
    for (const DimLayout &dim : value.layout.dims)
      for (const Segment &segment : dim.segments)
        for (const Factor &f : segment.factors)
          if (f.id == factor && f.size % (2 * ranks) != 0)
            return "the sequence has " + std::to_string(f.size) +
                   " tokens, which do not divide by twice " + std::to_string(ranks);
    if (isStored)
      return "\"" + value.name + "\" has an entry for every place of the sequence";
    bool isGenerated = value.producer >= 0 && graph.ops[value.producer].generator;
    if (!isPlain && (isGenerated || value.role == ValueRole::Input))
      return "\"" + value.name + "\" joins the sequence with something else";
  }
  for (const GraphOp &op : graph.ops)
    for (const Loop &loop : op.loops)
      if (!op.generator && loop.factor == factor && loop.kind == LoopKind::Fixed)
        return "op \"" + op.id + "\" (" + op.kind + ") takes the sequence in its original order";
  return "";
}

std::vector<bool> positionValues(const Graph &graph) {
  std::vector<bool> hasPositions(graph.values.size(), false);
  for (const GraphOp &op : graph.ops) {
    if (!op.generator)
      continue;
    const bool mayRepeat = op.isLoopNest && !op.operands.empty();
    const bool reads = std::any_of(op.operands.begin(), op.operands.end(),
                                   [&](int value) { return hasPositions[size_t(value)]; });
    for (int value : op.results) {
      bool isPlain = true;
      hasPositions[size_t(value)] =
          hasTokens(graph.values[size_t(value)].layout, graph.sequenceFactor, isPlain) &&
          (reads || !mayRepeat);
    }
  }
  return hasPositions;
}

} // namespace tbc::reshard
