//===- Pipelines.cpp - The order of the passes -----------------------------===//

#include "passes/Pipelines.h"

#include "passes/Passes.h"
#include "passes/partition/Partition.h"

#include "mlir/Pass/PassInstrumentation.h"

using namespace mlir;

namespace tbc {

void addPlanPasses(OpPassManager &manager, std::vector<PartitionedTensor> &tensors) {
  manager.addPass(createAssignChunksPass());
  manager.addPass(createRecomputePass());
  manager.addPass(createSplitBackwardPass());
  manager.addPass(createDeriveShardingsPass());
  manager.addPass(createInsertCollectivesPass());
  manager.addPass(createBucketPass());
  manager.addPass(createPartitionPass(tensors));
}

std::vector<std::string> planPassNames() {
  std::vector<PartitionedTensor> tensors;
  OpPassManager manager(ModuleOp::getOperationName());
  addPlanPasses(manager, tensors);
  std::vector<std::string> names;
  for (Pass &pass : manager.getPasses())
    names.push_back(pass.getArgument().str());
  return names;
}

namespace {
/// Hands the module out after each pass.
class DumpPoints : public PassInstrumentation {
public:
  explicit DumpPoints(const AfterPass &afterPass) : afterPass(afterPass) {}
  void runAfterPass(Pass *pass, Operation *op) override {
    if (auto module = dyn_cast<ModuleOp>(op); module && !pass->getArgument().empty())
      afterPass(pass->getArgument(), module);
  }

private:
  AfterPass afterPass;
};
} // namespace

FailureOr<PartitionedStep> runPlanPasses(OwningOpRef<ModuleOp> module, const AfterPass &afterPass) {
  PartitionedStep result;
  PassManager manager(module->getContext(), ModuleOp::getOperationName());
  addPlanPasses(manager, result.tensors);
  if (afterPass)
    manager.addInstrumentation(std::make_unique<DumpPoints>(afterPass));
  if (failed(manager.run(*module)))
    return failure();
  result.module = std::move(module);
  return std::move(result);
}

} // namespace tbc
