//===- Experts.cpp - Mixture of experts on GPUs ----------------------------===//
//
// Plain kernels for any shape; the formulas are in ir/Experts.td. Every warp derives the
// token-to-slot assignment again when it needs it. `routed_experts` multiplies row by row, and
// recomputes the first layer for every few columns of its result. With a capacity the same model
// uses library matmuls between dispatch and combine.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;

/// Columns of a row per lane.
constexpr int64_t columnsOfLane = 8;

int64_t tilesOf(int64_t columns, Form form) {
  int64_t lanes = form == Form::Device ? warpThreads : 1;
  return int64_t(llvm::divideCeil(uint64_t(columns), uint64_t(columnsOfLane * lanes)));
}

/// A warp index and a lane.
struct Warp {
  explicit Warp(const ThreadKernel &k)
      : k(k), lane(k.remainder(k.thread, k.lanes())), number(k.divide(k.thread, k.lanes())) {}

  Value at(Value outer, int64_t size, Value inner) const {
    return k.e.add(k.e.mul(outer, k.integer(size)), inner);
  }
  /// Returns the sum of term(i) for i < count, distributed over the lanes; all lanes get it.
  Value sum(int64_t count, llvm::function_ref<Value(Value)> term) const {
    Value own = k.loop(
        lane, k.integer(count), {k.number(0)},
        [&](Value i, ArrayRef<Value> old) { return Values{k.e.add(old[0], term(i))}; },
        k.lanes())[0];
    return k.overWarp(own, /*isSum=*/true);
  }
  Value isThere(Value weight) const {
    return k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, weight, k.number(0));
  }

  const ThreadKernel &k;
  Value lane, number;
};

/// The columns of a row of `size` done by one warp: tile number `number`.
struct Tile {
  Tile(const Warp &warp, Value number, int64_t size) : warp(warp), size(size) {
    const ThreadKernel &k = warp.k;
    for (int64_t i = 0; i < columnsOfLane; ++i) {
      Value place = k.e.add(k.e.mul(number, k.integer(columnsOfLane)), k.integer(i));
      columns.push_back(warp.at(place, k.lanes(), warp.lane));
    }
  }
  Values zeros() const { return Values(size_t(columnsOfLane), warp.k.number(0)); }
  /// Returns sums + factor * element(column). Lanes beyond the last column repeat it; their value
  /// is not stored.
  Values addScaled(ArrayRef<Value> sums, Value factor,
                   llvm::function_ref<Value(Value)> element) const {
    const ThreadKernel &k = warp.k;
    Values next;
    for (auto [sum, column] : llvm::zip_equal(sums, columns)) {
      Value last = k.integer(size - 1);
      Value inside = k.e.select(k.e.less(column, last), column, last);
      next.push_back(k.e.add(sum, k.e.mul(factor, element(inside))));
    }
    return next;
  }
  void store(int result, ArrayRef<Value> sums, llvm::function_ref<Value(Value)> offset) const {
    const ThreadKernel &k = warp.k;
    for (auto [sum, column] : llvm::zip_equal(sums, columns)) {
      Value value = sum, place = column;
      k.ifThen(k.e.less(place, k.integer(size)), [&] { k.store(result, offset(place), value); });
    }
  }

  const Warp &warp;
  int64_t size;
  Values columns;
};

//===----------------------------------------------------------------------===//
// Experts without a capacity
//===----------------------------------------------------------------------===//

/// Formulas as of runtime/kernels/Activation.h.
class Activation {
public:
  Activation(const ThreadKernel &k, std::string name) : k(k), e(k.e), name(std::move(name)) {}

