//===- UseDropout.cpp - Dropout in training form ---------------------------===//

#include "passes/random/UseDropout.h"

#include "ir/FactorAnalysis.h"
#include "ir/Formula.h"
#include "ir/Movement.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_USEDROPOUTPASS
#include "passes/Passes.h.inc"

namespace {

/// A dim as outer x batch x inner; without the batch, `batch` is 0 and `outer` all of it.
struct BatchPlace {
  int64_t outer = 1, batch = 0, inner = 1;
  int64_t ofSample() const { return outer * inner; }
};

class DropoutUser {
public:
  DropoutUser(func::FuncOp model, int64_t seed)
      : model(model), seed(seed), analysis(model), builder(model.getContext()) {}

  LogicalResult run();

private:
  FailureOr<SmallVector<BatchPlace>> placesOf(DropoutOpInterface op);
  void addInputs();
  Value indicesOf(Formula &f, const BatchPlace &place, int64_t stride, int64_t perSample);
  int64_t keyOf(Operation *op);

  func::FuncOp model;
  int64_t seed;
  FactorAnalysis analysis;
  OpBuilder builder;
  Value sample, step;
  llvm::DenseSet<int64_t> keys;
};

} // namespace

FailureOr<SmallVector<BatchPlace>> DropoutUser::placesOf(DropoutOpInterface op) {
  std::optional<reshard::FactorId> factor = analysis.batchFactor();
  SmallVector<BatchPlace> places;
  for (auto [value, dim] : op.getDroppedDims()) {
    BatchPlace place;
    reshard::DimLayout layout = analysis.dimLayout(value, dim);
    for (const reshard::Segment &segment : layout.segments)
      for (const reshard::Factor &f : segment.factors)
        if (factor && f.id == *factor)
          place.batch = place.batch == 0 && layout.segments.size() == 1 ? f.size : -1;
    if (place.batch < 0)
      return op->emitOpError(
          "drops out or draws elements of a dim that joins the batch with something else, so its "
          "samples cannot be numbered; train with --no-dropout, or export random numbers of a "
          "shape that keeps the batch apart");
    if (place.batch == 0) {
      place.outer = tensorType(value).getDimSize(dim);
    } else {
      bool isInner = false;
      for (const reshard::Factor &f : layout.segments[0].factors) {
        if (f.id == *factor)
          isInner = true;
        else
          (isInner ? place.inner : place.outer) *= f.size;
      }
    }
    places.push_back(place);
  }
  return places;
}

void DropoutUser::addInputs() {
  auto add = [&](RankedTensorType type, TensorRole role, StringRef name, bool hasBatch) {
    NamedAttrList attrs;
    attrs.push_back(namedRole(model.getContext(), role));
    attrs.append(kNameAttr, builder.getStringAttr(name));
    if (hasBatch)
      attrs.append(kBatchDimAttr, builder.getI64IntegerAttr(0));
    unsigned index = model.getNumArguments();
    model.insertArgument(index, type, attrs.getDictionary(builder.getContext()), model.getLoc());
    return model.getArgument(index);
  };
  int64_t batch = 0;
  for (BlockArgument arg : model.getArguments())
    if (auto dim = model.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kBatchDimAttr))
      batch = tensorType(arg).getDimSize(dim.getInt());
  sample = add(RankedTensorType::get({batch}, builder.getI64Type()), TensorRole::Sample,
               kSampleName, true);
  step = add(RankedTensorType::get({}, builder.getI64Type()), TensorRole::Step, kStepName, false);
}

