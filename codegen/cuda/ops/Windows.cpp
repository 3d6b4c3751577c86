//===- Windows.cpp - Convolution and pooling, thread by thread --------------===//
//
// A thread does an element of the result and adds its terms in turn, in f32. The formulas are in
// runtime/kernels/Convolution.h and Pooling.h.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"

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

/// Returns the largest element of a window and its offset in the plane at `begin`; the first of
/// equal elements.
std::pair<Value, Value> largestOf(const ThreadKernel &k, const Windows &windows, Value begin,
                                  ArrayRef<Value> position) {
  Values best = {k.number(-std::numeric_limits<double>::infinity()), k.integer(-1)};
  best = overAll(k, windows.taps(), best, [&](Value t, ArrayRef<Value> old) {
    Place place = windows.inputAt(position, k.split(t, windows.kernel));
    return k.choose(
        place.exists,
        [&] {
          Value x = k.load(0, k.e.add(begin, place.offset));
          Value isFirst = k.e.less(old[1], k.integer(0));
          Value isBetter = k.e.make<arith::OrIOp>(isFirst, k.e.less(old[0], x));
          return Values{k.e.select(isBetter, x, old[0]),
                        k.e.select(isBetter, place.offset, old[1])};
        },
        [&] { return Values(old); });
  });
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

FailureOr<region::Kernel> maxPoolGrad(MLIRContext &context, const OpCall &call, Form form) {
  const Sizes &x = call.results[0].shape, &y = call.operands[1].shape;
  ThreadKernel k(context, call, kernels::numElements(x), form);
  Windows windows(k, call.attrs.getInts("kernel"), spatial(x), spatial(y));
  Values at = k.split(k.thread, x);
  Value plane = k.join({at[0], at[1]}, {x[0], x[1]});
  int64_t planeX = kernels::numElements(windows.input),
          planeY = kernels::numElements(windows.output);
  Value begin = k.e.mul(plane, k.integer(planeX));
  Value mine = k.remainder(k.thread, planeX);
  ArrayRef<Value> index = ArrayRef<Value>(at).drop_front(2);
  Value sum = overAll(k, windows.taps(), {k.number(0)}, [&](Value t, ArrayRef<Value> old) {
    Place window = windows.outputAt(index, k.split(t, windows.kernel));
    return addIf(k, window.exists, old[0], [&] {
      Value best = largestOf(k, windows, begin, k.split(window.offset, windows.output)).second;
      Value dy = k.load(1, k.e.add(k.e.mul(plane, k.integer(planeY)), window.offset));
      return k.e.select(k.equal(best, mine), dy, k.number(0));
    });
  })[0];
  k.store(0, k.thread, sum);
  return k.finish();
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
