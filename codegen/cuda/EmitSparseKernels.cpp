//===- EmitSparseKernels.cpp - GPU kernels of compressed all-reduce ---------===//

#include "codegen/cuda/EmitSparseKernels.h"

#include "codegen/cuda/ThreadKernel.h"
#include "codegen/region/RegionFunction.h"
#include "runtime/abi/SparseKernels.h"

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;
namespace sparse = program::sparse;

namespace {

/// Returns a call whose parameters are `read`, then `written`. Indices in `both` are operands that
/// are written too.
OpCall callOf(const std::vector<DType> &read, const std::vector<DType> &written,
              const std::vector<int> &both = {}) {
  OpCall call;
  for (DType dtype : read) {
    call.operandBuffers.push_back(call.numBuffers++);
    call.operands.push_back({dtype, {}});
  }
  for (int operand : both) {
    call.resultBuffers.push_back(operand);
    call.results.push_back(call.operands[size_t(operand)]);
  }
  for (DType dtype : written) {
    call.resultBuffers.push_back(call.numBuffers++);
    call.results.push_back({dtype, {}});
  }
  return call;
}

int64_t numThreadsOf(Form form) {
  return form == Form::Device ? sparse::numThreads : sparseThreadsOnHost;
}

Value shiftRight(const ThreadKernel &k, Value x, Value by) {
  return k.e.make<arith::ShRUIOp>(x, by);
}
/// Converts a condition to 1 or 0, as i64.
Value asNumber(const ThreadKernel &k, Value condition) {
  return k.e.make<arith::ExtUIOp>(k.e.builder.getI64Type(), condition);
}
Value smaller(const ThreadKernel &k, Value x, Value y) { return k.e.make<arith::MinSIOp>(x, y); }

FailureOr<region::Kernel> emitAdd(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::F32, DType::I64, DType::F32}, {}, {2});
  ThreadKernel k(context, call, numThreadsOf(form), form);
  k.loop(
      k.thread, k.load(1, k.integer(0)), {},
      [&](Value i, ArrayRef<Value>) {
        k.store(0, i, k.e.add(k.load(2, i), k.load(0, i)));
        return SmallVector<Value>();
      },
      numThreadsOf(form));
  return k.finish();
}

FailureOr<region::Kernel> emitCount(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::F32, DType::I64, DType::I64}, {DType::I32});
  ThreadKernel k(context, call, numThreadsOf(form), form);
  Value prefix = k.load(1, k.integer(0)), shift = k.load(1, k.integer(2));
  Value above = k.e.add(shift, k.integer(sparse::digitBits));
  Type i32 = k.builder.getI32Type(); // the type of shuffles
  SmallVector<Value> counts(size_t(sparse::numDigits), k.e.constant(i32, 0));
  counts = k.loop(
      k.thread, k.load(2, k.integer(0)), counts,
      [&](Value i, ArrayRef<Value> before) {
        Value key = k.magnitudeBits(k.load(0, i));
        Value isCounted = k.equal(shiftRight(k, key, above), prefix);
        Value digit =
            k.e.make<arith::AndIOp>(shiftRight(k, key, shift), k.integer(sparse::numDigits - 1));
        SmallVector<Value> after;
        for (int64_t d = 0; d < sparse::numDigits; ++d) {
          Value isIt = k.both(isCounted, k.equal(digit, k.integer(d)));
          after.push_back(k.e.add(before[size_t(d)], Value(k.e.make<arith::ExtUIOp>(i32, isIt))));
        }
        return after;
      },
      numThreadsOf(form));
  for (Value &count : counts)
    count = k.overWarp(count, /*isSum=*/true);
  k.ifThen(k.equal(k.remainder(k.thread, k.lanes()), k.integer(0)), [&] {
    Value first = k.e.mul(k.divide(k.thread, k.lanes()), k.integer(sparse::numDigits));
    for (int64_t d = 0; d < sparse::numDigits; ++d)
      k.store(0, k.e.add(first, k.integer(d)), asNumber(k, counts[size_t(d)]));
  });
  return k.finish();
}

