//===- Kernel.h - The loops of one region, before they are lowered ---------===//

#ifndef TBC_CODEGEN_REGION_KERNEL_H
#define TBC_CODEGEN_REGION_KERNEL_H

#include "codegen/region/Domain.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>

namespace tbc::region {

/// The function's name in the module of a Kernel.
inline constexpr llvm::StringLiteral kKernelName = "kernel";

struct Kernel {
  /// A module of arith, math, vector, scf, gpu and llvm with the function `kKernelName`. Its
  /// arguments are those of the target (cpu::emitKernel, cuda::emitCudaKernel).
  mlir::OwningOpRef<mlir::ModuleOp> module;
  int64_t extent = 1;
  /// By result, then by operand: whether the result may lie over the operand in memory.
  std::vector<std::vector<bool>> mayOverwrite;
};

/// Makes the kernel of a function, given its loops; fails without a diagnostic if it cannot.
using EmitFn = std::function<mlir::FailureOr<Kernel>(mlir::func::FuncOp, const Domain &)>;

/// The source text of a kernel: its module with the function renamed.
struct KernelSource {
  std::string symbol;
  std::string text;
};

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_KERNEL_H
