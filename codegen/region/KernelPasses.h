//===- KernelPasses.h - Common parts of kernel lowering ---------------------===//

#ifndef TBC_CODEGEN_REGION_KERNELPASSES_H
#define TBC_CODEGEN_REGION_KERNELPASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace tbc::region {

/// Returns the dialects of emitted kernels, with their translation to LLVM.
mlir::DialectRegistry kernelDialects();

/// Allows fused multiply-add. It saves half an ulp of rounding, well within the tolerances of
/// tests.
void allowContraction(mlir::ModuleOp module);

/// Lowers emitted kernels to the LLVM dialect. exp, log, tanh and erf of f32 become
/// polynomials.
void addKernelPasses(mlir::PassManager &passes);

/// Runs LLVM's own optimisations, at their highest level.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_KERNELPASSES_H
