//===- Attention.cpp - Attention on GPUs, a warp per row --------------------===//
//
// Plain kernels for any shape and type; TiledAttention.h has those for tensor cores. The lanes of a
// warp share the columns of a row. The score of a key is a dot product over the columns, summed
// over the lanes; then each lane adds up its own columns of the result. Softmax is computed online,
// key by key (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018), so no
// tensor over queries and keys is stored.
//
// Fully masked rows read no key here. If `hidden_rows` asks for another result and masks may hide
// all keys of a query, there is no kernel.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/AttentionCall.h"
#include "codegen/cuda/ops/TiledAttention.h"

#include <functional>
#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;
using kernels::HeadLayout;

/// A score, and the derivative of its cap.
struct Score {
  Value z, slope;
};

/// Builds the common parts of forward and backward.
class Rows {
public:
  Rows(const AttentionCall &a, const ThreadKernel &k)
      : a(a), k(k), lane(k.remainder(k.thread, k.lanes())), warp(k.divide(k.thread, k.lanes())),
        scale(k.number(a.call.attrs.getDouble("scale"))) {}

  /// Returns the largest number of columns of a lane, out of `columns`.
  int64_t each(int64_t columns) const { return (columns + k.lanes() - 1) / k.lanes(); }

  /// Loads the lane's columns of the row of `operand` at `offset`; 0 beyond the last column.
  Values columnsOf(int operand, Value offset, int64_t columns) const {
    Values list;
    for (int64_t i = 0; i < each(columns); ++i)
      list.push_back(
          at(i, columns, [&](Value column) { return k.load(operand, k.e.add(offset, column)); }));
    return list;
  }
  void storeColumns(int result, Value offset, int64_t columns, ArrayRef<Value> list) const {
    for (int64_t i = 0; i < each(columns); ++i) {
      Value column = columnOf(i);
      auto store = [&] { k.store(result, k.e.add(offset, column), list[size_t(i)]); };
      if ((i + 1) * k.lanes() <= columns)
        store();
      else
        k.ifThen(k.e.less(column, k.integer(columns)), store);
    }
  }
  /// Returns the dot product of two rows distributed over lanes; all lanes get it.
  Value product(ArrayRef<Value> x, ArrayRef<Value> y) const {
    Value sum = k.number(0);
    for (auto [a, b] : llvm::zip_equal(x, y))
      sum = k.e.add(sum, k.e.mul(a, b));
    return k.overWarp(sum, /*isSum=*/true);
  }
  Values addScaled(ArrayRef<Value> sums, Value factor, ArrayRef<Value> row) const {
    Values next;
    for (auto [sum, element] : llvm::zip_equal(sums, row))
      next.push_back(k.e.add(sum, k.e.mul(factor, element)));
    return next;
  }
  Values zeros(int64_t columns) const { return Values(size_t(each(columns)), k.number(0)); }

  /// Whether query i of the sample attends to key j.
  Value reads(Value sample, Value i, Value j) const {
    Value yes = k.e.make<arith::ConstantIntOp>(1, 1);
    auto unless = [&](Value no) { yes = k.both(yes, k.negate(no)); };
    auto ofQuery = [&](int operand) { return k.load(operand, at2(sample, a.queries, i)); };
    auto ofKey = [&](int operand) { return k.load(operand, at2(sample, a.keys, j)); };
    Value ahead = a.placed >= 0 ? k.e.sub(k.load(a.placed + 1, j), k.load(a.placed, i))
                                : k.e.sub(j, k.e.add(i, k.integer(a.keys - a.queries)));
    if (a.isCausal)
      unless(k.e.less(k.integer(0), ahead));
    if (a.left >= 0)
      unless(k.e.less(ahead, k.integer(-a.left)));
    if (a.right >= 0)
      unless(k.e.less(k.integer(a.right), ahead));
    if (a.ordered >= 0)
      unless(k.e.less(ofQuery(a.ordered), ofKey(a.ordered + 1)));
    if (a.keyMask >= 0)
      yes = k.both(yes, ofKey(a.keyMask));
    if (a.segments >= 0)
      yes = k.both(yes, k.equal(ofQuery(a.segments), ofKey(a.segments + 1)));
    return yes;
  }

