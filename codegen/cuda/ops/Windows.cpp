//===- Windows.cpp - Convolution and pooling, thread by thread --------------===//
//
// A thread does an element of the result and adds its terms in turn, in f32. The formulas are in
// runtime/kernels/Convolution.h and Pooling.h.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"
#include "ir/PoolWorkspace.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;
using Sizes = kernels::Shape;

Sizes spatial(const Sizes &shape) { return {shape.begin() + 2, shape.end()}; }

/// A row-major offset, and whether the position exists.
struct Place {
  Value offset, exists;
};

/// The windows of an op: index = position * stride + tap * dilation - low along each spatial dim.
/// Example: position 2, stride 2, tap 1, dilation 1, low 1 reads index 4.
class Windows {
public:
  Windows(const ThreadKernel &k, Sizes kernel, Sizes input, Sizes output)
      : kernel(std::move(kernel)), input(std::move(input)), output(std::move(output)), k(k),
        strides(k.call.attrs.getInts("strides")), lows(k.call.attrs.getInts("pads")),
        dilations(this->kernel.size(), 1) {
    if (k.call.attrs.has("dilations"))
      dilations = k.call.attrs.getInts("dilations");
  }

  /// Returns the input position read by a tap of the window at `position`.
  Place inputAt(ArrayRef<Value> position, ArrayRef<Value> tap) const {
    Place place{k.integer(0), k.e.make<arith::ConstantIntOp>(1, 1)};
    for (size_t d = 0; d < input.size(); ++d) {
      Value index = k.e.sub(k.e.add(k.e.mul(position[d], k.integer(strides[d])),
                                    k.e.mul(tap[d], k.integer(dilations[d]))),
                            k.integer(lows[d]));
      append(place, index, input[d]);
    }
    return place;
  }
  /// Returns the window that reads `index` with this tap.
  Place outputAt(ArrayRef<Value> index, ArrayRef<Value> tap) const {
    Place place{k.integer(0), k.e.make<arith::ConstantIntOp>(1, 1)};
    for (size_t d = 0; d < input.size(); ++d) {
      Value begin =
          k.e.sub(k.e.add(index[d], k.integer(lows[d])), k.e.mul(tap[d], k.integer(dilations[d])));
      // Tests the sign before the division: a negative `begin` may have a quotient of 0, which
      // looks valid.
      Value isPositive = k.negate(k.e.less(begin, k.integer(0)));
      Value isWhole = k.equal(k.remainder(begin, strides[d]), k.integer(0));
      place.exists = k.both(place.exists, k.both(isPositive, isWhole));
      append(place, k.divide(begin, strides[d]), output[d]);
    }
    return place;
  }
  int64_t taps() const { return kernels::numElements(kernel); }

  const Sizes kernel, input, output;

private:
  void append(Place &place, Value index, int64_t size) const {
    Value isInside = k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, index, k.integer(size));
    place.exists = k.both(place.exists, isInside);
    place.offset = k.e.add(k.e.mul(place.offset, k.integer(size)), index);
  }

  const ThreadKernel &k;
  const std::vector<int64_t> &strides, &lows;
  std::vector<int64_t> dilations;
};

/// carried = body(i, carried) for every i below `count`.
Values overAll(const ThreadKernel &k, int64_t count, ArrayRef<Value> carried,
               ThreadKernel::Body body) {
  return k.loop(k.integer(0), k.integer(count), carried, body);
}

/// Returns sum + term() if the condition holds, else sum.
Values addIf(const ThreadKernel &k, Value condition, Value sum, llvm::function_ref<Value()> term) {
  return k.choose(
      condition, [&] { return Values{k.e.add(sum, term())}; }, [&] { return Values{sum}; });
}

/// Returns element `inner` of row `row`, for rows of these dims.
Value inRow(const ThreadKernel &k, Value row, const Sizes &dims, Value inner) {
  return k.e.add(k.e.mul(row, k.integer(kernels::numElements(dims))), inner);
}

/// Sizes of a convolution: x [n, c, ..], w [o, c / groups, ..], y [n, o, ..].
struct Convolution {
  Convolution(const OpCall &call, const Sizes &x, const Sizes &w, const Sizes &y)
      : x(x), w(w), y(y), channels(w[1]), outputs(w[0] / call.attrs.getInt("groups")) {}
  const Sizes &x, &w, &y;
  int64_t channels, outputs; // per group
};

