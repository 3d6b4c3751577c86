//===- Pipelines.h - The order of the passes -------------------------------===//

#ifndef TBC_PASSES_PIPELINES_H
#define TBC_PASSES_PIPELINES_H

#include "ir/PerRank.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc {

/// Adds the passes from a module annotated by tbc-apply-plan to per-rank functions, in their order.
/// Each reads its input from the IR alone, so one tool may run the first passes and another one the
/// rest. `tensors` receives the tensors that outlive the functions.
void addPlanPasses(mlir::OpPassManager &manager, std::vector<PartitionedTensor> &tensors);

/// The names of these passes, in order, as for tbc-opt and --emit-ir-after.
std::vector<std::string> planPassNames();

/// Called after each pass with its name and the module as the pass left it.
using AfterPass = std::function<void(llvm::StringRef pass, mlir::ModuleOp module)>;

/// Runs these passes on `module`. Errors: those of the passes, with their diagnostics.
mlir::FailureOr<PartitionedStep> runPlanPasses(mlir::OwningOpRef<mlir::ModuleOp> module,
                                               const AfterPass &afterPass = nullptr);

} // namespace tbc

#endif // TBC_PASSES_PIPELINES_H
