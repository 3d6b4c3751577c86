//===- PackedAttention.cpp - Attention of the columns of one tensor --------===//

#include "ir/Attention.h"
#include "ir/AttentionRules.h"

using namespace mlir;

namespace tbc {

using namespace attention;

ColumnUse columnsOfAttention(StringRef tokenMajor, bool isGradient) {
  for (char tensor : {'q', 'k', 'v'})
    if (!Order(tokenMajor, tensor).isMerged)
      return {};
  constexpr int64_t queryOfGradient = 1;
  return {ColumnUse::Kind::Takes, isGradient ? queryOfGradient : 0, isGradient};
}

//===- building ------------------------------------------------------------===//

/// Returns the attributes of `op` for its packed form: `token_major` keeps the letter of o.
template <typename Op>
static SmallVector<NamedAttribute> packedAttributes(OpBuilder &builder, Op op) {
  NamedAttrList list(cast<DictionaryAttr>(op->getPropertiesAsAttribute()));
  const Order ofResult(op.getTokenMajor(), 'o');
  list.set("token_major", builder.getStringAttr(ofResult.isMerged       ? "O"
                                                : ofResult.isTokenMajor ? "o"
                                                                        : ""));
  list.set("packed_width", builder.getI64IntegerAttr(Sizes(op).d));
  return SmallVector<NamedAttribute>(list.getAttrs());
}

Operation *AttentionOp::buildPacked(OpBuilder &builder, ValueRange operands, TypeRange types) {
  return builder.create<PackedAttentionOp>(getLoc(), types, operands,
                                           packedAttributes(builder, *this));
}

Operation *AttentionGradOp::buildPacked(OpBuilder &builder, ValueRange operands, TypeRange types) {
  return builder.create<PackedAttentionGradOp>(getLoc(), types, operands,
                                               packedAttributes(builder, *this));
}

//===- types ---------------------------------------------------------------===//

template <typename Adaptor>
static LogicalResult inferPacked(std::optional<Location> loc, Adaptor adaptor,
                                 SmallVectorImpl<Type> &types) {
  auto packed = tensorType(adaptor.getPacked());
  const int64_t heads = int64_t(adaptor.getHeads()), keyHeads = int64_t(adaptor.getKeyHeads()),
                width = int64_t(adaptor.getPackedWidth());
  if (keyHeads <= 0 || heads <= 0 || heads % keyHeads != 0) // packed_attention_c2
    return emitOptionalError(loc, heads, " query heads do not share ", keyHeads,
                             " key heads evenly");
  const int64_t ofValues =
      packed.getRank() == 3 ? packed.getDimSize(2) - (heads + keyHeads) * width : 0;
  if (width <= 0 || ofValues <= 0 || ofValues % keyHeads != 0) // packed_attention_c1
    return emitOptionalError(loc, "takes ", heads, " query heads and ", keyHeads, " key heads of ",
                             width, " columns, and values, from ", packed);
  StringRef tokenMajor = adaptor.getTokenMajor();
  if (!tokenMajor.empty() && tokenMajor.lower() != "o") // packed_attention_c3
    return emitOptionalError(loc, "has token_major \"", tokenMajor, "\"; expected o, O or nothing");
  return checkAttention(loc, adaptor, packed.getElementType(), types);
}

LogicalResult PackedAttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                  Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return inferPacked(loc, adaptor, types);
}

LogicalResult PackedAttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                      Adaptor adaptor,
                                                      SmallVectorImpl<Type> &types) {
  SmallVector<Type> forward;
  if (failed(inferPacked(loc, adaptor, forward)))
    return failure();
  Value operands[] = {adaptor.getResult(), adaptor.getMaximum(), adaptor.getDenominator(),
                      adaptor.getCotangent()};
  Type expected[] = {forward[0], forward[1], forward[2], forward[0]};
  for (auto [operand, want] : llvm::zip_equal(operands, expected))
    if (operand.getType() != want) // packed_attention_grad_c1
      return emitOptionalError(loc, "has an operand of type ", operand.getType(), ", expected ",
                               want);
  types.assign({adaptor.getPacked().getType()});
  return success();
}

//===- factors -------------------------------------------------------------===//

namespace {

/// The dims of a packed attention, whose queries and keys are the same rows.
struct PackedDims : AttentionDims {
  template <typename Op>
  PackedDims(FactorRule &rule, Op op) : AttentionDims(rule, op, Sizes(op), LoopKind::Parallel) {
    enum { keyHeads = 1, group = 2, queries = 3, keys = 4, width = 5, valueWidth = 6 };
    for (unsigned loop : {queries, keys})
      rule.loops[loop].kind = LoopKind::Fixed;
    packed = {byQuery[0], byQuery[1],
              FactorRule::Dim{{keyHeads, group, width}, {keyHeads, width}, {keyHeads, valueWidth}}};
  }
  SmallVector<FactorRule::Dim, 4> packed;
};

} // namespace

FactorRule PackedAttentionOp::getFactorRule() {
  FactorRule rule;
  PackedDims dims(rule, *this);
  rule.operands = {dims.packed};
  dims.addMasks(rule, *this);
  rule.results = {dims.result, dims.statistic, dims.statistic};
  return rule;
}

FactorRule PackedAttentionGradOp::getFactorRule() {
  FactorRule rule;
  PackedDims dims(rule, *this);
  rule.operands = {dims.result, dims.packed, dims.result, dims.statistic, dims.statistic};
  dims.addMasks(rule, *this);
  rule.results = {dims.packed};
  return rule;
}

void PackedAttentionOp::resizeLoops(ArrayRef<int64_t> sizes) { resizeHeads(*this, sizes); }
void PackedAttentionGradOp::resizeLoops(ArrayRef<int64_t> sizes) { resizeHeads(*this, sizes); }

} // namespace tbc
