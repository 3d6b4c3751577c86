//===- Domain.cpp - Common loops of the values of a kernel ------------------===//

#include "codegen/region/Domain.h"

#include "codegen/region/KernelOp.h"
#include "codegen/region/RegionFunction.h"
#include "ir/Tbc.h"

#include "llvm/ADT/MapVector.h"

#include <iterator>
#include <map>
#include <set>

using namespace mlir;

namespace tbc::region {

using Loops = Domain::Loops;

int64_t Domain::product(ArrayRef<int> of) const {
  int64_t result = 1;
  for (int loop : of)
    result *= sizes[loop];
  return result;
}

static bool shares(ArrayRef<int> some, ArrayRef<int> others) {
  return llvm::any_of(some, [&](int loop) { return llvm::is_contained(others, loop); });
}

bool Domain::isReduction(Operation &op) const {
  return cast<KernelOpInterface>(op).getCombiner() != Combiner::None &&
         loops.lookup(op.getOperand(0)).size() != loops.lookup(op.getResult(0)).size();
}

bool Domain::hasVector(Value value) const { return shares(loops.lookup(value), vector); }

bool Domain::hasReduced(Value value) const {
  return shares(loops.lookup(value), reduced) || (isVectorReduced && hasVector(value));
}

Domain::Pass Domain::passOf(func::FuncOp function, int number) const {
  Pass result;
  Block &body = function.getBody().front();
  for (Operation &op : body.without_terminator())
    if (isReduction(op) && ready.lookup(op.getResult(0)) == number + 1)
      result.reductions.push_back(&op);
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (hasReduced(value) && ready.lookup(value) == number)
      result.results.push_back(int(i));
  return result;
}

SmallVector<int> Domain::resultsBehindColumns(func::FuncOp function) const {
  SmallVector<int> result;
  for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (ready.lookup(value) < 0)
      result.push_back(int(i));
  return result;
}

SmallVector<int> Domain::resultsBehindPasses(func::FuncOp function) const {
  SmallVector<int> result;
  for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (!hasReduced(value))
      result.push_back(int(i));
  return result;
}

const Array &Domain::arrayOf(BlockArgument argument) const {
  return arguments[argument.getArgNumber()];
}

SmallVector<int64_t> Domain::strides(Value value, const Array &array) const {
  const Loops list = loops.lookup(value);
  SmallVector<int64_t> result(list.size());
  int64_t stride = 1;
  for (int i = int(list.size()) - 1; i >= 0; --i) {
    if (!array.isWhole() && int(list.size()) - 1 - i == array.columnLoops)
      stride = array.pitch;
    result[i] = stride;
    stride *= sizes[list[i]];
  }
  return result;
}

std::vector<std::vector<bool>>
Domain::overwrites(func::FuncOp function,
                   llvm::function_ref<bool(size_t, BlockArgument)> mayLieOver) const {
  const std::vector<bool> never(size_t(numOperands), false);
  std::vector<std::vector<bool>> answer(size_t(numResults), never);
  Block &body = function.getBody().front();
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands()))
    for (BlockArgument argument : body.getArguments())
      if (const Array &result = results[i], &operand = arrayOf(argument);
          result.isWhole() && operand.isWhole())
        answer[size_t(result.buffer)][size_t(operand.buffer)] =
            loops.lookup(value) == loops.lookup(argument) &&
            value.getType() == argument.getType() && mayLieOver(i, argument);
  // Other columns of the operand are read at other indices.
  for (const Array &operand : arguments)
    if (!operand.isWhole())
      for (std::vector<bool> &row : answer)
        row[size_t(operand.buffer)] = false;
  return answer;
}

namespace {

/// Loops with union and split: two loops may turn out equal, or one a product of others.
class LoopTable {
public:
  int add(int64_t size) {
    loops.push_back({size, {}, false});
    return int(loops.size()) - 1;
  }
  int64_t size(int loop) const { return loops[loop].size; }

