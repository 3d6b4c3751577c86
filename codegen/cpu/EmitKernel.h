//===- EmitKernel.h - From a function of tbc ops to loops over vectors ------===//

#ifndef TBC_CODEGEN_CPU_EMITKERNEL_H
#define TBC_CODEGEN_CPU_EMITKERNEL_H

#include "codegen/cpu/Domain.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tbc::cpu {

/// The name of the function in what emitKernel makes.
inline constexpr llvm::StringLiteral kKernelName = "kernel";

struct Kernel {
  /// A module of arith, math, vector, scf and llvm with the function kKernelName (buffers, begin,
  /// end), see runtime/abi/CompiledKernel.h.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  int64_t extent = 1;
  /// By result, then by operand: whether the kernel is right if the result lies over the operand.
  std::vector<std::vector<bool>> mayOverwrite;
};

/// The kernel that computes what `function` returns. `lanes`: how many f32 a vector register of the
/// CPU holds.
///
/// Arithmetic: f32 for all narrower floats, rounded where something is stored; sums in f32 in
/// lanes, then over the lanes. The order of a sum depends on shapes and `lanes` alone.
Kernel emitKernel(mlir::func::FuncOp function, const Domain &domain, int lanes);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_EMITKERNEL_H
