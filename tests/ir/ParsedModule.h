//===- ParsedModule.h - Test modules from text -----------------------------===//

#ifndef TBC_TESTS_IR_PARSEDMODULE_H
#define TBC_TESTS_IR_PARSEDMODULE_H

#include "ir/Tbc.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <string>

namespace tbc {

/// A module parsed from text, with its context. Diagnostics are collected in `messages`.
class ParsedModule {
public:
  explicit ParsedModule(llvm::StringRef text)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          messages += diagnostic.str() + "\n";
          return mlir::success();
        }) {
    context.loadDialect<TbcDialect, mlir::func::FuncDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  explicit operator bool() const { return bool(module); }
  mlir::ModuleOp operator*() { return *module; }
  mlir::ModuleOp *operator->() { return module.operator->(); }
  mlir::func::FuncOp function(llvm::StringRef name) {
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }

  mlir::MLIRContext context;
  std::string messages;
  mlir::OwningOpRef<mlir::ModuleOp> module;

private:
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace tbc

#endif // TBC_TESTS_IR_PARSEDMODULE_H
