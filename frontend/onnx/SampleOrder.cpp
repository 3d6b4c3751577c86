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
  /// Integers: the number of each sorted sample.
  Indices,
  /// Integers: the place of each sample among the sorted ones.
  Places,
};

bool dividesMarker(int64_t size, int64_t marker) { return size != 0 && size % marker == 0; }

bool hasSamples(Value value, int64_t marker) {
  return llvm::any_of(tensorType(value).getShape(),
                      [&](int64_t size) { return dividesMarker(size, marker); });
}

/// Follows one sort through the block.
class SortOfSamples {
public:
  SortOfSamples(TopKOp sort, Block &block, int64_t marker)
      : sort(sort), block(block), marker(marker) {}

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
  bool treatsSamplesAlike(Operation &op) const;
  /// Gathers the samples of `gather`'s table by its indices.
  bool takesAllSamples(GatherOp gather) const {
    return tensorType(gather.getTable()).getDimSize(gather.getDim()) == marker &&
           tensorType(gather.getIndices()).getRank() == 1;
  }

  TopKOp sort;
  Block &block;
  int64_t marker;
  llvm::DenseMap<Value, Order> orders;
  /// Gathers, and the sort's values, with the operand that stands for each.
  SmallVector<std::pair<Value, Value>> replaced;
};

/// Returns true if `value` holds 0, 1, 2 ... of the samples.
bool isNumbers(Value value, int64_t marker) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  auto iota = value.getDefiningOp<IotaOp>();
  return iota && tensorType(value).getShape() == ArrayRef<int64_t>{marker};
}

/// Returns true if permuting the samples of the sorted operands permutes those of the results:
/// every dim with samples is one loop, that the op runs through in any order.
bool SortOfSamples::treatsSamplesAlike(Operation &op) const {
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return false;
  FactorRule rule = shardable.getFactorRule();
  auto isAlike = [&](Value value, ArrayRef<FactorRule::Dim> dims) {
    for (auto [size, dim] : llvm::zip(tensorType(value).getShape(), dims)) {
      if (!dividesMarker(size, marker))
        continue;
      if (dim.size() != 1)
        return false;
      for (unsigned loop : dim[0])
        if (dividesMarker(rule.loops[loop].size, marker) &&
            (rule.loops[loop].kind == LoopKind::Fixed ||
             rule.loops[loop].kind == LoopKind::Streamed))
          return false;
    }
    return true;
  };
  for (auto [operand, dims] : llvm::zip(op.getOperands(), rule.operands))
    if (orderOf(operand) == Order::Sorted && !isAlike(operand, dims))
      return false;
  return llvm::all_of(llvm::zip(op.getResults(), rule.results),
                      [&](auto pair) { return isAlike(std::get<0>(pair), std::get<1>(pair)); });
}

/// Sets the orders of `op`'s results. Returns false if they depend on the order of the sort.
bool SortOfSamples::visit(Operation &op) {
  if (&op == sort.getOperation()) {
    if (orderOf(sort.getInput()) != Order::Own)
      return false;
    orders[sort.getValues()] = Order::Sorted;
    orders[sort.getIndices()] = Order::Indices;
    replaced.push_back({sort.getValues(), sort.getInput()});
    return true;
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
    if (!takesAllSamples(gather) || table != (back ? Order::Sorted : Order::Own))
      return false;
    orders[gather.getResult()] = back ? Order::Own : Order::Sorted;
    replaced.push_back({gather.getResult(), gather.getTable()});
    return true;
  }
  if (auto scatter = dyn_cast<ScatterElementsAddOp>(op);
      scatter && isOrder(scatter.getIndices(), Order::Indices)) {
    orders[scatter.getResult()] = Order::Places;
    return isNumbers(scatter.getUpdates(), marker) &&
           tensorType(scatter.getResult()).getRank() == 1;
  }
  if (llvm::any_of(op.getOperands(), isOfSort))
    return false;
  bool isSorted =
      llvm::any_of(op.getOperands(), [&](Value v) { return isOrder(v, Order::Sorted); });
  bool isOwn = llvm::any_of(op.getOperands(), [&](Value v) { return isOrder(v, Order::Own); });
  if (isSorted && (isOwn || op.hasTrait<OpTrait::IsTerminator>() || !treatsSamplesAlike(op)))
    return false;
  for (Value result : op.getResults())
    if (isSorted && hasSamples(result, marker))
      orders[result] = Order::Sorted;
    else if (op.getNumOperands() > 0 && !isOwn && hasSamples(result, marker))
      orders[result] = Order::None; // such as a broadcast of a weight
  return true;
}

bool SortOfSamples::isUndone() {
  return llvm::all_of(block, [&](Operation &op) { return visit(op); });
}

void SortOfSamples::remove() {
  for (auto [result, operand] : replaced)
    result.replaceAllUsesWith(operand);
}

} // namespace

void undoSampleSorts(Block &block, int64_t marker) {
  SmallVector<TopKOp> sorts;
  for (auto sort : block.getOps<TopKOp>())
    if (tensorType(sort.getIndices()).getShape() == ArrayRef<int64_t>{marker})
      sorts.push_back(sort);
  for (TopKOp sort : sorts) {
    SortOfSamples found(sort, block, marker);
    if (found.isUndone())
      found.remove();
  }
}

bool numbersSamples(Block &block, int64_t marker) {
  return llvm::any_of(block.getOps<IotaOp>(), [&](IotaOp iota) {
    return dividesMarker(tensorType(iota.getResult()).getDimSize(iota.getDim()), marker);
  });
}

} // namespace tbc::frontend
