//===- AttentionScores.cpp - Scores and masks in tiled attention ------------===//

#include "codegen/cuda/ops/AttentionScores.h"

#include "codegen/cuda/DeviceMath.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

using Values = SmallVector<Value>;

AttentionScores::AttentionScores(const ThreadKernel &k, const AttentionCall &a,
                                 const AttentionTiles &tiles, bool isOfQueries, bool isGradient)
    : k(k), e(k.e), a(a), tiles(tiles), isOfQueries(isOfQueries), isGradient(isGradient),
      scale(a.call.attrs.getDouble("scale") * log2e) {}

void AttentionScores::setHead(Value ofSample, Value queryHead) {
  sample = ofSample, head = queryHead;
  headBiases.clear();
  for (const kernels::BiasLayout &bias : a.biases)
    headBiases.push_back(
        e.add(e.mul(sample, k.integer(bias.strides[0])), e.mul(head, k.integer(bias.strides[1]))));
  if (a.dropout >= 0)
    headNumber = e.add(k.load(a.dropout + 1, sample), k.load(a.dropout + 2, head));
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

AttentionScores::Side AttentionScores::sideOf(bool isQuery, Value token, bool mayBeAbsent) const {
  int64_t count = isQuery ? a.queries : a.keys;
  if (mayBeAbsent)
    token = e.make<arith::MinSIOp>(token, k.integer(count - 1));
  Value inSample = e.add(e.mul(sample, k.integer(count)), token);
  int which = isQuery ? 0 : 1; // of the two operands of a mask
  Side side;
  if (a.keyMask >= 0 && !isQuery)
    side.isKey = k.load(a.keyMask, inSample);
  if (a.ordered >= 0)
    side.order = k.load(a.ordered + which, inSample);
  if (a.segments >= 0)
    side.segment = k.load(a.segments + which, inSample);
  if (a.placed >= 0)
    side.position = k.load(a.placed + which, token);
  constexpr int queryDim = 2, keyDim = 3;
  int dim = isQuery ? queryDim : keyDim;
  if (a.dropout >= 0)
    side.number = k.load(a.dropout + 1 + dim, token);
  for (const kernels::BiasLayout &bias : a.biases)
    side.biases.push_back(e.mul(token, k.integer(bias.strides[size_t(dim)])));
  if (isQuery && isGradient) {
    int numbers = int(a.call.results.size()) - 1;
    Value row = k.join({sample, head, token}, {a.batch, a.heads, a.queries});
    side.logSum = k.loadResult(numbers, row);
    side.innerSum = k.loadResult(numbers, e.add(row, k.integer(a.batch * a.heads * a.queries)));
  }
  return side;
}

AttentionScores::Range AttentionScores::rangeOf(Value token) const {
  Range range;
  if (a.placed >= 0)
    return range;
  int64_t shift = a.keys - a.queries;
  auto from = [&](int64_t distance) { return e.add(token, k.integer(distance)); };
  if (isOfQueries) {
    if (a.mostAhead())
      range.end = from(shift + *a.mostAhead() + 1);
    if (a.left >= 0)
      range.begin = from(shift - a.left);
  } else {
    if (a.mostAhead())
      range.begin = from(-shift - *a.mostAhead());
    if (a.left >= 0)
      range.end = from(-shift + a.left + 1);
  }
  return range;
}

AttentionScores::Range AttentionScores::tilesOf(Value first, Value last) const {
  auto inside = [&](Value x) {
    x = e.make<arith::MaxSIOp>(x, k.integer(0));
    return Value(e.make<arith::MinSIOp>(x, k.integer(numOthers())));
  };
  Range ofFirst = rangeOf(first), ofLast = rangeOf(last);
  int64_t lines = tiles.shape.lines;
  Value begin = ofFirst.begin ? inside(ofFirst.begin) : k.integer(0);
  Value end = ofLast.end ? inside(ofLast.end) : k.integer(numOthers());
  return {k.divide(begin, lines), k.divide(e.add(end, k.integer(lines - 1)), lines)};
}

/// Returns the range of a row minus `origin`, in i32.
AttentionScores::Range AttentionScores::inTile(Value token, Value origin) const {
  Range range = rangeOf(token);
  if (numOthers() % tiles.shape.lines != 0) {
    Value count = k.integer(numOthers());
    range.end = range.end ? Value(e.make<arith::MinSIOp>(range.end, count)) : count;
  }
  for (Value *bound : {&range.begin, &range.end})
    if (*bound)
      *bound = e.make<arith::TruncIOp>(e.builder.getI32Type(), e.sub(*bound, origin));
  return range;
}

/// Whether a row reads column `column` of the lane; null if it always does.
Value AttentionScores::reads(const Side &row, const Range &range, const Side &other,
                             int64_t column) const {
  Value yes;
  auto require = [&](Value condition) { yes = yes ? k.both(yes, condition) : condition; };
  Value at = e.make<arith::ConstantIntOp>(column, 32);
  if (range.begin)
    require(k.negate(e.less(at, range.begin)));
  if (range.end)
    require(e.less(at, range.end));
  const Side &query = isOfQueries ? row : other, &key = isOfQueries ? other : row;
  if (a.placed >= 0) {
    Value ahead = e.sub(key.position, query.position);
    if (a.mostAhead())
      require(k.negate(e.less(k.integer(*a.mostAhead()), ahead)));
    if (a.left >= 0)
      require(k.negate(e.less(ahead, k.integer(-a.left))));
  }
  if (a.ordered >= 0)
    require(k.negate(e.less(query.order, key.order)));
  if (a.keyMask >= 0)
    require(key.isKey);
  if (a.segments >= 0)
    require(k.equal(query.segment, key.segment));
  return yes;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value AttentionScores::powerOf(Value z, Value shift) const {
  return powerOfTwo(e, areProducts() ? Value(e.make<math::FmaOp>(z, k.number(unit()), e.neg(shift)))
                                     : e.sub(z, shift));
}

AttentionScores::Score AttentionScores::scoreOf(Value product, const Side &row,
                                                const Side &other) const {
  if (areProducts())
    return {product, nullptr};
  Score score;
  if (a.cap > 0) {
    Value tanh = e.make<math::TanhOp>(e.mul(product, k.number(scale / log2e / a.cap)));
    score.z = e.mul(tanh, k.number(a.cap * log2e));
    score.slope = e.sub(k.number(1), e.mul(tanh, tanh));
  } else {
    score.z = e.mul(product, k.number(scale));
  }
  for (size_t i = 0; i < a.biases.size(); ++i) {
    Value offset = e.add(headBiases[i], e.add(row.biases[i], other.biases[i]));
    Value bias = k.load(a.terms + int(i), offset);
    score.z = e.add(score.z, e.mul(bias, k.number(log2e)));
  }
  return score;
}

/// Returns the dropout factor of a weight; null without dropout.
Value AttentionScores::keptOf(const Side &row, const Side &other) const {
  if (a.dropout < 0)
    return nullptr;
  return dropoutFactor(k, a, e.add(headNumber, e.add(row.number, other.number)));
}

void AttentionScores::evaluate(Value tile, ArrayRef<Row> rows, Pairs &pairs, bool ofBias) const {
  Value firstColumn =
      e.add(e.mul(tile, k.integer(tiles.shape.lines)), e.mul(tiles.cores.inQuad, k.integer(2)));
  std::array<Range, numHalves> ranges;
  for (size_t half = 0; half < numHalves; ++half)
    ranges[half] = inTile(rows[half].token, firstColumn);
  pairs.weights.resize(pairs.products.size());
  pairs.kept.resize(pairs.products.size());
  bool mayBeAbsent = numOthers() % tiles.shape.lines != 0;
  for (size_t place = 0; place < pairs.products.size(); place += TensorCores::sums)
    for (size_t i = 0; i < 2; ++i) {
      auto column = int64_t(place / TensorCores::sums * TensorCores::columns + i);
      Side other = sideOf(!isOfQueries, e.add(firstColumn, k.integer(column)), mayBeAbsent);
      for (size_t half = 0; half < numHalves; ++half) {
        const Side &row = rows[half].side;
        size_t at = place + 2 * half + i;
        Score score = scoreOf(pairs.products[at], row, other);
        if (Value isRead = reads(row, ranges[half], other, column))
          score.z = e.select(isRead, score.z, k.number(-std::numeric_limits<double>::infinity()));
        Value kept = keptOf(row, other);
        pairs.kept[at] = kept;
        pairs.products[at] = score.z;
        if (!isGradient)
          continue;
        const Side &query = isOfQueries ? row : other;
        Value weight = powerOf(score.z, query.logSum);
        pairs.weights[at] = times(weight, kept);
        if (pairs.gradients.empty())
          continue;
        Value change = e.sub(times(pairs.gradients[at], kept), query.innerSum);
        Value gradient = e.mul(weight, change);
        pairs.gradients[at] = ofBias ? gradient : times(gradient, score.slope);
      }
    }
}

} // namespace tbc::cuda
