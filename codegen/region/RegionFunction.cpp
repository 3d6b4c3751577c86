//===- RegionFunction.cpp - Outline ops into a function ---------------------===//

#include "codegen/region/RegionFunction.h"

#include "codegen/region/KernelOp.h"
#include "codegen/region/MemoryAccess.h"
#include "ir/Tbc.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace tbc::region {

static bool hasTypes(Operation *op) {
  auto isKnown = [](Type type) {
    return MemoryAccess::isSupported(cast<RankedTensorType>(type).getElementType());
  };
  return llvm::all_of(op->getOperandTypes(), isKnown) &&
         llvm::all_of(op->getResultTypes(), isKnown);
}

bool mayBeCompiled(Operation *op) {
  auto kernel = dyn_cast<KernelOpInterface>(op);
  return (kernel ? kernel.isSupported() : isa<CompositeOpInterface>(op)) && hasTypes(op);
}

/// Replaces `op` by its decomposition. Fails if it has none, or if the decomposition lacks a used
/// result.
static LogicalResult takeApart(Operation *op) {
  OpBuilder builder(op);
  SmallVector<Value> results;
  auto kernel = dyn_cast<KernelOpInterface>(op);
  if (failed(kernel ? kernel.expand(builder, results)
                    : cast<CompositeOpInterface>(op).decompose(builder, results)))
    return failure();
  for (auto [result, value] : llvm::zip_equal(op->getResults(), results)) {
    if (!value && !result.use_empty())
      return failure();
    if (value)
      result.replaceAllUsesWith(value);
  }
  op->erase();
  return success();
}

/// Decomposes composites until kernels support every op.
static LogicalResult expand(func::FuncOp function) {
  Block &block = function.getBody().front();
  for (auto it = block.begin(); it != std::prev(block.end());) {
    Operation *op = &*it;
    if (!mayBeCompiled(op))
      return failure();
    bool isFirst = it == block.begin();
    Block::iterator before = isFirst ? it : std::prev(it);
    if (succeeded(takeApart(op)))
      it = isFirst ? block.begin() : std::next(before); // its decomposition may contain composites
    else if (isa<KernelOpInterface>(op))
      ++it;
    else
      return failure();
  }
  return success();
}

OwningOpRef<ModuleOp> makeRegionFunction(ArrayRef<Operation *> ops, ValueRange operands,
                                         ValueRange results) {
  Location loc = ops.front()->getLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  auto type = builder.getFunctionType(operands.getTypes(), results.getTypes());
  auto function = builder.create<func::FuncOp>(loc, "region", type);
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  IRMapping mapping;
  mapping.map(operands, entry->getArguments());
  for (Operation *op : ops)
    builder.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value result : results)
    returned.push_back(mapping.lookup(result));
  builder.create<func::ReturnOp>(loc, returned);
  if (failed(expand(function)))
    return {};
  return module;
}

func::FuncOp functionOf(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

} // namespace tbc::region