  Value apply(Value x) const {
    if (name == "relu")
      return e.select(e.less(k.number(0), x), x, k.number(0));
    if (name == "silu")
      return e.mul(x, sigmoid(x));
    return e.mul(half(x), e.add(k.number(1), bend(x)));
  }
  Value derivative(Value x) const {
    if (name == "relu")
      return e.select(e.less(k.number(0), x), k.number(1), k.number(0));
    if (name == "silu") {
      Value s = sigmoid(x);
      return e.add(s, e.mul(e.mul(x, s), e.sub(k.number(1), s)));
    }
    Value y = bend(x), slope;
    if (name == "gelu") {
      Value u = e.mul(x, k.number(root));
      slope = e.mul(k.number(root * twoOverRootPi), e.exp(e.neg(e.mul(u, u))));
    } else {
      Value inner = e.add(k.number(1), e.mul(k.number(3 * cube), e.mul(x, x)));
      slope = e.mul(e.mul(e.sub(k.number(1), e.mul(y, y)), k.number(tanhScale)), inner);
    }
    return e.add(half(e.add(k.number(1), y)), e.mul(half(x), slope));
  }

private:
  static constexpr double root = 0.7071067811865476, twoOverRootPi = 1.1283791670955126;
  static constexpr double tanhScale = 0.7978845608028654, cube = 0.044715;

  Value half(Value x) const { return e.mul(k.number(0.5), x); }
  Value sigmoid(Value x) const { return e.div(k.number(1), e.add(k.number(1), e.exp(e.neg(x)))); }
  /// The inner function of gelu: erf or tanh.
  Value bend(Value x) const {
    if (name == "gelu")
      return e.make<math::ErfOp>(e.mul(x, k.number(root)));
    Value inner = e.add(x, e.mul(k.number(cube), e.mul(x, e.mul(x, x))));
    return e.make<math::TanhOp>(e.mul(k.number(tanhScale), inner));
  }

  const ThreadKernel &k;
  const region::Elements &e;
  std::string name;
};

/// Sizes of a layer of experts; `first`: the operand index of x.
struct Layer {
  Layer(const OpCall &call, int first)
      : x(first), weights(first + 1), in(first + 2), out(first + 3),
        isGated(call.attrs.getBool("gated")), t(call.operands[size_t(x)].shape[0]),
        h(call.operands[size_t(x)].shape[1]), e(call.operands[size_t(out)].shape[0]),
        o(call.operands[size_t(out)].shape[1]), f(call.operands[size_t(out)].shape[2]) {}

  int x, weights, in, out; // operand indices
  bool isGated;
  int64_t t, h, e, o, f;
};

/// The computations of one warp for an expert.
class ExpertWarp {
public:
  ExpertWarp(const Layer &layer, const ThreadKernel &k)
      : layer(layer), k(k), warp(k), activation(k, k.call.attrs.getString("activation")) {}

  /// Hidden unit `j` of expert `e` at token `t`.
  struct Unit {
    Value gate, up; // up: null without a gate
    Value activated;
    Value inner; // activated * up
  };
  Unit unit(Value e, Value j, Value t) const {
    Unit u;
    u.gate = first(e, j, t);
    u.activated = activation.apply(u.gate);
    u.inner = u.activated;
    if (layer.isGated) {
      u.up = first(e, k.e.add(j, k.integer(layer.f)), t);
      u.inner = k.e.mul(u.activated, u.up);
    }
    return u;
  }
  Value weight(Value t, Value e) const { return k.load(layer.weights, warp.at(t, layer.e, e)); }
  Value outOffset(Value e, Value column, Value j) const {
    return warp.at(warp.at(e, layer.o, column), layer.f, j);
  }
  Value inOffset(Value e, Value row, Value column) const {
    return warp.at(warp.at(e, layer.isGated ? 2 * layer.f : layer.f, row), layer.h, column);
  }

  // The gradient; its operand 0 is dy.
  /// Returns the cotangent of `inner`, before the router's weight.
  Value innerCotangent(Value e, Value j, Value t) const {
    return warp.sum(layer.o, [&](Value column) {
      return k.e.mul(k.load(layer.out, outOffset(e, column, j)),
                     k.load(0, warp.at(t, layer.o, column)));
    });
  }
  /// Returns the cotangents of gate and up.
  std::pair<Value, Value> firstCotangents(const Unit &u, Value dInner) const {
    Value dGate = layer.isGated ? k.e.mul(dInner, u.up) : dInner;
    dGate = k.e.mul(dGate, activation.derivative(u.gate));
    return {dGate, layer.isGated ? k.e.mul(dInner, u.activated) : Value()};
  }

