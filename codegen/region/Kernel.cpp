//===- Kernel.cpp - The loops of one region, before they are lowered -------===//

#include "codegen/region/Kernel.h"

#include "runtime/abi/Sha256.h"

#include "llvm/Support/raw_ostream.h"

namespace tbc::region {

std::string symbolOf(mlir::ModuleOp module) {
  constexpr size_t hashDigits = 24;
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return "tbc_" + sha256Hex(text).substr(0, hashDigits);
}

std::string symbolOfLaunch(const std::string &symbol, size_t index) {
  return index == 0 ? symbol : symbol + "_" + std::to_string(index + 1);
}

void nameFunctions(mlir::ModuleOp module, const std::string &symbol) {
  for (auto [index, function] : llvm::enumerate(module.getOps<mlir::func::FuncOp>()))
    function.setName(symbolOfLaunch(symbol, index));
}

} // namespace tbc::region