  /// Returns the score of a pair from q . k.
  Score score(Value dot, Value sample, Value head, Value i, Value j) const {
    Score score{k.e.mul(dot, scale), k.number(1)};
    if (a.cap > 0) {
      Value tanh = k.e.make<math::TanhOp>(k.e.div(score.z, k.number(a.cap)));
      score.z = k.e.mul(tanh, k.number(a.cap));
      score.slope = k.e.sub(k.number(1), k.e.mul(tanh, tanh));
    }
    Value indices[] = {sample, head, i, j};
    for (auto [number, bias] : llvm::enumerate(a.biases)) {
      Value offset = k.integer(0);
      for (auto [index, stride] : llvm::zip_equal(indices, bias.strides))
        if (stride != 0)
          offset = k.e.add(offset, k.e.mul(index, k.integer(stride)));
      score.z = k.e.add(score.z, k.load(a.terms + int(number), offset));
    }
    return score;
  }

  /// Returns the dropout factor of a weight: 0, or 1 / (1 - ratio).
  Value kept(Value sample, Value head, Value i, Value j) const {
    if (a.dropout < 0)
      return k.number(1);
    Value number = k.integer(0);
    Value indices[] = {sample, head, i, j};
    for (int d = 0; d < 4; ++d)
      number = k.e.add(number, k.load(a.dropout + 1 + d, indices[d]));
    return dropoutFactor(k, a, number);
  }

  /// Others that a row may read, begin <= j < end.
  struct Range {
    Value begin, end;
  };
  /// Returns the keys in the window of query i; all keys if the window is in position ids.
  Range keysOf(Value i) const {
    return rangeOf(i, fromQuery(least()), fromQuery(a.mostAhead()), a.keys);
  }
  /// Returns the queries whose window has key j; all queries if it is in position ids.
  Range queriesOf(Value j) const {
    auto fromKey = [&](Distance ahead) {
      return ahead ? Distance(a.queries - a.keys - *ahead) : ahead;
    };
    return rangeOf(j, fromKey(a.mostAhead()), fromKey(least()), a.queries);
  }

  Value at2(Value outer, int64_t size, Value inner) const {
    return k.e.add(k.e.mul(outer, k.integer(size)), inner);
  }
  /// Returns the first element of a row.
  Value begin(const HeadLayout &layout, Value sample, Value head, Value token) const {
    Value offset = k.e.mul(sample, k.integer(layout.sampleStride()));
    if (layout.first != 0)
      offset = k.e.add(offset, k.integer(layout.first));
    offset = k.e.add(offset, k.e.mul(head, k.integer(layout.headStride())));
    return k.e.add(offset, k.e.mul(token, k.integer(layout.tokenStride())));
  }

  const AttentionCall &a;
  const ThreadKernel &k;
  Value lane, warp, scale;

private:
  using Distance = std::optional<int64_t>; // absent if any
  Distance least() const { return a.left >= 0 ? Distance(-a.left) : std::nullopt; }
  Distance fromQuery(Distance ahead) const {
    return ahead ? Distance(a.keys - a.queries + *ahead) : ahead;
  }
  /// Returns the others from `first` to `last` beside `token`, out of `count`.
  Range rangeOf(Value token, Distance first, Distance last, int64_t count) const {
    auto inside = [&](int64_t distance) {
      Value x = k.e.make<arith::MaxSIOp>(k.e.add(token, k.integer(distance)), k.integer(0));
      return Value(k.e.make<arith::MinSIOp>(x, k.integer(count)));
    };
    Range all{k.integer(0), k.integer(count)};
    if (a.placed >= 0)
      return all;
    return {first ? inside(*first) : all.begin, last ? inside(*last + 1) : all.end};
  }
  Value columnOf(int64_t i) const { return k.e.add(lane, k.integer(i * k.lanes())); }
  Value at(int64_t i, int64_t columns, llvm::function_ref<Value(Value)> load) const {
    Value column = columnOf(i);
    if ((i + 1) * k.lanes() <= columns)
      return load(column);
    return k.choose(
        k.e.less(column, k.integer(columns)), [&] { return Values{load(column)}; },
        [&] { return Values{k.number(0)}; })[0];
  }
};

