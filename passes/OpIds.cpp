//===- OpIds.cpp - Stable op ids, unique in a function ---------------------===//

#include "passes/OpIds.h"

#include "ir/Roles.h"

using namespace mlir;

namespace tbc {

StringRef getId(Operation *op) {
  auto id = op->getAttrOfType<StringAttr>(kIdAttr);
  return id ? id.getValue() : StringRef();
}

bool isBackward(Operation *op) { return phaseOf(op) == reshard::Phase::Backward; }

OpIds::OpIds(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (StringRef id = getId(&op); !id.empty())
      used.insert(id);
}

std::string OpIds::unique(StringRef base) {
  std::string id = base.str();
  for (unsigned k = 1; !used.insert(id).second; ++k)
    id = (base + "." + Twine(k)).str();
  return id;
}

std::string OpIds::numbered(StringRef prefix) {
  std::string id;
  do
    id = (prefix + "." + Twine(nextNumber[prefix]++)).str();
  while (!used.insert(id).second);
  return id;
}

void OpIds::assignMissing(func::FuncOp function) {
  Builder builder(function.getContext());
  for (Operation &op : function.getBody().front().without_terminator())
    if (getId(&op).empty())
      op.setAttr(kIdAttr, builder.getStringAttr(numbered(op.getName().stripDialect())));
}

void eraseUnused(func::FuncOp function, llvm::function_ref<bool(Operation *)> mayErase) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op) && (!mayErase || mayErase(op)))
      op->erase();
}

} // namespace tbc
