//===- RowSums.cpp - Sums of updates by rows of a table --------------------===//

#include "codegen/cuda/ops/RowSums.h"

#include "ir/RowSums.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;

constexpr int64_t sortedAtOnce = RowSumSizes::sortedAtOnce;
constexpr int64_t mostRuns = RowSumSizes::mostRuns;
constexpr int64_t groupSize = RowSumSizes::groupSize;
constexpr int64_t atOnce = 4; // loads in flight of a thread
constexpr int64_t accessBytes = 16;
constexpr int64_t keyShift = 32;

class RowSumsEmitter {
public:
  RowSumsEmitter(MLIRContext &context, const OpCall &call, const RowSums &sums, Form form)
      : context(context), call(call), sums(sums), form(form),
        sizes{sums.outer, sums.rows, sums.width, sums.count},
        staged(
            withWorkspace(call, {kernels::DType::I64, kernels::DType::I32, kernels::DType::F32})),
        firstResult(int(call.results.size())) {
    each = accessBytes / kernels::byteWidth(call.results[0].dtype);
    while (sums.width % each != 0)
      each /= 2;
    numGroups = sizes.numGroups();
    beginOfStarts = sizes.keyBytes() / int64_t(sizeof(int32_t));
    beginOfSums = sizes.sumsOffset() / int64_t(sizeof(float));
  }

  bool sorts() const { return sizes.sorts(); }

  FailureOr<region::Kernel> compareAll() {
    ThreadKernel k(context, call, threadsOfTable(), form);
    Position at = positionOf(k, k.thread, sums.rows);
    Values total = k.loop(k.integer(0), k.integer(sums.count), zeros(k),
                          [&](Value update, ArrayRef<Value> inner) {
                            return k.choose(
                                k.equal(sums.rowOf(k, update), at.row),
                                [&] { return added(k, inner, loadUpdate(k, at, update)); },
                                [&] { return Values(inner); });
                          });
    storeRow(k, at, total);
    return k.finish();
  }

  FailureOr<region::Kernel> sortFirst() {
    launches.clear(), isGood = true;
    emitKeys();
    emitSortedGroups();
    int64_t from = 1; // of the two lists of keys
    for (int64_t run = sortedAtOnce; run < sums.count; run *= mostRuns, from = 1 - from)
      emitMerge(run, from);
    emitStartsAndGroupSums(from);
    emitRows(from);
    if (!isGood)
      return failure();
    return joinLaunches(launches, sizes.workspaceBytes());
  }

private:
  /// The elements of a thread: `each` from `column` on, of one row or group.
  struct Position {
    Value outer, row, column;
  };

  void add(FailureOr<region::Kernel> launch) {
    if (failed(launch))
      isGood = false;
    else
      launches.push_back(std::move(*launch));
  }

  int64_t threadsOfTable() const { return sums.outer * sums.rows * (sums.width / each); }
  Position positionOf(const ThreadKernel &k, Value thread, int64_t numRows) const {
    Values at = k.split(thread, {sums.outer, numRows, sums.width / each});
    return {at[0], at[1], k.e.mul(at[2], k.integer(each))};
  }
  Values zeros(const ThreadKernel &k) const { return Values(size_t(each), k.number(0)); }
  static Values added(const ThreadKernel &k, ArrayRef<Value> to, ArrayRef<Value> terms) {
    Values result;
    for (auto [x, term] : llvm::zip_equal(to, terms))
      result.push_back(k.e.add(x, term));
    return result;
  }
  Value offsetOf(const ThreadKernel &k, const Position &at, Value row, int64_t numRows) const {
    return k.join({at.outer, row, at.column}, {sums.outer, numRows, sums.width});
  }
  Values loadUpdate(const ThreadKernel &k, const Position &at, Value update) const {
    return k.loadTogether(0, offsetOf(k, at, update, sums.count), each);
  }
  void storeRow(const ThreadKernel &k, const Position &at, ArrayRef<Value> total) const {
    k.storeTogether(0, offsetOf(k, at, at.row, sums.rows), total);
  }

  Value loadKey(const ThreadKernel &k, int64_t list, Value index) const {
    return k.loadResult(firstResult, k.e.add(index, k.integer(list * sums.count)));
  }
  void storeKey(const ThreadKernel &k, int64_t list, Value index, Value key) const {
    k.store(firstResult, k.e.add(index, k.integer(list * sums.count)), key);
  }
  static Value rowOfKey(const ThreadKernel &k, Value key) {
    return k.e.make<arith::ShRUIOp>(key, k.integer(keyShift));
  }
  static Value updateOfKey(const ThreadKernel &k, Value key) {
    return k.e.make<arith::AndIOp>(key, k.integer((int64_t(1) << keyShift) - 1));
  }