/// Sums over `count` channels and all taps: operand 0, in a plane of these dims at the tap's
/// position, times operand 1 at the tap. `rowsOf` maps a channel to the rows of both operands.
Value sumOverTaps(const ThreadKernel &k, const Windows &windows, int64_t count, const Sizes &plane,
                  llvm::function_ref<std::pair<Value, Value>(Value)> rowsOf,
                  llvm::function_ref<Place(ArrayRef<Value>)> placeOf) {
  return overAll(k, count, {k.number(0)}, [&](Value channel, ArrayRef<Value> outer) {
    auto [row, rowW] = rowsOf(channel);
    Value rowOfPlane = row, rowOfTaps = rowW;
    return overAll(k, windows.taps(), outer, [&](Value t, ArrayRef<Value> inner) {
      Place place = placeOf(k.split(t, windows.kernel));
      return addIf(k, place.exists, inner[0], [&] {
        return k.e.mul(k.load(0, inRow(k, rowOfPlane, plane, place.offset)),
                       k.load(1, inRow(k, rowOfTaps, windows.kernel, t)));
      });
    });
  })[0];
}

FailureOr<region::Kernel> conv(MLIRContext &context, const OpCall &call, Form form) {
  Convolution c(call, call.operands[0].shape, call.operands[1].shape, call.results[0].shape);
  ThreadKernel k(context, call, kernels::numElements(c.y), form);
  Windows windows(k, spatial(c.w), spatial(c.x), spatial(c.y));
  Values at = k.split(k.thread, c.y);
  Value group = k.divide(at[1], c.outputs);
  ArrayRef<Value> position = ArrayRef<Value>(at).drop_front(2);
  Value sum = sumOverTaps(
      k, windows, c.channels, windows.input,
      [&](Value j) {
        Value channel = k.e.add(k.e.mul(group, k.integer(c.channels)), j);
        Value rowX = k.join({at[0], channel}, {c.x[0], c.x[1]});
        return std::pair(rowX, k.join({at[1], j}, {c.w[0], c.w[1]}));
      },
      [&](ArrayRef<Value> tap) { return windows.inputAt(position, tap); });
  k.store(0, k.thread, sum);
  return k.finish();
}

FailureOr<region::Kernel> convGradInput(MLIRContext &context, const OpCall &call, Form form) {
  Convolution c(call, call.results[0].shape, call.operands[1].shape, call.operands[0].shape);
  ThreadKernel k(context, call, kernels::numElements(c.x), form);
  Windows windows(k, spatial(c.w), spatial(c.x), spatial(c.y));
  Values at = k.split(k.thread, c.x);
  Value group = k.divide(at[1], c.channels), j = k.remainder(at[1], c.channels);
  ArrayRef<Value> index = ArrayRef<Value>(at).drop_front(2);
  Value sum = sumOverTaps(
      k, windows, c.outputs, windows.output,
      [&](Value i) {
        Value o = k.e.add(k.e.mul(group, k.integer(c.outputs)), i);
        Value rowY = k.join({at[0], o}, {c.y[0], c.y[1]});
        return std::pair(rowY, k.join({o, j}, {c.w[0], c.w[1]}));
      },
      [&](ArrayRef<Value> tap) { return windows.outputAt(index, tap); });
  k.store(0, k.thread, sum);
  return k.finish();
}

FailureOr<region::Kernel> convGradWeight(MLIRContext &context, const OpCall &call, Form form) {
  Convolution c(call, call.operands[0].shape, call.results[0].shape, call.operands[1].shape);
  ThreadKernel k(context, call, kernels::numElements(c.w), form);
  Windows windows(k, spatial(c.w), spatial(c.x), spatial(c.y));
  Values at = k.split(k.thread, c.w);
  Value group = k.divide(at[0], c.outputs);
  Value channel = k.e.add(k.e.mul(group, k.integer(c.channels)), at[1]);
  ArrayRef<Value> tap = ArrayRef<Value>(at).drop_front(2);
  Value sum = overAll(k, c.y[0], {k.number(0)}, [&](Value n, ArrayRef<Value> outer) {
    Value rowX = k.join({n, channel}, {c.x[0], c.x[1]}),
          rowY = k.join({n, at[0]}, {c.y[0], c.y[1]});
    return overAll(k, kernels::numElements(windows.output), outer,
                   [&](Value p, ArrayRef<Value> inner) {
                     Place place = windows.inputAt(k.split(p, windows.output), tap);
                     return addIf(k, place.exists, inner[0], [&] {
                       Value x = inRow(k, rowX, windows.input, place.offset);
                       Value y = inRow(k, rowY, windows.output, p);
                       return k.e.mul(k.load(0, x), k.load(1, y));
                     });
                   });
  })[0];
  k.store(0, k.thread, sum);
  return k.finish();
}

