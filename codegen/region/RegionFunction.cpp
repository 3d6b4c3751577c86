//===- RegionFunction.cpp - Outline ops into a function ---------------------===//

#include "codegen/region/RegionFunction.h"

#include "codegen/region/Domain.h"
#include "codegen/region/KernelOp.h"
#include "codegen/region/MemoryAccess.h"
#include "ir/ColumnUse.h"
#include "ir/Tbc.h"

#include "mlir/IR/IRMapping.h"

#include <map>
#include <tuple>

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

bool movesColumns(Operation *op) {
  const ColumnUse::Kind kind = columnUseOf(op).kind;
  return kind == ColumnUse::Kind::Cuts || kind == ColumnUse::Kind::Joins;
}

namespace {

/// Takes the ops that move columns out of a function.
class ColumnTaker {
public:
  explicit ColumnTaker(func::FuncOp function)
      : function(function), body(function.getBody().front()), numOperands(body.getNumArguments()) {}

  void run() {
    for (int64_t i = 0; i < numOperands; ++i)
      arguments.push_back({int(i)});
    takeCuts();
    takeJoins();
    if (!isChanged)
      return;
    SmallVector<int64_t> numbers;
    for (const SmallVector<Array> *list : {&arguments, &results})
      for (const Array &array : *list)
        numbers.append({array.buffer, array.first, array.pitch});
    Operation *end = body.getTerminator();
    Builder builder(function.getContext());
    function.setType(builder.getFunctionType(body.getArgumentTypes(), end->getOperandTypes()));
    function->setAttr(kArraysAttr, builder.getDenseI64ArrayAttr(numbers));
  }

private:
  void takeCuts() {
    std::map<std::tuple<unsigned, int64_t, int64_t>, Value> cuts; // operand, first column, columns
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator())) {
      const ColumnUse use = columnUseOf(&op);
      auto whole = use.kind == ColumnUse::Kind::Cuts ? dyn_cast<BlockArgument>(op.getOperand(0))
                                                     : BlockArgument();
      if (!whole)
        continue;
      Value part = op.getResult(0);
      Value &argument = cuts[{whole.getArgNumber(), use.first, tensorType(part).getShape().back()}];
      if (!argument) {
        arguments.push_back(
            {int(whole.getArgNumber()), use.first, tensorType(whole).getShape().back()});
        argument = body.addArgument(part.getType(), op.getLoc());
      }
      part.replaceAllUsesWith(argument);
      op.erase();
      isChanged = true;
    }
    // Operands that are only cut are no arguments.
    for (int64_t i = numOperands; isChanged && i-- > 0;)
      if (body.getArgument(unsigned(i)).use_empty()) {
        body.eraseArgument(unsigned(i));
        arguments.erase(arguments.begin() + i);
      }
  }

  void takeJoins() {
    Operation *end = body.getTerminator();
    SmallVector<Value> returned;
    SmallVector<Operation *> joins;
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      Operation *join = value.getDefiningOp();
      if (columnUseOf(join).kind != ColumnUse::Kind::Joins || !value.hasOneUse()) {
        results.push_back({int(i)});
        returned.push_back(value);
        continue;
      }
      int64_t first = 0;
      for (Value part : join->getOperands()) {
        results.push_back({int(i), first, tensorType(value).getShape().back()});
        returned.push_back(part);
        first += tensorType(part).getShape().back();
      }
      joins.push_back(join);
    }
    end->setOperands(returned);
    for (Operation *join : joins)
      join->erase();
    isChanged |= !joins.empty();
  }

  func::FuncOp function;
  Block &body;
  const int64_t numOperands;
  SmallVector<Array> arguments, results;
  bool isChanged = false;
};

} // namespace

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
  ColumnTaker(function).run();
  const bool isCopy = llvm::all_of(ops, movesColumns); // with a kernel of its own
  if (isCopy || failed(expand(function)))
    return {};
  return module;
}

func::FuncOp functionOf(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

} // namespace tbc::region
