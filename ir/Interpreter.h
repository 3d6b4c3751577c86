//===- Interpreter.h - Runs functions of tbc ops, serially or on N ranks ---===//
//
// The referee: plain, slow and independent of the passes, the planner and the runtime
// (docs/design.md, section 4).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_INTERPRETER_H
#define TBC_IR_INTERPRETER_H

#include "planner/reshard/Sharding.h"
#include "runtime/kernels/Kernel.h"

#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

#include <functional>

namespace mlir::func {
class FuncOp;
} // namespace mlir::func

namespace tbc {

/// One value as every rank holds it, by rank number; a single entry in a serial run.
using RankTensors = llvm::SmallVector<kernels::Tensor>;

/// Called after each op with its results.
using Observer = std::function<void(mlir::Operation *, llvm::ArrayRef<RankTensors>)>;

/// Returns the results of `function`, one straight-line block, on `inputs` (one per argument).
///
/// Frees a value after its last use, except for inputs kept by the caller. Errors, each at its
/// location: too few inputs, an input of another type than its argument, or an op that cannot be
/// evaluated.
mlir::FailureOr<llvm::SmallVector<kernels::Tensor>>
evaluateFunction(mlir::func::FuncOp function, llvm::ArrayRef<kernels::Tensor> inputs,
                 const kernels::KernelContext &context);

/// The same on all ranks of `mesh` in lock-step. Every rank runs `function`, `inputs[i][r]` is
/// argument i on rank r, and collectives exchange values between the ranks.
mlir::FailureOr<llvm::SmallVector<RankTensors>>
evaluateOnRanks(mlir::func::FuncOp function, llvm::ArrayRef<RankTensors> inputs,
                const reshard::Mesh &mesh, const kernels::KernelContext &context,
                const Observer &observer = {});

} // namespace tbc

#endif // TBC_IR_INTERPRETER_H
