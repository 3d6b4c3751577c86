//===- PlaceTokens.cpp - Ops that know the places of their tokens ------===//

#include "passes/sequence/PlaceTokens.h"

#include "ir/Attention.h"
#include "ir/Contraction.h"
#include "ir/FactorAnalysis.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_PLACETOKENSPASS
#include "passes/Passes.h.inc"

/// Numbers every key, and every query by the key that is its own: the last queries go with the last
/// keys.
static void place(AttentionOp attention) {
  OpBuilder builder(attention);
  Formula f{builder, attention.getLoc()};
  int64_t queries = tensorType(attention.getQuery()).getDimSize(2);
  int64_t keys = tensorType(attention.getKey()).getDimSize(2);
  auto numbers = [&](int64_t size) {
    return f.make<IotaOp>(RankedTensorType::get({size}, builder.getI64Type()), 0);
  };
  Value keyPlaces = numbers(keys), queryPlaces = keyPlaces;
  if (queries != keys) {
    queryPlaces = numbers(queries);
    queryPlaces = f.add(queryPlaces, f.number(queryPlaces, double(keys - queries)));
  }
  SmallVector<Value> masks(attention.getMasks());
  auto *at = attention.getDropsOut() ? masks.end() - 5 : masks.end();
  masks.insert(at, {queryPlaces, keyPlaces});
  attention.getMasksMutable().assign(masks);
  attention.setPlaced(true);
}

/// Whether the dim is the tokens of a sample and nothing else.
static bool isTokens(const reshard::DimLayout &dim, reshard::FactorId tokens) {
  return dim.segments.size() == 1 &&
         llvm::all_of(dim.segments[0].factors,
                      [&](const reshard::Factor &f) { return f.id == tokens || f.size == 1; }) &&
         llvm::any_of(dim.segments[0].factors,
                      [&](const reshard::Factor &f) { return f.id == tokens; });
}

/// The entries of dim `dim` of `table` from `offset` on.
static Value lookUp(OpBuilder &builder, Location loc, Value table, int64_t dim, int64_t offset,
                    int64_t size) {
  Formula f{builder, loc};
  Value places = f.make<IotaOp>(RankedTensorType::get({size}, builder.getI64Type()), 0);
  if (offset != 0)
    places = f.add(places, f.number(places, double(offset)));
  return f.make<GatherOp>(table, places, dim);
}

/// The parameter that `value` is, perhaps moved around or cast.
static BlockArgument parameterBehind(func::FuncOp model, Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (op->getNumOperands() != 1)
      return {};
    value = op->getOperand(0);
  }
  auto arg = cast<BlockArgument>(value);
  auto role = model.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kRoleAttr);
  return role && role.getValue() == "param" ? arg : BlockArgument();
}

/// Tables of which the first entries are cut out, and those that have just as many as there are
/// tokens.
static void lookUpTables(func::FuncOp model) {
  FactorAnalysis analysis(model);
  if (!analysis.sequenceFactor())
    return;
  reshard::FactorId tokens = *analysis.sequenceFactor();
  for (BlockArgument arg : model.getArguments())
    for (int64_t dim = 0;
         arg == parameterBehind(model, arg) && !arg.use_empty() && dim < tensorType(arg).getRank();
         ++dim)
      if (isTokens(analysis.dimLayout(arg, dim), tokens)) {
        OpBuilder builder = OpBuilder::atBlockBegin(&model.getBody().front());
        Value entries = lookUp(builder, arg.getLoc(), arg, dim, 0, tensorType(arg).getDimSize(dim));
        arg.replaceAllUsesExcept(entries, entries.getDefiningOp());
        break;
      }
  for (auto slice : llvm::make_early_inc_range(model.getOps<SliceOp>())) {
    int64_t dim = slice.getDim();
    if (!parameterBehind(model, slice.getInput()) ||
        !isTokens(analysis.dimLayout(slice.getResult(), dim), tokens))
      continue;
    OpBuilder builder(slice);
    Value entries =
        lookUp(builder, slice.getLoc(), slice.getInput(), dim, slice.getOffset(), slice.getSize());
    entries.getDefiningOp()->setDiscardableAttrs(slice->getDiscardableAttrDictionary());
    slice.getResult().replaceAllUsesWith(entries);
    slice.erase();
  }
}

void placeTokens(func::FuncOp model) {
  bool hasTokens = false;
  for (unsigned i = 0; i < model.getNumArguments(); ++i)
    hasTokens |= bool(model.getArgAttr(i, kSequenceDimAttr));
  if (!hasTokens)
    return;
  lookUpTables(model);
  for (auto attention : llvm::make_early_inc_range(model.getOps<AttentionOp>())) {
    // A window that is not placed leaves every query a key.
    if (!attention.getKeyMask() && !attention.getSegments() && !attention.getOrdered() &&
        !attention.getPlaced())
      attention.setHiddenRows("zero");
    bool hasWindow = attention.getCausal() || int64_t(attention.getLeft()) >= 0 ||
                     int64_t(attention.getRight()) >= 0;
    if (hasWindow && !attention.getPlaced())
      place(attention);
  }
  OpIds(model).assignMissing(model);
}

namespace {
struct PlaceTokens : impl::PlaceTokensPassBase<PlaceTokens> {
  void runOnOperation() override { placeTokens(getOperation()); }
};
} // namespace

} // namespace tbc
