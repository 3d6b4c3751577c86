//===- Optimizer.cpp - Reductions over all gradients of a step --------------===//

#include "codegen/cuda/ThreadKernel.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

/// One warp adds up `term` of all elements of all operands. A lane keeps several loads in flight;
/// the order of its sum depends on shapes alone.
FailureOr<region::Kernel> sumOfAll(MLIRContext &context, const OpCall &call, Form form,
                                   Value (*term)(const ThreadKernel &, Value)) {
  constexpr int64_t atOnce = 16;
  ThreadKernel k(context, call, threadsOfWarps(1, form), form);
  int64_t lanes = k.lanes();
  Value sum = k.number(0);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    int64_t count = kernels::numElements(call.operands[i].shape);
    int64_t whole = count / (lanes * atOnce) * (lanes * atOnce);
    auto add = [&](Value total, Value index) {
      return k.e.add(total, term(k, k.load(int(i), index)));
    };
    SmallVector<Value> parts(size_t(atOnce), k.number(0));
    parts = k.loop(
        k.thread, k.integer(whole), parts,
        [&](Value index, ArrayRef<Value> inner) {
          SmallVector<Value> next;
          for (int64_t j = 0; j < atOnce; ++j)
            next.push_back(add(inner[size_t(j)], k.e.add(index, k.integer(j * lanes))));
          return next;
        },
        lanes * atOnce);
    for (Value part : parts)
      sum = k.e.add(sum, part);
    sum = k.loop(
        k.e.add(k.thread, k.integer(whole)), k.integer(count), {sum},
        [&](Value index, ArrayRef<Value> inner) {
          return SmallVector<Value>{add(inner[0], index)};
        },
        lanes)[0];
  }
  sum = k.overWarp(sum, /*isSum=*/true);
  k.ifThen(k.equal(k.thread, k.integer(0)), [&] { k.store(0, k.integer(0), sum); });
  return k.finish();
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
