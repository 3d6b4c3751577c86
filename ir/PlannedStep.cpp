//===- PlannedStep.cpp - The step and its plan, read from the IR -----------===//

#include "ir/PlannedStep.h"

#include "planner/reshard/Rebatch.h"
#include "runtime/mesh/AxisIndex.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// Returns the attribute `name` of `op`, null if it is absent. Error: an attribute of another kind.
template <typename Attr> static FailureOr<Attr> find(Operation *op, StringRef name) {
  Attribute attr = op->getAttr(name);
  if (!attr || isa<Attr>(attr))
    return cast_or_null<Attr>(attr);
  return op->emitError() << "attribute " << name << " is " << attr << ", of another kind";
}

/// Reads an integer of at least `least` into `value`. Keeps `value` if there is no attribute.
static LogicalResult readInteger(ModuleOp module, StringRef name, int64_t least, int64_t &value) {
  FailureOr<IntegerAttr> attr = find<IntegerAttr>(module, name);
  if (failed(attr))
    return failure();
  if (*attr && attr->getInt() < least)
    return module.emitError() << name << " = " << attr->getInt() << "; it is at least " << least;
  if (*attr)
    value = attr->getInt();
  return success();
}

FailureOr<func::FuncOp> findFunction(ModuleOp module, StringRef name) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function)
    return module.emitError() << "there is no function @" << name
                              << "; a training step has @train and @update";
  return function;
}

FailureOr<reshard::Mesh> readMesh(ModuleOp module) {
  FailureOr<MeshAttr> mesh = find<MeshAttr>(module, kMeshAttr);
  if (failed(mesh))
    return failure();
  if (!*mesh)
    return module.emitError() << "there is no plan on the module (attribute " << kMeshAttr
                              << "); run tbc-apply-plan first, or take the output of "
                                 "`tbc plan --emit ir`";
  return toMesh(*mesh);
}

static LogicalResult readStages(ModuleOp module, PlannedStep &result) {
  reshard::Assignment &assignment = result.assignment;
  assignment.pipelineAxis = axisIndex(assignment.mesh, tbc::mesh::Axis::Pipeline);
  if (assignment.pipelineAxis >= 0)
    assignment.numStages = int(assignment.mesh.axes[assignment.pipelineAxis].size);
  FailureOr<DenseI64ArrayAttr> stages = find<DenseI64ArrayAttr>(module, kChunkStageAttr);
  if (failed(stages))
    return failure();
  if (!*stages)
    return success();
  for (int64_t stage : stages->asArrayRef()) {
    if (stage < 0 || stage >= assignment.numStages)
      return module.emitError() << kChunkStageAttr << " names stage " << stage << " of "
                                << assignment.numStages;
    assignment.chunkStage.push_back(int(stage));
  }
  return success();
}

static LogicalResult readOps(PlannedStep &result) {
  reshard::Assignment &assignment = result.assignment;
  bool offloads = false;
  for (auto [i, op] : llvm::enumerate(result.step.ops)) {
    FailureOr<StrategyAttr> attr = find<StrategyAttr>(op, kStrategyAttr);
    if (failed(attr))
      return failure();
    reshard::OpStrategy strategy;
    if (*attr) {
      auto read = toStrategy(op->getLoc(), assignment.mesh, *attr);
      if (failed(read))
        return failure();
      strategy = std::move(*read);
    }
    int numLoops = int(result.graph.ops[i].loops.size());
    for (const auto &[loop, axes] : strategy.loopAxes)
      if (loop >= numLoops)
        return op->emitOpError() << "has a strategy for loop " << loop << " of " << numLoops;
    assignment.strategies.push_back(std::move(strategy));
    assignment.offloadedOps.push_back(op->hasAttr(kOffloadAttr));
    offloads |= assignment.offloadedOps.back();
    if (int chunk = result.graph.ops[i].chunk; chunk < 0 || chunk >= assignment.numChunks())
      return op->emitOpError() << "is of chunk " << chunk << "; there are "
                               << assignment.numChunks();
  }
  if (!offloads)
    assignment.offloadedOps.clear();
  return success();
}

static LogicalResult readParameters(PlannedStep &result) {
  for (const reshard::GraphParameter &parameter : result.graph.parameters) {
    reshard::ParameterPlan plan;
    Attribute attr = result.train.getArgAttr(parameter.value, kParameterPlanAttr);
    if (attr) {
      auto planAttr = dyn_cast<ParameterPlanAttr>(attr);
      if (!planAttr)
        return result.train.emitError()
               << kParameterPlanAttr << " is " << attr << ", of another kind";
      auto read = toParameterPlan(result.train.getLoc(), result.assignment.mesh, planAttr);
      if (failed(read))
        return failure();
      plan = std::move(*read);
    }
    result.assignment.parameterPlans.push_back(std::move(plan));
  }
  return success();
}

FailureOr<PlannedStep> readPlannedStep(ModuleOp module) {
  PlannedStep result;
  FailureOr<func::FuncOp> train = findFunction(module, "train");
  FailureOr<func::FuncOp> update = findFunction(module, "update");
  FailureOr<reshard::Mesh> mesh = readMesh(module);
  if (failed(train) || failed(update) || failed(mesh))
    return failure();
  result.train = *train;
  result.update = *update;
  result.assignment.mesh = std::move(*mesh);
  result.assignment.offloadsStates = module->hasAttr(kOffloadStatesAttr);
  result.analysis = std::make_unique<FactorAnalysis>(result.train);
  FailureOr<StepGraph> step = extractStepGraph(result.train, *result.analysis, result.update);
  if (failed(step))
    return failure();
  result.step = std::move(*step);
  int64_t batch = 0;
  if (failed(readInteger(module, kBatchAttr, 1, batch)) ||
      failed(readInteger(module, kMicroBatchesAttr, 1, result.assignment.microBatches)) ||
      failed(readInteger(module, kBucketBytesAttr, 0, result.overlap.bucketBytes)) ||
      failed(readInteger(module, kGatherBytesAttr, 0, result.overlap.gatherBytes)) ||
      failed(readInteger(module, kPrefetchAttr, 0, result.overlap.prefetch)) ||
      failed(readStages(module, result)))
    return failure();
  result.graph = batch > 0 ? reshard::withBatch(result.step.graph, batch) : result.step.graph;
  if (int axis = axisIndex(result.assignment.mesh, tbc::mesh::Axis::Context);
      axis >= 0 && module->hasAttr(kZigzagAttr))
    result.zigzag = result.assignment.mesh.axes[axis].size;
  if (failed(readOps(result)) || failed(readParameters(result)))
    return failure();
  if (std::string why = reshard::whyInvalid(result.graph, result.assignment); !why.empty())
    return module.emitError() << "the plan on the module is invalid: " << why;
  return std::move(result);
}

} // namespace tbc
