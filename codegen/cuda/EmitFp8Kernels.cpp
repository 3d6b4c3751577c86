//===- EmitFp8Kernels.cpp - GPU kernels that quantise matrices to fp8 -------===//

#include "codegen/cuda/EmitFp8Kernels.h"

#include "codegen/cuda/ThreadKernel.h"
#include "codegen/region/RegionFunction.h"

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;
namespace fp8 = program::fp8;
using fp8::Format;

namespace {

constexpr int64_t floatBias = 127, floatMantissa = 23;
constexpr int64_t infinityBits = 0x7f800000, nanBits = 0x7fc00000;

/// The bit layout of a format; codes are sign, exponent, mantissa.
struct Layout {
  int64_t mantissa; // bits
  int64_t bias;
  int64_t top;     // exponent of the largest number, 1.75 * 2^top
  int64_t largest; // code of the largest number
};
constexpr int64_t nanCode = 0x7f;
constexpr int64_t codesOfWord = 4; // lowest bits first, in the byte order of GPUs and hosts

Layout layoutOf(Format format) {
  return format == Format::E4M3 ? Layout{3, 7, 8, 0x7e} : Layout{2, 15, 15, 0x7b};
}

int64_t numThreadsOf(Form form) {
  return form == Form::Device ? fp8::numThreads : fp8ThreadsOnHost;
}

/// Returns a call that reads operands of types `read` and writes type `written`.
OpCall callOf(const std::vector<DType> &read, DType written) {
  OpCall call;
  for (DType dtype : read) {
    call.operandBuffers.push_back(call.numBuffers++);
    call.operands.push_back({dtype, {}});
  }
  call.resultBuffers.push_back(call.numBuffers++);
  call.results.push_back({written, {}});
  return call;
}

Value shiftRight(const ThreadKernel &k, Value x, int64_t by) {
  return k.e.make<arith::ShRUIOp>(x, k.integer(by));
}
Value shiftLeft(const ThreadKernel &k, Value x, int64_t by) {
  return k.e.make<arith::ShLIOp>(x, k.integer(by));
}
Value smaller(const ThreadKernel &k, Value x, Value y) { return k.e.make<arith::MinSIOp>(x, y); }
Value larger(const ThreadKernel &k, Value x, Value y) { return k.e.make<arith::MaxSIOp>(x, y); }
Value narrowed(const ThreadKernel &k, Value x) {
  return k.e.make<arith::TruncIOp>(k.e.builder.getI32Type(), x);
}
/// Returns the f32 with these bits.
Value floatOf(const ThreadKernel &k, Value bits) {
  return k.e.make<arith::BitcastOp>(k.e.builder.getF32Type(), narrowed(k, bits));
}

/// Returns the constant of type i32.
Value word(const ThreadKernel &k, int64_t value) {
  return k.e.make<arith::ConstantIntOp>(value, 32);
}

/// Returns the bits of |x| of an f32, as i32.
Value magnitudeWord(const ThreadKernel &k, Value x) {
  Value bits = k.e.make<arith::BitcastOp>(k.e.builder.getI32Type(), x);
  return k.e.make<arith::AndIOp>(bits, word(k, 0x7fffffff));
}

/// A thread has four loads of 16 bytes in flight, as far as there are as many for all threads.
FailureOr<region::Kernel> emitAmax(MLIRContext &context, DType type, Form form) {
  OpCall call = callOf({type, DType::I64}, DType::I32);
  const int64_t numThreads = numThreadsOf(form);
  ThreadKernel k(context, call, numThreads, form);
  const int64_t each = ThreadKernel::elementsTogether(type, {}), abreast = 4;
  Value count = k.load(1, k.integer(0)), groups = k.divide(count, each);
  auto groupAt = [&](Value group) {
    return k.loadTogether(0, k.e.mul(group, k.integer(each)), each);
  };
  auto larger = [&](Value most, ArrayRef<Value> values) {
    for (Value x : values)
      most = k.e.make<arith::MaxSIOp>(most, magnitudeWord(k, x));
    return most;
  };
  // Rounds in which every thread has `abreast` groups.
  Value rounds = k.divide(groups, abreast * numThreads);
  Value most = k.loop(k.integer(0), rounds, {word(k, 0)}, [&](Value round, ArrayRef<Value> before) {
    SmallVector<Value> values; // issues all loads before the first use
    for (int64_t at = 0; at < abreast; ++at) {
      Value first =
          k.e.add(k.e.mul(round, k.integer(abreast * numThreads)), k.integer(at * numThreads));
      values.append(groupAt(k.e.add(first, k.thread)));
    }
    return SmallVector<Value>{larger(before[0], values)};
  })[0];
  most = k.loop(
      k.e.add(k.e.mul(rounds, k.integer(abreast * numThreads)), k.thread), groups, {most},
      [&](Value group, ArrayRef<Value> before) {
        return SmallVector<Value>{larger(before[0], groupAt(group))};
      },
      numThreads)[0];
  most = k.loop(
      k.e.add(k.e.mul(groups, k.integer(each)), k.thread), count, {most},
      [&](Value i, ArrayRef<Value> before) {
        return SmallVector<Value>{larger(before[0], {k.load(0, i)})};
      },
      numThreads)[0];
  most = k.overWarp(most, /*isSum=*/false);
  k.ifThen(k.equal(k.remainder(k.thread, k.lanes()), k.integer(0)), [&] {
    k.store(0, k.divide(k.thread, k.lanes()),
            k.e.make<arith::ExtUIOp>(k.builder.getI64Type(), most));
  });
  return k.finish();
}

FailureOr<region::Kernel> emitScale(MLIRContext &context, Format format, Form form) {
  OpCall call = callOf({DType::I32}, DType::F32);
  ThreadKernel k(context, call, threadsOfWarps(1, form), form);
  Value bits = k.loop(
      k.thread, k.integer(numThreadsOf(form) / k.lanes()), {k.integer(0)},
      [&](Value i, ArrayRef<Value> before) {
        return SmallVector<Value>{larger(k, before[0], k.load(0, i))};
      },
      k.lanes())[0];
  bits = k.e.make<arith::ExtUIOp>(k.builder.getI64Type(),
                                  k.overWarp(narrowed(k, bits), /*isSum=*/false));
  // A denormal number counts as the smallest normal one.
  Value exponent = larger(k, shiftRight(k, bits, floatMantissa), k.integer(1));
  Value isDenormal = k.e.less(bits, k.integer(int64_t(1) << floatMantissa));
  Value mantissa = k.e.make<arith::AndIOp>(bits, k.integer((int64_t(1) << floatMantissa) - 1));
  constexpr int64_t threeQuarters = int64_t(3) << (floatMantissa - 2);
  Value isLess = k.e.select(isDenormal, k.e.make<arith::ConstantIntOp>(1, 1),
                            k.e.less(mantissa, k.integer(threeQuarters + 1)));
  Value power = k.e.sub(k.e.add(k.integer(layoutOf(format).top + floatBias),
                                k.e.select(isLess, k.integer(0), k.integer(-1))),
                        exponent);
  constexpr int64_t mostPower = 126; // keeps both the scale and its inverse finite
  power = smaller(k, larger(k, power, k.integer(-mostPower)), k.integer(mostPower));
  power = k.e.select(k.equal(bits, k.integer(0)), k.integer(0), power);
  Value scale = shiftLeft(k, k.e.add(k.integer(floatBias), power), floatMantissa);
  Value inverse = shiftLeft(k, k.e.sub(k.integer(floatBias), power), floatMantissa);
  Value isFinite = k.e.less(bits, k.integer(infinityBits));
  inverse = k.e.select(isFinite, inverse, k.integer(nanBits));
  k.ifThen(k.equal(k.thread, k.integer(0)), [&] {
    k.store(0, k.integer(0), floatOf(k, inverse));
    k.store(0, k.integer(1), floatOf(k, scale));
  });
  return k.finish();
}

/// Returns the fp8 code of `x`, an i32: GPUs have no 64-bit integer units.
Value codeOf(const ThreadKernel &k, Value x, Format format) {
  Layout f = layoutOf(format);
  auto right = [&](Value bits, int64_t by) {
    return Value(k.e.make<arith::ShRUIOp>(bits, word(k, by)));
  };
  Value key = magnitudeWord(k, x);
  // Normal numbers: drops the low bits after adding half of the last kept one, ties to even.
  int64_t dropped = floatMantissa - f.mantissa;
  Value last = k.e.make<arith::AndIOp>(right(key, dropped), word(k, 1));
  Value half = k.e.add(last, word(k, (int64_t(1) << (dropped - 1)) - 1));
  Value normal =
      k.e.sub(right(k.e.add(key, half), dropped), word(k, (floatBias - f.bias) << f.mantissa));
  // Denormal numbers: adds a power of two whose last bit is the format's smallest number. The low
  // bits of the sum are the multiple of that smallest number.
  int64_t grid = floatMantissa - (f.bias - 1 + f.mantissa);
  int64_t gridBits = (floatBias + grid) << floatMantissa;
  auto asFloat = [&](Value bits) {
    return Value(k.e.make<arith::BitcastOp>(k.e.builder.getF32Type(), bits));
  };
  Value sum = k.e.add(asFloat(key), asFloat(word(k, gridBits)));
  Value denormal = k.e.sub(magnitudeWord(k, sum), word(k, gridBits));
  Value isDenormal = k.e.less(key, word(k, (floatBias - f.bias + 1) << floatMantissa));
  Value code = smaller(k, k.e.select(isDenormal, denormal, normal), word(k, f.largest));
  code = k.e.select(k.e.less(word(k, infinityBits), key), word(k, nanCode), code);
  Value bits = k.e.make<arith::BitcastOp>(k.e.builder.getI32Type(), x);
  Value sign = k.e.make<arith::AndIOp>(right(bits, 24), word(k, 0x80));
  return k.e.make<arith::OrIOp>(code, sign);
}

FailureOr<region::Kernel> emitQuantise(MLIRContext &context, Format format, DType type, Form form) {
  OpCall call = callOf({type, DType::I64, DType::F32}, DType::I32); // words of codes
  int64_t numThreads = form == Form::Device ? fp8::numQuantiseThreads : fp8ThreadsOnHost;
  ThreadKernel k(context, call, numThreads, form);
  auto size = [&](int64_t number) { return k.load(1, k.integer(number)); };
  Value batch = size(1), rows = size(2), depth = size(3);
  Value batchStride = size(4), rowStride = size(5), depthStride = size(6);
  Value isByRow = k.negate(k.equal(size(7), k.integer(0)));
  Value scale = k.load(2, k.integer(1));
  Value pieces = k.divide(depth, fp8::step); // per row
  Value each = k.e.mul(rows, pieces);
  // The elements of a piece lie together, at multiples of what one instruction loads.
  const int64_t together = std::min(fp8::step, ThreadKernel::elementsTogether(type, {}));
  auto isMultiple = [&](Value stride) {
    return k.equal(k.remainder(stride, together), k.integer(0));
  };
  Value isTogether = k.both(k.equal(depthStride, k.integer(1)),
                            k.both(isMultiple(rowStride), isMultiple(batchStride)));
  auto loadPiece = [&](Value from, bool liesTogether) {
    SmallVector<Value> values; // issues all loads before the first use
    for (int64_t d = 0; d < fp8::step; d += liesTogether ? together : 1)
      if (liesTogether)
        values.append(k.loadTogether(0, k.e.add(from, k.integer(d)), together));
      else
        values.push_back(k.load(0, k.e.add(from, k.e.mul(k.integer(d), depthStride))));
    return values;
  };
  // A workspace has at most 2^31 elements, so numbers of pieces fit 32 bits.
  Value fast = narrowed(k, k.e.select(isByRow, rows, pieces)), ofMatrix = narrowed(k, each);
  auto divide = [&](Value x, Value by) { return Value(k.e.make<arith::DivUIOp>(x, by)); };
  auto remainder = [&](Value x, Value by) { return Value(k.e.make<arith::RemUIOp>(x, by)); };
  auto widened = [&](Value x) {
    return Value(k.e.make<arith::ExtUIOp>(k.e.builder.getI64Type(), x));
  };
  auto quantiseAll = [&](bool liesTogether) {
    k.loop(
        k.thread, k.e.mul(batch, each), {},
        [&](Value i, ArrayRef<Value>) {
          Value number = narrowed(k, i);
          Value index = widened(divide(number, ofMatrix)), within = remainder(number, ofMatrix);
          Value quick = widened(remainder(within, fast)), slow = widened(divide(within, fast));
          Value row = k.e.select(isByRow, quick, slow), piece = k.e.select(isByRow, slow, quick);
          Value first = k.e.mul(piece, k.integer(fp8::step));
          Value from = k.e.add(k.e.add(k.e.mul(index, batchStride), k.e.mul(row, rowStride)),
                               k.e.mul(first, depthStride));
          Value to = k.e.add(k.e.mul(k.e.add(k.e.mul(index, rows), row), depth), first);
          SmallVector<Value> words;
          for (auto [d, x] : llvm::enumerate(loadPiece(from, liesTogether))) {
            Value code = codeOf(k, k.e.mul(x, scale), format);
            if (int64_t byte = int64_t(d) % codesOfWord; byte == 0)
              words.push_back(code);
            else
              words.back() = k.e.make<arith::OrIOp>(
                  words.back(), k.e.make<arith::ShLIOp>(code, word(k, 8 * byte)));
          }
          k.storeTogether(0, k.divide(to, codesOfWord), words);
          return SmallVector<Value>();
        },
        numThreads);
  };
  // A loop each: LLVM would make one load of two in the branches of a loop, element by element.
  k.ifThen(isTogether, [&] { quantiseAll(true); });
  k.ifThen(k.negate(isTogether), [&] { quantiseAll(false); });
  return k.finish();
}

} // namespace

std::vector<std::pair<std::string, region::Kernel>>
emitFp8Kernels(MLIRContext &context, const std::set<DType> &types, Form form) {
  std::vector<std::pair<std::string, region::Kernel>> list;
  auto add = [&](const std::string &symbol, FailureOr<region::Kernel> kernel) {
    region::functionOf(*kernel->module).setName(symbol); // few threads, so it always exists
    list.emplace_back(symbol, std::move(*kernel));
  };
  if (types.empty())
    return list;
  for (DType type : types)
    add(fp8::amaxSymbol(type), emitAmax(context, type, form));
  for (Format format : fp8::formats) {
    add(fp8::scaleSymbol(format), emitScale(context, format, form));
    for (DType type : types)
      add(fp8::quantiseSymbol(format, type), emitQuantise(context, format, type, form));
  }
  return list;
}

} // namespace tbc::cuda