  /// carried = body(i, carried) for every i < count.
  Values overAll(int64_t count, ArrayRef<Value> carried, ThreadKernel::Body body) const {
    return k.loop(k.integer(0), k.integer(count), carried, body);
  }
  /// The same over the experts or tokens with a nonzero weight.
  Values overRouted(int64_t count, ArrayRef<Value> carried,
                    llvm::function_ref<Value(Value)> weightOf,
                    llvm::function_ref<Values(Value, Value, ArrayRef<Value>)> body) const {
    return overAll(count, carried, [&](Value i, ArrayRef<Value> old) {
      Value w = weightOf(i);
      return k.choose(
          warp.isThere(w), [&] { return body(i, w, old); }, [&] { return Values(old); });
    });
  }

  const Layer &layer;
  const ThreadKernel &k;
  Warp warp;
  Activation activation;

private:
  /// Returns row `row` of the first layer's matmul at the token.
  Value first(Value e, Value row, Value t) const {
    return warp.sum(layer.h, [&](Value column) {
      return k.e.mul(k.load(layer.in, inOffset(e, row, column)),
                     k.load(layer.x, warp.at(t, layer.h, column)));
    });
  }
};

/// A warp does some columns of a token.
FailureOr<region::Kernel> routedExperts(MLIRContext &context, const OpCall &call, Form form) {
  Layer layer(call, 0);
  int64_t tiles = tilesOf(layer.o, form);
  ThreadKernel k(context, call, threadsOfWarps(layer.t * tiles, form), form);
  ExpertWarp x(layer, k);
  Values at = k.split(x.warp.number, {layer.t, tiles});
  Tile tile(x.warp, at[1], layer.o);
  Values sums = x.overRouted(
      layer.e, tile.zeros(), [&](Value e) { return x.weight(at[0], e); },
      [&](Value e, Value w, ArrayRef<Value> outer) {
        return x.overAll(layer.f, outer, [&](Value j, ArrayRef<Value> old) {
          return tile.addScaled(old, k.e.mul(w, x.unit(e, j, at[0]).inner), [&](Value column) {
            return k.load(layer.out, x.outOffset(e, column, j));
          });
        });
      });
  tile.store(0, sums, [&](Value column) { return x.warp.at(at[0], layer.o, column); });
  return k.finish();
}

/// Some columns of a token's dx.
void buildTokenGradient(const ExpertWarp &x, Value number, int64_t tiles) {
  const ThreadKernel &k = x.k;
  const Layer &layer = x.layer;
  Values at = k.split(number, {layer.t, tiles});
  Tile tile(x.warp, at[1], layer.h);
  Values sums = x.overRouted(
      layer.e, tile.zeros(), [&](Value e) { return x.weight(at[0], e); },
      [&](Value e, Value w, ArrayRef<Value> outer) {
        return x.overAll(layer.f, outer, [&](Value j, ArrayRef<Value> old) {
          Value dInner = k.e.mul(w, x.innerCotangent(e, j, at[0]));
          auto [dGate, dUp] = x.firstCotangents(x.unit(e, j, at[0]), dInner);
          auto row = [&](Value number) {
            return [&, number](Value column) {
              return k.load(layer.in, x.inOffset(e, number, column));
            };
          };
          Values next = tile.addScaled(old, dGate, row(j));
          return dUp ? tile.addScaled(next, dUp, row(k.e.add(j, k.integer(layer.f)))) : next;
        });
      });
  tile.store(0, sums, [&](Value column) { return x.warp.at(at[0], layer.h, column); });
}

/// The gradient of a token's router weight for an expert.
void buildWeightGradient(const ExpertWarp &x, Value number) {
  const ThreadKernel &k = x.k;
  Values at = k.split(number, {x.layer.t, x.layer.e});
  Value sum = k.choose(
      x.warp.isThere(x.weight(at[0], at[1])),
      [&] {
        return x.overAll(x.layer.f, {k.number(0)}, [&](Value j, ArrayRef<Value> old) {
          Value product = k.e.mul(x.unit(at[1], j, at[0]).inner, x.innerCotangent(at[1], j, at[0]));
          return Values{k.e.add(old[0], product)};
        });
      },
      [&] { return Values{k.number(0)}; })[0];
  k.ifThen(k.equal(x.warp.lane, k.integer(0)), [&] { k.store(1, number, sum); });
}