/// Returns the part of each index of a dim in the number of an element: the sample's number times
/// `perSample`, plus the position in the sample, in which the dim has stride `stride`. Example:
/// sample 2 with 100 elements per sample and index 3 of a dim with stride 10 is 230.
Value DropoutUser::indicesOf(Formula &f, const BatchPlace &place, int64_t stride,
                             int64_t perSample) {
  auto vector = [&](int64_t size, int64_t by) {
    Value index = f.make<IotaOp>(RankedTensorType::get({size}, builder.getI64Type()), 0);
    return by == 1 ? index : f.mul(index, f.number(index, double(by)));
  };
  if (place.batch == 0)
    return vector(place.outer, stride);
  SmallVector<int64_t> shape = {place.outer, place.batch, place.inner};
  Value first = f.mul(sample, f.number(sample, double(perSample)));
  if (place.outer == 1 && place.inner == 1)
    return first;
  Value sum = broadcastTo(builder, f.loc, first, shape, {1});
  sum = f.add(sum,
              broadcastTo(builder, f.loc, vector(place.outer, place.inner * stride), shape, {0}));
  sum = f.add(sum, broadcastTo(builder, f.loc, vector(place.inner, stride), shape, {2}));
  return f.make<ReshapeOp>(sum, shape, ArrayRef<int64_t>{1, 1, 1}, ArrayRef<int64_t>{3});
}

/// Returns FNV-1a of the op's id, or the next number unused by other ops.
int64_t DropoutUser::keyOf(Operation *op) {
  uint32_t hash = 2166136261u;
  for (unsigned char c : getId(op))
    hash = (hash ^ c) * 16777619u;
  while (!keys.insert(hash).second)
    ++hash;
  return hash;
}

/// The ops of `model` with dropout in training.
static SmallVector<DropoutOpInterface> opsWithDropout(func::FuncOp model) {
  SmallVector<DropoutOpInterface> ops;
  for (auto op : model.getOps<DropoutOpInterface>())
    if (!op.getDroppedDims().empty())
      ops.push_back(op);
  return ops;
}

/// Replaces the results of `op` by `values`; their producer takes over its id.
static void replace(Operation *op, ArrayRef<Value> values) {
  Operation *made = values[0].getDefiningOp();
  if (made && made->getNextNode() == op && getId(made).empty())
    made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op->replaceAllUsesWith(ValueRange(values));
  op->erase();
}

LogicalResult DropoutUser::run() {
  SmallVector<DropoutOpInterface> ops = opsWithDropout(model);
  std::vector<SmallVector<BatchPlace>> places;
  for (DropoutOpInterface op : ops) {
    FailureOr<SmallVector<BatchPlace>> found = placesOf(op);
    if (failed(found))
      return failure();
    places.push_back(*found);
  }
  addInputs();
  for (auto [op, dims] : llvm::zip_equal(ops, places)) {
    // Each op gets its own vectors: a vector shared by several stages would be sent between them.
    builder.setInsertionPoint(op);
    Formula f{builder, op.getLoc()};
    int64_t perSample = 1;
    for (const BatchPlace &place : dims)
      perSample *= place.ofSample();
    SmallVector<Value> indices;
    int64_t stride = perSample;
    for (const BatchPlace &place : dims) {
      stride /= place.ofSample();
      indices.push_back(indicesOf(f, place, stride, perSample));
    }
    replace(op, op.buildTrainingDropout(builder, step, indices, seed, keyOf(op)));
  }
  OpIds(model).assignMissing(model);
  return success();
}

LogicalResult useDropout(func::FuncOp model, int64_t seed) {
  if (opsWithDropout(model).empty())
    return success();
  return DropoutUser(model, seed).run();
}

void removeDropout(func::FuncOp model) {
  for (DropoutOpInterface op : opsWithDropout(model)) {
    OpBuilder builder(op);
    if (SmallVector<Value> values = op.buildWithoutDropout(builder); !values.empty())
      replace(op, values);
  }
}

namespace {
struct UseDropout : impl::UseDropoutPassBase<UseDropout> {
  using UseDropoutPassBase::UseDropoutPassBase;
  void runOnOperation() override {
    if (remove)
      removeDropout(getOperation());
    else if (failed(useDropout(getOperation(), seed)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