  /// Returns `list` in terms of unsplit loops, without those of size 1.
  Loops resolve(ArrayRef<int> list) const {
    Loops result;
    for (int loop : list)
      if (loops[loop].isReplaced)
        llvm::append_range(result, resolve(loops[loop].parts));
      else if (loops[loop].size != 1)
        result.push_back(loop);
    return result;
  }

  /// Unifies two loop lists, outermost first, by splitting loops at common factors. Fails if there
  /// is no common factor. Example: [12] and [3, 4] become [3, 4].
  LogicalResult unify(ArrayRef<int> left, ArrayRef<int> right) {
    while (true) {
      Loops a = resolve(left), b = resolve(right);
      auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (x == a.end() && y == b.end())
        return success();
      if (x == a.end() || y == b.end())
        return failure();
      if (failed(replace(*x, *y)))
        return failure();
    }
  }

private:
  LogicalResult replace(int x, int y) {
    if (size(x) < size(y))
      std::swap(x, y);
    if (size(y) == 0 || size(x) % size(y) != 0)
      return failure();
    Loops parts = {y};
    if (size(x) != size(y))
      parts.push_back(add(size(x) / size(y)));
    loops[x].parts = parts;
    loops[x].isReplaced = true;
    return success();
  }

  struct Loop {
    int64_t size;
    Loops parts;
    bool isReplaced;
  };
  std::vector<Loop> loops;
};

class DomainFinder {
public:
  explicit DomainFinder(func::FuncOp function) : function(function) {}

  FailureOr<Domain> run() {
    for (BlockArgument argument : function.getArguments())
      addValue(argument);
    for (Operation &op : function.getBody().front().without_terminator())
      if (failed(addOp(op)))
        return failure();
    if (failed(unifyReductions()) || failed(unifyJoined()) || failed(resolveAll()) ||
        failed(findPasses()))
      return failure();
    findArrays();
    if (failed(findNest()) || failed(checkResults()))
      return failure();
    return std::move(domain);
  }

private:
  ValueRange returned() { return function.getBody().front().getTerminator()->getOperands(); }

  void addValue(Value value) {
    Loops list;
    for (int64_t size : tensorType(value).getShape())
      list.push_back(table.add(size));
    listed[value] = list;
  }

  LogicalResult unify(Value value, ArrayRef<FactorRule::Dim> dims, ArrayRef<int> numbers) {
    Loops list;
    for (const FactorRule::Dim &dim : dims) {
      if (dim.size() != 1) // a sum: its parts come from different positions
        return failure();
      for (unsigned loop : dim[0])
        list.push_back(numbers[loop]);
    }
    return table.unify(listed.lookup(value), list);
  }

  LogicalResult addOp(Operation &op) {
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable || !isa<KernelOpInterface>(op))
      return failure();
    FactorRule rule = shardable.getFactorRule();
    Loops numbers;
    for (const FactorRule::Loop &loop : rule.loops)
      numbers.push_back(table.add(loop.size));
    for (auto [operand, dims] : llvm::zip_equal(op.getOperands(), rule.operands))
      if (failed(unify(operand, dims, numbers)))
        return failure();
    for (auto [result, dims] : llvm::zip_equal(op.getResults(), rule.results)) {
      addValue(result);
      if (failed(unify(result, dims, numbers)))
        return failure();
    }
    return success();
  }

  /// Makes reductions of unrelated values one nest, if these have the same loops by size. Example:
  /// the sums over the rows of x[512, 768] and of y[512, 768].
  LogicalResult unifyReductions() {
    Value first;
    for (Operation &op : function.getBody().front().without_terminator()) {
      if (cast<KernelOpInterface>(op).getCombiner() == Combiner::None)
        continue;
      Value reduced = op.getOperand(0);
      const Loops loops = table.resolve(listed.lookup(reduced));
      if (loops.size() == table.resolve(listed.lookup(op.getResult(0))).size())
        continue; // over size 1
      if (!first)
        first = reduced;
      const Loops others = table.resolve(listed.lookup(first));
      if (!shares(loops, others) && failed(table.unify(others, loops)))
        return failure();
    }
    return success();
  }

