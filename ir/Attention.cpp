//===- Attention.cpp - Scaled dot-product attention ------------------------===//

#include "ir/Attention.h"
#include "ir/AttentionRules.h"
#include "ir/Formula.h"

using namespace mlir;

namespace tbc {

using namespace attention;

/// Returns true if q, k and v have the types of one attention.
template <typename Adaptor> static bool areOperandsOfAttention(Adaptor adaptor) {
  auto q = tensorType(adaptor.getQuery()), k = tensorType(adaptor.getKey()),
       v = tensorType(adaptor.getValue());
  StringRef letters = adaptor.getTokenMajor();
  const Order ofQuery(letters, 'q'), ofKey(letters, 'k'), ofValue(letters, 'v');
  if (q.getRank() != ofQuery.rank() || k.getRank() != ofKey.rank() ||
      v.getRank() != ofValue.rank() || q.getElementType() != k.getElementType() ||
      q.getElementType() != v.getElementType())
    return false;
  const Sizes n(adaptor);
  const int64_t keyWidth = ofKey.isMerged ? n.hk * n.d : n.d;
  const int64_t valueHeads = ofValue.isMerged ? n.hk : v.getDimSize(ofValue.heads());
  return k.getDimSize(0) == n.b && v.getDimSize(0) == n.b && k.getShape().back() == keyWidth &&
         valueHeads == n.hk && v.getDimSize(ofValue.tokens()) == n.t;
}

/// Returns true if the numbers of heads divide the merged dims.
template <typename Adaptor> static bool areHeadsMerged(Adaptor adaptor) {
  auto divides = [&](Value value, char tensor, int64_t heads) {
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    return !Order(adaptor.getTokenMajor(), tensor).isMerged || shape.empty() ||
           (heads > 0 && shape.back() % heads == 0);
  };
  const int64_t heads = int64_t(adaptor.getHeads()), keyHeads = int64_t(adaptor.getKeyHeads());
  return divides(adaptor.getQuery(), 'q', heads) && divides(adaptor.getKey(), 'k', keyHeads) &&
         divides(adaptor.getValue(), 'v', keyHeads);
}

template <typename Adaptor>
static LogicalResult inferAttention(std::optional<Location> loc, Adaptor adaptor,
                                    SmallVectorImpl<Type> &types) {
  auto q = tensorType(adaptor.getQuery()), k = tensorType(adaptor.getKey()),
       v = tensorType(adaptor.getValue());
  StringRef tokenMajor = adaptor.getTokenMajor();
  if (!areLettersOf(tokenMajor.lower(), "qkvo")) // attention_c9
    return emitOptionalError(loc, "has token_major \"", tokenMajor,
                             "\"; expected some of q, k, v and o, in this order");
  if (!areHeadsMerged(adaptor)) // attention_c10
    return emitOptionalError(loc, "merges ", int64_t(adaptor.getHeads()), " query heads and ",
                             int64_t(adaptor.getKeyHeads()), " key heads in ", q, ", ", k, " and ",
                             v);
  if (!areOperandsOfAttention(adaptor)) // attention_c1
    return emitOptionalError(loc, "attends with ", q, " to ", k, " and ", v);
  auto countHeads = [&](RankedTensorType type, char tensor, int64_t merged) {
    Order order(tokenMajor, tensor);
    return order.isMerged ? merged : type.getDimSize(order.heads());
  };
  int64_t heads = countHeads(q, 'q', int64_t(adaptor.getHeads())),
          keyHeads = countHeads(k, 'k', int64_t(adaptor.getKeyHeads()));
  if (keyHeads == 0 || heads % keyHeads != 0) // attention_c2
    return emitOptionalError(loc, heads, " query heads do not share ", keyHeads,
                             " key heads evenly");
  return checkAttention(loc, adaptor, q.getElementType(), types);
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferAttention(loc, adaptor, types);
}

/// Checks the operands of attention_grad or attention_bias_grad.
template <typename Adaptor>
static LogicalResult verifyGradOperands(std::optional<Location> loc, Adaptor adaptor) {
  SmallVector<Type> forward;
  if (failed(inferAttention(loc, adaptor, forward)))
    return failure();
  Type actual[] = {adaptor.getResult().getType(), adaptor.getMaximum().getType(),
                   adaptor.getDenominator().getType(), adaptor.getCotangent().getType()};
  Type expected[] = {forward[0], forward[1], forward[2], forward[0]};
  for (auto [have, want] : llvm::zip_equal(actual, expected))
    if (have != want) // attention_grad_c1, attention_bias_grad_c1
      return emitOptionalError(loc, "has an operand of type ", have, ", expected ", want);
  return success();
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(verifyGradOperands(loc, adaptor)))
    return failure();
  types.assign(
      {adaptor.getQuery().getType(), adaptor.getKey().getType(), adaptor.getValue().getType()});
  return success();
}

