//===- Attention.cpp - Scaled dot-product attention ------------------------===//

#include "ir/Attention.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Random.h"

#include "llvm/ADT/StringExtras.h"

#include <limits>

using namespace mlir;

namespace tbc {

namespace {

/// Labels of the dims: batch, key head, query head of a key head, query, key, and the two head
/// dims.
enum Label : int64_t { B, H, G, S, T, D, V };

constexpr int64_t kQuery[] = {B, H, G, S, D}, kKey[] = {B, H, T, D}, kValue[] = {B, H, T, V},
                  kScores[] = {B, H, G, S, T}, kResult[] = {B, H, G, S, V};

/// The sizes of an attention.
struct Sizes {
  Sizes(Value query, Value key, Value value) {
    auto q = tensorType(query).getShape(), k = tensorType(key).getShape();
    b = q[0], hk = k[1], g = q[1] / k[1], s = q[2], t = k[2], d = q[3];
    dv = tensorType(value).getShape()[3];
  }
  int64_t b, hk, g, s, t, d, dv;
};

} // namespace

/// Returns true if q, k and v have the types of one attention.
static bool areOperandsOfAttention(RankedTensorType q, RankedTensorType k, RankedTensorType v) {
  return q.getRank() == 4 && k.getRank() == 4 && v.getRank() == 4 &&
         q.getElementType() == k.getElementType() && q.getElementType() == v.getElementType() &&
         q.getDimSize(0) == k.getDimSize(0) && q.getDimSize(0) == v.getDimSize(0) &&
         q.getDimSize(3) == k.getDimSize(3) && k.getDimSize(1) == v.getDimSize(1) &&
         k.getDimSize(2) == v.getDimSize(2);
}

/// Checks that the mask operands have the types of the flags.
template <typename Adaptor>
static LogicalResult verifyMasks(std::optional<Location> loc, Adaptor adaptor) {
  auto q = tensorType(adaptor.getQuery());
  int64_t b = q.getDimSize(0), h = q.getDimSize(1), s = q.getDimSize(2);
  int64_t t = tensorType(adaptor.getKey()).getDimSize(2);
  SmallVector<std::pair<SmallVector<int64_t, 2>, bool>> expected; // the shape, whether of booleans
  if (adaptor.getKeyMask())
    expected.push_back({{b, t}, true});
  for (bool isThere : {adaptor.getSegments(), adaptor.getOrdered()})
    if (isThere) {
      expected.push_back({{b, s}, false});
      expected.push_back({{b, t}, false});
    }
  if (adaptor.getPlaced()) {
    expected.push_back({{s}, false});
    expected.push_back({{t}, false});
  }
  if (adaptor.getDropsOut()) {
    expected.push_back({{}, false});
    for (int64_t size : {b, h, s, t})
      expected.push_back({{size}, false});
  }
  ValueRange masks = adaptor.getMasks();
  if (masks.size() != expected.size())
    return emitOptionalError(loc, "has ", masks.size(), " masks, expected ", expected.size());
  for (auto [mask, want] : llvm::zip_equal(masks, expected)) {
    auto type = tensorType(mask);
    if (type.getShape() != ArrayRef<int64_t>(want.first) ||
        type.getElementType().isInteger(1) != want.second)
      return emitOptionalError(
          loc, "has a mask of type ", type, ", expected ", want.second ? "booleans" : "integers",
          " of shape [",
          llvm::join(llvm::map_range(want.first, [](int64_t size) { return std::to_string(size); }),
                     ", "),
          "]");
  }
  return success();
}

template <typename Adaptor>
static LogicalResult inferAttention(std::optional<Location> loc, Adaptor adaptor,
                                    SmallVectorImpl<Type> &types) {
  auto q = tensorType(adaptor.getQuery()), k = tensorType(adaptor.getKey()),
       v = tensorType(adaptor.getValue());
  if (!areOperandsOfAttention(q, k, v)) // attention_c1
    return emitOptionalError(loc, "attends with ", q, " to ", k, " and ", v);
  if (k.getDimSize(1) == 0 || q.getDimSize(1) % k.getDimSize(1) != 0) // attention_c2
    return emitOptionalError(loc, q.getDimSize(1), " query heads do not share ", k.getDimSize(1),
                             " key heads evenly");
  int64_t left = int64_t(adaptor.getLeft()), right = int64_t(adaptor.getRight());
  bool hasWindow = adaptor.getCausal() || left >= 0 || right >= 0;
  if (left < -1 || right < -1 ||
      (hasWindow && !adaptor.getPlaced() && k.getDimSize(2) < q.getDimSize(2))) // attention_c3
    return emitOptionalError(loc, adaptor.getCausal() ? "is causal" : "has a window", " (left ",
                             left, ", right ", right, ") with ", k.getDimSize(2), " keys for ",
                             q.getDimSize(2), " queries");
  if (failed(verifyMasks(loc, adaptor))) // attention_c4
    return failure();
  StringRef rows = adaptor.getHiddenRows();
  if (!llvm::is_contained({"zero", "mean", "window", "nearest", "scores"}, rows)) // attention_c5
    return emitOptionalError(loc, "has unknown hidden_rows \"", rows,
                             "\"; expected zero, mean, window, nearest or scores");
  if (rows == "window" && adaptor.getOrdered()) // attention_c5
    return emitOptionalError(loc, "reads its window in hidden rows, which positions that are data "
                                  "may leave empty");
  double ratio = adaptor.getDropout().convertToDouble();
  if (!(ratio >= 0 && ratio < 1)) // attention_c6
    return emitOptionalError(loc, "has dropout ", ratio, "; expected 0 or more and less than 1");
  SmallVector<int64_t> shape(q.getShape());
  shape.back() = v.getShape().back();
  auto result = RankedTensorType::get(shape, q.getElementType());
  Type statistic = statisticType(result, {3});
  types.assign({result, statistic, statistic});
  return success();
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferAttention(loc, adaptor, types);
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  SmallVector<Type> forward;
  if (failed(inferAttention(loc, adaptor, forward)))
    return failure();
  Type actual[] = {adaptor.getResult().getType(), adaptor.getMaximum().getType(),
                   adaptor.getDenominator().getType(), adaptor.getCotangent().getType()};
  Type expected[] = {forward[0], forward[1], forward[2], forward[0]};
  for (auto [have, want] : llvm::zip_equal(actual, expected))
    if (have != want) // attention_grad_c1
      return emitOptionalError(loc, "has an operand of type ", have, ", expected ", want);
  types.assign(
      {adaptor.getQuery().getType(), adaptor.getKey().getType(), adaptor.getValue().getType()});
  return success();
}

LogicalResult AttentionMergeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto result = tensorType(adaptor.getResult()), maximum = tensorType(adaptor.getMaximum());
  Type other[] = {adaptor.getOtherResult().getType(), adaptor.getOtherMaximum().getType(),
                  adaptor.getOtherDenominator().getType()};
  bool fits = result.getRank() == 4 && maximum.getShape() == result.getShape().drop_back() &&
              maximum.getElementType() == result.getElementType() &&
              adaptor.getDenominator().getType() == maximum;
  types.assign({result, maximum, maximum});
  if (!fits || ArrayRef<Type>(other) != ArrayRef<Type>(types)) // attention_merge_c1
    return emitOptionalError(loc, "merges ", result, " with ", maximum, " and ",
                             adaptor.getDenominator().getType(), " with ", other[0], ", ", other[1],
                             " and ", other[2]);
  return success();
}