FailureOr<region::Kernel> emitChoose(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::I32, DType::I64}, {}, {1});
  ThreadKernel k(context, call, threadsOfWarps(1, form), form);
  Type i32 = k.builder.getI32Type();
  SmallVector<Value> counts(size_t(sparse::numDigits), k.e.constant(i32, 0));
  counts = k.loop(
      k.thread, k.integer(numThreadsOf(form) / k.lanes()), counts,
      [&](Value warp, ArrayRef<Value> before) {
        Value first = k.e.mul(warp, k.integer(sparse::numDigits));
        SmallVector<Value> after;
        for (int64_t d = 0; d < sparse::numDigits; ++d) {
          Value count = k.load(0, k.e.add(first, k.integer(d)));
          after.push_back(k.e.add(before[size_t(d)], Value(k.e.make<arith::TruncIOp>(i32, count))));
        }
        return after;
      },
      k.lanes());
  for (Value &count : counts)
    count = k.overWarp(count, /*isSum=*/true);
  k.ifThen(k.equal(k.thread, k.integer(0)), [&] {
    // Searches from the largest digit down to the one that contains the last wanted element.
    Value left = k.load(1, k.integer(1)), digit = k.integer(0);
    Value isFound = k.e.make<arith::ConstantIntOp>(0, 1);
    for (int64_t d = sparse::numDigits - 1; d >= 0; --d) {
      Value count = asNumber(k, counts[size_t(d)]), isOpen = k.negate(isFound);
      Value isIt = k.both(isOpen, k.negate(k.e.less(count, left)));
      digit = k.e.select(isIt, k.integer(d), digit);
      left = k.e.select(k.both(isOpen, k.negate(isIt)), k.e.sub(left, count), left);
      isFound = k.e.make<arith::OrIOp>(isFound, isIt);
    }
    Value prefix = k.e.mul(k.load(1, k.integer(0)), k.integer(sparse::numDigits));
    Value shift = k.e.sub(k.load(1, k.integer(2)), k.integer(sparse::digitBits));
    k.store(0, k.integer(0), k.e.add(prefix, digit));
    k.store(0, k.integer(1), left);
    k.store(0, k.integer(2), shift);
  });
  return k.finish();
}

/// Returns the range of elements of this thread; all threads have ranges of equal length.
std::pair<Value, Value> stretchOf(const ThreadKernel &k, Value count, Form form) {
  int64_t numThreads = numThreadsOf(form);
  Value length = k.divide(k.e.add(count, k.integer(numThreads - 1)), numThreads);
  Value begin = smaller(k, k.e.mul(k.thread, length), count);
  return {begin, smaller(k, k.e.add(begin, length), count)};
}

FailureOr<region::Kernel> emitTally(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::F32, DType::I64, DType::I64}, {DType::I32, DType::I32});
  ThreadKernel k(context, call, numThreadsOf(form), form);
  Value threshold = k.load(1, k.integer(0));
  auto [begin, end] = stretchOf(k, k.load(2, k.integer(0)), form);
  Type i32 = k.builder.getI32Type();
  SmallVector<Value> tallies(2, k.e.constant(i32, 0));
  tallies = k.loop(begin, end, tallies, [&](Value i, ArrayRef<Value> before) {
    Value key = k.magnitudeBits(k.load(0, i));
    Value isAbove = k.e.less(threshold, key), isEqual = k.equal(threshold, key);
    return SmallVector<Value>{k.e.add(before[0], Value(k.e.make<arith::ExtUIOp>(i32, isAbove))),
                              k.e.add(before[1], Value(k.e.make<arith::ExtUIOp>(i32, isEqual)))};
  });
  auto storeBoth = [&](int result, Value place) {
    Value first = k.e.mul(place, k.integer(2));
    k.store(result, first, asNumber(k, tallies[0]));
    k.store(result, k.e.add(first, k.integer(1)), asNumber(k, tallies[1]));
  };
  storeBoth(0, k.thread);
  for (Value &tally : tallies)
    tally = k.overWarp(tally, /*isSum=*/true);
  k.ifThen(k.equal(k.remainder(k.thread, k.lanes()), k.integer(0)),
           [&] { storeBoth(1, k.divide(k.thread, k.lanes())); });
  return k.finish();
}

FailureOr<region::Kernel> emitTake(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::I32, DType::I32, DType::I64, DType::I64, DType::F32},
                       {DType::I32, DType::F32}, {4});
  ThreadKernel k(context, call, numThreadsOf(form), form);
  Value threshold = k.load(2, k.integer(0)), numEqual = k.load(2, k.integer(1));
  // Adds up the counts of earlier threads: first whole warps, then lanes of the same warp.
  auto addUp = [&](int tallies, Value begin, Value end, ArrayRef<Value> before) {
    return k.loop(begin, end, before, [&](Value place, ArrayRef<Value> sums) {
      Value first = k.e.mul(place, k.integer(2));
      return SmallVector<Value>{k.e.add(sums[0], k.load(tallies, first)),
                                k.e.add(sums[1], k.load(tallies, k.e.add(first, k.integer(1))))};
    });
  };
  Value warp = k.divide(k.thread, k.lanes());
  SmallVector<Value> before(2, k.integer(0));
  before = addUp(1, k.integer(0), warp, before);
  before = addUp(0, k.e.mul(warp, k.integer(k.lanes())), k.thread, before);
  auto [begin, end] = stretchOf(k, k.load(3, k.integer(0)), form);
  k.loop(begin, end, before, [&](Value i, ArrayRef<Value> passed) {
    Value value = k.load(4, i), key = k.magnitudeBits(value);
    Value isAbove = k.e.less(threshold, key), isEqual = k.equal(threshold, key);
    Value isFirst = k.both(isEqual, k.e.less(passed[1], numEqual));
    k.ifThen(k.e.make<arith::OrIOp>(isAbove, isFirst), [&] {
      Value place = k.e.add(passed[0], smaller(k, passed[1], numEqual));
      k.store(1, place, i);
      k.store(2, place, value);
      k.store(0, i, k.number(0));
    });
    return SmallVector<Value>{k.e.add(passed[0], asNumber(k, isAbove)),
                              k.e.add(passed[1], asNumber(k, isEqual))};
  });
  return k.finish();
}

