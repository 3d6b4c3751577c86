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

/// A launch after the first one of a kernel for GPUs. It has the same arguments.
struct LaterLaunch {
  int64_t extent = 1;
  int threads = 0;
};

struct Kernel {
  /// A module of arith, math, vector, scf, gpu and llvm with the function `kKernelName`, and behind
  /// it one per later launch (`nameFunctions`). The arguments are those of the target
  /// (cpu::emitKernel, cuda::emitCudaKernel).
  mlir::OwningOpRef<mlir::ModuleOp> module;
  int64_t extent = 1;
  int threads = 0; // of a block on a GPU; 0: the target's usual number
  std::vector<LaterLaunch> then = {};
  int64_t workspaceBytes = 0; // of memory between launches
  /// By result, then by operand: whether the result may lie over the operand in memory.
  std::vector<std::vector<bool>> mayOverwrite;
};

/// Makes the kernel of a function, given its loops; fails without a diagnostic if it cannot.
using EmitFn = std::function<mlir::FailureOr<Kernel>(mlir::func::FuncOp, const Domain &)>;

/// Returns a name for a kernel by the content of its module. Equal modules have equal names.
std::string symbolOf(mlir::ModuleOp module);

/// Returns the name of a kernel's launch `index`. Example: "softmax", "softmax_2", "softmax_3".
std::string symbolOfLaunch(const std::string &symbol, size_t index);

/// Names the functions of a kernel's module by `symbolOfLaunch`, in order.
void nameFunctions(mlir::ModuleOp module, const std::string &symbol);

/// The source text of a kernel: its module with the function renamed.
struct KernelSource {
  std::string symbol;
  std::string text;
};

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_KERNEL_H
