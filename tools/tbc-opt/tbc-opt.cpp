//===- tbc-opt.cpp - Run passes on textual IR, for tests and debugging -----===//

#include "ir/Tbc.h"
#include "passes/Passes.h"
#include "tools/driver/ApplyPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Debug.h"

// LLVM's release build lacks -debug-only. This flag works if tbc is built with assertions.
static llvm::cl::opt<std::string>
    debugOnly("tbc-debug-only",
              llvm::cl::desc("Print LLVM_DEBUG output of one DEBUG_TYPE (debug builds only)"),
              llvm::cl::callback([](const std::string &type) {
                llvm::DebugFlag = true;
#ifndef NDEBUG
                llvm::setCurrentDebugType(type.c_str());
#endif
              }));

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<tbc::TbcDialect, mlir::func::FuncDialect>();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  tbc::registerTbcPasses();
  tbc::driver::registerDriverPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "tbc-opt: passes on tbc IR in text\n", registry));
}