//===----------------------------------------------------------------------===//
// Pooling
//===----------------------------------------------------------------------===//

/// Taps that are loaded one behind the other, without a loop.
constexpr int64_t unrolledTaps = 32;

/// Returns the largest element of a window, in the plane at `begin`, and its tap; the first of
/// equal elements. NaN is the largest, the last NaN of several.
std::pair<Value, Value> largestOf(const ThreadKernel &k, const Windows &windows, Value begin,
                                  ArrayRef<Value> position) {
  auto consider = [&](Value tap, ArrayRef<Value> old) {
    Place place = windows.inputAt(position, k.split(tap, windows.kernel));
    Value offset = k.e.select(place.exists, place.offset, k.integer(0));
    Value x = k.load(0, k.e.add(begin, offset));
    Value isFirst = k.e.less(old[1], k.integer(0));
    Value isNan = k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
    Value isLarger = k.e.make<arith::OrIOp>(k.e.less(old[0], x), isNan);
    Value isBetter = k.both(place.exists, k.e.make<arith::OrIOp>(isFirst, isLarger));
    return Values{k.e.select(isBetter, x, old[0]), k.e.select(isBetter, tap, old[1])};
  };
  Values best = {k.number(-std::numeric_limits<double>::infinity()), k.integer(-1)};
  if (windows.taps() > unrolledTaps)
    best = overAll(k, windows.taps(), best, consider);
  else
    for (int64_t tap = 0; tap < windows.taps(); ++tap)
      best = consider(k.integer(tap), best);
  return {best[0], best[1]};
}

FailureOr<region::Kernel> maxPool(MLIRContext &context, const OpCall &call, Form form) {
  const Sizes &x = call.operands[0].shape, &y = call.results[0].shape;
  ThreadKernel k(context, call, kernels::numElements(y), form);
  Windows windows(k, call.attrs.getInts("kernel"), spatial(x), spatial(y));
  Values at = k.split(k.thread, y);
  Value plane = k.join({at[0], at[1]}, {x[0], x[1]});
  Value begin = k.e.mul(plane, k.integer(kernels::numElements(windows.input)));
  k.store(0, k.thread, largestOf(k, windows, begin, ArrayRef<Value>(at).drop_front(2)).first);
  return k.finish();
}

/// The gradient of a maximum. The first launch writes the tap of each window's largest element to
/// the workspace (`argmaxBytes`). In the second one a thread has neighbouring elements of the
/// input, and adds the cotangents of the windows that chose them, in the order of their taps.
class MaxPoolGradient {
public:
  MaxPoolGradient(MLIRContext &context, const OpCall &call, Form form)
      : context(context), form(form), x(call.results[0].shape), y(call.operands[1].shape),
        kernel(call.attrs.getInts("kernel")), strides(call.attrs.getInts("strides")),
        lows(call.attrs.getInts("pads")), dilations(call.attrs.getInts("dilations")),
        staged(withWorkspace(call, {isByte(kernel) ? DType::U8 : DType::I32})) {
    // The windows of neighbours are known here if their number is a multiple of the stride.
    each = ThreadKernel::elementsTogether(call.results[0].dtype, {x.back()});
    isAlongRow = each % strides.back() == 0 && kernel.back() <= unrolledTaps;
    if (!isAlongRow)
      each = 1;
  }

  FailureOr<region::Kernel> emit() {
    FailureOr<region::Kernel> choice = emitChoice(), sums = emitSums();
    if (failed(choice) || failed(sums))
      return failure();
    region::Kernel launches[] = {std::move(*choice), std::move(*sums)};
    return joinLaunches(launches,
                        argmaxBytes(kernels::numElements(y), kernels::numElements(kernel)));
  }

private:
  using DType = kernels::DType;

  static bool isByte(const Sizes &kernel) {
    return argmaxBytes(1, kernels::numElements(kernel)) == 1;
  }

  FailureOr<region::Kernel> emitChoice() {
    ThreadKernel k(context, staged, kernels::numElements(y), form);
    Windows windows(k, kernel, spatial(x), spatial(y));
    Values at = k.split(k.thread, y);
    Value begin = k.e.mul(k.join({at[0], at[1]}, {x[0], x[1]}),
                          k.integer(kernels::numElements(windows.input)));
    k.store(1, k.thread, largestOf(k, windows, begin, ArrayRef<Value>(at).drop_front(2)).second);
    return k.finish();
  }