//===- factors, cost -------------------------------------------------------===//

template <typename Op> static bool hasWindow(Op op) {
  return op.getCausal() || int64_t(op.getLeft()) >= 0 || int64_t(op.getRight()) >= 0;
}

/// Returns true if keys may come in blocks: the read of some keys must not depend on the others. So
/// fully masked rows must read no key.
template <typename Op> static bool takesBlocks(Op op) { return op.getHiddenRows() == "zero"; }

namespace {

/// The factor rule's dims of all operands and results of an attention.
struct AttentionDims {
  /// `shared` is the kind of the loops without keys and values: the query heads of one key head
  /// and, if they may be split, the queries.
  template <typename Op>
  AttentionDims(FactorRule &rule, Op op, const Sizes &sizes, LoopKind shared) {
    unsigned b = rule.addLoop(sizes.b), hk = rule.addLoop(sizes.hk);
    unsigned g = rule.addLoop(sizes.g, shared);
    bool isPlaced = op.getPlaced() || !hasWindow(op);
    unsigned s = rule.addLoop(sizes.s, isPlaced ? shared : LoopKind::Fixed);
    unsigned t =
        rule.addLoop(sizes.t, isPlaced && takesBlocks(op) ? LoopKind::Streamed : LoopKind::Fixed);
    unsigned d = rule.addLoop(sizes.d, LoopKind::Fixed);
    unsigned dv = rule.addLoop(sizes.dv, LoopKind::Fixed);
    FactorRule::Dim heads = FactorRule::dim({hk, g});
    auto one = [](unsigned loop) { return FactorRule::dim(loop); };
    query = {one(b), heads, one(s), one(d)};
    key = {one(b), one(hk), one(t), one(d)};
    value = {one(b), one(hk), one(t), one(dv)};
    result = {one(b), heads, one(s), one(dv)};
    statistic = {one(b), heads, one(s)};
    byQuery = {one(b), one(s)};
    byKey = {one(b), one(t)};
    places = {{one(s)}, {one(t)}};
    numbers = {{}, {one(b)}, {heads}, {one(s)}, {one(t)}};
  }
  /// Appends the dims of the mask operands.
  template <typename Op> void addMasks(FactorRule &rule, Op op) const {
    if (op.getKeyMask())
      rule.operands.push_back(byKey);
    for (bool isThere : {op.getSegments(), op.getOrdered()})
      if (isThere)
        rule.operands.append({byQuery, byKey});
    if (op.getPlaced())
      rule.operands.append(places);
    if (op.getDropsOut())
      rule.operands.append(numbers);
  }
  /// The positions of queries and keys.
  SmallVector<SmallVector<FactorRule::Dim, 4>, 2> places;
  /// The step and the indices of dropout.
  SmallVector<SmallVector<FactorRule::Dim, 4>, 5> numbers;
  SmallVector<FactorRule::Dim, 4> query, key, value, result, statistic, byQuery, byKey;
};

} // namespace

