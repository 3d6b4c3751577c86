//===- Experts.cpp - Mixture of experts on GPUs ----------------------------===//
//
// The formulas are in ir/Experts.td. Experts without a capacity are grouped matmuls
// (RoutedExperts.h). With a capacity they are library matmuls between dispatch and combine, for
// which every warp derives the token-to-slot assignment again when it needs it.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/RoutedExperts.h"

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
                                      {"routed_experts", emitRoutedExperts},
                                      {"routed_experts_grad", emitRoutedExpertsGrad}};
  return table;
}

} // namespace tbc::cuda
