//===- Passes.h - The passes of tbc ----------------------------------------===//

#ifndef TBC_PASSES_PASSES_H
#define TBC_PASSES_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include "ir/Tbc.h"

#include <memory>

namespace tbc {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace tbc

#endif // TBC_PASSES_PASSES_H
