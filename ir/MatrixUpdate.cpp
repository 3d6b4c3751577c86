//===- MatrixUpdate.cpp - The part of an update on whole matrices -----------===//

#include "ir/MatrixUpdate.h"

#include "ir/ElementTypes.h"
#include "ir/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::FactorId;
using reshard::GraphOp;
using reshard::GraphValue;
using reshard::MatrixUpdate;

SmallVector<Operation *> matrixOps(GatherMatricesOp gather) {
  SmallVector<Operation *> ops;
  for (Operation *op = gather->getNextNode(); op; op = op->getNextNode()) {
    if (isa<ShardMatricesOp>(op))
      return ops;
    ops.push_back(op);
  }
  return {};
}

GatherMatricesOp gatherOf(Operation &shard) {
  for (Operation *op = shard.getPrevNode(); op; op = op->getPrevNode())
    if (auto gather = dyn_cast<GatherMatricesOp>(op))
      return gather;
  return {};
}

bool joinsPreviousKernel(Operation *op) {
  auto cost = dyn_cast<CostOpInterface>(op);
  auto before = dyn_cast_or_null<CostOpInterface>(op->getPrevNode());
  if (!cost || !before || !cost.isLoopNest() || !before.isLoopNest())
    return false;
  const FactorRule rule = cast<ShardableOpInterface>(op).getFactorRule(),
                   previous = cast<ShardableOpInterface>(*before).getFactorRule();
  auto isSame = [](const FactorRule::Loop &a, const FactorRule::Loop &b) {
    return a.size == b.size && b.kind == LoopKind::Parallel;
  };
  return rule.loops.size() == previous.loops.size() &&
         llvm::all_of(llvm::zip_equal(rule.loops, previous.loops), [&](const auto &pair) {
           return isSame(std::get<0>(pair), std::get<1>(pair));
         });
}

namespace {

/// Numbers the dims of the values by factors, so that one loop has one factor through all ops.
class MatrixExtractor {
public:
  explicit MatrixExtractor(GatherMatricesOp gather) : gather(gather) {}

  MatrixUpdate run() {
    auto type = tensorType(gather.getResult());
    update.isByRows = gather.getByRows();
    std::vector<FactorId> factors;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      factors.push_back(dim == 0 && reshard::isStack(&update, type.getRank())
                            ? MatrixUpdate::stackFactor
                            : next++);
    addValue(gather.getResult(), "gathered", factors);
    for (Operation *op : matrixOps(gather)) {
      addOp(op);
      addNewStates(op);
      update.joinsPrevious.push_back(op->getPrevNode() != gather && joinsPreviousKernel(op));
    }
    update.totals = countTotals();
    return std::move(update);
  }

private:
  /// Returns the number of sums over the whole parameter right behind the ops on matrices.
  int countTotals() const {
    Operation *op = gather;
    while (op && !isa<ShardMatricesOp>(op))
      op = op->getNextNode();
    for (op = op ? op->getNextNode() : op; op && !isa<GatherMatricesOp>(op); op = op->getNextNode())
      if (auto totals = dyn_cast<SquareTotalsOp>(op))
        return totals.getTotals().size();
    return 0;
  }

  /// Adds an operand from outside: a state of whole matrices, or a scalar. Its dims have the
  /// factors of the op's loops.
  void addOutside(Value value, const std::vector<FactorId> &factors) {
    auto arg = dyn_cast<BlockArgument>(value);
    auto function = gather->getParentOfType<func::FuncOp>();
    const bool isState = arg && function.getArgAttr(arg.getArgNumber(), kWholeAttr);
    const std::string name =
        isState ? function.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr).str()
                : "scalar";
    const int index = addValue(value, name, factors);
    update.graph.values[index].role =
        isState ? reshard::ValueRole::OptimizerState : reshard::ValueRole::Input;
  }

  /// Links the results of `op` that are new states to the old ones.
  void addNewStates(Operation *op) {
    auto function = gather->getParentOfType<func::FuncOp>();
    for (Value result : op->getResults())
      for (OpOperand &use : result.getUses()) {
        if (!isa<func::ReturnOp>(use.getOwner()))
          continue;
        auto name = function.getResultAttrOfType<StringAttr>(use.getOperandNumber(), kNameAttr);
        for (auto [i, value] : llvm::enumerate(update.graph.values))
          if (value.role == reshard::ValueRole::OptimizerState && name && value.name == name)
            update.graph.stateUpdates.push_back({int(i), valueIndex.lookup(result)});
      }
  }