LogicalResult AttentionBiasGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                    Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(verifyGradOperands(loc, adaptor)))
    return failure();
  size_t index = size_t(adaptor.getBias()), count = biasesOf(adaptor.getBiases()).size();
  if (index >= count) // attention_bias_grad_c2
    return emitOptionalError(loc, "has bias ", int64_t(index), " of ", count, " biases");
  types.assign({adaptor.getMasks()[index].getType()});
  return success();
}

/// The order of the dims of an attention_merge's result.
template <typename Op> static Order orderOfMerge(Op op) {
  return {!op.getTokenMajor() ? "" : tensorType(op.getResult()).getRank() == 3 ? "O" : "o", 'o'};
}

LogicalResult AttentionMergeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  auto result = tensorType(adaptor.getResult()), maximum = tensorType(adaptor.getMaximum());
  Type other[] = {adaptor.getOtherResult().getType(), adaptor.getOtherMaximum().getType(),
                  adaptor.getOtherDenominator().getType()};
  const Order order = orderOfMerge(adaptor);
  auto hasHeads = [&](int64_t heads) {
    int64_t size = result.getDimSize(order.heads());
    return order.isMerged ? heads > 0 && size % heads == 0 : heads == size;
  };
  bool fits = result.getRank() == order.rank() && maximum.getRank() == 3 &&
              maximum.getDimSize(0) == result.getDimSize(0) && hasHeads(maximum.getDimSize(1)) &&
              maximum.getDimSize(2) == result.getDimSize(order.tokens()) &&
              maximum.getElementType() == result.getElementType() &&
              adaptor.getDenominator().getType() == maximum;
  types.assign({result, maximum, maximum});
  if (!fits || ArrayRef<Type>(other) != ArrayRef<Type>(types)) // attention_merge_c1
    return emitOptionalError(loc, "merges ", result, " with ", maximum, " and ",
                             adaptor.getDenominator().getType(), " with ", other[0], ", ", other[1],
                             " and ", other[2]);
  return success();
}

//===- factors -------------------------------------------------------------===//

FactorRule AttentionOp::getFactorRule() {
  FactorRule rule;
  AttentionDims dims(rule, *this, Sizes(*this), LoopKind::Parallel);
  rule.operands = {dims.query, dims.key, dims.value};
  dims.addMasks(rule, *this);
  rule.results = {dims.result, dims.statistic, dims.statistic};
  return rule;
}

FactorRule AttentionGradOp::getFactorRule() {
  FactorRule rule;
  // The gradients of keys and values are sums over the queries of all heads that share them.
  AttentionDims dims(rule, *this, Sizes(*this), LoopKind::Reduction);
  rule.operands = {dims.result, dims.query,     dims.key,      dims.value,
                   dims.result, dims.statistic, dims.statistic};
  dims.addMasks(rule, *this);
  rule.results = {dims.query, dims.key, dims.value};
  return rule;
}

FactorRule AttentionBiasGradOp::getFactorRule() {
  FactorRule rule;
  AttentionDims dims(rule, *this, Sizes(*this), LoopKind::Reduction);
  rule.operands = {dims.result, dims.query,     dims.key,      dims.value,
                   dims.result, dims.statistic, dims.statistic};
  dims.addMasks(rule, *this);
  StringRef letters = biasesOf(getBiases())[getBias()];
  rule.results = {dims.ofLetters(letters)};
  // A sum over the loops that the bias lacks; splitting keys is left out, as in attention.
  auto set = [&](unsigned loop, bool isKept) {
    if (rule.loops[loop].kind != LoopKind::Fixed)
      rule.loops[loop].kind = isKept ? LoopKind::Parallel : LoopKind::Reduction;
  };
  for (auto [loop, letter] : llvm::enumerate(StringRef("bhhs")))
    set(unsigned(loop), letters.contains(letter));
  return rule;
}

void AttentionBiasGradOp::resizeLoops(ArrayRef<int64_t> sizes) { resizeHeads(*this, sizes); }
void AttentionOp::resizeLoops(ArrayRef<int64_t> sizes) { resizeHeads(*this, sizes); }
void AttentionGradOp::resizeLoops(ArrayRef<int64_t> sizes) { resizeHeads(*this, sizes); }

