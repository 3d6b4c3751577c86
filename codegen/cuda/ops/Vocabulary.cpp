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
  /// Returns the position of `number` by bisection, and whether this rank has it.
  std::pair<Value, Value> find(Value number) const {
    Value zero = k.integer(0), last = k.integer(size - 1);
    auto clamped = [&](Value x) { return k.e.select(k.e.less(last, x), last, x); };
    Value steps = k.integer(int64_t(llvm::Log2_64_Ceil(uint64_t(size))) + 1);
    SmallVector<Value> range =
        k.loop(zero, steps, {zero, k.integer(size)}, [&](Value, ArrayRef<Value> inner) {
          Value middle = k.divide(k.e.add(inner[0], inner[1]), 2);
          Value found = numberAt(clamped(middle));
          Value isBefore = k.both(isNumber(found), k.e.less(found, number));
          Value isOpen = k.e.less(inner[0], inner[1]);
          Value goesUp = k.both(isOpen, isBefore);
          Value goesDown = k.both(isOpen, k.negate(isBefore));
          return SmallVector<Value>{k.e.select(goesUp, k.e.add(middle, k.integer(1)), inner[0]),
                                    k.e.select(goesDown, middle, inner[1])};
        });
    Value place = clamped(range[0]);
    return {place, k.equal(numberAt(place), number)};
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

/// A thread does an element of the result.
FailureOr<region::Kernel> embedding(MLIRContext &context, const OpCall &call, Form form) {
  int64_t width = rowElements(call.operands[0].shape);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  Value column = k.remainder(k.thread, width);
  auto [number, isKnown] =
      rowNumber(k, k.load(1, k.divide(k.thread, width)), k.load(3, k.integer(0)));
  auto [place, isHere] = Vocabulary{k, 2, call.operands[0].shape[0]}.find(number);
  Value otherwise = k.e.select(isKnown, k.number(0), k.number(notANumber));
  Value offset = k.e.add(k.e.mul(place, k.integer(width)), column);
  Value value = k.choose(
      k.both(isKnown, isHere), [&] { return SmallVector<Value>{k.load(0, offset)}; },
      [&] { return SmallVector<Value>{otherwise}; })[0];
  k.store(0, k.thread, value);
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

  /// Folds `body` over the classes of this lane, without padding.
  SmallVector<Value>
  overClasses(ArrayRef<Value> carried,
              llvm::function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) const {
    return k.loop(
        lane, k.integer(size), carried,
        [&](Value j, ArrayRef<Value> inner) {
          return k.choose(
              vocabulary.isNumber(vocabulary.numberAt(j)),
              [&] { return body(k.load(0, k.e.add(begin, j)), inner); },
              [&] { return SmallVector<Value>(inner); });
        },
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

/// How many logits of a row a thread does, so that it finds the row and its label once for all.
int64_t logitsPerThread(int64_t classes) {
  for (int64_t each : {8, 4, 2})
    if (classes % each == 0)
      return each;
  return 1;
}

/// A thread does logits of one row that are equally far apart, so neighbouring threads read and
/// write neighbouring logits.
FailureOr<region::Kernel> classSumsGrad(MLIRContext &context, const OpCall &call, Form form) {
  int64_t size = call.operands[0].shape.back(), each = logitsPerThread(size), step = size / each;
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape) / each, form);
  Value row = k.divide(k.thread, step), first = k.remainder(k.thread, step);
  Value begin = k.e.mul(row, k.integer(size));
  Vocabulary vocabulary{k, 3, size};
  Value label = k.load(2, row), m = k.load(1, row), scale = k.load(5, row),
        onLabel = k.load(6, row);
  Value isCounted = k.negate(k.equal(label, k.integer(call.attrs.getInt("ignore_index"))));
  double onAll = call.attrs.getDouble("class_weight");
  Value ofLabel = k.number(onAll + call.attrs.getDouble("label_weight")), ofAll = k.number(onAll);
  SmallVector<Value> places, gradients;
  for (int64_t part = 0; part < each; ++part) {
    Value j = k.e.add(first, k.integer(part * step));
    Value place = k.e.add(begin, j), number = vocabulary.numberAt(j);
    Value weight = k.e.select(k.both(k.equal(number, label), isCounted), ofLabel, ofAll);
    Value e = k.e.exp(k.e.sub(k.load(0, place), m));
    Value dx = k.e.add(k.e.mul(scale, e), k.e.mul(onLabel, weight));
    places.push_back(place);
    gradients.push_back(k.e.select(vocabulary.isNumber(number), dx, k.number(0)));
  }
  for (auto [place, gradient] : llvm::zip_equal(places, gradients))
    k.store(0, place, gradient);
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
