//===- Indexing.cpp - Gather, scatter and top-k along one dim --------------===//
//
// A thread does an element. GPUs cannot report errors: an index out of range gives NaN, or the
// lowest integer, and the reference refuses it.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;

/// A shape as [outer][size along the op's dim][inner].
std::vector<int64_t> splitAt(const OpCall &call, const kernels::Shape &shape) {
  auto dim = size_t(call.attrs.getInt("dim"));
  std::vector<int64_t> sizes = {1, shape[dim], 1};
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != dim)
      sizes[d < dim ? 0 : 2] *= shape[d];
  return sizes;
}

/// Converts a negative index, counted from the end, to a position.
Value placeOf(const ThreadKernel &k, Value index, int64_t size) {
  return k.e.select(k.e.less(index, k.integer(0)), k.e.add(index, k.integer(size)), index);
}

/// Returns the marker of a missing element, for types that have one; null for others.
Value noNumber(const ThreadKernel &k, kernels::DType dtype) {
  if (kernels::isFloat(dtype))
    return k.number(std::numeric_limits<double>::quiet_NaN());
  if (dtype == kernels::DType::I64)
    return k.integer(std::numeric_limits<int64_t>::min());
  return k.integer(std::numeric_limits<int32_t>::min());
}

FailureOr<region::Kernel> gatherElements(MLIRContext &context, const OpCall &call, Form form) {
  kernels::DType dtype = call.results[0].dtype;
  if (!kernels::isFloat(dtype) && dtype != kernels::DType::I64 && dtype != kernels::DType::I32)
    return failure();
  std::vector<int64_t> table = splitAt(call, call.operands[0].shape);
  std::vector<int64_t> chosen = splitAt(call, call.results[0].shape);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  Values at = k.split(k.thread, chosen);
  at[1] = placeOf(k, k.load(1, k.thread), table[1]);
  Value isThere = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, at[1], k.integer(table[1]));
  Value value = k.choose(
      isThere, [&] { return Values{k.load(0, k.join(at, table))}; },
      [&] { return Values{noNumber(k, dtype)}; })[0];
  k.store(0, k.thread, value);
  return k.finish();
}

/// Adds in the order of the indices, so sums are the same on every run.
FailureOr<region::Kernel> scatterElementsAdd(MLIRContext &context, const OpCall &call, Form form) {
  if (!kernels::isFloat(call.results[0].dtype))
    return failure();
  std::vector<int64_t> table = splitAt(call, call.results[0].shape);
  std::vector<int64_t> chosen = splitAt(call, call.operands[0].shape);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  Values at = k.split(k.thread, table);
  Value sum =
      k.loop(k.integer(0), k.integer(chosen[1]), {k.number(0)}, [&](Value j, ArrayRef<Value> old) {
        Value offset = k.join({at[0], j, at[2]}, chosen);
        Value isHere = k.equal(placeOf(k, k.load(1, offset), table[1]), at[1]);
        return k.choose(
            isHere, [&] { return Values{k.e.add(old[0], k.load(0, offset))}; },
            [&] { return Values(old); });
      })[0];
  k.store(0, k.thread, sum);
  return k.finish();
}

/// Each element counts its predecessors in the order: the count is its position, stored if below k.
/// The order is total, with NaN above all numbers, so each position is taken once.
FailureOr<region::Kernel> topk(MLIRContext &context, const OpCall &call, Form form) {
  kernels::DType dtype = call.operands[0].dtype;
  if (dtype == kernels::DType::Bool)
    return failure();
  std::vector<int64_t> from = splitAt(call, call.operands[0].shape);
  std::vector<int64_t> to = splitAt(call, call.results[0].shape);
  ThreadKernel k(context, call, kernels::numElements(call.operands[0].shape), form);
  Values at = k.split(k.thread, from);
  Value own = k.load(0, k.thread);
  bool isLargest = call.attrs.getBool("largest");
  auto isAbove = [&](Value x, Value y) {
    Value above = k.e.less(y, x);
    if (!kernels::isFloat(dtype))
      return above;
    auto isNone = [&](Value value) {
      return Value(k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, value, value));
    };
    Value noneIsAbove = k.both(isNone(x), k.negate(isNone(y)));
    return Value(k.e.make<arith::OrIOp>(above, noneIsAbove));
  };
  Value place =
      k.loop(k.integer(0), k.integer(from[1]), {k.integer(0)}, [&](Value i, ArrayRef<Value> old) {
        Value other = k.load(0, k.join({at[0], i, at[2]}, from));
        Value above = isAbove(other, own), below = isAbove(own, other);
        Value isFirst = isLargest ? above : below, isLast = isLargest ? below : above;
        Value isEqualBefore = k.both(k.negate(isLast), k.e.less(i, at[1]));
        Value goesBefore = k.e.make<arith::OrIOp>(isFirst, isEqualBefore);
        return Values{k.e.select(goesBefore, k.e.add(old[0], k.integer(1)), old[0])};
      })[0];
  k.ifThen(k.e.less(place, k.integer(to[1])), [&] {
    Value offset = k.join({at[0], place, at[2]}, to);
    k.store(0, offset, own);
    k.store(1, offset, at[1]);
  });
  return k.finish();
}

} // namespace

const OpKernelTable &indexingOpKernels() {
  static const OpKernelTable table = {{"gather_elements", gatherElements},
                                      {"scatter_elements_add", scatterElementsAdd},
                                      {"topk", topk}};
  return table;
}

} // namespace tbc::cuda
