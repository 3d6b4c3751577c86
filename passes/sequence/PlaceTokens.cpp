//===- PlaceTokens.cpp - Position ids for ops over sequences -----------===//

#include "passes/sequence/PlaceTokens.h"

#include "ir/Attention.h"
#include "ir/AttentionSizes.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_PLACETOKENSPASS
#include "passes/Passes.h.inc"

/// Gives every key its index as position, and every query the position of its own key: the last
/// queries go with the last keys. Example: 2 queries and 5 keys have positions 3, 4 and 0 to 4.
static void place(AttentionOp attention) {
  OpBuilder builder(attention);
  Formula f{builder, attention.getLoc()};
  const attention::Sizes sizes(attention);
  int64_t queries = sizes.s, keys = sizes.t;
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

void placeTokens(func::FuncOp model) {
  bool hasTokens = false;
  for (unsigned i = 0; i < model.getNumArguments(); ++i)
    hasTokens |= bool(model.getArgAttr(i, kSequenceDimAttr));
  if (!hasTokens)
    return;
  for (auto attention : llvm::make_early_inc_range(model.getOps<AttentionOp>())) {
    // A window without `placed` leaves every query a key.
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