  /// Windows along a dim that may have one element.
  int64_t windowsAlong(size_t d) const {
    return ((kernel[d] - 1) * dilations[d] + strides[d]) / strides[d];
  }

  /// Some windows, along the first dims: their offset and that of the tap that reads the element.
  struct Candidate {
    Value window, tap, exists;
  };

  /// Returns candidate `number` of the windows at `index` along the first `numDims` dims, in the
  /// order of taps.
  Candidate candidate(const ThreadKernel &k, Value number, ArrayRef<Value> index,
                      size_t numDims) const {
    Sizes counts;
    for (size_t d = 0; d < numDims; ++d)
      counts.push_back(windowsAlong(d));
    Values numbers = k.split(number, counts);
    Candidate found{k.integer(0), k.integer(0), k.e.make<arith::ConstantIntOp>(1, 1)};
    for (size_t d = 0; d < numDims; ++d) {
      Value from = k.e.add(index[d], k.integer(lows[d]));
      Value window = k.e.sub(k.divide(from, strides[d]), numbers[d]);
      Value rest = k.e.sub(from, k.e.mul(window, k.integer(strides[d])));
      Value tap = k.divide(rest, dilations[d]);
      Value isTap = k.both(k.equal(k.remainder(rest, dilations[d]), k.integer(0)),
                           k.e.less(tap, k.integer(kernel[d])));
      found.exists = k.both(found.exists, k.both(isTap, isBelow(k, window, y[d + 2])));
      found.window = k.e.add(k.e.mul(found.window, k.integer(y[d + 2])), window);
      found.tap = k.e.add(k.e.mul(found.tap, k.integer(kernel[d])), tap);
    }
    return found;
  }
  /// Whether 0 <= index < size.
  static Value isBelow(const ThreadKernel &k, Value index, int64_t size) {
    return k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, index, k.integer(size));
  }

  /// The tap that a window chose, and its cotangent. A window that does not exist chose no tap.
  std::pair<Value, Value> loadWindow(const ThreadKernel &k, Value plane, Value window,
                                     Value exists) const {
    Value offset = k.e.add(plane, k.e.select(exists, window, k.integer(0)));
    Value chosen = k.e.select(exists, k.loadResult(1, offset), k.integer(-1));
    return {chosen, k.load(1, offset)};
  }
  static Value addChosen(const ThreadKernel &k, Value sum, Value chosen, Value tap, Value dy) {
    return k.e.add(sum, k.e.select(k.equal(chosen, tap), dy, k.number(0)));
  }

  FailureOr<region::Kernel> emitSums() {
    ThreadKernel k(context, staged, kernels::numElements(x) / each, form);
    Sizes chunks = x;
    chunks.back() /= each;
    Values at = k.split(k.thread, chunks);
    ArrayRef<Value> index = ArrayRef<Value>(at).drop_front(2);
    size_t numDims = kernel.size() - (isAlongRow ? 1 : 0);
    int64_t numCandidates = 1;
    for (size_t d = 0; d < numDims; ++d)
      numCandidates *= windowsAlong(d);
    Value plane =
        k.e.mul(k.join({at[0], at[1]}, {x[0], x[1]}), k.integer(kernels::numElements(spatial(y))));
    Values zeros(size_t(each), k.number(0));
    Values sums = overAll(k, numCandidates, zeros, [&](Value number, ArrayRef<Value> old) {
      Candidate found = candidate(k, number, index, numDims);
      if (isAlongRow)
        return addRow(k, plane, found, index.back(), old);
      auto [chosen, dy] = loadWindow(k, plane, found.window, found.exists);
      return Values{addChosen(k, old[0], chosen, found.tap, dy)};
    });
    k.storeTogether(0, k.e.mul(k.thread, k.integer(each)), sums);
    return k.finish();
  }

  /// Adds the cotangents of the windows of a row to `each` elements. Element j of chunk c is read
  /// by window c each / stride + q with tap t if j = q stride + t dilation - low. Example: of 8
  /// elements, windows of 3 with stride 2 and low 1: q is 0 to 4, and q = 1 reads 1, 2, 3.
  Values addRow(const ThreadKernel &k, Value plane, const Candidate &row, Value chunk,
                ArrayRef<Value> old) const {
    const int64_t stride = strides.back(), taps = kernel.back(), dilation = dilations.back();
    const int64_t low = lows[kernel.size() - 1];
    Values sums(old);
    Value first = k.e.mul(chunk, k.integer(each / stride));
    Value begin = k.e.mul(row.window, k.integer(y.back()));
    Value firstTap = k.e.mul(row.tap, k.integer(taps));
    for (int64_t q = (each - 1 + low) / stride; q >= -taps * dilation; --q) {
      SmallVector<std::pair<int64_t, int64_t>> read; // taps, elements
      for (int64_t tap = 0; tap < taps; ++tap)
        if (int64_t j = q * stride + tap * dilation - low; j >= 0 && j < each)
          read.push_back({tap, j});
      if (read.empty())
        continue;
      Value column = k.e.add(first, k.integer(q));
      Value exists = k.both(row.exists, isBelow(k, column, y.back()));
      auto [chosen, dy] = loadWindow(k, plane, k.e.add(begin, column), exists);
      for (auto [tap, j] : read)
        sums[size_t(j)] =
            addChosen(k, sums[size_t(j)], chosen, k.e.add(firstTap, k.integer(tap)), dy);
    }
    return sums;
  }

  MLIRContext &context;
  const Form form;
  const Sizes x, y, kernel, strides, lows, dilations;
  const OpCall staged; // the taps are result 1
  int64_t each = 1;    // elements of a thread
  bool isAlongRow = true;
};