  int addValue(Value value, std::string name, const std::vector<FactorId> &factors) {
    auto type = tensorType(value);
    GraphValue graphValue;
    graphValue.name = std::move(name);
    graphValue.dtype = *dtypeOf(type.getElementType());
    graphValue.layout.elementBytes = (type.getElementTypeBitWidth() + 7) / 8;
    for (auto [factor, size] : llvm::zip_equal(factors, type.getShape()))
      graphValue.layout.dims.push_back({{{{{factor, size}}}}});
    int index = update.graph.values.size();
    update.graph.values.push_back(std::move(graphValue));
    valueIndex[value] = index;
    factorsOf.push_back(factors);
    return index;
  }

  /// Adds `op`; each dim of its operands and results is one loop.
  void addOp(Operation *op) {
    auto cost = cast<CostOpInterface>(op);
    const FactorRule rule = cast<ShardableOpInterface>(op).getFactorRule();
    const int index = update.graph.ops.size();
    GraphOp graphOp;
    graphOp.kind = op->getName().stripDialect().str();
    graphOp.id = graphOp.kind + std::to_string(index);
    graphOp.phase = reshard::Phase::Backward;
    graphOp.flops = cost.getFlops();
    graphOp.kernelClass = cost.getKernelClass();
    graphOp.isLoopNest = cost.isLoopNest();
    graphOp.function = cost.getElementFunction();
    graphOp.workspace = cost.getWorkspace();
    graphOp.own = cost.getOwnKernel();
    for (const FactorRule::Loop &ruleLoop : rule.loops) {
      reshard::Loop loop;
      loop.factor = unknown;
      loop.size = ruleLoop.size;
      loop.kind = ruleLoop.kind;
      loop.isReduced = ruleLoop.kind != LoopKind::Parallel;
      graphOp.loops.push_back(std::move(loop));
    }
    // Operands from outside have the loops of the others.
    for (auto [k, operand] : llvm::enumerate(op->getOperands()))
      if (auto known = valueIndex.find(operand); known != valueIndex.end())
        for (auto [d, dim] : llvm::enumerate(rule.operands[k]))
          graphOp.loops[dim.front().front()].factor = factorsOf[known->second][d];
    for (auto [k, operand] : llvm::enumerate(op->getOperands())) {
      if (!valueIndex.count(operand)) {
        std::vector<FactorId> factors;
        for (const FactorRule::Dim &dim : rule.operands[k])
          factors.push_back(graphOp.loops[dim.front().front()].factor);
        addOutside(operand, factors);
      }
      const int value = valueIndex.lookup(operand);
      graphOp.operands.push_back(value);
      std::vector<int> &users = update.graph.values[value].users;
      if (users.empty() || users.back() != index)
        users.push_back(index);
      for (auto [d, dim] : llvm::enumerate(rule.operands[k])) {
        reshard::Loop &loop = graphOp.loops[dim.front().front()];
        loop.operandDims.push_back({int(k), int(d)});
      }
    }
    for (reshard::Loop &loop : graphOp.loops)
      if (loop.factor == unknown)
        loop.factor = next++;
    for (auto [r, result] : llvm::enumerate(op->getResults())) {
      std::vector<FactorId> factors;
      for (auto [d, dim] : llvm::enumerate(rule.results[r])) {
        reshard::Loop &loop = graphOp.loops[dim.front().front()];
        loop.resultDims.push_back({int(r), int(d)});
        factors.push_back(loop.factor);
      }
      const int value = addValue(result, graphOp.id, factors);
      update.graph.values[value].producer = index;
      update.graph.values[value].producerResult = r;
      graphOp.results.push_back(value);
    }
    update.graph.ops.push_back(std::move(graphOp));
  }

  static constexpr FactorId unknown = -1;
  GatherMatricesOp gather;
  MatrixUpdate update;
  FactorId next = MatrixUpdate::stackFactor + 1;
  llvm::DenseMap<Value, int> valueIndex;
  std::vector<std::vector<FactorId>> factorsOf; // per value
};

} // namespace

MatrixUpdate extractMatrixUpdate(GatherMatricesOp gather) { return MatrixExtractor(gather).run(); }

StringRef parameterOf(GatherMatricesOp gather) {
  auto update = gather->getParentOfType<func::FuncOp>();
  SmallVector<Value> waiting{gather.getInput()};
  while (!waiting.empty()) {
    Value value = waiting.pop_back_val();
    if (Operation *op = value.getDefiningOp()) {
      // The tensor comes first; scalars behind it come from the gradients of all parameters.
      llvm::append_range(waiting, llvm::reverse(op->getOperands()));
      continue;
    }
    const unsigned index = cast<BlockArgument>(value).getArgNumber();
    auto name = update.getArgAttrOfType<StringAttr>(index, kNameAttr);
    if (name && argumentRole(update, index) == TensorRole::Gradient)
      return name.getValue();
  }
  return "";
}

} // namespace tbc