FactorRule AttentionOp::getFactorRule() {
  FactorRule rule;
  AttentionDims dims(rule, *this, Sizes(getQuery(), getKey(), getValue()), LoopKind::Parallel);
  rule.operands = {dims.query, dims.key, dims.value};
  dims.addMasks(rule, *this);
  rule.results = {dims.result, dims.statistic, dims.statistic};
  return rule;
}

FactorRule AttentionGradOp::getFactorRule() {
  FactorRule rule;
  // The gradients of keys and values are sums over the queries of all heads that share them.
  AttentionDims dims(rule, *this, Sizes(getQuery(), getKey(), getValue()), LoopKind::Reduction);
  rule.operands = {dims.result, dims.query,     dims.key,      dims.value,
                   dims.result, dims.statistic, dims.statistic};
  dims.addMasks(rule, *this);
  rule.results = {dims.query, dims.key, dims.value};
  return rule;
}

void AttentionOp::resizeLoops(ArrayRef<int64_t>) {}
void AttentionGradOp::resizeLoops(ArrayRef<int64_t>) {}
template <typename Op> static KernelClass attentionClass(Op op) {
  bool isCausal = op.getCausal() && int64_t(op.getLeft()) < 0;
  return isCausal ? KernelClass::CausalAttention : KernelClass::Attention;
}
KernelClass AttentionOp::getKernelClass() { return attentionClass(*this); }
KernelClass AttentionGradOp::getKernelClass() { return attentionClass(*this); }

FactorRule AttentionMergeOp::getFactorRule() {
  FactorRule rule;
  SmallVector<FactorRule::Dim, 4> row;
  for (int64_t size : tensorType(getMaximum()).getShape())
    row.push_back(FactorRule::dim(rule.addLoop(size)));
  SmallVector<FactorRule::Dim, 4> result = row;
  result.push_back(FactorRule::dim(rule.addLoop(tensorType(getResult()).getDimSize(3))));
  rule.operands = {result, row, row, result, row, row};
  rule.results = {result, row, row};
  return rule;
}
void AttentionMergeOp::resizeLoops(ArrayRef<int64_t>) {}
KernelClass AttentionMergeOp::getKernelClass() { return KernelClass::Elementwise; }
double AttentionMergeOp::getFlops() {
  return 4.0 * double(tensorType(getResult()).getNumElements()) +
         8.0 * double(tensorType(getMaximum()).getNumElements());
}

/// Returns 2 FLOPs for each multiply-add of `qk` matmuls over d and `pv` matmuls over dv.
static double attentionFlops(const Sizes &n, double qk, double pv) {
  return 2.0 * double(n.b) * double(n.hk * n.g) * double(n.s) * double(n.t) *
         (qk * double(n.d) + pv * double(n.dv));
}
double AttentionOp::getFlops() {
  return attentionFlops(Sizes(getQuery(), getKey(), getValue()), 1, 1);
}
double AttentionGradOp::getFlops() {
  return attentionFlops(Sizes(getQuery(), getKey(), getValue()), 3, 2);
}

