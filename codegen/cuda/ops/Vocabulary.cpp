//===- Vocabulary.cpp - Vocabulary-parallel rows and classes on GPUs --------===//
//
// GPUs cannot report errors: an index without a row, or a label without a class, gives NaN. The
// reference refuses both.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/RowSums.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();

/// This rank's part of a vocabulary. Its numbers ascend, with negative padding at the end. Example:
/// [4, 5, 6, -1].
struct Vocabulary {
  const ThreadKernel &k;
  int numbers; // operand index
  int64_t size;

  Value numberAt(Value place) const { return k.load(numbers, place); }
  Value isNumber(Value number) const {
    return k.e.make<arith::CmpIOp>(arith::CmpIPredicate::sge, number, k.integer(0));
  }
  /// Returns the first place whose number is not below `number`, or is padding; at most the size.
  Value bisect(Value number) const {
    Value zero = k.integer(0), steps = k.integer(int64_t(llvm::Log2_64_Ceil(uint64_t(size))) + 1);
    return k.loop(zero, steps, {zero, k.integer(size)}, [&](Value, ArrayRef<Value> inner) {
      Value middle = k.divide(k.e.add(inner[0], inner[1]), 2);
      Value found = numberAt(clamped(middle));
      Value isBefore = k.both(isNumber(found), k.e.less(found, number));
      Value isOpen = k.e.less(inner[0], inner[1]);
      Value goesUp = k.both(isOpen, isBefore);
      Value goesDown = k.both(isOpen, k.negate(isBefore));
      return SmallVector<Value>{k.e.select(goesUp, k.e.add(middle, k.integer(1)), inner[0]),
                                k.e.select(goesDown, middle, inner[1])};
    })[0];
  }
  Value clamped(Value place) const {
    Value last = k.integer(size - 1);
    return k.e.select(k.e.less(last, place), last, place);
  }
  /// Returns the place of `number`, and whether this rank has it. A rank with the whole vocabulary
  /// has each number at its own place, which is looked at first.
  std::pair<Value, Value> find(Value number) const {
    Value isInside = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, number, k.integer(size));
    Value own = k.e.select(isInside, number, k.integer(0));
    Value place = k.choose(
        k.both(isInside, k.equal(numberAt(own), number)), [&] { return SmallVector<Value>{own}; },
        [&] { return SmallVector<Value>{clamped(bisect(number))}; })[0];
    return {place, k.equal(numberAt(place), number)};
  }
  /// Returns for each of `each` places from `first` on whether it has a number. If the last one
  /// has, then so have all.
  SmallVector<Value> areNumbers(Value first, int64_t each) const {
    auto isNumberAt = [&](int64_t i) { return isNumber(numberAt(k.e.add(first, k.integer(i)))); };
    Value isLast = isNumberAt(each - 1);
    return k.choose(
        isLast, [&] { return SmallVector<Value>(size_t(each), isLast); },
        [&] {
          SmallVector<Value> list;
          for (int64_t i = 0; i < each; ++i)
            list.push_back(isNumberAt(i));
          return list;
        });
  }
  /// Returns how many numbers come before the padding.
  Value count() const {
    return k.choose(
        isNumber(numberAt(k.integer(size - 1))),
        [&] { return SmallVector<Value>{k.integer(size)}; },
        [&] {
          return SmallVector<Value>{bisect(k.integer(std::numeric_limits<int64_t>::max()))};
        })[0];
  }
};

/// Converts a negative index, counted from the end, and returns whether any rank has the row.
std::pair<Value, Value> rowNumber(const ThreadKernel &k, Value index, Value last) {
  Value fromEnd = k.e.add(k.e.add(index, last), k.integer(1));
  Value number = k.e.select(k.e.less(index, k.integer(0)), fromEnd, index);
  return {number, k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ule, number, last)};
}

int64_t rowElements(const kernels::Shape &table) {
  return kernels::numElements({table.begin() + 1, table.end()});
}

/// A thread does up to 16 bytes of a row of the result, for which it finds the row once.
FailureOr<region::Kernel> embedding(MLIRContext &context, const OpCall &call, Form form) {
  int64_t width = rowElements(call.operands[0].shape);
  int64_t each = ThreadKernel::elementsTogether(call.results[0].dtype, {width});
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape) / each, form);
  Value column = k.e.mul(k.remainder(k.thread, width / each), k.integer(each));
  auto [number, isKnown] =
      rowNumber(k, k.load(1, k.divide(k.thread, width / each)), k.load(3, k.integer(0)));
  auto [place, isHere] = Vocabulary{k, 2, call.operands[0].shape[0]}.find(number);
  Value otherwise = k.e.select(isKnown, k.number(0), k.number(notANumber));
  Value offset = k.e.add(k.e.mul(place, k.integer(width)), column);
  k.storeTogether(0, k.e.mul(k.thread, k.integer(each)),
                  k.choose(
                      k.both(isKnown, isHere), [&] { return k.loadTogether(0, offset, each); },
                      [&] { return SmallVector<Value>(size_t(each), otherwise); }));
  return k.finish();
}

