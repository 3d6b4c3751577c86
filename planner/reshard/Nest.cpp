//===- Nest.cpp - Whether ops are one nest of loops -------------------------===//

#include "planner/reshard/Nest.h"

#include <algorithm>
#include <set>

namespace tbc::reshard {

int NestFinder::LoopTable::ofSegments(const std::vector<Segment> &segments) {
  // One list: a sequence built step by step has a segment for each step.
  constexpr FactorId end = -1;
  std::vector<FactorId> key;
  key.reserve(4 * segments.size());
  for (const Segment &segment : segments) {
    for (const Factor &factor : segment.factors)
      key.push_back(factor.id);
    key.push_back(end);
  }
  return number(segmented, key);
}

void NestFinder::addLoops(int value, const Sharding &sharding, int dim, Loops &loops,
                          bool &isPossible) {
  auto localSize = [&](const Factor &factor) {
    const FactorSharding *split = find(sharding, dim, factor.id);
    return factor.size / (split ? groupSize(split->axes) : 1);
  };
  auto add = [&](int number, int64_t size) {
    if (size == 1)
      return;
    for (const Loop &loop : loops)
      isPossible = isPossible && loop.number != number; // else a diagonal
    isPossible = isPossible && size > 0;
    loops.push_back({number, size});
  };
  const std::vector<Segment> &segments =
      graph.values[size_t(value)].layout.dims[size_t(dim)].segments;
  if (segments.size() == 1) {
    for (const Factor &factor : segments[0].factors)
      add(table.ofFactor(factor.id), localSize(factor));
    return;
  }
  int64_t size = 0;
  for (const Segment &segment : segments) {
    int64_t product = 1;
    for (const Factor &factor : segment.factors)
      product *= localSize(factor);
    size += product;
  }
  add(table.ofSegments(segments), size);
}

NestFinder::Loops NestFinder::loopsOf(int value, const Sharding &sharding, bool &isPossible) {
  Loops loops;
  isPossible = isPossible && sharding.flat.empty();
  for (int dim = 0; dim < int(graph.values[size_t(value)].layout.dims.size()); ++dim)
    addLoops(value, sharding, dim, loops, isPossible);
  return loops;
}

size_t NestFinder::columnLoopsOf(int value, const Sharding &sharding) {
  Loops loops;
  bool isPossible = true;
  addLoops(value, sharding, int(graph.values[size_t(value)].layout.dims.size()) - 1, loops,
           isPossible);
  return loops.size();
}

const NestFinder::OpLoops &NestFinder::loopsOf(int index) {
  OpLoops &result = known[size_t(index)];
  if (result.isKnown)
    return result;
  result.isKnown = true;
  const GraphOp &op = graph.ops[size_t(index)];
  for (size_t k = 0; k < op.operands.size(); ++k)
    result.operands.push_back(
        loopsOf(op.operands[k], derivation.operands[size_t(index)][k].sharding, result.isPossible));
  for (int value : op.results)
    result.results.push_back(loopsOf(value, derivation.raw[size_t(value)], result.isPossible));
  if (op.columns.kind == ColumnUse::Kind::Cuts)
    result.columnLoops = {columnLoopsOf(op.results[0], derivation.raw[size_t(op.results[0])])};
  for (size_t k = 0; op.columns.kind == ColumnUse::Kind::Joins && k < op.operands.size(); ++k)
    result.columnLoops.push_back(
        columnLoopsOf(op.operands[k], derivation.operands[size_t(index)][k].sharding));
  std::set<int> reduced;
  for (const reshard::Loop &loop : op.loops) {
    if (!loop.isReduced || movesColumns(op))
      continue;
    for (const TensorDim &place : loop.operandDims) {
      const std::vector<Segment> &segments = graph.values[size_t(op.operands[size_t(place.tensor)])]
                                                 .layout.dims[size_t(place.dim)]
                                                 .segments;
      int number = segments.size() == 1 ? table.ofFactor(loop.factor) : table.ofSegments(segments);
      for (const Loop &of : result.operands[size_t(place.tensor)])
        if (of.number == number)
          reduced.insert(number);
    }
  }
  result.reduced.assign(reduced.begin(), reduced.end());
  result.isPossible =
      result.isPossible && streamedBlocks(graph, index, assignment.strategies[size_t(index)]) == 1;
  return result;
}

bool NestFinder::isCopy(int index) {
  const GraphOp &op = graph.ops[size_t(index)];
  const OpLoops &loops = loopsOf(index);
  return op.kernelClass == KernelClass::None && op.operands.size() == 1 &&
         loops.operands == std::vector<Loops>{loops.results[0]};
}

bool NestFinder::movesColumnsAtItsEnds(const std::vector<int> &ops,
                                       const std::function<bool(int value)> &isReadOutside) const {
  std::set<int> made, joined, parts;
  bool isCopy = true;
  for (int index : ops) {
    const GraphOp &op = graph.ops[size_t(index)];
    isCopy = isCopy && movesColumns(op);
    for (int value : op.operands) {
      const bool isMade = made.count(value) > 0;
      if (joined.count(value) || (op.columns.kind == ColumnUse::Kind::Cuts && isMade))
        return false;
      if (op.columns.kind == ColumnUse::Kind::Joins &&
          (!isMade || isReadOutside(value) || !parts.insert(value).second))
        return false;
    }
    made.insert(op.results.begin(), op.results.end());
    if (op.columns.kind == ColumnUse::Kind::Joins)
      joined.insert(op.results[0]);
  }
  return !isCopy;
}

bool NestFinder::isNest(const std::vector<int> &ops,
                        const std::function<bool(int value)> &isReadOutside, bool hasColumnSums) {
  std::vector<const OpLoops *> all;
  std::vector<int> made;
  std::vector<int> reduced;
  std::set<int> ofColumns; // values that wait for column sums
  const Loops *order = nullptr;
  auto agrees = [&](const Loops &loops) {
    for (const Loop &loop : loops) {
      int64_t &size = sizes[size_t(loop.number)];
      if (size != 0 && size != loop.size)
        return false;
      size = loop.size;
    }
    return true;
  };
  auto longest = [](const std::vector<Loops> &lists) {
    return &*std::max_element(lists.begin(), lists.end(),
                              [](const Loops &a, const Loops &b) { return a.size() < b.size(); });
  };
  for (int index : ops)
    all.push_back(&loopsOf(index));
  sizes.assign(size_t(table.count()), 0);
  if (!movesColumnsAtItsEnds(ops, isReadOutside))
    return false;
  // Of an op that moves columns, the parts alone are arrays.
  auto arraysOf = [&](size_t i) {
    std::vector<const Loops *> list;
    const ColumnUse::Kind kind = graph.ops[size_t(ops[i])].columns.kind;
    for (size_t k = 0; kind != ColumnUse::Kind::Cuts && k < all[i]->operands.size(); ++k)
      list.push_back(&all[i]->operands[k]);
    for (size_t r = 0; kind != ColumnUse::Kind::Joins && r < all[i]->results.size(); ++r)
      list.push_back(&all[i]->results[r]);
    return list;
  };
  // Whether the loops are those of `order` that are not in `reduced`.
  auto areOthers = [&](const std::vector<int> &loops) {
    size_t others = 0;
    for (const Loop &loop : *order)
      if (!std::binary_search(reduced.begin(), reduced.end(), loop.number)) {
        if (!std::binary_search(loops.begin(), loops.end(), loop.number))
          return false;
        ++others;
      }
    return others == loops.size();
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    const OpLoops &loops = *all[i];
    const GraphOp &op = graph.ops[size_t(ops[i])];
    const bool isBehind = std::any_of(op.operands.begin(), op.operands.end(),
                                      [&](int value) { return ofColumns.count(value) > 0; });
    bool isColumnSum = false;
    const std::vector<const Loops *> arrays = arraysOf(i);
    if (!loops.isPossible || !std::all_of(arrays.begin(), arrays.end(),
                                          [&](const Loops *array) { return agrees(*array); }))
      return false;
    if (isBehind && movesColumns(op))
      return false;
    if (!loops.reduced.empty()) {
      if (!order)
        order = longest(loops.operands);
      isColumnSum = hasColumnSums && !reduced.empty() && reduced != loops.reduced;
      if (isColumnSum ? isBehind || longest(loops.operands)->size() != order->size() ||
                            !areOthers(loops.reduced)
                      : !reduced.empty() && reduced != loops.reduced)
        return false;
      if (!isColumnSum)
        reduced = loops.reduced;
    }
    if (isColumnSum || isBehind)
      ofColumns.insert(op.results.begin(), op.results.end());
  }
  if (hasColumnSums && ofColumns.empty())
    return false;
  // The arrays in memory.
  std::vector<Array> arguments, results, columns;
  for (size_t i = 0; i < ops.size(); ++i) {
    const GraphOp &op = graph.ops[size_t(ops[i])];
    if (op.columns.kind == ColumnUse::Kind::Joins) {
      for (size_t k = 0; k < op.operands.size(); ++k)
        results.push_back({&all[i]->operands[k], all[i]->columnLoops[k]});
      continue;
    }
    if (op.columns.kind == ColumnUse::Kind::Cuts)
      arguments.push_back({&all[i]->results[0], all[i]->columnLoops[0]});
    else
      for (size_t k = 0; k < op.operands.size(); ++k)
        if (std::find(made.begin(), made.end(), op.operands[k]) == made.end())
          arguments.push_back({&all[i]->operands[k], allLoops});
    for (size_t r = 0; r < op.results.size(); ++r) {
      made.push_back(op.results[r]);
      if (isReadOutside(op.results[r]))
        (ofColumns.count(op.results[r]) ? columns : results)
            .push_back({&all[i]->results[r], allLoops});
    }
  }
  for (const Array &array : results)
    if (reduced.empty() && (!order || array.loops->size() > order->size()))
      order = array.loops;
  if (!order)
    return false;

  auto isReduced = [&](const Loop &loop) {
    return std::binary_search(reduced.begin(), reduced.end(), loop.number);
  };
  auto isIn = [](const Loops &loops, const Loop &loop) {
    return std::find(loops.begin(), loops.end(), loop) != loops.end();
  };
  for (size_t i = 0; i < ops.size(); ++i)
    for (const Loops *list : arraysOf(i))
      for (const Loop &loop : *list)
        if (!isIn(*order, loop))
          return false;

  // The innermost loops, contiguous in every array that has one of them.
  const bool isVectorReduced = !order->empty() && isReduced(order->back());
  auto isContiguous = [&](const Array &array, size_t count) {
    const Loops &loops = *array.loops;
    bool hasAny = std::any_of(order->end() - std::ptrdiff_t(count), order->end(),
                              [&](const Loop &loop) { return isIn(loops, loop); });
    return !hasAny || (array.contiguous >= count && loops.size() >= count &&
                       std::equal(order->end() - std::ptrdiff_t(count), order->end(),
                                  loops.end() - std::ptrdiff_t(count)));
  };
  auto areContiguous = [&](const std::vector<Array> &arrays, size_t count) {
    return std::all_of(arrays.begin(), arrays.end(),
                       [&](const Array &array) { return isContiguous(array, count); });
  };
  size_t count = 0;
  while (count < order->size() &&
         isReduced((*order)[order->size() - count - 1]) == isVectorReduced &&
         areContiguous(arguments, count + 1) && areContiguous(results, count + 1) &&
         areContiguous(columns, count + 1))
    ++count;
  if (!order->empty() && count == 0)
    return false;
  if (hasColumnSums && (!isVectorReduced || count != reduced.size()))
    return false;

  // Column sums have the innermost loops alone.
  for (const Array &array : columns)
    if (array.loops->size() != count || !isContiguous(array, count))
      return false;

  // Different iterations write different elements.
  for (const Array &array : results) {
    const Loops *loops = array.loops;
    bool hasReduced = std::any_of(loops->begin(), loops->end(), isReduced);
    for (size_t i = 0; i < order->size(); ++i) {
      const Loop &loop = (*order)[i];
      bool isVector = i + count >= order->size();
      bool isParallel = isVector ? !isVectorReduced : !isReduced(loop);
      if ((isParallel || hasReduced) && !isIn(*loops, loop))
        return false;
    }
  }
  return true;
}

} // namespace tbc::reshard
