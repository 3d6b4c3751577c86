//===- Movement.cpp - Ops that move elements --------------------------------===//
//
// A thread does an element of the result.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/RowSums.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

/// A shape as [outer][size along `dim`][inner].
struct Split {
  Split(const kernels::Shape &shape, int64_t dim) : size(shape[size_t(dim)]) {
    for (int64_t d = 0; d < dim; ++d)
      outer *= shape[size_t(d)];
    for (size_t d = size_t(dim) + 1; d < shape.size(); ++d)
      inner *= shape[d];
  }
  std::vector<int64_t> sizes() const { return {outer, size, inner}; }
  int64_t outer = 1, size, inner = 1;
};

int64_t dimOf(const OpCall &call) { return call.attrs.getInt("dim"); }

Value zeroLike(const ThreadKernel &k, const kernels::TensorType &type) {
  if (kernels::isFloat(type.dtype))
    return k.number(0);
  bool isBool = type.dtype == kernels::DType::Bool;
  return k.e.make<arith::ConstantIntOp>(0, isBool ? 1 : 64);
}

FailureOr<region::Kernel> copy(MLIRContext &context, const OpCall &call, Form form) {
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  k.store(0, k.thread, k.load(0, k.thread));
  return k.finish();
}

FailureOr<region::Kernel> slice(MLIRContext &context, const OpCall &call, Form form) {
  Split from(call.operands[0].shape, dimOf(call)), to(call.results[0].shape, dimOf(call));
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at = k.split(k.thread, to.sizes());
  at[1] = k.e.add(at[1], k.integer(call.attrs.getInt("offset")));
  k.store(0, k.thread, k.load(0, k.join(at, from.sizes())));
  return k.finish();
}

FailureOr<region::Kernel> pad(MLIRContext &context, const OpCall &call, Form form) {
  Split from(call.operands[0].shape, dimOf(call)), to(call.results[0].shape, dimOf(call));
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at = k.split(k.thread, to.sizes());
  at[1] = k.e.sub(at[1], k.integer(call.attrs.getInt("low")));
  // Unsigned comparison: positions before the begin wrap to large numbers.
  Value isInside = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, at[1], k.integer(from.size));
  Value value = k.choose(
      isInside, [&] { return SmallVector<Value>{k.load(0, k.join(at, from.sizes()))}; },
      [&] { return SmallVector<Value>{zeroLike(k, call.results[0])}; })[0];
  k.store(0, k.thread, value);
  return k.finish();
}

FailureOr<region::Kernel> concat(MLIRContext &context, const OpCall &call, Form form) {
  Split to(call.results[0].shape, dimOf(call));
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at = k.split(k.thread, to.sizes());
  int64_t offset = 0;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    Split from(call.operands[i].shape, dimOf(call));
    Value index = k.e.sub(at[1], k.integer(offset));
    Value isHere = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, index, k.integer(from.size));
    k.ifThen(isHere, [&] {
      k.store(0, k.thread, k.load(int(i), k.join({at[0], index, at[2]}, from.sizes())));
    });
    offset += from.size;
  }
  return k.finish();
}

FailureOr<region::Kernel> iota(MLIRContext &context, const OpCall &call, Form form) {
  Split to(call.results[0].shape, dimOf(call));
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  k.store(0, k.thread, k.split(k.thread, to.sizes())[1]);
  return k.finish();
}

FailureOr<region::Kernel> transpose(MLIRContext &context, const OpCall &call, Form form) {
  const std::vector<int64_t> &permutation = call.attrs.getInts("permutation");
  const kernels::Shape &from = call.operands[0].shape;
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at(from.size());
  for (auto [dim, index] : llvm::zip_equal(permutation, k.split(k.thread, call.results[0].shape)))
    at[size_t(dim)] = index;
  k.store(0, k.thread, k.load(0, k.join(at, from)));
  return k.finish();
}