//===- gradient, decomposition ---------------------------------------------===//

LogicalResult AttentionOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (cotangents[1] || cotangents[2])
    return emitOpError("is not differentiable through its statistics");
  if (!cotangents[0] || !llvm::is_contained(needed, true))
    return success();
  auto grad = builder.create<AttentionGradOp>(
      getLoc(), cotangents[0], getQuery(), getKey(), getValue(), getResult(), getMaximum(),
      getDenominator(), getMasks(), getScale(), getCausal(), getLeft(), getRight(), getKeyMask(),
      getSegments(), getOrdered(), getPlaced(), getHiddenRows(), getDropout(), getDropsOut(),
      getDropoutSeed(), getDropoutKey());
  for (auto [i, result] : llvm::enumerate(grad.getResults()))
    if (needed[i])
      operandCotangents[i] = result;
  return success();
}

/// Splits dim 1 of a tensor over query heads into key heads and query heads per key head.
static Value splitHeads(Formula &f, Value value, const Sizes &n) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), in(sizes.size(), 1), out;
  in[1] = 2;
  sizes[1] = n.g;
  sizes.insert(sizes.begin() + 1, n.hk);
  out.assign(sizes.size(), 1);
  return f.make<ReshapeOp>(value, sizes, in, out);
}

/// The inverse of splitHeads.
static Value mergeHeads(Formula &f, Value value) {
  SmallVector<int64_t> sizes(tensorType(value).getShape()), in(sizes.size(), 1), out;
  out.assign(sizes.size() - 1, 1);
  out[1] = 2;
  return f.make<ReshapeOp>(value, sizes, in, out);
}

/// scale * (q . k), by key head and query head of a key head.
static Value scaledScores(Formula &f, Value query, Value key, double scale) {
  Value scores = f.einsum(query, key, kQuery, kKey, kScores);
  return f.mul(scores, f.number(scores, scale));
}