FailureOr<region::Kernel> attention(MLIRContext &context, const OpCall &call, Form form) {
  AttentionCall a(call, 0, 3);
  if (!a.isSupported())
    return failure();
  if (isTiled(a, form))
    return emitTiledAttention(context, a);
  ThreadKernel k(context, call, threadsOfWarps(a.batch * a.heads * a.queries, form), form);
  Rows rows(a, k);
  Values at = k.split(rows.warp, {a.batch, a.heads, a.queries});
  Value sample = at[0], head = at[1], i = at[2];
  Value keyHead = k.divide(head, a.heads / a.keyHeads);
  Values query = rows.columnsOf(0, rows.begin(a.q, sample, head, i), a.width);

  // Row max m, row sum l, then the lane's columns of l o.
  Values state = {k.number(double(std::numeric_limits<float>::lowest())), k.number(0)};
  if (a.sink >= 0)
    state = {k.load(a.sink, head), k.number(1)};
  llvm::append_range(state, rows.zeros(a.valueWidth));
  Rows::Range keys = rows.keysOf(i);
  state = k.loop(keys.begin, keys.end, state, [&](Value j, ArrayRef<Value> old) {
    return k.choose(
        rows.reads(sample, i, j),
        [&] {
          Values key = rows.columnsOf(1, rows.begin(a.k, sample, keyHead, j), a.width);
          Value z = rows.score(rows.product(query, key), sample, head, i, j).z;
          Value m = k.e.larger(old[0], z);
          Value shrinks = k.e.exp(k.e.sub(old[0], m)), p = k.e.exp(k.e.sub(z, m));
          Values next = {m, k.e.add(k.e.mul(old[1], shrinks), p)};
          Value weight = k.e.mul(p, rows.kept(sample, head, i, j));
          Values value = rows.columnsOf(2, rows.begin(a.v, sample, keyHead, j), a.valueWidth);
          for (auto [sum, element] : llvm::zip_equal(old.drop_front(2), value))
            next.push_back(k.e.add(k.e.mul(sum, shrinks), k.e.mul(weight, element)));
          return next;
        },
        [&] { return Values(old); });
  });
  state[1] = rowSumOf(k, a, state[1]);
  Value isHidden = k.e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, state[1], k.number(0));
  Value divisor = k.e.select(isHidden, k.number(1), state[1]);
  Values out;
  for (Value sum : ArrayRef<Value>(state).drop_front(2))
    out.push_back(k.e.div(sum, divisor));
  rows.storeColumns(0, rows.begin(a.o, sample, head, i), a.valueWidth, out);
  k.ifThen(k.equal(rows.lane, k.integer(0)), [&] {
    k.store(1, rows.warp, k.e.select(isHidden, k.number(0), state[0]));
    k.store(2, rows.warp, state[1]);
  });
  return k.finish();
}

//===----------------------------------------------------------------------===//
// The gradient
//===----------------------------------------------------------------------===//

/// The weight of one pair of query and key, and the gradient of its score.
class PairGradient : public GradientOperand {
public:
  PairGradient(const Rows &rows) : rows(rows), k(rows.k), a(rows.a) {}

  struct Query {
    Value row; // index in [b, h, s]
    Value sample, head, i;
    Values q, dout;
    Value m, l, sum; // row max, row sum, sum of do * o
  };
  Query loadQuery(Value sample, Value head, Value i) const {
    Query x;
    x.sample = sample, x.head = head, x.i = i;
    x.row = rows.at2(rows.at2(sample, a.heads, head), a.queries, i);
    x.q = rows.columnsOf(query, rows.begin(a.q, sample, head, i), a.width);
    Value begin = rows.begin(a.o, sample, head, i);
    x.dout = rows.columnsOf(cotangent, begin, a.valueWidth);
    x.sum = rows.product(x.dout, rows.columnsOf(result, begin, a.valueWidth));
    x.m = k.load(maximum, x.row);
    x.l = k.load(denominator, x.row);
    return x;
  }
  struct Key {
    Value j;
    Values k, v;
  };
  Key loadKey(Value sample, Value keyHead, Value j) const {
    return {j, rows.columnsOf(key, rows.begin(a.k, sample, keyHead, j), a.width),
            rows.columnsOf(value, rows.begin(a.v, sample, keyHead, j), a.valueWidth)};
  }

  struct Gradients {
    Value weight, product, score; // the weight of v; the gradients of q . k and of the score
  };
  Gradients of(const Query &x, const Key &y) const {
    Score score = rows.score(rows.product(x.q, y.k), x.sample, x.head, x.i, y.j);
    Value p = k.e.div(k.e.exp(k.e.sub(score.z, x.m)), x.l);
    Value kept = rows.kept(x.sample, x.head, x.i, y.j);
    Value dp = k.e.mul(rows.product(x.dout, y.v), kept);
    Value dz = k.e.mul(p, k.e.sub(dp, x.sum));
    return {k.e.mul(p, kept), k.e.mul(k.e.mul(dz, score.slope), rows.scale), dz};
  }

private:
  const Rows &rows;
  const ThreadKernel &k;
  const AttentionCall &a;
};