  /// Makes results that are columns of one tensor one nest, if they have equal sizes. Example: the
  /// halves of y are neg(u) and neg(v), of unrelated u[4, 6] and v[4, 6].
  LogicalResult unifyJoined() {
    auto numbers = function->getAttrOfType<DenseI64ArrayAttr>(kArraysAttr);
    std::map<int64_t, Value> firsts; // by buffer
    for (auto [i, value] : llvm::enumerate(returned())) {
      if (!numbers)
        break;
      const size_t at = 3 * (function.getNumArguments() + i);
      auto [first, isNew] = firsts.try_emplace(numbers[at], value);
      if (!isNew && first->second.getType() == value.getType() &&
          failed(table.unify(listed.lookup(first->second), listed.lookup(value))))
        return failure();
    }
    return success();
  }

  LogicalResult resolveAll() {
    for (auto &[value, list] : listed) {
      if (tensorType(value).getNumElements() == 0)
        return failure();
      Loops resolved = table.resolve(list);
      if (std::set<int>(resolved.begin(), resolved.end()).size() != resolved.size())
        return failure(); // a diagonal
      for (int loop : resolved) {
        if (size_t(loop) >= domain.sizes.size())
          domain.sizes.resize(loop + 1, 1);
        domain.sizes[loop] = table.size(loop);
      }
      domain.loops[value] = resolved;
    }
    return success();
  }

  /// Returns the loops of a reduction, without those of size 1.
  Loops reducedBy(Operation &op) const {
    Loops result;
    const Loops kept = domain.loops.lookup(op.getResult(0));
    for (int loop : domain.loops.lookup(op.getOperand(0)))
      if (!llvm::is_contained(kept, loop))
        result.push_back(loop);
    return result;
  }

  /// Whether the op reduces exactly the loops that the reductions before it do not.
  bool isColumnSum(Operation &op) const {
    std::set<int> all(order.begin(), order.end()), others;
    const Loops loops = domain.loops.lookup(op.getOperand(0));
    if (allReduced.empty() || std::set<int>(loops.begin(), loops.end()) != all)
      return false;
    llvm::copy_if(order, std::inserter(others, others.end()),
                  [&](int loop) { return allReduced.count(loop) == 0; });
    const Loops reduced = reducedBy(op);
    return std::set<int>(reduced.begin(), reduced.end()) == others;
  }

  LogicalResult findPasses() {
    for (BlockArgument argument : function.getArguments())
      domain.ready[argument] = 0;
    for (Operation &op : function.getBody().front().without_terminator()) {
      int ready = 0;
      bool isBehindColumns = false;
      for (Value operand : op.getOperands()) {
        ready = std::max(ready, domain.ready.lookup(operand));
        isBehindColumns |= domain.ready.lookup(operand) < 0;
      }
      if (domain.isReduction(op)) {
        Loops loops = reducedBy(op);
        if (isBehindColumns)
          return failure();
        if (isColumnSum(op)) {
          domain.columnSums.push_back(&op);
          domain.ready[op.getResult(0)] = -1;
          continue;
        }
        if (!allReduced.empty() && allReduced != std::set<int>(loops.begin(), loops.end()))
          return failure();
        if (allReduced.empty())
          order = domain.loops.lookup(op.getOperand(0));
        allReduced.insert(loops.begin(), loops.end());
        domain.numPasses = std::max(domain.numPasses, ++ready);
      }
      for (Value result : op.getResults())
        domain.ready[result] = isBehindColumns ? -1 : ready;
    }
    // Without a reduction, the loops follow the order of the results.
    for (Value value : returned())
      if (const Loops list = domain.loops.lookup(value);
          allReduced.empty() && list.size() > order.size())
        order = list;
    return success();
  }

