//===- AttentionScores.cpp - Attention as matmuls and a softmax ------------===//
//
// Part of tbc. Scores get their cap, biases, sink and masks here, forward and backward.
//
//===----------------------------------------------------------------------===//

#include "ir/Attention.h"
#include "ir/AttentionSizes.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Random.h"

#include <limits>

using namespace mlir;

namespace tbc {

using namespace attention;

namespace {

/// Labels of the dims: batch, key head, query head of a key head, query, key, and the two head
/// dims.
enum Label : int64_t { B, H, G, S, T, D, V };

constexpr int64_t kQuery[] = {B, H, G, S, D}, kKey[] = {B, H, T, D}, kValue[] = {B, H, T, V},
                  kScores[] = {B, H, G, S, T}, kResult[] = {B, H, G, S, V};

} // namespace

/// Splits dim 1 of a tensor over query heads into key heads and query heads per key head.
static Value splitHeads(Formula &f, Value value, const Sizes &n) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), in(sizes.size(), 1), out;
  in[1] = 2;
  sizes[1] = n.g;
  sizes.insert(sizes.begin() + 1, n.hk);
  out.assign(sizes.size(), 1);
  return f.make<ReshapeOp>(value, sizes, in, out);
}

/// Adds a last dim of size 1.
static Value addDim(Formula &f, Value value) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), in(sizes.size(), 1), out = in;
  out.push_back(0);
  return f.make<ReshapeOp>(value, sizes, in, out);
}

/// The inverse of splitHeads.
static Value mergeHeads(Formula &f, Value value) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), in(sizes.size(), 1), out;
  out.assign(sizes.size() - 1, 1);
  out[1] = 2;
  return f.make<ReshapeOp>(value, sizes, in, out);
}

/// A tensor with some of the letters b, h, s and t, over the dims of the scores.
static Value spreadLetters(Formula &f, Value value, StringRef letters, const Sizes &n) {
  SmallVector<int64_t> dims, sizes, in, out;
  for (auto [i, letter] : llvm::enumerate(letters)) {
    in.push_back(letter == 'h' ? 2 : 1);
    if (letter == 'h') {
      sizes.append({n.hk, n.g});
      out.append({1, 1});
      dims.append({1, 2});
    } else {
      sizes.push_back(tensorType(value).getDimSize(i));
      out.push_back(1);
      dims.push_back(letter == 'b' ? 0 : letter == 's' ? 3 : 4);
    }
  }
  if (letters.contains('h'))
    value = f.make<ReshapeOp>(value, sizes, in, out);
  SmallVector<int64_t> all{n.b, n.hk, n.g, n.s, n.t};
  return broadcastTo(f.builder, f.loc, value, all, dims);
}

/// A tensor [b, h, s, d] as [b, s, h, d], and the other way round.
static Value swapHeadsAndTokens(Formula &f, Value value) {
  return f.make<TransposeOp>(value, ArrayRef<int64_t>{0, 2, 1, 3});
}

/// A tensor of `op` with this letter as [b, h, s, d], in the wide element type.
template <typename Op> static Value headMajor(Formula &f, Op op, Value value, char tensor) {
  const Order order(op.getTokenMajor(), tensor);
  value = f.wide(value);
  if (order.isMerged) {
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    const int64_t heads =
        StringRef("kv").contains(tensor) ? int64_t(op.getKeyHeads()) : int64_t(op.getHeads());
    value = f.make<ReshapeOp>(value, ArrayRef<int64_t>{shape[0], shape[1], heads, shape[2] / heads},
                              ArrayRef<int64_t>{1, 1, 2}, ArrayRef<int64_t>{1, 1, 1, 1});
  }
  return order.isTokenMajor ? swapHeadsAndTokens(f, value) : value;
}

Value attention::rowsByHead(Formula &f, AttentionOp op, Value result) {
  return headMajor(f, op, result, 'o');
}

/// The inverse of headMajor, in the element type of the queries.
template <typename Op> static Value inOrder(Formula &f, Op op, Value value, char tensor) {
  const Order order(op.getTokenMajor(), tensor);
  value = f.cast(value, tensorType(op.getQuery()).getElementType());
  if (order.isTokenMajor)
    value = swapHeadsAndTokens(f, value);
  if (order.isMerged)
    value = f.make<ReshapeOp>(value, SmallVector<int64_t>(tensorType(value).getShape()),
                              ArrayRef<int64_t>{1, 1, 1, 1}, ArrayRef<int64_t>{1, 1, 2});
  return value;
}