/// An index without a row on this rank adds nothing.
FailureOr<region::Kernel> embeddingGrad(MLIRContext &context, const OpCall &call, Form form) {
  RowSums sums;
  sums.rows = call.results[0].shape[0];
  sums.width = rowElements(call.results[0].shape);
  sums.count = kernels::numElements(call.operands[1].shape);
  sums.rowOf = [&](const ThreadKernel &k, Value token) {
    auto [number, isKnown] = rowNumber(k, k.load(1, token), k.load(3, k.integer(0)));
    auto [place, isHere] = Vocabulary{k, 2, sums.rows}.find(number);
    return k.e.select(k.both(isKnown, isHere), place, k.integer(sums.rows));
  };
  return sumByRows(context, call, sums, form);
}

//===----------------------------------------------------------------------===//
// Classes: a warp does a row of logits
//===----------------------------------------------------------------------===//

/// The rows of logits [.., v]; this warp does one.
struct ClassRow {
  ClassRow(const ThreadKernel &k, const kernels::Shape &logits, int numbers)
      : k(k), size(logits.back()), vocabulary{k, numbers, size}, row(k.divide(k.thread, k.lanes())),
        lane(k.remainder(k.thread, k.lanes())), begin(k.e.mul(row, k.integer(size))) {}

  /// Folds `body` over the classes of this lane, without padding. Lanes take turns with accesses of
  /// up to 16 bytes; what is left before the padding, they do class by class.
  SmallVector<Value>
  overClasses(ArrayRef<Value> carried,
              llvm::function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) const {
    int64_t each = ThreadKernel::elementsTogether(k.call.operands[0].dtype, {size});
    Value count = vocabulary.count();
    Value whole = k.e.sub(count, k.remainder(count, each));
    SmallVector<Value> folded = k.loop(
        k.e.mul(lane, k.integer(each)), whole, carried,
        [&](Value j, ArrayRef<Value> before) {
          SmallVector<Value> after(before);
          for (Value x : k.loadTogether(0, k.e.add(begin, j), each))
            after = body(x, after);
          return after;
        },
        k.lanes() * each);
    if (each == 1)
      return folded;
    return k.loop(
        k.e.add(whole, lane), count, folded,
        [&](Value j, ArrayRef<Value> before) { return body(k.load(0, k.e.add(begin, j)), before); },
        k.lanes());
  }
  void storeOnce(int result, Value value) const {
    k.ifThen(k.equal(lane, k.integer(0)), [&] { k.store(result, row, value); });
  }

  const ThreadKernel &k;
  int64_t size;
  Vocabulary vocabulary;
  Value row, lane, begin;
};

int64_t numRows(const OpCall &call) {
  return kernels::numElements(call.operands[0].shape) / call.operands[0].shape.back();
}

FailureOr<region::Kernel> classMax(MLIRContext &context, const OpCall &call, Form form) {
  ThreadKernel k(context, call, threadsOfWarps(numRows(call), form), form);
  ClassRow row(k, call.operands[0].shape, 1);
  Value lowest = k.number(double(std::numeric_limits<float>::lowest()));
  Value largest = row.overClasses({lowest}, [&](Value x, ArrayRef<Value> inner) {
    return SmallVector<Value>{k.e.larger(inner[0], x)};
  })[0];
  row.storeOnce(0, k.overWarp(largest, /*isSum=*/false));
  return k.finish();
}

/// The position of a label's class, whether this rank has it, and whether the label is invalid
/// (neither ignored nor a class).
struct LabelClass {
  LabelClass(const ThreadKernel &k, const Vocabulary &vocabulary, Value label, Value last) {
    Value ignored = k.integer(k.call.attrs.getInt("ignore_index"));
    Value isIgnored = k.equal(label, ignored);
    auto [at, found] = vocabulary.find(label);
    place = at;
    isHere = k.both(found, k.negate(isIgnored));
    Value isClass = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ule, label, last);
    isWrong = k.both(k.negate(isIgnored), k.negate(isClass));
  }
  Value place, isHere, isWrong;
};

