//===- ExpertLists.cpp - Tokens by expert, on GPUs -------------------------===//

#include "codegen/cuda/ops/ExpertLists.h"

#include "codegen/cuda/ops/GroupedMatmul.h"

using namespace mlir;

namespace tbc::cuda {

using kernels::DType;
using Values = SmallVector<Value>;

static_assert(ExpertSizes::tileRows == cuda::tileRows);

ExpertLayer::ExpertLayer(const OpCall &call, int first)
    : x(first), weights(first + 1), in(first + 2), out(first + 3),
      activation(call.attrs.getString("activation")), dtype(call.operands[size_t(x)].dtype) {
  const kernels::Shape &input = call.operands[size_t(x)].shape;
  const kernels::Shape &second = call.operands[size_t(out)].shape;
  t = input[0], h = input[1], e = second[0], o = second[1], f = second[2];
  parts = call.attrs.getBool("gated") ? 2 : 1;
  top = std::min(call.attrs.getInt("top"), e);
  elementBytes = kernels::byteWidth(dtype);
}

ExpertLists::ExpertLists(MLIRContext &context, const OpCall &call, bool isGradient, Form form)
    : context(context), form(form), n(call, isGradient ? 1 : 0),
      memory(n, isGradient, form == Form::Device ? 0 : n.f),
      staged(withWorkspace(call, {DType::I32, n.dtype, DType::F32})) {
  int lists = int(call.results.size()), values = lists + 1, sums = lists + 2;
  auto array = [&](int result, int64_t offset) {
    return WorkspaceArray{result,
                          offset / kernels::byteWidth(staged.results[size_t(result)].dtype)};
  };
  counts = array(lists, memory.counts), totals = array(lists, memory.totals);
  starts = array(lists, memory.starts), experts = array(lists, memory.experts);
  tokens = array(lists, memory.tokens), rows = array(lists, memory.rows);
  hidden = array(values, memory.hidden), first = array(values, memory.first);
  made = array(values, memory.made), terms = array(sums, memory.terms);
}

void ExpertLists::add(FailureOr<region::Kernel> launch) {
  if (failed(launch))
    isGood = false;
  else
    launches.push_back(std::move(*launch));
}
FailureOr<region::Kernel> ExpertLists::finish() {
  if (!isGood)
    return failure();
  return joinLaunches(launches, memory.bytes);
}

Value ExpertLists::weight(const ThreadKernel &k, Value token, Value expert) const {
  return k.load(n.weights, k.e.add(k.e.mul(token, k.integer(n.e)), expert));
}
/// Returns 1 where the token is routed to the expert, else 0.
Value ExpertLists::isRouted(const ThreadKernel &k, Value token, Value expert) const {
  return k.e.make<arith::ExtUIOp>(k.e.builder.getI64Type(), goes(k, token, expert));
}
Value ExpertLists::goes(const ThreadKernel &k, Value token, Value expert) const {
  return k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, weight(k, token, expert), k.number(0));
}
/// Place `index` in the list of a token's rows; place `top` tells whether it has too many.
Value ExpertLists::rowPlace(const ThreadKernel &k, Value token, Value index) const {
  return k.e.add(k.e.mul(token, k.integer(n.top + 1)), index);
}
static Value least(const ThreadKernel &k, Value a, Value b) {
  return k.e.make<arith::MinSIOp>(a, b);
}
/// Returns `count` rounded up to whole tiles.
static Value whole(const ThreadKernel &k, Value count) {
  Value up = k.e.add(count, k.integer(tileRows - 1));
  return k.e.mul(k.divide(up, tileRows), k.integer(tileRows));
}
ExpertLists::Piece ExpertLists::pieceOf(const ThreadKernel &k) const {
  Values at = k.split(k.thread, {n.pieces(), n.e});
  Value begin = k.e.mul(at[0], k.integer(ExpertSizes::tokensOfPiece));
  return {at[0], at[1], begin,
          least(k, k.e.add(begin, k.integer(ExpertSizes::tokensOfPiece)), k.integer(n.t))};
}
Value ExpertLists::countPlace(const ThreadKernel &k, Value piece, Value expert) const {
  return k.e.add(k.e.mul(piece, k.integer(n.e)), expert);
}

/// `cleared`: a result [t, e] that is set to 0, or -1.
void ExpertLists::emitLists(int cleared) {
  emitCounts(cleared);
  emitTotals();
  emitRows();
}