namespace {

/// The scores z of an attention, by key head and query head of a key head.
struct Scores {
  template <typename Op> Scores(Formula &f, Op op, Value query, Value key, const Sizes &n) {
    z = f.einsum(query, key, kQuery, kKey, kScores);
    z = f.mul(z, f.number(z, op.getScale().convertToDouble()));
    double cap = op.getSoftCap().convertToDouble();
    if (cap > 0) {
      tanh = f.tanh(f.div(z, f.number(z, cap)));
      z = f.mul(tanh, f.number(z, cap));
    }
    for (auto [i, letters] : llvm::enumerate(biasesOf(op.getBiases()))) {
      Value bias = f.cast(op.getMasks()[i], tensorType(z).getElementType());
      z = f.add(z, spreadLetters(f, bias, letters, n));
    }
  }
  /// The gradient of the score before its cap, from that of z.
  Value beforeCap(Formula &f, Value dZ) const {
    return tanh ? f.mul(dZ, f.sub(f.number(tanh, 1), f.mul(tanh, tanh))) : dZ;
  }
  Value z;
  /// Null without a cap.
  Value tanh;
};

} // namespace

namespace {

/// The conditions on the keys that an attention reads, as tensors.
class KeyConditions {
public:
  template <typename Op>
  KeyConditions(Formula &f, Op op, const Sizes &n)
      : f(f), hiddenRows(op.getHiddenRows()), scores{n.b, n.hk, n.g, n.s, n.t},
        cube{n.b, n.s, n.t} {
    size_t first = biasesOf(op.getBiases()).size() + (op.getSink() ? 1 : 0);
    unsigned next = unsigned(first);
    Value keyMask = op.getKeyMask() ? spread(op.getMasks()[next++], cube, {0, 2}) : Value();
    Value segments = op.getSegments() ? compareMasks(op.getMasks(), next, "eq") : Value();
    Value order = op.getOrdered() ? compareMasks(op.getMasks(), next, "le") : Value();
    Value queryPlaces = op.getPlaced() ? op.getMasks()[next++] : Value();
    Value keyPlaces = op.getPlaced() ? op.getMasks()[next++] : Value();
    bool isData = next > first;
    window = windowOf(op.getCausal(), int64_t(op.getLeft()), int64_t(op.getRight()), n, queryPlaces,
                      keyPlaces);
    if (window && order)
      window = f.make<AndOp>(window, order);
    for (Value condition : {window ? window : order, keyMask, segments})
      if (condition)
        conditions.push_back(condition);
    if (conditions.empty())
      return;
    allowed = conditions[0];
    for (Value condition : ArrayRef(conditions).drop_front())
      allowed = f.make<AndOp>(allowed, condition);
    if (isData)
      readHiddenRows();
    allowed = spread(allowed, scores, {0, 3, 4});
  }

  /// Returns `value`, scores or weights, at the read keys, and `otherwise` elsewhere.
  Value where(Value value, double otherwise) {
    return allowed ? f.select(allowed, value, f.number(value, otherwise)) : value;
  }
  /// Returns `value`, scores or their gradient, with 0 in rows that read keys alike.
  Value zeroWhereFlat(Value value) {
    if (!hidden || hiddenRows == "zero" || hiddenRows == "scores")
      return value;
    Value isFlat = spread(hidden, scores, {0, 3});
    return f.select(isFlat, f.number(value, 0), value);
  }
  /// Returns the statistic `value`, [b, hk, g, s], with `otherwise` in rows that read no key.
  Value whereRead(Value value, double otherwise) {
    if (!hidden || hiddenRows != "zero")
      return value;
    Value isHidden = spread(hidden, tensorType(value).getShape(), {0, 3});
    return f.select(isHidden, f.number(value, otherwise), value);
  }

private:
  Value spread(Value value, ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
    return broadcastTo(f.builder, f.loc, value, shape, dims);
  }

