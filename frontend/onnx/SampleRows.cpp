//===- SampleRows.cpp - Rows chosen in each sample by one flat index -------===//

#include "frontend/onnx/SampleRows.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

using namespace mlir;

namespace tbc::frontend {

namespace {

mlir::Value withoutCasts(mlir::Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  return value;
}

/// Returns the integer that `value` holds everywhere, if it is a constant.
std::optional<int64_t> splatOf(mlir::Value value) {
  value = withoutCasts(value);
  while (auto broadcast = value.getDefiningOp<BroadcastOp>())
    value = withoutCasts(broadcast.getInput());
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : nullptr;
  if (!elements || !elements.isSplat())
    return std::nullopt;
  return elements.getSplatValue<llvm::APInt>().getSExtValue();
}

/// Returns true if `value` is the number of each sample, its dim 0.
bool isSample(mlir::Value value, int64_t marker) {
  value = withoutCasts(value);
  while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    if (broadcast.getDims() != ArrayRef<int64_t>{0})
      return false;
    value = withoutCasts(broadcast.getInput());
  }
  auto iota = value.getDefiningOp<IotaOp>();
  return iota && iota.getDim() == 0 && tensorType(iota.getResult()).getDimSize(0) == marker;
}

/// Returns true if `value` holds rows * b for each sample b, its dim 0.
bool isFirstRow(mlir::Value value, int64_t rows, int64_t marker) {
  value = withoutCasts(value);
  while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    if (broadcast.getDims() != ArrayRef<int64_t>{0})
      return false;
    value = withoutCasts(broadcast.getInput());
  }
  auto product = value.getDefiningOp<MulOp>();
  return product && splatOf(product.getRhs()) == rows && isSample(product.getLhs(), marker);
}

/// A gather of rows in each sample of `data`, [batch, rows, ...] or [rows, batch, ...]. The first
/// `merged` dims of the index are one dim of the result.
struct RowsOfSamples {
  mlir::Value data, index;
  bool isTimeFirst = false;
  int64_t merged = 1;
};

/// Returns i if `value` is i * batch for some i.
mlir::Value timesBatch(mlir::Value value, int64_t marker) {
  auto product = withoutCasts(value).getDefiningOp<MulOp>();
  return product && splatOf(product.getRhs()) == marker ? product.getLhs() : mlir::Value();
}

std::optional<RowsOfSamples> find(GatherOp gather, int64_t marker) {
  auto isOne = [](int64_t count) { return count == 1; };
  auto merge = gather.getTable().getDefiningOp<ReshapeOp>();
  mlir::Value indices = withoutCasts(gather.getIndices());
  int64_t merged = 1;
  if (auto list = indices.getDefiningOp<ReshapeOp>();
      list && tensorType(indices).getRank() == 1 && llvm::all_of(list.getIn(), isOne)) {
    merged = list.getOut()[0];
    indices = withoutCasts(list.getInput());
  }
  auto add = indices.getDefiningOp<AddOp>();
  if (gather.getDim() != 0 || !merge || !add || merge.getOut()[0] != 2)
    return std::nullopt;
  // The data's dims are the factors, and only the first two are merged.
  ArrayRef<int64_t> shape = tensorType(merge.getInput()).getShape();
  if (shape.size() < 2 || !llvm::all_of(merge.getIn(), isOne) ||
      !llvm::all_of(merge.getOut().drop_front(), isOne))
    return std::nullopt;
  auto isOfSamples = [&](mlir::Value index) {
    return tensorType(index).getRank() > 0 && tensorType(index).getDimSize(0) == marker;
  };
  for (auto [first, second] :
       {std::pair(add.getLhs(), add.getRhs()), {add.getRhs(), add.getLhs()}}) {
    if (shape[0] == marker && isFirstRow(first, shape[1], marker) && isOfSamples(second))
      return RowsOfSamples{merge.getInput(), second, /*isTimeFirst=*/false, merged};
    mlir::Value index = timesBatch(second, marker);
    if (shape[1] == marker && isSample(first, marker) && index && isOfSamples(index))
      return RowsOfSamples{merge.getInput(), index, /*isTimeFirst=*/true, merged};
  }
  return std::nullopt;
}

/// Returns `data` [rows, batch, ...] as [batch, rows, ...].
mlir::Value samplesFirst(Emitter &e, mlir::Value data) {
  RankedTensorType type = tensorType(data);
  SmallVector<int64_t> shape(type.getShape()), order;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    order.push_back(dim);
  std::swap(shape[0], shape[1]);
  std::swap(order[0], order[1]);
  return e.createOne("transpose", {data}, e.type(*dtypeOf(type.getElementType()), shape),
                     {e.integers("permutation", order)});
}

/// Returns the rows of `found` in the shape of `type`.
mlir::Value build(Emitter &e, RowsOfSamples found, RankedTensorType type) {
  if (found.isTimeFirst)
    found.data = samplesFirst(e, found.data);
  DType dtype = *dtypeOf(type.getElementType());
  ArrayRef<int64_t> data = tensorType(found.data).getShape(),
                    index = tensorType(found.index).getShape();
  // [batch, chosen rows, ...]
  SmallVector<int64_t> list{index[0], 1}, place(index.begin(), index.end()), in(index.size(), 1);
  for (int64_t size : index.drop_front())
    list[1] *= size;
  mlir::Value flat = e.reshape(found.index, place, in, {1, int64_t(index.size()) - 1});
  SmallVector<int64_t> shape = list;
  llvm::append_range(shape, data.drop_front(2));
  mlir::Value everywhere = e.broadcast(flat, shape, {0, 1});
  mlir::Value rows = e.createOne("gather_elements", {found.data, everywhere}, e.type(dtype, shape),
                                 {e.integer("dim", 1)});
  SmallVector<int64_t> sizes(index), behind(data.size(), 1), out(type.getRank(), 1);
  llvm::append_range(sizes, data.drop_front(2));
  behind[1] = int64_t(index.size()) - 1;
  out[0] = found.merged;
  return e.reshape(rows, sizes, behind, out);
}

} // namespace

void gatherWithinSamples(Emitter &emitter, Block &block) {
  for (auto gather : llvm::make_early_inc_range(block.getOps<GatherOp>()))
    if (std::optional<RowsOfSamples> found = find(gather, emitter.marker)) {
      emitter.builder.setInsertionPoint(gather);
      emitter.setLocation(gather.getLoc());
      gather.getResult().replaceAllUsesWith(build(emitter, *found, tensorType(gather.getResult())));
    }
}

} // namespace tbc::frontend