/// Computes the warp's row of dq.
void buildQueryGradient(const Rows &rows, Value row) {
  const ThreadKernel &k = rows.k;
  const AttentionCall &a = rows.a;
  PairGradient pair(rows);
  Values at = k.split(row, {a.batch, a.heads, a.queries});
  Value keyHead = k.divide(at[1], a.heads / a.keyHeads);
  PairGradient::Query x = pair.loadQuery(at[0], at[1], at[2]);
  Rows::Range keys = rows.keysOf(at[2]);
  Values dq = k.loop(keys.begin, keys.end, rows.zeros(a.width), [&](Value j, ArrayRef<Value> old) {
    return k.choose(
        rows.reads(at[0], at[2], j),
        [&] {
          PairGradient::Key y = pair.loadKey(at[0], keyHead, j);
          return rows.addScaled(old, pair.of(x, y).product, y.k);
        },
        [&] { return Values(old); });
  });
  rows.storeColumns(0, rows.begin(a.q, at[0], at[1], at[2]), a.width, dq);
}

/// Computes the warp's row of dk and dv from all queries of all heads that share the key's head
/// (GQA).
void buildKeyGradient(const Rows &rows, Value row) {
  const ThreadKernel &k = rows.k;
  const AttentionCall &a = rows.a;
  PairGradient pair(rows);
  int64_t group = a.heads / a.keyHeads;
  Values at = k.split(row, {a.batch, a.keyHeads, a.keys});
  PairGradient::Key y = pair.loadKey(at[0], at[1], at[2]);
  size_t numK = size_t(rows.each(a.width));
  Values sums = rows.zeros(a.width);
  llvm::append_range(sums, rows.zeros(a.valueWidth));
  Rows::Range queries = rows.queriesOf(at[2]);
  sums = k.loop(k.integer(0), k.integer(group), sums, [&](Value g, ArrayRef<Value> outer) {
    Value head = rows.at2(at[1], group, g);
    return k.loop(queries.begin, queries.end, outer, [&](Value i, ArrayRef<Value> old) {
      return k.choose(
          rows.reads(at[0], i, at[2]),
          [&] {
            PairGradient::Query x = pair.loadQuery(at[0], head, i);
            PairGradient::Gradients g = pair.of(x, y);
            Values next = rows.addScaled(old.take_front(numK), g.product, x.q);
            llvm::append_range(next, rows.addScaled(old.drop_front(numK), g.weight, x.dout));
            return next;
          },
          [&] { return Values(old); });
    });
  });
  ArrayRef<Value> all(sums);
  rows.storeColumns(1, rows.begin(a.k, at[0], at[1], at[2]), a.width, all.take_front(numK));
  rows.storeColumns(2, rows.begin(a.v, at[0], at[1], at[2]), a.valueWidth, all.drop_front(numK));
}

FailureOr<region::Kernel> attentionGrad(MLIRContext &context, const OpCall &call, Form form) {
  AttentionCall a(call, GradientOperand::query, GradientOperand::terms);
  if (!a.isSupported())
    return failure();
  if (isTiled(a, form))
    return emitTiledAttentionGrad(context, a);
  int64_t queryRows = a.batch * a.heads * a.queries, keyRows = a.batch * a.keyHeads * a.keys;
  ThreadKernel k(context, call, threadsOfWarps(queryRows + keyRows, form), form);
  Rows rows(a, k);
  Value isQuery = k.e.less(rows.warp, k.integer(queryRows));
  k.ifThen(isQuery, [&] { buildQueryGradient(rows, rows.warp); });
  k.ifThen(k.negate(isQuery),
           [&] { buildKeyGradient(rows, k.e.sub(rows.warp, k.integer(queryRows))); });
  return k.finish();
}

