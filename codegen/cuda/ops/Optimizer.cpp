//===- Optimizer.cpp - Reductions over all gradients of a step --------------===//

#include "codegen/cuda/ThreadKernel.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using TermFn = Value (*)(const ThreadKernel &, Value);

/// Adds the terms of operand `number` that are this thread's, of `numThreads`. It takes accesses of
/// 16 bytes, several in flight.
Value sumOfOperand(const ThreadKernel &k, int number, int64_t numThreads, TermFn term, Value sum) {
  constexpr int64_t accessBytes = 16, atOnce = 4;
  const kernels::TensorType &type = k.call.operands[size_t(number)];
  int64_t count = kernels::numElements(type.shape);
  int64_t each = accessBytes / kernels::byteWidth(type.dtype), accesses = count / each;
  SmallVector<Value> sums(size_t(each), k.number(0));
  sums[0] = sum;
  auto addAccesses = [&](Value first, int64_t numAccesses, ArrayRef<Value> before) {
    SmallVector<SmallVector<Value>> loaded;
    for (int64_t i = 0; i < numAccesses; ++i) {
      Value access = k.e.add(first, k.integer(i * numThreads));
      loaded.push_back(k.loadTogether(number, k.e.mul(access, k.integer(each)), each));
    }
    SmallVector<Value> after(before);
    for (ArrayRef<Value> elements : loaded)
      for (auto [total, element] : llvm::zip_equal(after, elements))
        total = k.e.add(total, term(k, element));
    return after;
  };
  int64_t together = numThreads * atOnce, whole = accesses / together * together;
  if (whole > 0)
    sums = k.loop(
        k.thread, k.integer(whole), sums,
        [&](Value first, ArrayRef<Value> inner) { return addAccesses(first, atOnce, inner); },
        together);
  if (whole < accesses)
    sums = k.loop(
        k.e.add(k.thread, k.integer(whole)), k.integer(accesses), sums,
        [&](Value first, ArrayRef<Value> inner) { return addAccesses(first, 1, inner); },
        numThreads);
  if (int64_t done = accesses * each; done < count)
    sums[0] = k.loop(
        k.e.add(k.thread, k.integer(done)), k.integer(count), {sums[0]},
        [&](Value index, ArrayRef<Value> inner) {
          return SmallVector<Value>{k.e.add(inner[0], term(k, k.load(number, index)))};
        },
        numThreads)[0];
  Value total = sums[0];
  for (Value part : ArrayRef<Value>(sums).drop_front())
    total = k.e.add(total, part);
  return total;
}

/// Adds up `term` of all elements of all operands. Every warp of the grid adds some, and writes a
/// partial sum; then one warp adds these. The number of warps depends on shapes alone, and so does
/// the order of the sum.
FailureOr<region::Kernel> sumOfAll(MLIRContext &context, const OpCall &call, Form form,
                                   TermFn term) {
  // An H100 holds 8,448 warps; with 64 bytes each thread has in flight, 2,048 move 4 MB.
  constexpr int64_t mostWarps = 2048, elementsOfWarp = 4096;
  int64_t total = 0;
  for (const kernels::TensorType &type : call.operands)
    total += kernels::numElements(type.shape);
  int64_t warps = std::clamp(total / elementsOfWarp, int64_t(1), mostWarps);
  bool isOne = warps == 1;
  OpCall parts = isOne ? call : withWorkspace(call, {kernels::DType::F32});
  int result = isOne ? 0 : 1;
  ThreadKernel k(context, parts, threadsOfWarps(warps, form), form);
  Value sum = k.number(0);
  for (size_t i = 0; i < call.operands.size(); ++i)
    sum = sumOfOperand(k, int(i), threadsOfWarps(warps, form), term, sum);
  sum = k.overWarp(sum, /*isSum=*/true);
  Value warp = k.divide(k.thread, k.lanes());
  k.ifThen(k.equal(k.remainder(k.thread, k.lanes()), k.integer(0)),
           [&] { k.store(result, warp, sum); });
  FailureOr<region::Kernel> first = k.finish();
  if (failed(first) || isOne)
    return first;
  ThreadKernel last(context, parts, threadsOfWarps(1, form), form);
  SmallVector<Value> partials;
  for (int64_t i = 0; i < warps; i += last.lanes()) {
    Value index = last.e.add(last.thread, last.integer(i));
    Value isThere = last.e.less(index, last.integer(warps));
    Value partial = last.loadResult(1, last.e.select(isThere, index, last.integer(0)));
    partials.push_back(last.e.select(isThere, partial, last.number(0)));
  }
  Value all = last.number(0);
  for (Value partial : partials)
    all = last.e.add(all, partial);
  all = last.overWarp(all, /*isSum=*/true);
  last.ifThen(last.equal(last.thread, last.integer(0)),
              [&] { last.store(0, last.integer(0), all); });
  FailureOr<region::Kernel> second = last.finish();
  if (failed(second))
    return failure();
  region::Kernel launches[] = {std::move(*first), std::move(*second)};
  return joinLaunches(launches, warps * int64_t(sizeof(float)));
}

FailureOr<region::Kernel> squareSum(MLIRContext &context, const OpCall &call, Form form) {
  return sumOfAll(context, call, form,
                  [](const ThreadKernel &k, Value x) { return k.e.mul(x, x); });
}

FailureOr<region::Kernel> countNotFinite(MLIRContext &context, const OpCall &call, Form form) {
  return sumOfAll(context, call, form, [](const ThreadKernel &k, Value x) {
    Value size = k.e.make<math::AbsFOp>(x);
    Value isFinite = k.e.less(size, k.number(std::numeric_limits<double>::infinity()));
    return k.e.select(isFinite, k.number(0), k.number(1));
  });
}

FailureOr<region::Kernel> stepTotal(MLIRContext &context, const OpCall &call, Form form) {
  ThreadKernel k(context, call, 1, form);
  for (size_t i = 0; i < call.operands.size(); ++i)
    k.store(int(i), k.integer(0), k.load(int(i), k.integer(0)));
  return k.finish();
}

} // namespace

const OpKernelTable &optimizerOpKernels() {
  static const OpKernelTable table = {
      {"count_not_finite", countNotFinite}, {"square_sum", squareSum}, {"step_total", stepTotal}};
  return table;
}

} // namespace tbc::cuda