/// Small constants become part of the code.
FailureOr<region::Kernel> constant(MLIRContext &context, const OpCall &call, Form form) {
  constexpr int64_t mostNumbers = 1024;
  int64_t count = kernels::numElements(call.results[0].shape);
  const kernels::AttrValue *value = call.attrs.find("value");
  if (count > mostNumbers || !value)
    return failure();
  kernels::DType dtype = call.results[0].dtype;
  ThreadKernel k(context, call, count, form);
  auto build = [&](auto number) -> Value {
    if (kernels::isFloat(dtype))
      return k.number(double(number));
    return k.e.make<arith::ConstantIntOp>(int64_t(number), dtype == kernels::DType::Bool ? 1 : 64);
  };
  Value chosen;
  auto choose = [&](const auto &numbers) {
    chosen = build(numbers[0]);
    for (size_t i = 1; i < numbers.size(); ++i)
      chosen = k.e.select(k.equal(k.thread, k.integer(int64_t(i))), build(numbers[i]), chosen);
  };
  if (const auto *integers = std::get_if<std::vector<int64_t>>(value))
    choose(*integers);
  else if (const auto *numbers = std::get_if<std::vector<double>>(value))
    choose(*numbers);
  else
    return failure();
  k.store(0, k.thread, chosen);
  return k.finish();
}

/// A thread does a pair of elements.
FailureOr<region::Kernel> rotary(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::Shape &shape = call.operands[0].shape;
  int64_t length = shape[shape.size() - 2], half = shape.back() / 2;
  bool isPerSample = call.operands[1].shape.size() == 3 && shape.size() >= 3;
  int64_t rows = kernels::numElements(shape) / (2 * half);
  ThreadKernel k(context, call, rows * half, form);
  Value row = k.divide(k.thread, half), i = k.remainder(k.thread, half);
  Value angleRow = k.remainder(row, length);
  if (isPerSample)
    angleRow = k.e.add(k.e.mul(k.divide(row, rows / shape[0]), k.integer(length)), angleRow);
  Value angle = k.e.add(k.e.mul(angleRow, k.integer(half)), i);
  Value cosine = k.load(1, angle), sine = k.load(2, angle);
  if (call.attrs.getBool("inverse", false))
    sine = k.e.neg(sine);
  Value first = k.e.add(k.e.mul(row, k.integer(2 * half)), i);
  Value second = k.e.add(first, k.integer(half));
  Value x = k.load(0, first), y = k.load(0, second);
  k.store(0, first, k.e.sub(k.e.mul(x, cosine), k.e.mul(y, sine)));
  k.store(0, second, k.e.add(k.e.mul(y, cosine), k.e.mul(x, sine)));
  return k.finish();
}

/// Converts a negative index, counted from the end, and returns whether the row exists.
std::pair<Value, Value> placeOf(const ThreadKernel &k, Value index, int64_t size) {
  Value place = k.e.select(k.e.less(index, k.integer(0)), k.e.add(index, k.integer(size)), index);
  return {place, k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, place, k.integer(size))};
}

/// GPUs cannot report errors: an index out of range gives NaN.
FailureOr<region::Kernel> gather(MLIRContext &context, const OpCall &call, Form form) {
  if (!kernels::isFloat(call.results[0].dtype))
    return failure();
  Split table(call.operands[0].shape, dimOf(call));
  int64_t count = kernels::numElements(call.operands[1].shape);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at = k.split(k.thread, {table.outer, count, table.inner});
  auto [place, isThere] = placeOf(k, k.load(1, at[1]), table.size);
  at[1] = place;
  Value value = k.choose(
      isThere, [&] { return SmallVector<Value>{k.load(0, k.join(at, table.sizes()))}; },
      [&] { return SmallVector<Value>{k.number(std::numeric_limits<double>::quiet_NaN())}; })[0];
  k.store(0, k.thread, value);
  return k.finish();
}

/// An index out of range adds nothing.
FailureOr<region::Kernel> scatterAdd(MLIRContext &context, const OpCall &call, Form form) {
  if (!kernels::isFloat(call.results[0].dtype))
    return failure();
  Split table(call.results[0].shape, dimOf(call));
  RowSums sums;
  sums.outer = table.outer, sums.rows = table.size, sums.width = table.inner;
  sums.count = kernels::numElements(call.operands[1].shape);
  sums.rowOf = [&](const ThreadKernel &k, Value update) {
    auto [place, isThere] = placeOf(k, k.load(1, update), table.size);
    return k.e.select(isThere, place, k.integer(table.size));
  };
  return sumByRows(context, call, sums, form);
}

} // namespace

const OpKernelTable &movementOpKernels() {
  static const OpKernelTable table = {
      {"concat", concat},      {"constant", constant}, {"gather", gather},
      {"iota", iota},          {"pad", pad},           {"reshape", copy},
      {"rotary", rotary},      {"slice", slice},       {"scatter_add", scatterAdd},
      {"transpose", transpose}};
  return table;
}

} // namespace tbc::cuda
