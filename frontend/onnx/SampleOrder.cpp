//===- SampleOrder.cpp - Sorts of the samples that are undone --------------===//

#include "frontend/onnx/SampleOrder.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Indexing.h"
#include "ir/Movement.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::frontend {

namespace {

/// The order of the samples in a value.
enum class Order {
  /// The value is the same for all samples, or has none.
  None,
  /// As they come.
  Own,
  /// As the sort has them.
  Sorted,
  /// Integers: the number of each sorted row.
  Indices,
  /// Integers: the place of each row among the sorted ones.
  Places,
};

bool dividesMarker(int64_t size, int64_t marker) { return size != 0 && size % marker == 0; }

bool hasSamples(Value value, int64_t marker) {
  return llvm::any_of(tensorType(value).getShape(),
                      [&](int64_t size) { return dividesMarker(size, marker); });
}

/// Follows one sort through the block. It sorts *rows*: samples, or a number of them for each
/// sample.
class SortOfRows {
public:
  SortOfRows(TopKOp sort, Block &block, int64_t marker)
      : sort(sort), block(block), marker(marker),
        rows(tensorType(sort.getIndices()).getDimSize(0)) {}

  /// Returns true if no result depends on the order.
  bool isUndone();
  /// Replaces what reads the order. Call it if `isUndone`.
  void remove();

private:
  Order orderOf(Value value) const {
    auto it = orders.find(value);
    return it != orders.end() ? it->second : hasSamples(value, marker) ? Order::Own : Order::None;
  }
  bool visit(Operation &op);
  bool treatsRowsAlike(Operation &op) const;
  bool areRows(int64_t size, const FactorRule &rule, const FactorRule::Dim &dim) const;
  /// Gathers the rows of `gather`'s table by its indices.
  bool takesAllRows(GatherOp gather) const {
    return tensorType(gather.getTable()).getDimSize(gather.getDim()) == rows &&
           tensorType(gather.getIndices()).getRank() == 1;
  }

  TopKOp sort;
  Block &block;
  int64_t marker, rows;
  llvm::DenseMap<Value, Order> orders;
  /// Gathers, and the sort's values, with the operand that stands for each.
  SmallVector<std::pair<Value, Value>> replaced;
};

/// Returns true if `value` holds 0, 1, 2 ... of the rows.
bool isNumbers(Value value, int64_t rows) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  auto iota = value.getDefiningOp<IotaOp>();
  return iota && tensorType(value).getShape() == ArrayRef<int64_t>{rows};
}

/// Whether a dim with samples, of `size`, is one loop over the rows that runs in any order. Where
/// rows are samples, it may be several loops: samples times other loops.
bool SortOfRows::areRows(int64_t size, const FactorRule &rule, const FactorRule::Dim &dim) const {
  if (dim.size() != 1 || (rows != marker && size != rows))
    return false;
  return llvm::all_of(dim[0], [&](unsigned number) {
    const FactorRule::Loop &loop = rule.loops[number];
    return !dividesMarker(loop.size, marker) ||
           (loop.kind != LoopKind::Fixed && loop.kind != LoopKind::Streamed &&
            (rows == marker || loop.size == rows));
  });
}

/// Returns true if permuting the rows of the sorted operands permutes those of the results.
bool SortOfRows::treatsRowsAlike(Operation &op) const {
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return false;
  FactorRule rule = shardable.getFactorRule();
  auto isAlike = [&](Value value, ArrayRef<FactorRule::Dim> dims) {
    return llvm::all_of(llvm::zip(tensorType(value).getShape(), dims), [&](auto pair) {
      auto [size, dim] = pair;
      return !dividesMarker(size, marker) || areRows(size, rule, dim);
    });
  };
  for (auto [operand, dims] : llvm::zip(op.getOperands(), rule.operands))
    if (Order order = orderOf(operand);
        (order == Order::Sorted || order == Order::Indices) && !isAlike(operand, dims))
      return false;
  return llvm::all_of(llvm::zip(op.getResults(), rule.results),
                      [&](auto pair) { return isAlike(std::get<0>(pair), std::get<1>(pair)); });
}