/// A warp does an element of the bias: it sums over the dims that the bias lacks.
FailureOr<region::Kernel> attentionBiasGrad(MLIRContext &context, const OpCall &call, Form form) {
  AttentionCall a(call, GradientOperand::query, GradientOperand::terms);
  if (!a.isSupported())
    return failure();
  if (isTiledBiasGradient(a, form))
    return emitTiledBiasGradient(context, a);
  const kernels::BiasLayout &bias = a.biases[size_t(call.attrs.getInt("bias"))];
  int64_t elements = kernels::numElements(bias.shape);
  ThreadKernel k(context, call, threadsOfWarps(elements, form), form);
  Rows rows(a, k);
  PairGradient pair(rows);
  const int64_t sizes[] = {a.batch, a.heads, a.queries, a.keys};
  Values own = k.split(rows.warp, bias.shape);
  // Loops over the missing dims, one within the other.
  std::function<Value(size_t, size_t, Values, Value)> sum = [&](size_t dim, size_t next, Values at,
                                                                Value total) -> Value {
    if (dim < 4 && bias.strides[dim] != 0) {
      at.push_back(own[next]);
      return sum(dim + 1, next + 1, at, total);
    }
    if (dim < 4)
      return k.loop(k.integer(0), k.integer(sizes[dim]), {total},
                    [&](Value index, ArrayRef<Value> old) {
                      Values inner = at;
                      inner.push_back(index);
                      return Values{sum(dim + 1, next, inner, old[0])};
                    })[0];
    return k.choose(
        rows.reads(at[0], at[2], at[3]),
        [&] {
          PairGradient::Query x = pair.loadQuery(at[0], at[1], at[2]);
          Value keyHead = k.divide(at[1], a.heads / a.keyHeads);
          return Values{k.e.add(total, pair.of(x, pair.loadKey(at[0], keyHead, at[3])).score)};
        },
        [&] { return Values{total}; })[0];
  };
  Value total = sum(0, 0, {}, k.number(0));
  k.ifThen(k.equal(rows.lane, k.integer(0)), [&] { k.store(0, rows.warp, total); });
  return k.finish();
}

/// The kernel of `Plain` on the columns of one tensor, whose buffer it has for each of the three.
template <OpKernelFn Plain>
FailureOr<region::Kernel> packed(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::PackedAttention parts(call.op);
  OpCall plain = parts.plain(call);
  plain.operandBuffers = parts.operands(call.operandBuffers);
  plain.resultBuffers = parts.results(call.resultBuffers);
  return Plain(context, plain, form);
}

/// A thread does an element of o; the first thread of a row also does m and l.
FailureOr<region::Kernel> attentionMerge(MLIRContext &context, const OpCall &call, Form form) {
  HeadLayout layout =
      kernels::layoutOfMerge(call.attrs, call.operands[0].shape, call.operands[1].shape);
  int64_t width = layout.width;
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  Value row = k.divide(k.thread, width), column = k.remainder(k.thread, width);
  if (layout.isTokenMajor) { // the row of m and l, [b, h, s]
    Values at = k.split(row, {layout.batch, layout.tokens, layout.heads});
    row = k.join({at[0], at[2], at[1]}, {layout.batch, layout.heads, layout.tokens});
  }
  auto isThere = [&](Value l) {
    return Value(k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, l, k.number(0)));
  };
  Value m1 = k.load(1, row), l1 = k.load(2, row), m2 = k.load(4, row), l2 = k.load(5, row);
  Value first = isThere(l1), second = isThere(l2);
  Value m = k.e.select(first, k.e.select(second, k.e.larger(m1, m2), m1), m2);
  auto part = [&](Value is, Value l, Value own) {
    return k.e.select(is, k.e.mul(l, k.e.exp(k.e.sub(own, m))), k.number(0));
  };
  Value part1 = part(first, l1, m1), part2 = part(second, l2, m2);
  Value l = k.e.add(part1, part2);
  Value divisor = k.e.select(isThere(l), l, k.number(1));
  Value o = k.e.add(k.e.mul(part1, k.load(0, k.thread)), k.e.mul(part2, k.load(3, k.thread)));
  k.store(0, k.thread, k.e.div(o, divisor));
  k.ifThen(k.equal(column, k.integer(0)), [&] {
    k.store(1, row, m);
    k.store(2, row, l);
  });
  return k.finish();
}

} // namespace

const OpKernelTable &attentionOpKernels() {
  static const OpKernelTable table = {{"attention", attention},
                                      {"attention_grad", attentionGrad},
                                      {"attention_bias_grad", attentionBiasGrad},
                                      {"attention_merge", attentionMerge},
                                      {"packed_attention", packed<attention>},
                                      {"packed_attention_grad", packed<attentionGrad>}};
  return table;
}

} // namespace tbc::cuda
