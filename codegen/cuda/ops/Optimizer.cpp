//===- Optimizer.cpp - Reductions over all gradients of a step --------------===//

#include "codegen/cuda/BlockShare.h"
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

/// Adds up `term` of all elements of all operands:
///   1. Each thread adds some; a warp adds the sums of its threads, and a block those of its warps.
///   2. The last block to end (`BlockShare::isLastOf`) adds the sums of all blocks, a thread each,
///      and then as in 1.
/// The number of blocks depends on shapes alone, and so does the order of the sum.
class SumOfAll {
public:
  SumOfAll(MLIRContext &context, const OpCall &call, TermFn term)
      : call(call), numBlocks(blocksFor(call)),
        whole(numBlocks == 1 ? call : withWorkspace(call, {kernels::DType::F32})),
        k(context, whole, numBlocks * threadsPerBlock, Form::Device), term(term),
        inBlock(k.remainder(k.thread, threadsPerBlock)),
        share(k.module(), k.builder, k.loc, inBlock) {}

  FailureOr<region::Kernel> emit() {
    Value sum = k.number(0);
    for (size_t i = 0; i < call.operands.size(); ++i)
      sum = sumOfOperand(k, int(i), numBlocks * threadsPerBlock, term, sum);
    Value ofBlock = overBlock(sum);
    Value isFirst = k.equal(inBlock, k.integer(0));
    if (numBlocks == 1) {
      k.ifThen(isFirst, [&] { k.store(0, k.integer(0), ofBlock); });
      return k.finish();
    }
    k.ifThen(isFirst, [&] { k.store(1, k.divide(k.thread, threadsPerBlock), ofBlock); });
    k.ifThen(share.isLastOf(k.integer(0), 1, numBlocks), [&] {
      Value isThere = k.e.less(inBlock, k.integer(numBlocks));
      Value partial = k.loadResult(1, k.e.select(isThere, inBlock, k.integer(0)));
      Value all = overBlock(k.e.select(isThere, partial, k.number(0)));
      k.ifThen(isFirst, [&] { k.store(0, k.integer(0), all); });
    });
    FailureOr<region::Kernel> kernel = k.finish();
    if (succeeded(kernel))
      kernel->workspaceBytes = numBlocks * int64_t(sizeof(float));
    return kernel;
  }

private:
  /// An H100 holds 1,056 blocks; with 64 bytes each thread has in flight, 256 move 4 MB. The last
  /// block has a thread for each.
  static int64_t blocksFor(const OpCall &call) {
    constexpr int64_t mostBlocks = threadsPerBlock, elementsOfBlock = 1 << 15;
    int64_t total = 0;
    for (const kernels::TensorType &type : call.operands)
      total += kernels::numElements(type.shape);
    return std::clamp(total / elementsOfBlock, int64_t(1), mostBlocks);
  }

  /// Returns the sum of `x` over the block, in every thread.
  Value overBlock(Value x) {
    Value ofWarp = k.overWarp(x, /*isSum=*/true);
    share.barrier();
    return share.overWarps(ofWarp, k.remainder(inBlock, warpThreads), threadsPerBlock / warpThreads,
                           k.integer(0),
                           [&](size_t, Value sum, Value other) { return k.e.add(sum, other); })[0];
  }

  const OpCall &call;
  const int64_t numBlocks;
  const OpCall whole; // with the sums of blocks
  ThreadKernel k;
  const TermFn term;
  Value inBlock; // i64
  BlockShare share;
};

/// The host form, which has no blocks: one thread adds all.
FailureOr<region::Kernel> sumInOneThread(MLIRContext &context, const OpCall &call, TermFn term) {
  ThreadKernel k(context, call, 1, Form::Host);
  Value sum = k.number(0);
  for (size_t i = 0; i < call.operands.size(); ++i)
    sum = sumOfOperand(k, int(i), 1, term, sum);
  k.store(0, k.integer(0), sum);
  return k.finish();
}

FailureOr<region::Kernel> sumOfAll(MLIRContext &context, const OpCall &call, Form form,
                                   TermFn term) {
  return form == Form::Host ? sumInOneThread(context, call, term)
                            : SumOfAll(context, call, term).emit();
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
