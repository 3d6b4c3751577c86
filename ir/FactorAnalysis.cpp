//===- FactorAnalysis.cpp - The factors of every dim of a function ---------===//

#include "ir/FactorAnalysis.h"

#include "ir/Reshard.h"
#include "ir/Roles.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tbc {

using Node = FactorSpace::Node;

FactorAnalysis::FactorAnalysis(func::FuncOp func) {
  for (BlockArgument arg : func.getArguments())
    for (unsigned dim = 0; dim < tensorType(arg).getRank(); ++dim)
      dimNode(arg, dim);
  for (Operation &op : func.getBody().front())
    addOp(&op);
  addFunctionBoundary(func);
  space.seal(all, boundary);
  batch = findMarked(func, kBatchDimAttr, /*ofUnused=*/true);
  sequence = findMarked(func, kSequenceDimAttr, /*ofUnused=*/false);
}

Node FactorAnalysis::dimNode(Value value, unsigned dim) {
  auto &nodes = dims[value];
  auto type = tensorType(value);
  while (nodes.size() < size_t(type.getRank())) {
    nodes.push_back(space.leaf(type.getDimSize(nodes.size())));
    all.push_back(nodes.back());
  }
  return nodes[dim];
}

Node FactorAnalysis::build(const FactorRule::Dim &dim, ArrayRef<Node> loopNodes) {
  std::vector<Node> terms;
  for (const FactorRule::Product &product : dim) {
    std::vector<Node> factors;
    for (unsigned loop : product)
      factors.push_back(loopNodes[loop]);
    terms.push_back(space.product(factors));
  }
  Node node = space.sum(terms);
  all.push_back(node);
  return node;
}

/// Gives a clone made by tbc-recompute the dims and loops of its original, so factors have the same
/// numbers with and without it. Returns false if there is no such original.
bool FactorAnalysis::addClone(Operation *clone) {
  auto forward = clone->getAttrOfType<StringAttr>(kForwardIdAttr);
  Operation *original = forward ? opById.lookup(forward.getValue()) : nullptr;
  if (!original || original->getResultTypes() != clone->getResultTypes())
    return false;
  loops[clone] = loops.lookup(original);
  for (auto [from, to] : llvm::zip_equal(original->getResults(), clone->getResults()))
    if (auto ofOriginal = dims.lookup(from); true)
      dims[to] = std::move(ofOriginal);
  return true;
}

void FactorAnalysis::addOp(Operation *op) {
  if (auto reshard = dyn_cast<ReshardOp>(op)) {
    for (unsigned dim = 0; dim < tensorType(reshard.getInput()).getRank(); ++dim)
      dimNode(reshard.getInput(), dim);
    auto ofInput = dims.lookup(reshard.getInput()); // apart: the map may grow
    dims[reshard.getResult()] = std::move(ofInput);
    return;
  }
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable || (op->hasAttr(kRecomputedAttr) && addClone(op)))
    return;
  if (auto id = op->getAttrOfType<StringAttr>(kIdAttr))
    opById.try_emplace(id.getValue(), op);
  FactorRule rule = shardable.getFactorRule();
  SmallVector<Node, 6> nodes;
  for (const FactorRule::Loop &loop : rule.loops)
    nodes.push_back(space.leaf(loop.size));
  all.insert(all.end(), nodes.begin(), nodes.end());
  loops[op] = nodes;

  auto unifyAll = [&](ValueRange values, ArrayRef<SmallVector<FactorRule::Dim, 4>> exprs) {
    for (auto [value, dimExprs] : llvm::zip_equal(values, exprs))
      for (auto [dim, expr] : llvm::enumerate(dimExprs))
        space.unify(dimNode(value, dim), build(expr, nodes));
  };
  unifyAll(op->getOperands(), rule.operands);
  unifyAll(op->getResults(), rule.results);
}

void FactorAnalysis::addFunctionBoundary(func::FuncOp func) {
  llvm::StringMap<BlockArgument> named;
  std::optional<std::pair<BlockArgument, int64_t>> firstBatch;
  for (BlockArgument arg : func.getArguments()) {
    if (auto name = func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr))
      named[name.getValue()] = arg;
    auto attr = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kBatchDimAttr);
    if (!attr)
      continue;
    int64_t dim = attr.getInt();
    // All inputs have the same batch, also inputs that never meet in an op.
    if (!firstBatch)
      firstBatch = {arg, dim};
    else if (auto [first, firstDim] = *firstBatch;
             tensorType(first).getDimSize(firstDim) == tensorType(arg).getDimSize(dim))
      space.unify(dimNode(first, firstDim), dimNode(arg, dim));
  }
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    std::optional<TensorRole> role = resultRole(func, i);
    auto name = func.getResultAttrOfType<StringAttr>(i, kNameAttr);
    if (!name || (role != TensorRole::Gradient && role != TensorRole::State))
      continue;
    auto it = named.find(name.getValue());
    if (it == named.end() || tensorType(it->second).getShape() != tensorType(value).getShape())
      continue;
    for (unsigned dim = 0; dim < tensorType(value).getRank(); ++dim) {
      boundary.emplace_back(dimNode(it->second, dim), dimNode(value, dim));
      space.unify(boundary.back().first, boundary.back().second);
    }
  }
}

/// Returns the one factor of the argument dims marked by `attribute`.
std::optional<reshard::FactorId> FactorAnalysis::findMarked(func::FuncOp func, StringRef attribute,
                                                            bool ofUnused) {
  std::optional<reshard::FactorId> found;
  for (BlockArgument arg : func.getArguments()) {
    auto attr = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), attribute);
    if (!attr || (arg.use_empty() && !ofUnused))
      continue;
    reshard::DimLayout layout = dimLayout(arg, attr.getInt());
    // Factors of size 1 beside it do not count.
    std::vector<reshard::Factor> factors;
    for (const reshard::Factor &factor : layout.segments[0].factors)
      if (factor.size != 1 || layout.segments[0].factors.size() == 1)
        factors.push_back(factor);
    bool separate =
        layout.segments.size() == 1 && factors.size() == 1 && space.isShardable(factors[0].id);
    if (!separate || (found && *found != factors[0].id))
      return std::nullopt;
    found = factors[0].id;
  }
  return found;
}

reshard::DimLayout FactorAnalysis::dimLayout(Value value, unsigned dim) const {
  return space.layout(dims.lookup(value)[dim]);
}

reshard::DimLayout FactorAnalysis::loopLayout(Operation *op, unsigned loop) const {
  return space.layout(loops.lookup(op)[loop]);
}

reshard::TensorLayout FactorAnalysis::tensorLayout(Value value) const {
  reshard::TensorLayout layout;
  auto type = tensorType(value);
  layout.elementBytes = elementBytes(type.getElementType());
  for (unsigned dim = 0; dim < type.getRank(); ++dim)
    layout.dims.push_back(dimLayout(value, dim));
  return layout;
}

int64_t elementBytes(Type elementType) {
  return std::max<int64_t>(1, elementType.getIntOrFloatBitWidth() / 8);
}

} // namespace tbc