  void emitKeys() {
    ThreadKernel k(context, staged, sums.count, form);
    Value row = k.e.make<arith::ShLIOp>(sums.rowOf(k, k.thread), k.integer(keyShift));
    storeKey(k, 0, k.thread, k.e.add(row, k.thread));
    add(k.finish());
  }

  /// A key's place in its group is the number of smaller keys: keys are distinct.
  void emitSortedGroups() {
    ThreadKernel k(context, staged, sums.count, form);
    Value key = loadKey(k, 0, k.thread);
    Value begin = k.e.mul(k.divide(k.thread, sortedAtOnce), k.integer(sortedAtOnce));
    Value end =
        k.e.make<arith::MinSIOp>(k.e.add(begin, k.integer(sortedAtOnce)), k.integer(sums.count));
    Value place = k.loop(begin, end, {begin}, [&](Value i, ArrayRef<Value> inner) {
      Value isBefore = k.e.less(loadKey(k, 0, i), key);
      return Values{k.e.select(isBefore, k.e.add(inner[0], k.integer(1)), inner[0])};
    })[0];
    storeKey(k, 1, place, key);
    add(k.finish());
  }

  /// Returns for each range [begin, end) of a sorted list the first index whose key is not below
  /// `key`; `end` if there is none. The searches take their steps together, with a load of each in
  /// flight. No range is longer than `length`; `valid` is any index with a key.
  Values lowerBounds(const ThreadKernel &k, int64_t list, Value key, ArrayRef<Value> begins,
                     ArrayRef<Value> ends, int64_t length, Value valid) const {
    int64_t steps = int64_t(llvm::Log2_64_Ceil(uint64_t(length))) + 1;
    size_t count = begins.size();
    Values ranges(begins);
    ranges.append(ends.begin(), ends.end());
    ranges = k.loop(k.integer(0), k.integer(steps), ranges, [&](Value, ArrayRef<Value> inner) {
      Values isOpen, middle, found, next(2 * count);
      for (size_t i = 0; i < count; ++i) {
        isOpen.push_back(k.e.less(inner[i], inner[count + i]));
        middle.push_back(k.divide(k.e.add(inner[i], inner[count + i]), 2));
        found.push_back(loadKey(k, list, k.e.select(isOpen[i], middle[i], valid)));
      }
      for (size_t i = 0; i < count; ++i) {
        Value isBelow = k.e.less(found[i], key);
        Value up = k.both(isOpen[i], isBelow);
        Value down = k.both(isOpen[i], k.negate(isBelow));
        next[i] = k.e.select(up, k.e.add(middle[i], k.integer(1)), inner[i]);
        next[count + i] = k.e.select(down, middle[i], inner[count + i]);
      }
      return next;
    });
    ranges.truncate(count);
    return ranges;
  }

  /// Merges up to `mostRuns` neighbouring sorted runs from list `from` into the other. A key moves
  /// behind the smaller keys of all these runs, its own included.
  void emitMerge(int64_t run, int64_t from) {
    ThreadKernel k(context, staged, sums.count, form);
    Value key = loadKey(k, from, k.thread);
    Value first = k.e.mul(k.divide(k.thread, mostRuns * run), k.integer(mostRuns * run));
    int64_t numRuns =
        std::min(mostRuns, int64_t(llvm::divideCeil(uint64_t(sums.count), uint64_t(run))));
    Values bounds;
    for (int64_t i = 0; i <= numRuns; ++i)
      bounds.push_back(
          k.e.make<arith::MinSIOp>(k.e.add(first, k.integer(i * run)), k.integer(sums.count)));
    ArrayRef<Value> begins = ArrayRef<Value>(bounds).drop_back();
    Value place = first;
    for (auto [begin, found] :
         llvm::zip_equal(begins, lowerBounds(k, from, key, begins,
                                             ArrayRef<Value>(bounds).drop_front(), run, k.thread)))
      place = k.e.add(place, k.e.sub(found, begin));
    storeKey(k, 1 - from, place, key);
    add(k.finish());
  }

  /// The first threads find the starts of rows, the others sum groups.
  void emitStartsAndGroupSums(int64_t list) {
    int64_t numStarts = sums.rows + 1;
    ThreadKernel k(context, staged, numStarts + sums.outer * numGroups * (sums.width / each), form);
    Value isStart = k.e.less(k.thread, k.integer(numStarts));
    k.ifThen(isStart, [&] {
      Value key = k.e.make<arith::ShLIOp>(k.thread, k.integer(keyShift));
      Value zero = k.integer(0);
      Value start = lowerBounds(k, list, key, {zero}, {k.integer(sums.count)}, sums.count, zero)[0];
      k.store(firstResult + 1, k.e.add(k.thread, k.integer(beginOfStarts)), start);
    });
    if (numGroups > 0)
      k.ifThen(k.negate(isStart),
               [&] { sumGroup(k, list, k.e.sub(k.thread, k.integer(numStarts))); });
    add(k.finish());
  }

