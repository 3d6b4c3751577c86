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

/// Adds the passes that make a module annotated by tbc-apply-plan into per-rank functions, in their
/// order. Each reads its input from the IR alone, so that any number of them may run in one tool
/// and the rest in another. `tensors` receives those that outlive the functions.
void addPlanPasses(mlir::OpPassManager &manager, std::vector<PartitionedTensor> &tensors);

/// The names of those passes, in order, as tbc-opt and --emit-ir-after have them.
std::vector<std::string> planPassNames();

/// Called after each pass with its name and the module as the pass left it.
using AfterPass = std::function<void(llvm::StringRef pass, mlir::ModuleOp module)>;

/// Runs these passes on `module`.
/// Errors: as of the passes, with their diagnostics.
mlir::FailureOr<PartitionedStep> runPlanPasses(mlir::OwningOpRef<mlir::ModuleOp> module,
                                               const AfterPass &afterPass = nullptr);

} // namespace tbc

#endif // TBC_PASSES_PIPELINES_H