/// Some columns of the rows of the first layer that make one hidden unit.
void buildFirstGradient(const ExpertWarp &x, Value number, int64_t tiles) {
  const ThreadKernel &k = x.k;
  const Layer &layer = x.layer;
  Values at = k.split(number, {layer.e, layer.f, tiles});
  Tile tile(x.warp, at[2], layer.h);
  Values sums = tile.zeros();
  if (layer.isGated)
    llvm::append_range(sums, tile.zeros());
  sums = x.overRouted(
      layer.t, sums, [&](Value t) { return x.weight(t, at[0]); },
      [&](Value t, Value w, ArrayRef<Value> old) {
        Value dInner = k.e.mul(w, x.innerCotangent(at[0], at[1], t));
        auto [dGate, dUp] = x.firstCotangents(x.unit(at[0], at[1], t), dInner);
        auto token = [&](Value column) { return k.load(layer.x, x.warp.at(t, layer.h, column)); };
        Values next = tile.addScaled(old.take_front(size_t(columnsOfLane)), dGate, token);
        if (dUp)
          llvm::append_range(next,
                             tile.addScaled(old.drop_front(size_t(columnsOfLane)), dUp, token));
        return next;
      });
  ArrayRef<Value> all(sums);
  tile.store(2, all.take_front(size_t(columnsOfLane)),
             [&](Value column) { return x.inOffset(at[0], at[1], column); });
  if (layer.isGated)
    tile.store(2, all.drop_front(size_t(columnsOfLane)), [&](Value column) {
      return x.inOffset(at[0], k.e.add(at[1], k.integer(layer.f)), column);
    });
}

/// Some rows of the second layer's column that reads one hidden unit.
void buildSecondGradient(const ExpertWarp &x, Value number, int64_t tiles) {
  const ThreadKernel &k = x.k;
  const Layer &layer = x.layer;
  Values at = k.split(number, {layer.e, layer.f, tiles});
  Tile tile(x.warp, at[2], layer.o);
  Values sums = x.overRouted(
      layer.t, tile.zeros(), [&](Value t) { return x.weight(t, at[0]); },
      [&](Value t, Value w, ArrayRef<Value> old) {
        return tile.addScaled(old, k.e.mul(w, x.unit(at[0], at[1], t).inner), [&](Value column) {
          return k.load(0, x.warp.at(t, layer.o, column));
        });
      });
  tile.store(3, sums, [&](Value column) { return x.outOffset(at[0], column, at[1]); });
}

FailureOr<region::Kernel> routedExpertsGrad(MLIRContext &context, const OpCall &call, Form form) {
  Layer layer(call, 1);
  int64_t tilesH = tilesOf(layer.h, form), tilesO = tilesOf(layer.o, form);
  int64_t counts[] = {layer.t * tilesH, layer.t * layer.e, layer.e * layer.f * tilesH,
                      layer.e * layer.f * tilesO};
  int64_t warps = 0;
  for (int64_t count : counts)
    warps += count;
  ThreadKernel k(context, call, threadsOfWarps(warps, form), form);
  ExpertWarp x(layer, k);
  int64_t begin = 0;
  for (int part = 0; part < 4; ++part) {
    Value number = k.e.sub(x.warp.number, k.integer(begin));
    Value isHere =
        k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, number, k.integer(counts[part]));
    k.ifThen(isHere, [&] {
      if (part == 0)
        buildTokenGradient(x, number, tilesH);
      else if (part == 1)
        buildWeightGradient(x, number);
      else if (part == 2)
        buildFirstGradient(x, number, tilesH);
      else
        buildSecondGradient(x, number, tilesO);
    });
    begin += counts[part];
  }
  return k.finish();
}