FailureOr<region::Kernel> emitSum(MLIRContext &context, Form form) {
  OpCall call = callOf({DType::I32, DType::F32, DType::I64}, {DType::F32});
  ThreadKernel k(context, call, numThreadsOf(form), form);
  Value numRanks = k.load(2, k.integer(0)), numEntries = k.load(2, k.integer(1));
  Value words = k.load(2, k.integer(2)), first = k.load(2, k.integer(3));
  Value numSteps = k.load(2, k.integer(4));
  Type f64 = k.builder.getF64Type();
  auto firstOf = [&](Value rank) { return k.e.add(k.e.mul(rank, words), first); };
  auto wide = [&](Value x) { return Value(k.e.make<arith::ExtFOp>(f64, x)); };
  // Returns whether a rank has sent a value for this index, and its position.
  auto search = [&](Value rank, Value index) {
    Value begin = firstOf(rank), last = k.e.sub(numEntries, k.integer(1));
    Value lower = k.loop(
        k.integer(0), numSteps, {k.integer(0), numEntries}, [&](Value, ArrayRef<Value> range) {
          Value middle = shiftRight(k, k.e.add(range[0], range[1]), k.integer(1));
          Value word = k.load(0, k.e.add(begin, smaller(k, middle, last)));
          // Unused entries are negative and come last.
          Value isBefore = k.both(k.negate(k.e.less(word, k.integer(0))), k.e.less(word, index));
          Value isOpen = k.e.less(range[0], range[1]);
          Value next = k.e.add(middle, k.integer(1));
          return SmallVector<Value>{
              k.e.select(k.both(isOpen, isBefore), next, range[0]),
              k.e.select(k.both(isOpen, k.negate(isBefore)), middle, range[1])};
        })[0];
    Value at = k.e.add(begin, smaller(k, lower, last));
    return std::pair(k.equal(k.load(0, at), index), at);
  };
  k.loop(
      k.thread, k.e.mul(numRanks, numEntries), {},
      [&](Value i, ArrayRef<Value>) {
        Value rank = k.e.make<arith::DivUIOp>(i, numEntries);
        Value entry = k.e.make<arith::RemUIOp>(i, numEntries);
        Value at = k.e.add(firstOf(rank), entry), index = k.load(0, at);
        k.ifThen(k.negate(k.e.less(index, k.integer(0))), [&] {
          // The first rank that has sent an index adds up the values of all ranks.
          Value isLater =
              k.loop(k.integer(0), rank, {k.integer(0)}, [&](Value other, ArrayRef<Value> found) {
                return SmallVector<Value>{
                    k.e.add(found[0], asNumber(k, search(other, index).first))};
              })[0];
          k.ifThen(k.equal(isLater, k.integer(0)), [&] {
            Value sum = wide(k.load(1, k.e.add(at, numEntries)));
            sum = k.loop(k.e.add(rank, k.integer(1)), numRanks, {sum},
                         [&](Value other, ArrayRef<Value> before) {
                           auto [isThere, where] = search(other, index);
                           Value value = wide(k.load(1, k.e.add(where, numEntries)));
                           return SmallVector<Value>{
                               k.e.select(isThere, k.e.add(before[0], value), before[0])};
                         })[0];
            k.store(0, index, k.e.make<arith::TruncFOp>(k.builder.getF32Type(), sum));
          });
        });
        return SmallVector<Value>();
      },
      numThreadsOf(form));
  return k.finish();
}

} // namespace

std::vector<std::pair<const char *, region::Kernel>> emitSparseKernels(MLIRContext &context,
                                                                       Form form) {
  using EmitFn = FailureOr<region::Kernel> (*)(MLIRContext &, Form);
  std::vector<std::pair<const char *, region::Kernel>> list;
  for (auto [symbol, emit] : {std::pair<const char *, EmitFn>(sparse::add, emitAdd),
                              {sparse::count, emitCount},
                              {sparse::choose, emitChoose},
                              {sparse::tally, emitTally},
                              {sparse::take, emitTake},
                              {sparse::sum, emitSum}}) {
    FailureOr<region::Kernel> kernel = emit(context, form);
    region::functionOf(*kernel->module).setName(symbol); // few threads, so it always exists
    list.emplace_back(symbol, std::move(*kernel));
  }
  return list;
}

} // namespace tbc::cuda