/// Counts the tokens of each expert in pieces of 64, and empties the rows of tokens.
void ExpertLists::emitCounts(int cleared) {
  ThreadKernel k = open(n.pieces() * n.e);
  Piece piece = pieceOf(k);
  Value count =
      k.loop(piece.begin, piece.end, {k.integer(0)}, [&](Value token, ArrayRef<Value> before) {
        if (cleared >= 0)
          k.store(cleared, countPlace(k, token, piece.expert), k.number(0));
        return Values{k.e.add(before[0], isRouted(k, token, piece.expert))};
      })[0];
  counts.store(k, countPlace(k, piece.number, piece.expert), count);
  k.ifThen(k.equal(piece.expert, k.integer(0)), [&] {
    k.loop(piece.begin, piece.end, {}, [&](Value token, ArrayRef<Value>) {
      for (int64_t i = 0; i < n.top; ++i)
        rows.store(k, rowPlace(k, token, k.integer(i)), k.integer(n.rows()));
      rows.store(k, rowPlace(k, token, k.integer(n.top)), k.integer(0));
      return Values();
    });
  });
  add(k.finish());
}

/// Replaces counts by those of the pieces before, and sums all.
void ExpertLists::emitTotals() {
  ThreadKernel k = open(n.e);
  Value total = k.loop(k.integer(0), k.integer(n.pieces()), {k.integer(0)},
                       [&](Value piece, ArrayRef<Value> before) {
                         Value place = countPlace(k, piece, k.thread);
                         Value count = counts.load(k, place);
                         counts.store(k, place, before[0]);
                         return Values{k.e.add(before[0], count)};
                       })[0];
  totals.store(k, k.thread, total);
  add(k.finish());
}

/// Writes the tokens of rows, the rows of tokens, and the experts of tiles.
void ExpertLists::emitRows() {
  ThreadKernel k = open(n.pieces() * n.e);
  Piece piece = pieceOf(k);
  Value start =
      k.loop(k.integer(0), piece.expert, {k.integer(0)}, [&](Value expert, ArrayRef<Value> before) {
        return Values{k.e.add(before[0], whole(k, totals.load(k, expert)))};
      })[0];
  Value next = k.e.add(start, counts.load(k, countPlace(k, piece.number, piece.expert)));
  k.loop(piece.begin, piece.end, {next}, [&](Value token, ArrayRef<Value> before) {
    return k.choose(
        goes(k, token, piece.expert),
        [&] {
          emitRow(k, token, piece.expert, before[0]);
          return Values{k.e.add(before[0], k.integer(1))};
        },
        [&] { return Values(before); });
  });
  k.ifThen(k.equal(piece.number, k.integer(0)), [&] { emitTiles(k, piece.expert, start); });
  add(k.finish());
}
void ExpertLists::emitRow(const ThreadKernel &k, Value token, Value expert, Value row) const {
  Value before =
      k.loop(k.integer(0), expert, {k.integer(0)}, [&](Value other, ArrayRef<Value> inner) {
        return Values{k.e.add(inner[0], isRouted(k, token, other))};
      })[0];
  Value isRow = k.e.less(row, k.integer(n.rows()));
  Value isAllowed = k.both(isRow, k.e.less(before, k.integer(n.top)));
  k.ifThen(isRow, [&] { tokens.store(k, row, k.e.select(isAllowed, token, k.integer(n.t))); });
  k.ifThen(isAllowed, [&] { rows.store(k, rowPlace(k, token, before), row); });
  k.ifThen(k.negate(isAllowed),
           [&] { rows.store(k, rowPlace(k, token, k.integer(n.top)), k.integer(1)); });
}
/// The expert's tiles, its empty rows, and behind the last expert's the tiles without one.
void ExpertLists::emitTiles(const ThreadKernel &k, Value expert, Value start) const {
  Value most = k.integer(n.rows());
  Value filled = k.e.add(start, totals.load(k, expert));
  Value begin = least(k, start, most);
  Value end = least(k, k.e.add(start, whole(k, totals.load(k, expert))), most);
  k.loop(least(k, filled, most), end, {}, [&](Value row, ArrayRef<Value>) {
    tokens.store(k, row, k.integer(n.t));
    return Values();
  });
  auto setExperts = [&](Value from, Value to, Value value) {
    k.loop(k.divide(from, tileRows), k.divide(to, tileRows), {}, [&](Value tile, ArrayRef<Value>) {
      experts.store(k, tile, value);
      return Values();
    });
  };
  setExperts(begin, end, expert);
  starts.store(k, expert, begin);
  k.ifThen(k.equal(expert, k.integer(n.e - 1)), [&] {
    starts.store(k, k.integer(n.e), end);
    setExperts(end, most, k.integer(n.e));
  });
}

} // namespace tbc::cuda