//===----------------------------------------------------------------------===//
// Experts with a capacity
//===----------------------------------------------------------------------===//

/// The assignment of tokens to slots. `weights`: operand index of [g, t, e].
class Deal {
public:
  Deal(const Warp &warp, int weights)
      : warp(warp), k(warp.k), weights(weights), t(k.call.operands[size_t(weights)].shape[1]),
        e(k.call.operands[size_t(weights)].shape[2]) {}

  Value weight(Value group, Value token, Value expert) const {
    return k.load(weights, warp.at(warp.at(group, t, token), e, expert));
  }
  /// Returns the slot of a token with a nonzero weight: the number of earlier tokens for the
  /// expert. The result may exceed the capacity. Example: if tokens 1, 4 and 6 go to the expert,
  /// token 6 has slot 2.
  Value slotOf(Value group, Value token, Value expert) const {
    Value count = k.loop(
        warp.lane, token, {number(0)},
        [&](Value i, ArrayRef<Value> old) {
          return Values{k.e.add(old[0], one(weight(group, i, expert)))};
        },
        k.lanes())[0];
    return k.e.make<arith::ExtUIOp>(k.e.builder.getI64Type(), k.overWarp(count, /*isSum=*/true));
  }
  /// Returns the token of a slot; `t` for an empty slot.
  Value tokenOf(Value group, Value expert, Value slot) const {
    Value wanted = k.e.make<arith::TruncIOp>(k.e.builder.getI32Type(), slot);
    auto oneAt = [&](Value token) {
      Value isToken = k.e.less(token, k.integer(t));
      return k.choose(
          isToken, [&] { return Values{one(weight(group, token, expert))}; },
          [&] { return Values{number(0)}; })[0];
    };
    // Scans one token per lane at a time, to find the chunk of the token and the count before it.
    int64_t chunks = int64_t(llvm::divideCeil(uint64_t(t), uint64_t(k.lanes())));
    Values found =
        k.loop(k.integer(0), k.integer(chunks), {k.integer(chunks), number(0), number(0)},
               [&](Value chunk, ArrayRef<Value> old) {
                 Value count =
                     k.overWarp(oneAt(warp.at(chunk, k.lanes(), warp.lane)), /*isSum=*/true);
                 Value after = k.e.add(old[2], count);
                 Value isHere = k.both(k.negate(k.e.less(wanted, old[2])), k.e.less(wanted, after));
                 return Values{k.e.select(isHere, chunk, old[0]),
                               k.e.select(isHere, old[2], old[1]), after};
               });
    Value first = k.e.mul(found[0], k.integer(k.lanes()));
    return k.loop(k.integer(0), k.integer(k.lanes()), {k.integer(t), found[1]},
                  [&](Value i, ArrayRef<Value> old) {
                    Value token = k.e.add(first, i), goes = oneAt(token);
                    Value isIt = k.both(k.equal(goes, number(1)), k.equal(old[1], wanted));
                    return Values{k.e.select(isIt, token, old[0]), k.e.add(old[1], goes)};
                  })[0];
  }

  const Warp &warp;
  const ThreadKernel &k;
  int weights;
  int64_t t, e;

private:
  // Token counts are i32, the type of shuffles.
  Value number(int64_t value) const {
    return k.e.constant(k.e.builder.getI32Type(), double(value));
  }
  Value one(Value weight) const {
    return k.e.make<arith::ExtUIOp>(k.e.builder.getI32Type(), warp.isThere(weight));
  }
};