  /// Notes where the arguments and results lie.
  void findArrays() {
    auto numbers = function->getAttrOfType<DenseI64ArrayAttr>(kArraysAttr);
    size_t next = 0;
    auto arraysOf = [&](ValueRange values, int &numBuffers) {
      SmallVector<Array> arrays;
      for (Value value : values) {
        Array array{int(arrays.size())};
        if (numbers) {
          array = {int(numbers[next]), numbers[next + 1], numbers[next + 2]};
          next += 3;
        }
        if (!array.isWhole())
          array.columnLoops = int(table.resolve(listed.lookup(value).back()).size());
        numBuffers = std::max(numBuffers, array.buffer + 1);
        arrays.push_back(array);
      }
      return arrays;
    };
    domain.arguments = arraysOf(function.getArguments(), domain.numOperands);
    domain.results = arraysOf(returned(), domain.numResults);
  }

  /// Whether the last `count` loops of the order are the last ones of `value`, in order, and next
  /// to each other where it lies; or are absent from it.
  bool isContiguous(Value value, const Array &array, size_t count) const {
    ArrayRef<int> suffix = ArrayRef<int>(order).take_back(count);
    const Loops list = domain.loops.lookup(value);
    if (!shares(list, suffix))
      return true;
    return (array.isWhole() || int(count) <= array.columnLoops) && list.size() >= count &&
           ArrayRef<int>(list).take_back(count) == suffix;
  }

  LogicalResult findNest() {
    for (auto &[value, list] : domain.loops)
      for (int loop : list)
        if (!llvm::is_contained(order, loop))
          return failure();
    domain.isVectorReduced = !order.empty() && allReduced.count(order.back()) > 0;
    size_t count = 0;
    auto areContiguous = [&](ValueRange values, ArrayRef<Array> arrays, size_t wanted) {
      return llvm::all_of(llvm::zip_equal(values, arrays), [&](auto pair) {
        return isContiguous(std::get<0>(pair), std::get<1>(pair), wanted);
      });
    };
    auto isInMemory = [&](size_t wanted) {
      return areContiguous(function.getArguments(), domain.arguments, wanted) &&
             areContiguous(returned(), domain.results, wanted);
    };
    while (count < order.size() &&
           (allReduced.count(order[order.size() - count - 1]) > 0) == domain.isVectorReduced &&
           isInMemory(count + 1))
      ++count;
    if (!order.empty() && count == 0)
      return failure(); // iterations read or write each other's elements
    domain.vector.assign(order.end() - count, order.end());
    for (int loop : ArrayRef<int>(order).drop_back(count))
      (allReduced.count(loop) ? domain.reduced : domain.rows).push_back(loop);
    return success(domain.columnSums.empty() || (domain.isVectorReduced && domain.reduced.empty()));
  }

  /// Checks that different iterations write different elements.
  LogicalResult checkResults() {
    for (Value value : returned()) {
      const Loops list = domain.loops.lookup(value);
      auto hasAll = [&](ArrayRef<int> of) {
        return llvm::all_of(of, [&](int loop) { return llvm::is_contained(list, loop); });
      };
      if (domain.ready.lookup(value) < 0) {
        if (!hasAll(domain.vector) || list.size() != domain.vector.size())
          return failure();
        continue;
      }
      if (!hasAll(domain.rows) || (!domain.isVectorReduced && !hasAll(domain.vector)))
        return failure();
      bool some = llvm::any_of(list, [&](int loop) { return allReduced.count(loop) > 0; });
      if (some && (!hasAll(domain.reduced) || !hasAll(domain.vector)))
        return failure();
    }
    return success();
  }

  func::FuncOp function;
  LoopTable table;
  llvm::MapVector<Value, Loops> listed;
  std::set<int> allReduced;
  Loops order;
  Domain domain;
};

} // namespace

FailureOr<Domain> findDomain(func::FuncOp function) { return DomainFinder(function).run(); }

} // namespace tbc::region