FailureOr<region::Kernel> classSums(MLIRContext &context, const OpCall &call, Form form) {
  ThreadKernel k(context, call, threadsOfWarps(numRows(call), form), form);
  ClassRow row(k, call.operands[0].shape, 3);
  Value m = k.load(1, row.row);
  SmallVector<Value> sums =
      row.overClasses({k.number(0), k.number(0)}, [&](Value x, ArrayRef<Value> inner) {
        return SmallVector<Value>{k.e.add(inner[0], k.e.exp(k.e.sub(x, m))), k.e.add(inner[1], x)};
      });
  LabelClass label(k, row.vocabulary, k.load(2, row.row), k.load(4, k.integer(0)));
  Value chosen = k.choose(
      label.isHere, [&] { return SmallVector<Value>{k.load(0, k.e.add(row.begin, label.place))}; },
      [&] { return SmallVector<Value>{k.number(0)}; })[0];
  Value target = k.e.mul(chosen, k.number(call.attrs.getDouble("label_weight")));
  if (double weight = call.attrs.getDouble("class_weight"); weight != 0)
    target = k.e.add(target, k.e.mul(k.number(weight), k.overWarp(sums[1], true)));
  row.storeOnce(0, k.overWarp(sums[0], /*isSum=*/true));
  row.storeOnce(1, k.e.select(label.isWrong, k.number(notANumber), target));
  return k.finish();
}

/// How many accesses of a row a thread does, so that it finds the row and its label once for all.
int64_t accessesPerThread(int64_t accesses) {
  for (int64_t number : {4, 3, 2})
    if (accesses % number == 0)
      return number;
  return 1;
}

/// A thread does up to four accesses to logits of one row, which are equally far apart, so that
/// neighbouring threads access neighbouring logits. An access has up to 16 bytes.
FailureOr<region::Kernel> classSumsGrad(MLIRContext &context, const OpCall &call, Form form) {
  int64_t size = call.operands[0].shape.back();
  int64_t each = std::min(ThreadKernel::elementsTogether(call.operands[0].dtype, {size}),
                          ThreadKernel::elementsTogether(call.results[0].dtype, {size}));
  int64_t accesses = accessesPerThread(size / each), step = size / accesses;
  int64_t threadsOfRow = step / each;
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape) / each / accesses,
                 form);
  Value row = k.divide(k.thread, threadsOfRow), begin = k.e.mul(row, k.integer(size));
  Value first = k.e.mul(k.remainder(k.thread, threadsOfRow), k.integer(each));
  Vocabulary vocabulary{k, 3, size};
  Value label = k.load(2, row), m = k.load(1, row), scale = k.load(5, row),
        onLabel = k.load(6, row);
  auto [labelPlace, hasLabel] = vocabulary.find(label);
  Value isIgnored = k.equal(label, k.integer(call.attrs.getInt("ignore_index")));
  Value place = k.e.select(k.both(hasLabel, k.negate(isIgnored)), labelPlace, k.integer(-1));
  double onAll = call.attrs.getDouble("class_weight");
  // Products of each logit's gradient that are the same for the whole row.
  Value ofLabel = k.e.mul(onLabel, k.number(onAll + call.attrs.getDouble("label_weight")));
  Value ofAll = k.e.mul(onLabel, k.number(onAll));
  SmallVector<SmallVector<Value>> loaded;
  for (int64_t access = 0; access < accesses; ++access)
    loaded.push_back(
        k.loadTogether(0, k.e.add(begin, k.e.add(first, k.integer(access * step))), each));
  for (int64_t access = 0; access < accesses; ++access) {
    Value from = k.e.add(first, k.integer(access * step));
    SmallVector<Value> isClass = vocabulary.areNumbers(from, each);
    Value ofLabelHere = k.e.sub(place, from);
    SmallVector<Value> gradients;
    for (auto [part, x] : llvm::enumerate(loaded[size_t(access)])) {
      Value isLabel = k.equal(ofLabelHere, k.integer(int64_t(part)));
      Value added = k.e.select(isLabel, ofLabel, ofAll);
      Value dx = k.e.add(k.e.mul(scale, k.e.exp(k.e.sub(x, m))), added);
      gradients.push_back(k.e.select(isClass[part], dx, k.number(0)));
    }
    k.storeTogether(0, k.e.add(begin, from), gradients);
  }
  return k.finish();
}

} // namespace

const OpKernelTable &vocabularyOpKernels() {
  static const OpKernelTable table = {{"class_max", classMax},
                                      {"class_sums", classSums},
                                      {"class_sums_grad", classSumsGrad},
                                      {"embedding", embedding},
                                      {"embedding_grad", embeddingGrad}};
  return table;
}

} // namespace tbc::cuda
