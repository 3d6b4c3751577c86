//===- Attention.cpp - Scaled dot-product attention ------------------------===//

#include "ir/Attention.h"
#include "ir/Contraction.h"
#include "ir/Formula.h"
#include "ir/Movement.h"

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

static LogicalResult inferAttention(std::optional<Location> loc, Value query, Value key,
                                    Value value, bool causal, SmallVectorImpl<Type> &types) {
  auto q = tensorType(query), k = tensorType(key), v = tensorType(value);
  bool agree = q.getRank() == 4 && k.getRank() == 4 && v.getRank() == 4;
  agree =
      agree && q.getElementType() == k.getElementType() && q.getElementType() == v.getElementType();
  agree = agree && q.getDimSize(0) == k.getDimSize(0) && q.getDimSize(0) == v.getDimSize(0) &&
          q.getDimSize(3) == k.getDimSize(3) && k.getDimSize(1) == v.getDimSize(1) &&
          k.getDimSize(2) == v.getDimSize(2);
  if (!agree) // attention_c1
    return emitOptionalError(loc, "attends with ", q, " to ", k, " and ", v);
  if (k.getDimSize(1) == 0 || q.getDimSize(1) % k.getDimSize(1) != 0) // attention_c2
    return emitOptionalError(loc, q.getDimSize(1), " query heads do not share ", k.getDimSize(1),
                             " key heads evenly");
  if (causal && k.getDimSize(2) < q.getDimSize(2)) // attention_c3
    return emitOptionalError(loc, "is causal with fewer keys (", k.getDimSize(2),
                             ") than queries (", q.getDimSize(2), ")");
  SmallVector<int64_t> shape(q.getShape());
  shape.back() = v.getShape().back();
  auto result = RankedTensorType::get(shape, q.getElementType());
  Type statistic = statisticType(result, {3});
  types.assign({result, statistic, statistic});
  return success();
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferAttention(loc, adaptor.getQuery(), adaptor.getKey(), adaptor.getValue(),
                        adaptor.getCausal(), types);
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  SmallVector<Type> forward;
  if (failed(inferAttention(loc, adaptor.getQuery(), adaptor.getKey(), adaptor.getValue(),
                            adaptor.getCausal(), forward)))
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

//===- factors, cost -------------------------------------------------------===//

namespace {

/// The factor rule's dims of everything that an attention reads or writes.
struct AttentionDims {
  /// `groups`: the kind of the loop over the query heads of one key head.
  AttentionDims(FactorRule &rule, const Sizes &sizes, LoopKind groups) {
    unsigned b = rule.addLoop(sizes.b), hk = rule.addLoop(sizes.hk);
    unsigned g = rule.addLoop(sizes.g, groups);
    unsigned s = rule.addLoop(sizes.s, LoopKind::Fixed), t = rule.addLoop(sizes.t, LoopKind::Fixed);
    unsigned d = rule.addLoop(sizes.d, LoopKind::Fixed);
    unsigned dv = rule.addLoop(sizes.dv, LoopKind::Fixed);
    FactorRule::Dim heads = FactorRule::dim({hk, g});
    auto one = [](unsigned loop) { return FactorRule::dim(loop); };
    query = {one(b), heads, one(s), one(d)};
    key = {one(b), one(hk), one(t), one(d)};
    value = {one(b), one(hk), one(t), one(dv)};
    result = {one(b), heads, one(s), one(dv)};
    statistic = {one(b), heads, one(s)};
  }
  SmallVector<FactorRule::Dim, 4> query, key, value, result, statistic;
};

} // namespace

FactorRule AttentionOp::getFactorRule() {
  FactorRule rule;
  AttentionDims dims(rule, Sizes(getQuery(), getKey(), getValue()), LoopKind::Parallel);
  rule.operands = {dims.query, dims.key, dims.value};
  rule.results = {dims.result, dims.statistic, dims.statistic};
  return rule;
}

FactorRule AttentionGradOp::getFactorRule() {
  FactorRule rule;
  // The gradients of keys and values are sums over the query heads that share them.
  AttentionDims dims(rule, Sizes(getQuery(), getKey(), getValue()), LoopKind::Reduction);
  rule.operands = {dims.result, dims.query,     dims.key,      dims.value,
                   dims.result, dims.statistic, dims.statistic};
  rule.results = {dims.query, dims.key, dims.value};
  return rule;
}

void AttentionOp::resizeLoops(ArrayRef<int64_t>) {}
void AttentionGradOp::resizeLoops(ArrayRef<int64_t>) {}
StringRef AttentionOp::getKernelClass() { return "attention"; }
StringRef AttentionGradOp::getKernelClass() { return "attention"; }

/// 2 FLOPs for each of `qk` products over d and `pv` products over dv.
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
  auto grad = builder.create<AttentionGradOp>(getLoc(), cotangents[0], getQuery(), getKey(),
                                              getValue(), getResult(), getMaximum(),
                                              getDenominator(), getScale(), getCausal());
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

/// Where `causal` allows query i to attend to key j, of the shape of `scores`; null if everywhere.
static Value allowedKeys(Formula &f, Value scores, bool causal, const Sizes &n) {
  if (!causal)
    return {};
  auto type = RankedTensorType::get({n.s, n.t}, f.builder.getI64Type());
  Value query = f.make<IotaOp>(type, 0), key = f.make<IotaOp>(type, 1);
  Value bound = f.add(query, f.number(query, double(n.t - n.s)));
  Value allowed = f.compare(key, bound, "le");
  return broadcastTo(f.builder, f.loc, allowed, tensorType(scores).getShape(), {3, 4});
}

/// `value` at allowed keys, `otherwise` elsewhere.
static Value where(Formula &f, Value allowed, Value value, double otherwise) {
  return allowed ? f.select(allowed, value, f.number(value, otherwise)) : value;
}

LogicalResult AttentionOp::decompose(OpBuilder &builder, SmallVectorImpl<Value> &results) {
  Formula f{builder, getLoc()};
  Sizes n(getQuery(), getKey(), getValue());
  Value q = splitHeads(f, f.wide(getQuery()), n), k = f.wide(getKey()), v = f.wide(getValue());
  Value z = scaledScores(f, q, k, getScale().convertToDouble());
  Value allowed = allowedKeys(f, z, getCausal(), n);
  double lowest = -std::numeric_limits<float>::max();
  Value m = f.make<StabilizerMaxOp>(where(f, allowed, z, lowest), ArrayRef<int64_t>{4});
  Value p = where(f, allowed, f.exp(f.sub(z, f.repeat(m, z, {4}))), 0);
  Value l = f.sum(p, {4});
  Value o = f.einsum(p, v, kScores, kValue, kResult);
  o = f.div(o, f.repeat(l, o, {4}));
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
  Value allowed = allowedKeys(f, z, getCausal(), n);
  Value p = f.div(f.exp(f.sub(z, f.repeat(m, z, {4}))), f.repeat(l, z, {4}));
  p = where(f, allowed, p, 0);
  Value dV = f.einsum(p, dO, kScores, kResult, kValue);
  Value dP = f.einsum(dO, v, kResult, kValue, kScores);
  Value delta = f.sum(f.mul(dO, o), {4});
  Value dZ = f.mul(p, f.sub(dP, f.repeat(delta, dP, {4})));
  Value dQ = f.einsum(dZ, k, kScores, kKey, kQuery);
  Value dK = f.einsum(dZ, q, kScores, kQuery, kKey);
  dQ = f.mul(dQ, f.number(dQ, scale));
  dK = f.mul(dK, f.number(dK, scale));
  Type element = tensorType(getQuery()).getElementType();
  results.assign({f.cast(mergeHeads(f, dQ), element), f.cast(dK, element), f.cast(dV, element)});
  return success();
}

} // namespace tbc