  /// Adds the sorted updates `begin` to `end`.
  Values sumOfUpdates(const ThreadKernel &k, int64_t list, const Position &at, Value begin,
                      Value end, ArrayRef<Value> before) const {
    return inSteps(k, begin, end, before, [&](Value index) {
      return loadUpdate(k, at, updateOfKey(k, loadKey(k, list, index)));
    });
  }

  /// Adds the terms `begin` to `end`, with the loads of several of them first.
  Values inSteps(const ThreadKernel &k, Value begin, Value end, ArrayRef<Value> before,
                 llvm::function_ref<Values(Value)> term) const {
    Value whole = k.e.mul(k.divide(k.e.sub(end, begin), atOnce), k.integer(atOnce));
    Value middle = k.e.add(begin, whole);
    Values total = k.loop(
        begin, middle, before,
        [&](Value index, ArrayRef<Value> inner) {
          SmallVector<Values> terms;
          for (int64_t i = 0; i < atOnce; ++i)
            terms.push_back(term(k.e.add(index, k.integer(i))));
          Values result(inner);
          for (const Values &one : terms)
            result = added(k, result, one);
          return result;
        },
        atOnce);
    return k.loop(middle, end, total,
                  [&](Value index, ArrayRef<Value> inner) { return added(k, inner, term(index)); });
  }

  Value sumOffset(const ThreadKernel &k, const Position &at, Value group) const {
    return k.e.add(offsetOf(k, at, group, numGroups), k.integer(beginOfSums));
  }

  void sumGroup(const ThreadKernel &k, int64_t list, Value thread) const {
    Position at = positionOf(k, thread, numGroups);
    Value begin = k.e.mul(at.row, k.integer(groupSize));
    Value end = k.e.add(begin, k.integer(groupSize));
    Value first = rowOfKey(k, loadKey(k, list, begin));
    Value last = rowOfKey(k, loadKey(k, list, k.e.sub(end, k.integer(1))));
    k.ifThen(k.equal(first, last), [&] {
      Values total = sumOfUpdates(k, list, at, begin, end, zeros(k));
      k.storeTogether(firstResult + 2, sumOffset(k, at, at.row), total);
    });
  }

  void emitRows(int64_t list) {
    ThreadKernel k(context, staged, threadsOfTable(), form);
    Position at = positionOf(k, k.thread, sums.rows);
    auto startOf = [&](Value row) {
      return k.loadResult(firstResult + 1, k.e.add(row, k.integer(beginOfStarts)));
    };
    Value begin = startOf(at.row), end = startOf(k.e.add(at.row, k.integer(1)));
    Value firstGroup = k.divide(k.e.add(begin, k.integer(groupSize - 1)), groupSize);
    Value endGroup = k.divide(end, groupSize);
    Value hasGroups = k.e.less(firstGroup, endGroup);
    auto whereGroups = [&](Value group) {
      return k.e.select(hasGroups, k.e.mul(group, k.integer(groupSize)), end);
    };
    Values total = sumOfUpdates(k, list, at, begin, whereGroups(firstGroup), zeros(k));
    if (numGroups > 0)
      total = inSteps(
          k, firstGroup, k.e.select(hasGroups, endGroup, firstGroup), total, [&](Value group) {
            return k.loadResultsTogether(firstResult + 2, sumOffset(k, at, group), each);
          });
    total = sumOfUpdates(k, list, at, whereGroups(endGroup), end, total);
    storeRow(k, at, total);
    add(k.finish());
  }

  MLIRContext &context;
  const OpCall &call;
  const RowSums &sums;
  Form form;
  const RowSumSizes sizes;
  const OpCall staged;   // with keys, starts and sums of groups as further results
  const int firstResult; // of these
  int64_t each = 1;      // elements of a thread
  int64_t numGroups = 0, beginOfStarts = 0, beginOfSums = 0;
  SmallVector<region::Kernel> launches;
  bool isGood = true;
};

} // namespace

FailureOr<region::Kernel> sumByRows(MLIRContext &context, const OpCall &call, const RowSums &sums,
                                    Form form) {
  constexpr int64_t most = int64_t(1) << 31;
  if (sums.count >= most || sums.rows >= most)
    return failure();
  RowSumsEmitter emitter(context, call, sums, form);
  return emitter.sorts() ? emitter.sortFirst() : emitter.compareAll();
}

} // namespace tbc::cuda