FailureOr<region::Kernel> maxPoolGrad(MLIRContext &context, const OpCall &call, Form form) {
  return MaxPoolGradient(context, call, form).emit();
}

/// Returns the divisor of an average over a window, f32.
Value divisorOf(const ThreadKernel &k, const Windows &windows, ArrayRef<Value> position) {
  if (k.call.attrs.getBool("count_include_pad", false))
    return k.number(double(windows.taps()));
  return overAll(k, windows.taps(), {k.number(0)}, [&](Value t, ArrayRef<Value> old) {
    Place place = windows.inputAt(position, k.split(t, windows.kernel));
    return Values{k.e.add(old[0], k.e.select(place.exists, k.number(1), k.number(0)))};
  })[0];
}

FailureOr<region::Kernel> avgPool(MLIRContext &context, const OpCall &call, Form form) {
  const Sizes &x = call.operands[0].shape, &y = call.results[0].shape;
  ThreadKernel k(context, call, kernels::numElements(y), form);
  Windows windows(k, call.attrs.getInts("kernel"), spatial(x), spatial(y));
  Values at = k.split(k.thread, y);
  Value plane = k.join({at[0], at[1]}, {x[0], x[1]});
  Value begin = k.e.mul(plane, k.integer(kernels::numElements(windows.input)));
  ArrayRef<Value> position = ArrayRef<Value>(at).drop_front(2);
  Value sum = overAll(k, windows.taps(), {k.number(0)}, [&](Value t, ArrayRef<Value> old) {
    Place place = windows.inputAt(position, k.split(t, windows.kernel));
    return addIf(k, place.exists, old[0], [&] { return k.load(0, k.e.add(begin, place.offset)); });
  })[0];
  k.store(0, k.thread, k.e.div(sum, divisorOf(k, windows, position)));
  return k.finish();
}

FailureOr<region::Kernel> avgPoolGrad(MLIRContext &context, const OpCall &call, Form form) {
  const Sizes &x = call.results[0].shape, &y = call.operands[0].shape;
  ThreadKernel k(context, call, kernels::numElements(x), form);
  Windows windows(k, call.attrs.getInts("kernel"), spatial(x), spatial(y));
  Values at = k.split(k.thread, x);
  Value plane = k.join({at[0], at[1]}, {x[0], x[1]});
  Value begin = k.e.mul(plane, k.integer(kernels::numElements(windows.output)));
  ArrayRef<Value> index = ArrayRef<Value>(at).drop_front(2);
  Value sum = overAll(k, windows.taps(), {k.number(0)}, [&](Value t, ArrayRef<Value> old) {
    Place window = windows.outputAt(index, k.split(t, windows.kernel));
    return addIf(k, window.exists, old[0], [&] {
      Value dy = k.load(0, k.e.add(begin, window.offset));
      return k.e.div(dy, divisorOf(k, windows, k.split(window.offset, windows.output)));
    });
  })[0];
  k.store(0, k.thread, sum);
  return k.finish();
}

} // namespace

const OpKernelTable &windowOpKernels() {
  static const OpKernelTable table = {{"avg_pool", avgPool},
                                      {"avg_pool_grad", avgPoolGrad},
                                      {"conv", conv},
                                      {"conv_grad_input", convGradInput},
                                      {"conv_grad_weight", convGradWeight},
                                      {"max_pool", maxPool},
                                      {"max_pool_grad", maxPoolGrad}};
  return table;
}

} // namespace tbc::cuda