  /// Compares the two masks from `next` on at key and query.
  Value compareMasks(OperandRange masks, unsigned &next, StringRef predicate) {
    Value query = spread(masks[next++], cube, {0, 1});
    Value key = spread(masks[next++], cube, {0, 2});
    Type integer = f.builder.getI64Type();
    return f.compare(f.cast(key, integer), f.cast(query, integer), predicate);
  }

  /// Null: everywhere.
  Value windowOf(bool causal, int64_t left, int64_t right, const Sizes &n, Value queryPlaces,
                 Value keyPlaces) {
    if (!causal && left < 0 && right < 0)
      return {};
    Type integer = f.builder.getI64Type();
    auto type = RankedTensorType::get({n.s, n.t}, integer);
    bool isPlaced = bool(queryPlaces);
    Value key = isPlaced ? spread(f.cast(keyPlaces, integer), type.getShape(), {1})
                         : f.make<IotaOp>(type, 1);
    Value query = isPlaced ? spread(f.cast(queryPlaces, integer), type.getShape(), {0})
                           : f.make<IotaOp>(type, 0);
    Value inWindow;
    auto limit = [&](int64_t shift, StringRef predicate) {
      int64_t offset = isPlaced ? 0 : n.t - n.s;
      Value bound = f.add(query, f.number(query, double(offset + shift)));
      Value inside = f.compare(key, bound, predicate);
      inWindow = inWindow ? f.make<AndOp>(inWindow, inside) : inside;
    };
    if (causal)
      limit(0, "le");
    if (left >= 0)
      limit(-left, "ge");
    if (right >= 0)
      limit(right, "le");
    return spread(inWindow, cube, {1, 2});
  }

  /// Sets `hidden` and adds the keys of fully masked rows to `allowed`.
  void readHiddenRows() {
    Type integer = f.builder.getI64Type();
    Value count = f.sum(f.cast(allowed, integer), {2});
    hidden = f.compare(count, f.number(count, 0), "eq");
    if (hiddenRows == "zero")
      return;
    Value keys = f.repeat(hidden, allowed, {2});
    if (hiddenRows == "window" && window)
      keys = f.make<AndOp>(keys, window);
    if (hiddenRows == "nearest") {
      Value kept; // how many conditions a key keeps
      for (Value condition : conditions) {
        Value one = f.cast(condition, integer);
        kept = kept ? f.add(kept, one) : one;
      }
      Value most = f.make<ReduceMaxOp>(kept, ArrayRef<int64_t>{2});
      keys = f.make<AndOp>(keys, f.compare(kept, f.repeat(most, kept, {2}), "eq"));
    }
    allowed = f.make<OrOp>(allowed, keys);
  }

  Formula &f;
  StringRef hiddenRows;
  /// Shapes [b, hk, g, s, t] and [b, s, t].
  SmallVector<int64_t> scores, cube;
  SmallVector<Value> conditions;
  /// [b, s, t]; null: everywhere.
  Value window;
  /// Has the shape of the scores, [b, hk, g, s, t]; null: all keys are allowed.
  Value allowed;
  /// The fully masked rows, [b, s]; null: there are no such rows.
  Value hidden;
};

} // namespace

/// The weights [b, hk, g, s, t] after dropout.
template <typename Op> static Value dropOut(Formula &f, Op op, Value weights, const Sizes &n) {
  if (!op.getDropsOut())
    return weights;
  auto operands = op.getMasks().take_back(5);
  Value dropped =
      f.make<DropoutTrainOp>(mergeHeads(f, weights), operands[0], ValueRange(operands.drop_front()),
                             op.getDropoutAttr(), op.getDropoutSeedAttr(), op.getDropoutKeyAttr());
  return splitHeads(f, dropped, n);
}

