//===- Loss.cpp - Cross entropy on GPUs -------------------------------------===//
//
// GPUs cannot report errors: a label out of range gives NaN.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

struct Label {
  Label(const ThreadKernel &k, Value row, int64_t classes) : value(k.load(1, row)) {
    isIgnored = k.equal(value, k.integer(k.call.attrs.getInt("ignore_index", -100)));
    isClass = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, value, k.integer(classes));
  }
  Value value, isIgnored, isClass;
};

Value noNumber(const ThreadKernel &k) { return k.number(std::numeric_limits<double>::quiet_NaN()); }

/// A warp does a row of logits, in two passes.
FailureOr<region::Kernel> crossEntropy(MLIRContext &context, const OpCall &call, Form form) {
  int64_t classes = call.operands[0].shape.back();
  int64_t rows = kernels::numElements(call.operands[0].shape) / classes;
  ThreadKernel k(context, call, threadsOfWarps(rows, form), form);
  Value row = k.divide(k.thread, k.lanes()), lane = k.remainder(k.thread, k.lanes());
  Value begin = k.e.mul(row, k.integer(classes)), end = k.integer(classes);
  auto logit = [&](Value j) { return k.load(0, k.e.add(begin, j)); };
  Value largest = k.loop(
      lane, end, {k.number(-std::numeric_limits<double>::infinity())},
      [&](Value j, ArrayRef<Value> inner) {
        return SmallVector<Value>{k.e.larger(inner[0], logit(j))};
      },
      k.lanes())[0];
  Value m = k.overWarp(largest, /*isSum=*/false);
  SmallVector<Value> sums = k.loop(
      lane, end, {k.number(0), k.number(0)},
      [&](Value j, ArrayRef<Value> inner) {
        Value x = logit(j);
        return SmallVector<Value>{k.e.add(inner[0], k.e.exp(k.e.sub(x, m))), k.e.add(inner[1], x)};
      },
      k.lanes());
  Value l = k.overWarp(sums[0], /*isSum=*/true);
  Label label(k, row, classes);
  Value chosen = k.choose(
      label.isClass, [&] { return SmallVector<Value>{logit(label.value)}; },
      [&] { return SmallVector<Value>{noNumber(k)}; })[0];
  if (double smoothing = call.attrs.getDouble("label_smoothing", 0); smoothing != 0) {
    Value all = k.overWarp(sums[1], /*isSum=*/true);
    chosen = k.e.add(k.e.mul(k.number(1 - smoothing), chosen),
                     k.e.mul(k.number(smoothing / double(classes)), all));
  }
  Value loss = k.e.sub(k.e.add(m, k.e.make<math::LogOp>(l)), chosen);
  k.ifThen(k.equal(lane, k.integer(0)), [&] {
    k.store(0, row, k.e.select(label.isIgnored, k.number(0), loss));
    k.store(1, row, m);
    k.store(2, row, l);
  });
  return k.finish();
}

/// A thread does a logit.
FailureOr<region::Kernel> crossEntropyGrad(MLIRContext &context, const OpCall &call, Form form) {
  int64_t classes = call.operands[0].shape.back();
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  Value row = k.divide(k.thread, classes), j = k.remainder(k.thread, classes);
  Label label(k, row, classes);
  double smoothing = call.attrs.getDouble("label_smoothing", 0);
  double elsewhere = smoothing / double(classes);
  Value target =
      k.e.select(k.equal(j, label.value), k.number(elsewhere + 1 - smoothing), k.number(elsewhere));
  Value probability =
      k.e.div(k.e.exp(k.e.sub(k.load(0, k.thread), k.load(2, row))), k.load(3, row));
  Value dx = k.e.mul(k.load(4, row), k.e.sub(probability, target));
  dx = k.e.select(label.isClass, dx, noNumber(k));
  k.store(0, k.thread, k.e.select(label.isIgnored, k.number(0), dx));
  return k.finish();
}

} // namespace

const OpKernelTable &lossOpKernels() {
  static const OpKernelTable table = {{"cross_entropy", crossEntropy},
                                      {"cross_entropy_grad", crossEntropyGrad}};
  return table;
}

} // namespace tbc::cuda
