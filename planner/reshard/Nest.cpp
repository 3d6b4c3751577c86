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

/// Whether some ops are one nest: what their arrays, their reductions and the order of the loops
/// say, one after the other.
class NestFinder::Question {
public:
  Question(NestFinder &finder, const std::vector<int> &ops,
           const std::function<bool(int value)> &isReadOutside, bool hasColumnSums)
      : finder(finder), ops(ops), isReadOutside(isReadOutside), hasColumnSums(hasColumnSums) {
    for (int index : ops)
      all.push_back(&finder.loopsOf(index));
    finder.sizes.assign(size_t(finder.table.count()), 0);
  }

  bool isNest() {
    if (!finder.movesColumnsAtItsEnds(ops, isReadOutside) || !takeReductions())
      return false;
    takeArrays();
    return takeOrder() && takeVector() && areColumnSumsOfVector() && areWrittenOnce();
  }

private:
  const GraphOp &op(size_t i) const { return finder.graph.ops[size_t(ops[i])]; }

  static bool isIn(const Loops &loops, const Loop &loop) {
    return std::find(loops.begin(), loops.end(), loop) != loops.end();
  }
  bool isReduced(const Loop &loop) const {
    return std::binary_search(reduced.begin(), reduced.end(), loop.number);
  }

  /// Returns the loops of the arrays that the op reads or writes. Of an op that moves columns, the
  /// parts alone are arrays.
  std::vector<const Loops *> arraysOf(size_t i) const {
    std::vector<const Loops *> list;
    const ColumnUse::Kind kind = op(i).columns.kind;
    for (size_t k = 0; kind != ColumnUse::Kind::Cuts && k < all[i]->operands.size(); ++k)
      list.push_back(&all[i]->operands[k]);
    for (size_t r = 0; kind != ColumnUse::Kind::Joins && r < all[i]->results.size(); ++r)
      list.push_back(&all[i]->results[r]);
    return list;
  }

  /// Whether a loop has the same size here as in the ops so far.
  bool agrees(const Loops &loops) {
    for (const Loop &loop : loops) {
      int64_t &size = finder.sizes[size_t(loop.number)];
      if (size != 0 && size != loop.size)
        return false;
      size = loop.size;
    }
    return true;
  }

  static const Loops *longest(const std::vector<Loops> &lists) {
    return &*std::max_element(lists.begin(), lists.end(),
                              [](const Loops &a, const Loops &b) { return a.size() < b.size(); });
  }

  /// Whether the loops are those of `order` that are not in `reduced`.
  bool areOthers(const std::vector<int> &loops) const {
    size_t others = 0;
    for (const Loop &loop : *order)
      if (!isReduced(loop)) {
        if (!std::binary_search(loops.begin(), loops.end(), loop.number))
          return false;
        ++others;
      }
    return others == loops.size();
  }

  /// Finds the loops that are reduced: the same in all ops, but for column sums.
  bool takeReductions() {
    for (size_t i = 0; i < ops.size(); ++i) {
      const std::vector<const Loops *> arrays = arraysOf(i);
      if (!all[i]->isPossible || !std::all_of(arrays.begin(), arrays.end(),
                                              [&](const Loops *array) { return agrees(*array); }))
        return false;
      const bool isBehind = std::any_of(op(i).operands.begin(), op(i).operands.end(),
                                        [&](int value) { return ofColumns.count(value) > 0; });
      bool isColumnSum = false;
      if ((isBehind && movesColumns(op(i))) ||
          (!all[i]->reduced.empty() && !takeReduction(*all[i], isBehind, isColumnSum)))
        return false;
      if (isColumnSum || isBehind)
        ofColumns.insert(op(i).results.begin(), op(i).results.end());
    }
    return !hasColumnSums || !ofColumns.empty();
  }

  /// `isBehind`: the op reads column sums. Sets `isColumnSum`.
  bool takeReduction(const OpLoops &loops, bool isBehind, bool &isColumnSum) {
    if (!order)
      order = longest(loops.operands);
    const bool isOther = !reduced.empty() && reduced != loops.reduced;
    isColumnSum = hasColumnSums && isOther;
    if (isColumnSum)
      return !isBehind && longest(loops.operands)->size() == order->size() &&
             areOthers(loops.reduced);
    reduced = loops.reduced;
    return !isOther;
  }

