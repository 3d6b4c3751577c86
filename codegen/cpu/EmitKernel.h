//===- EmitKernel.h - Lower a function of tbc ops to loops over vectors -----===//

#ifndef TBC_CODEGEN_CPU_EMITKERNEL_H
#define TBC_CODEGEN_CPU_EMITKERNEL_H

#include "codegen/cpu/Domain.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tbc::cpu {

/// The function's name in the modules of `emitKernel`.
inline constexpr llvm::StringLiteral kKernelName = "kernel";

struct Kernel {
  /// A module of arith, math, vector, scf and llvm with the function `kKernelName`(buffers, begin,
  /// end), see runtime/abi/CompiledKernel.h.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  int64_t extent = 1;
  /// By result, then by operand: whether the result may lie over the operand in memory.
  std::vector<std::vector<bool>> mayOverwrite;
};

/// Returns the kernel that computes the results of `function`. `lanes`: number of f32 in a vector
/// register of the CPU. Example: 8 for AVX2.
///
/// Arithmetic: f32 for all narrower floats, rounded when stored; sums in f32, first in each lane,
/// then over the lanes. The order of a sum depends on shapes and `lanes` alone.
Kernel emitKernel(mlir::func::FuncOp function, const Domain &domain, int lanes);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_EMITKERNEL_H
