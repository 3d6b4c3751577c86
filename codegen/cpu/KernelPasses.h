//===- KernelPasses.h - What lowering kernels has in common -----------------===//

#ifndef TBC_CODEGEN_CPU_KERNELPASSES_H
#define TBC_CODEGEN_CPU_KERNELPASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace tbc::cpu {

/// The dialects of emitted kernels, with their translation to LLVM.
mlir::DialectRegistry kernelDialects();

/// Products may be fused into sums: half an ulp less rounding, which no bound of ours misses.
void allowContraction(mlir::ModuleOp module);

/// From emitted kernels to the dialect of LLVM. exp, log, tanh, erf and atan of f32 become
/// polynomials.
void addKernelPasses(mlir::PassManager &passes);

/// LLVM's own optimisations, at their highest level.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_KERNELPASSES_H