/// Sets the orders of `op`'s results. Returns false if they depend on the order of the sort.
bool SortOfRows::visit(Operation &op) {
  if (&op == sort.getOperation()) {
    if (orderOf(sort.getInput()) != Order::Own)
      return false;
    orders[sort.getValues()] = Order::Sorted;
    orders[sort.getIndices()] = Order::Indices;
    replaced.push_back({sort.getValues(), sort.getInput()});
    return tensorType(sort.getInput()).getShape() == ArrayRef<int64_t>{rows};
  }
  auto isOrder = [&](Value value, Order order) { return orderOf(value) == order; };
  auto isOfSort = [&](Value value) {
    return isOrder(value, Order::Indices) || isOrder(value, Order::Places);
  };
  if (isa<CastOp>(op) && isOfSort(op.getOperand(0))) {
    orders[op.getResult(0)] = orderOf(op.getOperand(0));
    return isa<IntegerType>(tensorType(op.getResult(0)).getElementType());
  }
  if (auto gather = dyn_cast<GatherOp>(op); gather && isOfSort(gather.getIndices())) {
    Order table = orderOf(gather.getTable());
    bool back = isOrder(gather.getIndices(), Order::Places);
    if (!takesAllRows(gather) || table != (back ? Order::Sorted : Order::Own))
      return false;
    orders[gather.getResult()] = back ? Order::Own : Order::Sorted;
    replaced.push_back({gather.getResult(), gather.getTable()});
    return true;
  }
  if (auto scatter = dyn_cast<ScatterElementsAddOp>(op);
      scatter && isOrder(scatter.getIndices(), Order::Indices)) {
    orders[scatter.getResult()] = Order::Places;
    return isNumbers(scatter.getUpdates(), rows) && tensorType(scatter.getResult()).getRank() == 1;
  }
  if (llvm::any_of(op.getOperands(), [&](Value v) { return isOrder(v, Order::Places); }))
    return false;
  // The number of a row is a value of the row, as others: that of its token is number / choices.
  auto isSortedRows = [&](Value v) {
    return isOrder(v, Order::Sorted) || isOrder(v, Order::Indices);
  };
  bool isSorted = llvm::any_of(op.getOperands(), isSortedRows);
  bool isOwn = llvm::any_of(op.getOperands(), [&](Value v) { return isOrder(v, Order::Own); });
  if (auto gather = dyn_cast<GatherOp>(op);
      gather && isSortedRows(gather.getIndices()) && !isSortedRows(gather.getTable()))
    isOwn = false; // each row takes from the whole table
  if (isSorted && (isOwn || op.hasTrait<OpTrait::IsTerminator>() || !treatsRowsAlike(op)))
    return false;
  for (Value result : op.getResults())
    if (isSorted && hasSamples(result, marker))
      orders[result] = Order::Sorted;
    else if (op.getNumOperands() > 0 && !isOwn && hasSamples(result, marker))
      orders[result] = Order::None; // such as a broadcast of a weight
  return true;
}

bool SortOfRows::isUndone() {
  return llvm::all_of(block, [&](Operation &op) { return visit(op); });
}

void SortOfRows::remove() {
  for (auto [result, operand] : replaced)
    result.replaceAllUsesWith(operand);
  OpBuilder builder(sort);
  Value numbers = sort.getIndices();
  if (!numbers.use_empty())
    numbers.replaceAllUsesWith(builder.create<IotaOp>(sort.getLoc(), numbers.getType(), 0));
}

/// If `value` is 0, 0, 1, 1 ..., each number `copies` times, returns `copies`; else 0.
int64_t copiesOfNumbers(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  auto division = value.getDefiningOp<DivOp>();
  int64_t rows = tensorType(value).getNumElements();
  if (!division || !isNumbers(division.getLhs(), rows))
    return 0;
  Value divisor = division.getRhs();
  while (Operation *broadcast = divisor.getDefiningOp<BroadcastOp>())
    divisor = broadcast->getOperand(0);
  auto constant = divisor.getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  return splat && isa<IntegerType>(splat.getElementType())
             ? splat.getSplatValue<APInt>().getSExtValue()
             : 0;
}

/// Replaces a gather at 0, 0, 1, 1 ... by copies of each row.
void repeatRows(GatherOp gather) {
  auto table = tensorType(gather.getTable());
  int64_t copies =
      tensorType(gather.getIndices()).getRank() == 1 ? copiesOfNumbers(gather.getIndices()) : 0;
  if (copies < 1 || gather.getDim() != 0 ||
      table.getDimSize(0) * copies != tensorType(gather.getIndices()).getNumElements())
    return;
  OpBuilder builder(gather);
  SmallVector<int64_t> shape(table.getShape()), dims, in, out;
  shape.insert(shape.begin() + 1, copies);
  for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim) {
    if (dim != 1)
      dims.push_back(dim);
    in.push_back(1);
    if (dim > 0)
      out.push_back(dim == 1 ? 2 : 1);
  }
  Value spread = builder.create<BroadcastOp>(gather.getLoc(),
                                             RankedTensorType::get(shape, table.getElementType()),
                                             gather.getTable(), dims);
  Value rows = builder.create<ReshapeOp>(gather.getLoc(), spread, shape, in, out);
  gather.getResult().replaceAllUsesWith(rows);
}

} // namespace

void undoSampleSorts(Block &block, int64_t marker) {
  SmallVector<TopKOp> sorts;
  for (auto sort : block.getOps<TopKOp>())
    if (auto type = tensorType(sort.getIndices());
        type.getRank() == 1 && dividesMarker(type.getDimSize(0), marker))
      sorts.push_back(sort);
  for (TopKOp sort : sorts) {
    SortOfRows found(sort, block, marker);
    if (found.isUndone())
      found.remove();
  }
  if (!sorts.empty())
    for (GatherOp gather : llvm::make_early_inc_range(block.getOps<GatherOp>()))
      repeatRows(gather);
}

bool numbersSamples(Block &block, int64_t marker) {
  return llvm::any_of(block.getOps<IotaOp>(), [&](IotaOp iota) {
    return dividesMarker(tensorType(iota.getResult()).getDimSize(iota.getDim()), marker);
  });
}

} // namespace tbc::frontend