namespace {

/// The conditions on the keys that an attention reads, as tensors.
class KeyConditions {
public:
  template <typename Op>
  KeyConditions(Formula &f, Op op, const Sizes &n)
      : f(f), hiddenRows(op.getHiddenRows()), scores{n.b, n.hk, n.g, n.s, n.t},
        cube{n.b, n.s, n.t} {
    unsigned next = 0;
    Value keyMask = op.getKeyMask() ? spread(op.getMasks()[next++], cube, {0, 2}) : Value();
    Value segments = op.getSegments() ? compareMasks(op.getMasks(), next, "eq") : Value();
    Value order = op.getOrdered() ? compareMasks(op.getMasks(), next, "le") : Value();
    Value queryPlaces = op.getPlaced() ? op.getMasks()[next++] : Value();
    Value keyPlaces = op.getPlaced() ? op.getMasks()[next++] : Value();
    bool isData = next > 0;
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

SmallVector<std::pair<Value, unsigned>> AttentionOp::getDroppedDims() {
  if (getDropsOut() || getDropout().isZero())
    return {};
  return {{getQuery(), 0}, {getQuery(), 1}, {getQuery(), 2}, {getKey(), 2}};
}

SmallVector<Value> AttentionOp::buildTrainingDropout(OpBuilder &builder, Value step,
                                                     ValueRange indices, int64_t seed,
                                                     int64_t key) {
  SmallVector<Value> masks(getMasks());
  masks.push_back(step);
  llvm::append_range(masks, indices);
  return builder
      .create<AttentionOp>(getLoc(), getQuery(), getKey(), getValue(), masks, getScale(),
                           getCausal(), getLeft(), getRight(), getKeyMask(), getSegments(),
                           getOrdered(), getPlaced(), getHiddenRows(), getDropout(), true, seed,
                           key)
      .getResults();
}

SmallVector<Value> AttentionOp::buildWithoutDropout(OpBuilder &builder) {
  return builder
      .create<AttentionOp>(getLoc(), getQuery(), getKey(), getValue(), getMasks(), getScale(),
                           getCausal(), getLeft(), getRight(), getKeyMask(), getSegments(),
                           getOrdered(), getPlaced(), getHiddenRows(), APFloat(0.0), false, 0, 0)
      .getResults();
}

LogicalResult AttentionOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(getQuery(), getKey(), getValue());
  Value q = splitHeads(f, f.wide(getQuery()), n), k = f.wide(getKey()), v = f.wide(getValue());
  Value z = scaledScores(f, q, k, getScale().convertToDouble());
  KeyConditions conditions(f, *this, n);
  z = conditions.zeroWhereFlat(z);
  double lowest = -std::numeric_limits<float>::max();
  Value m = f.make<StabilizerMaxOp>(conditions.where(z, lowest), ArrayRef<int64_t>{4});
  m = conditions.whereRead(m, 0);
  Value p = conditions.where(f.exp(f.sub(z, f.repeat(m, z, {4}))), 0);
  Value l = f.sum(p, {4});
  Value o = f.einsum(dropOut(f, *this, p, n), v, kScores, kValue, kResult);
  o = f.div(o, f.repeat(conditions.whereRead(l, 1), o, {4}));
  Type element = tensorType(getQuery()).getElementType();
  results.assign({f.cast(mergeHeads(f, o), element), mergeHeads(f, m), mergeHeads(f, l)});
  return success();
}

LogicalResult AttentionGradOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(getQuery(), getKey(), getValue());
  Value q = splitHeads(f, f.wide(getQuery()), n), k = f.wide(getKey()), v = f.wide(getValue());
  Value o = splitHeads(f, f.wide(getResult()), n), dO = splitHeads(f, f.wide(getCotangent()), n);
  Value m = splitHeads(f, getMaximum(), n), l = splitHeads(f, getDenominator(), n);
  double scale = getScale().convertToDouble();
  Value z = scaledScores(f, q, k, scale);
  KeyConditions conditions(f, *this, n);
  z = conditions.zeroWhereFlat(z);
  Value p = f.div(f.exp(f.sub(z, f.repeat(m, z, {4}))), f.repeat(l, z, {4}));
  p = conditions.where(p, 0);
  Value dV = f.einsum(dropOut(f, *this, p, n), dO, kScores, kResult, kValue);
  Value dP = dropOut(f, *this, f.einsum(dO, v, kResult, kValue, kScores), n);
  Value delta = f.sum(f.mul(dO, o), {4});
  Value dZ = conditions.zeroWhereFlat(f.mul(p, f.sub(dP, f.repeat(delta, dP, {4}))));
  Value dQ = f.einsum(dZ, k, kScores, kKey, kQuery);
  Value dK = f.einsum(dZ, q, kScores, kQuery, kKey);
  dQ = f.mul(dQ, f.number(dQ, scale));
  dK = f.mul(dK, f.number(dK, scale));
  Type element = tensorType(getQuery()).getElementType();
  results.assign({f.cast(mergeHeads(f, dQ), element), f.cast(dK, element), f.cast(dV, element)});
  return success();
}

//===- keys block by block ---------------------------------------------------===//

/// `op` on the operands of one block of keys, with the results `types`.
static Operation *onBlock(OpBuilder &builder, Operation *op, BlockStream &stream, int64_t block) {
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(stream.operands(block));
  state.addTypes(stream.resultTypes());
  state.addAttributes(op->getAttrDictionary().getValue());
  return builder.create(state);
}

SmallVector<Value> AttentionOp::buildStreamed(OpBuilder &builder, BlockStream &stream) {
  Formula f{builder, getLoc()};
  SmallVector<Value> sum;
  for (int64_t block = 0; block < stream.numBlocks(); ++block) {
    Operation *part = onBlock(builder, *this, stream, block);
    SmallVector<Value> next(part->getResults());
    next[0] = f.wide(next[0]);
    if (!sum.empty())
      next =
          builder
              .create<AttentionMergeOp>(getLoc(), sum[0], sum[1], sum[2], next[0], next[1], next[2])
              .getResults();
    sum = next;
  }
  sum[0] = f.cast(sum[0], tensorType(getResult()).getElementType());
  return sum;
}

/// With the statistics of all keys, each block of keys has its own part of every gradient. The
/// gradient of the queries is summed here; those of keys and values travel with their block.
SmallVector<Value> AttentionGradOp::buildStreamed(OpBuilder &builder, BlockStream &stream) {
  Formula f{builder, getLoc()};
  Value query, key, value;
  for (int64_t block = 0; block < stream.numBlocks(); ++block) {
    Operation *part = onBlock(builder, *this, stream, block);
    Value queryPart = f.wide(part->getResult(0));
    query = query ? f.add(query, queryPart) : queryPart;
    key = key ? f.add(stream.pass(key), part->getResult(1)) : part->getResult(1);
    value = value ? f.add(stream.pass(value), part->getResult(2)) : part->getResult(2);
  }
  query = f.cast(query, tensorType(getQuery()).getElementType());
  return {query, stream.pass(key), stream.pass(value)};
}

} // namespace tbc