/// A warp does a slot.
FailureOr<region::Kernel> dispatch(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::Shape &slots = call.results[0].shape; // [g, e, c, h]
  int64_t width = slots[3];
  ThreadKernel k(context, call, threadsOfWarps(slots[0] * slots[1] * slots[2], form), form);
  Warp warp(k);
  Deal deal(warp, 1);
  Values at = k.split(warp.number, {slots[0], slots[1], slots[2]});
  Value token = deal.tokenOf(at[0], at[1], at[2]);
  Value isTaken = k.e.less(token, k.integer(deal.t));
  Value from = k.e.mul(warp.at(at[0], deal.t, token), k.integer(width));
  Value to = k.e.mul(warp.number, k.integer(width));
  bool isWeighted = call.attrs.getBool("weighted");
  k.loop(
      warp.lane, k.integer(width), {},
      [&](Value column, ArrayRef<Value>) {
        Value x = k.choose(
            isTaken,
            [&] {
              Value x = k.load(0, k.e.add(from, column));
              return Values{isWeighted ? k.e.mul(x, deal.weight(at[0], token, at[1])) : x};
            },
            [&] { return Values{k.number(0)}; })[0];
        k.store(0, k.e.add(to, column), x);
        return Values();
      },
      k.lanes());
  return k.finish();
}

/// A warp does some columns of a token.
FailureOr<region::Kernel> combine(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::Shape &tokens = call.results[0].shape;         // [g, t, h]
  int64_t slots = call.operands[0].shape[2], width = tokens[2]; // [g, e, c, h]
  int64_t tiles = tilesOf(width, form);
  ThreadKernel k(context, call, threadsOfWarps(tokens[0] * tokens[1] * tiles, form), form);
  Warp warp(k);
  Deal deal(warp, 1);
  Values at = k.split(warp.number, {tokens[0], tokens[1], tiles});
  Tile tile(warp, at[2], width);
  bool isWeighted = call.attrs.getBool("weighted");
  Values sums =
      k.loop(k.integer(0), k.integer(deal.e), tile.zeros(), [&](Value expert, ArrayRef<Value> old) {
        Value w = deal.weight(at[0], at[1], expert);
        return k.choose(
            warp.isThere(w),
            [&] {
              Value slot = deal.slotOf(at[0], at[1], expert);
              return k.choose(
                  k.e.less(slot, k.integer(slots)),
                  [&] {
                    Value row = warp.at(warp.at(at[0], deal.e, expert), slots, slot);
                    return tile.addScaled(old, isWeighted ? w : k.number(1), [&](Value column) {
                      return k.load(0, warp.at(row, width, column));
                    });
                  },
                  [&] { return Values(old); });
            },
            [&] { return Values(old); });
      });
  tile.store(0, sums, [&](Value column) {
    return warp.at(warp.at(at[0], tokens[1], at[1]), width, column);
  });
  return k.finish();
}

/// A warp computes the gradient of one token's weight for one expert.
FailureOr<region::Kernel> combineWeightsGrad(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::Shape &weights = call.results[0].shape; // [g, t, e]
  int64_t slots = call.operands[1].shape[2], width = call.operands[1].shape[3];
  ThreadKernel k(context, call, threadsOfWarps(kernels::numElements(weights), form), form);
  Warp warp(k);
  Deal deal(warp, 2);
  Values at = k.split(warp.number, weights);
  Value none = k.number(0);
  Value sum = k.choose(
      warp.isThere(deal.weight(at[0], at[1], at[2])),
      [&] {
        Value slot = deal.slotOf(at[0], at[1], at[2]);
        return k.choose(
            k.e.less(slot, k.integer(slots)),
            [&] {
              Value token = warp.at(at[0], deal.t, at[1]);
              Value row = warp.at(warp.at(at[0], deal.e, at[2]), slots, slot);
              return Values{warp.sum(width, [&](Value column) {
                return k.e.mul(k.load(0, warp.at(token, width, column)),
                               k.load(1, warp.at(row, width, column)));
              })};
            },
            [&] { return Values{none}; });
      },
      [&] { return Values{none}; })[0];
  k.ifThen(k.equal(warp.lane, k.integer(0)), [&] { k.store(0, warp.number, sum); });
  return k.finish();
}

} // namespace

const OpKernelTable &expertOpKernels() {
  static const OpKernelTable table = {{"combine", combine},
                                      {"combine_weights_grad", combineWeightsGrad},
                                      {"dispatch", dispatch},
                                      {"routed_experts", routedExperts},
                                      {"routed_experts_grad", routedExpertsGrad}};
  return table;
}

} // namespace tbc::cuda