LogicalResult AttentionOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(*this);
  Value q = splitHeads(f, headMajor(f, *this, getQuery(), 'q'), n);
  Value k = headMajor(f, *this, getKey(), 'k'), v = headMajor(f, *this, getValue(), 'v');
  Value z = Scores(f, *this, q, k, n).z;
  KeyConditions conditions(f, *this, n);
  z = conditions.zeroWhereFlat(z);
  double lowest = -std::numeric_limits<float>::max();
  Value m = f.make<StabilizerMaxOp>(conditions.where(z, lowest), ArrayRef<int64_t>{4});
  Value sink;
  if (getSink()) {
    Value score = f.wide(getMasks()[biasesOf(getBiases()).size()]);
    sink = splitHeads(f, f.along(score, getMaximum(), 1), n);
    // In residues every row max is 0, and so is this one.
    Value pair = f.make<ConcatOp>(ValueRange{addDim(f, m), addDim(f, sink)}, 4);
    m = f.make<StabilizerMaxOp>(pair, ArrayRef<int64_t>{4});
  } else {
    m = conditions.whereRead(m, 0);
  }
  Value p = conditions.where(f.exp(f.sub(z, f.repeat(m, z, {4}))), 0);
  Value l = f.sum(p, {4});
  if (sink)
    l = f.add(l, f.exp(f.sub(sink, m)));
  Value o = f.einsum(dropOut(f, *this, p, n), v, kScores, kValue, kResult);
  o = f.div(o, f.repeat(sink ? l : conditions.whereRead(l, 1), o, {4}));
  results.assign({inOrder(f, *this, mergeHeads(f, o), 'o'), mergeHeads(f, m), mergeHeads(f, l)});
  return success();
}

namespace {

/// The weights of an attention and the gradient of its scores, from the operands of the gradient.
struct ScoreGradient {
  template <typename Op> ScoreGradient(Formula &f, Op op, const Sizes &n) {
    query = splitHeads(f, headMajor(f, op, op.getQuery(), 'q'), n);
    key = headMajor(f, op, op.getKey(), 'k');
    cotangent = splitHeads(f, headMajor(f, op, op.getCotangent(), 'o'), n);
    Value v = headMajor(f, op, op.getValue(), 'v');
    Value o = splitHeads(f, headMajor(f, op, op.getResult(), 'o'), n);
    Value m = splitHeads(f, op.getMaximum(), n), l = splitHeads(f, op.getDenominator(), n);
    Scores scores(f, op, query, key, n);
    KeyConditions conditions(f, op, n);
    Value z = conditions.zeroWhereFlat(scores.z);
    weights = f.div(f.exp(f.sub(z, f.repeat(m, z, {4}))), f.repeat(l, z, {4}));
    weights = conditions.where(weights, 0);
    Value dP = dropOut(f, op, f.einsum(cotangent, v, kResult, kValue, kScores), n);
    Value delta = f.sum(f.mul(cotangent, o), {4});
    dZ = conditions.zeroWhereFlat(f.mul(weights, f.sub(dP, f.repeat(delta, dP, {4}))));
    dProduct = scores.beforeCap(f, dZ);
  }
  Value query, key, cotangent, weights;
  /// Of the score, and of scale * (q . k).
  Value dZ, dProduct;
};

} // namespace

LogicalResult AttentionGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(*this);
  ScoreGradient g(f, *this, n);
  double scale = getScale().convertToDouble();
  Value dV = f.einsum(dropOut(f, *this, g.weights, n), g.cotangent, kScores, kResult, kValue);
  Value dQ = f.einsum(g.dProduct, g.key, kScores, kKey, kQuery);
  Value dK = f.einsum(g.dProduct, g.query, kScores, kQuery, kKey);
  dQ = f.mul(dQ, f.number(dQ, scale));
  dK = f.mul(dK, f.number(dK, scale));
  results.assign({inOrder(f, *this, mergeHeads(f, dQ), 'q'), inOrder(f, *this, dK, 'k'),
                  inOrder(f, *this, dV, 'v')});
  return success();
}

LogicalResult AttentionBiasGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(*this);
  StringRef letters = biasesOf(getBiases())[getBias()];
  SmallVector<int64_t> missing;
  for (auto [dim, letter] : llvm::enumerate(StringRef("bst")))
    if (!letters.contains(letter))
      missing.push_back(dim == 0 ? 0 : int64_t(dim) + 1);
  Value gradient = mergeHeads(f, ScoreGradient(f, *this, n).dZ); // [b, h, s, t]
  if (!letters.contains('h'))
    missing.insert(llvm::lower_bound(missing, 1), 1);
  gradient = f.sum(gradient, missing);
  results.assign({f.cast(gradient, tensorType(getBiasCotangent()).getElementType())});
  return success();
}

} // namespace tbc