FactorRule AttentionMergeOp::getFactorRule() {
  FactorRule rule;
  SmallVector<unsigned, 3> loops;
  for (int64_t size : tensorType(getMaximum()).getShape())
    loops.push_back(rule.addLoop(size));
  SmallVector<FactorRule::Dim, 4> row = FactorRule::dims(loops);
  const Order order = orderOfMerge(*this);
  int64_t width = tensorType(getResult()).getShape().back();
  if (order.isMerged)
    width /= tensorType(getMaximum()).getDimSize(1);
  auto result = dimsOf(order, loops[0], {loops[1]}, loops[2],
                       rule.addLoop(width, order.isMerged ? LoopKind::Fixed : LoopKind::Parallel));
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

//===- gradient, dropout ---------------------------------------------------===//

/// The gradient of the sink: -sum over b and s of its weight exp(sink - m) / l times sum(do * o).
static Value sinkCotangent(OpBuilder &builder, AttentionOp op, Value cotangent) {
  Formula f{builder, op.getLoc()};
  Value sink = op.getMasks()[biasesOf(op.getBiases()).size()];
  Value m = op.getMaximum();
  Value score = f.along(f.cast(sink, tensorType(m).getElementType()), m, 1);
  Value weight = f.div(f.exp(f.sub(score, m)), op.getDenominator());
  Value product = f.mul(f.wide(cotangent), f.wide(op.getResult()));
  Value dot = f.sum(rowsByHead(f, op, product), {3});
  Value total = f.neg(f.sum(f.mul(weight, dot), {0, 2}));
  return f.cast(total, tensorType(sink).getElementType());
}

LogicalResult AttentionOp::buildVjp(OpBuilder &builder, ArrayRef<Value> cotangents,
                                    ArrayRef<bool> needed,
                                    SmallVectorImpl<Value> &operandCotangents) {
  if (cotangents[1] || cotangents[2])
    return emitOpError("is not differentiable through its statistics");
  if (!cotangents[0] || !llvm::is_contained(needed, true))
    return success();
  bool isDataNeeded = llvm::is_contained(needed.take_front(3), true);
  SmallVector<Value> operands{cotangents[0], getQuery(),   getKey(),        getValue(),
                              getResult(),   getMaximum(), getDenominator()};
  llvm::append_range(operands, getMasks());
  auto attributes = cast<DictionaryAttr>((*this)->getPropertiesAsAttribute()).getValue();
  if (isDataNeeded) {
    auto grad = builder.create<AttentionGradOp>(
        getLoc(), TypeRange{getQuery().getType(), getKey().getType(), getValue().getType()},
        operands, attributes);
    for (auto [i, result] : llvm::enumerate(grad.getResults()))
      if (needed[i])
        operandCotangents[i] = result;
  }
  size_t count = biasesOf(getBiases()).size();
  for (size_t i = 0; i < count; ++i) {
    if (!needed[3 + i])
      continue;
    SmallVector<NamedAttribute> own(attributes);
    own.push_back(builder.getNamedAttr("bias", builder.getI64IntegerAttr(int64_t(i))));
    operandCotangents[3 + i] = builder.create<AttentionBiasGradOp>(
        getLoc(), TypeRange{getMasks()[i].getType()}, operands, own);
  }
  if (getSink() && needed[3 + count])
    operandCotangents[3 + count] = sinkCotangent(builder, *this, cotangents[0]);
  return success();
}

SmallVector<std::pair<Value, unsigned>> AttentionOp::getDroppedDims() {
  if (getDropsOut() || getDropout().isZero())
    return {};
  const Order ofKey(getTokenMajor(), 'k');
  Value rows = getMaximum(); // [b, h, s]
  return {{rows, 0}, {rows, 1}, {rows, 2}, {getKey(), ofKey.tokens()}};
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
                           key, getSoftCap(), getBiases(), getSink(), getTokenMajor(), getHeads(),
                           getKeyHeads())
      .getResults();
}

SmallVector<Value> AttentionOp::buildWithoutDropout(OpBuilder &builder) {
  return builder
      .create<AttentionOp>(getLoc(), getQuery(), getKey(), getValue(), getMasks(), getScale(),
                           getCausal(), getLeft(), getRight(), getKeyMask(), getSegments(),
                           getOrdered(), getPlaced(), getHiddenRows(), APFloat(0.0), false, 0, 0,
                           getSoftCap(), getBiases(), getSink(), getTokenMajor(), getHeads(),
                           getKeyHeads())
      .getResults();
}

//===- keys block by block ---------------------------------------------------===//

/// `op` on the operands of one block of keys.
template <typename Op>
static Op onBlock(OpBuilder &builder, Op op, BlockStream &stream, int64_t block) {
  OperationState state(op.getLoc(), op->getName());
  state.addOperands(stream.operands(block));
  state.addTypes(stream.resultTypes());
  state.addAttributes(op->getAttrDictionary().getValue());
  Op part = cast<Op>(builder.create(state));
  // Heads may be sharded, and columns are not.
  const Order ofKey(op.getTokenMajor(), 'k');
  ArrayRef<int64_t> key = tensorType(part.getKey()).getShape();
  if (op.getHeads() != 0)
    part.setHeads(tensorType(part.getMaximum()).getDimSize(1));
  if (op.getKeyHeads() != 0)
    part.setKeyHeads(ofKey.isMerged ? key.back() / Sizes(op).d : key[ofKey.heads()]);
  return part;
}

SmallVector<Value> AttentionOp::buildStreamed(OpBuilder &builder, BlockStream &stream) {
  Formula f{builder, getLoc()};
  SmallVector<Value> sum;
  for (int64_t block = 0; block < stream.numBlocks(); ++block) {
    Operation *part = onBlock(builder, *this, stream, block);
    SmallVector<Value> next(part->getResults());
    next[0] = f.wide(next[0]);
    if (!sum.empty())
      next = builder
                 .create<AttentionMergeOp>(getLoc(), sum[0], sum[1], sum[2], next[0], next[1],
                                           next[2], Order(getTokenMajor(), 'o').isTokenMajor)
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
