//===- OpIds.h - Stable op ids, unique in a function -----------------------===//

#ifndef TBC_PASSES_OPIDS_H
#define TBC_PASSES_OPIDS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <string>

namespace tbc {

/// Returns the `tbc.id` of `op`, or "".
llvm::StringRef getId(mlir::Operation *op);
/// Whether the op's phase is Backward (not wgrad).
bool isBackward(mlir::Operation *op);

/// Hands out ids that are unused in a function. They depend on the order of the calls alone.
class OpIds {
public:
  explicit OpIds(mlir::func::FuncOp function);

  /// `base`, or "BASE.K" for the first free K from 1.
  std::string unique(llvm::StringRef base);
  /// "PREFIX.K" for the first free K from 0.
  std::string numbered(llvm::StringRef prefix);
  /// Gives every op without an id one after its mnemonic.
  void assignMissing(mlir::func::FuncOp function);

private:
  llvm::StringSet<> used;
  llvm::StringMap<unsigned> nextNumber;
};

/// Calls back for every op that a builder inserts during its life.
class InsertionListener : public mlir::OpBuilder::Listener {
public:
  explicit InsertionListener(std::function<void(mlir::Operation *)> inserted)
      : inserted(std::move(inserted)) {}
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override {
    inserted(op);
  }

private:
  std::function<void(mlir::Operation *)> inserted;
};

/// Erases unused ops of the function for which `mayErase` returns true.
void eraseUnused(mlir::func::FuncOp function,
                 llvm::function_ref<bool(mlir::Operation *)> mayErase = nullptr);

} // namespace tbc

#endif // TBC_PASSES_OPIDS_H