  /// Finds the arrays in memory: those of values that come from outside, or are read there.
  void takeArrays() {
    std::set<int> made;
    for (size_t i = 0; i < ops.size(); ++i) {
      const OpLoops &loops = *all[i];
      if (op(i).columns.kind == ColumnUse::Kind::Joins) {
        for (size_t k = 0; k < loops.operands.size(); ++k)
          results.push_back({&loops.operands[k], loops.columnLoops[k]});
        continue;
      }
      if (op(i).columns.kind == ColumnUse::Kind::Cuts)
        arguments.push_back({&loops.results[0], loops.columnLoops[0]});
      else
        for (size_t k = 0; k < loops.operands.size(); ++k)
          if (!made.count(op(i).operands[k]))
            arguments.push_back({&loops.operands[k], allLoops});
      for (size_t r = 0; r < loops.results.size(); ++r) {
        const int value = op(i).results[r];
        made.insert(value);
        if (isReadOutside(value))
          (ofColumns.count(value) ? columns : results).push_back({&loops.results[r], allLoops});
      }
    }
  }

  /// Finds the order of all loops: that of the first reduction, or of the largest result.
  bool takeOrder() {
    for (const Array &array : results)
      if (reduced.empty() && (!order || array.loops->size() > order->size()))
        order = array.loops;
    if (!order)
      return false;
    for (size_t i = 0; i < ops.size(); ++i)
      for (const Loops *list : arraysOf(i))
        for (const Loop &loop : *list)
          if (!isIn(*order, loop))
            return false;
    return true;
  }

  /// Whether the array has the `count` innermost loops next to each other, or has none of them.
  bool isContiguous(const Array &array, size_t count) const {
    const Loops &loops = *array.loops;
    const auto begin = order->end() - std::ptrdiff_t(count);
    if (std::none_of(begin, order->end(), [&](const Loop &loop) { return isIn(loops, loop); }))
      return true;
    return array.contiguous >= count && loops.size() >= count &&
           std::equal(begin, order->end(), loops.end() - std::ptrdiff_t(count));
  }

  bool areContiguous(size_t count) const {
    for (const std::vector<Array> *arrays : {&arguments, &results, &columns})
      for (const Array &array : *arrays)
        if (!isContiguous(array, count))
          return false;
    return true;
  }

  /// Finds the innermost loops that are contiguous in every array that has one of them: the vector.
  bool takeVector() {
    isVectorReduced = !order->empty() && isReduced(order->back());
    while (vectorLoops < order->size() &&
           isReduced((*order)[order->size() - vectorLoops - 1]) == isVectorReduced &&
           areContiguous(vectorLoops + 1))
      ++vectorLoops;
    return order->empty() || vectorLoops > 0;
  }

  /// Column sums have the innermost loops alone, which are all that is reduced.
  bool areColumnSumsOfVector() const {
    if (!hasColumnSums)
      return true;
    return isVectorReduced && vectorLoops == reduced.size() &&
           std::all_of(columns.begin(), columns.end(), [&](const Array &array) {
             return array.loops->size() == vectorLoops && isContiguous(array, vectorLoops);
           });
  }

  /// Whether different iterations write different elements.
  bool areWrittenOnce() const {
    for (const Array &array : results) {
      const Loops &loops = *array.loops;
      const bool hasReduced = std::any_of(loops.begin(), loops.end(),
                                          [&](const Loop &loop) { return isReduced(loop); });
      for (size_t i = 0; i < order->size(); ++i) {
        const Loop &loop = (*order)[i];
        const bool isVector = i + vectorLoops >= order->size();
        const bool isParallel = isVector ? !isVectorReduced : !isReduced(loop);
        if ((isParallel || hasReduced) && !isIn(loops, loop))
          return false;
      }
    }
    return true;
  }

  NestFinder &finder;
  const std::vector<int> &ops;
  const std::function<bool(int value)> &isReadOutside;
  const bool hasColumnSums;
  std::vector<const OpLoops *> all; // by op
  std::vector<int> reduced;         // ascending
  std::set<int> ofColumns;          // values that wait for column sums
  std::vector<Array> arguments, results, columns;
  const Loops *order = nullptr; // of all loops, outer to inner
  size_t vectorLoops = 0;
  bool isVectorReduced = false;
};

bool NestFinder::isNest(const std::vector<int> &ops,
                        const std::function<bool(int value)> &isReadOutside, bool hasColumnSums) {
  return Question(*this, ops, isReadOutside, hasColumnSums).isNest();
}

} // namespace tbc::reshard
