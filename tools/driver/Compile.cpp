//===- Compile.cpp - From a step and a plan to a checked Program ------------===//

#include "tools/driver/Compile.h"

#include "codegen/AssignStreams.h"
#include "codegen/EmitProgram.h"
#include "codegen/PlanMemory.h"
#include "codegen/cpu/EmitKernel.h"
#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/region/KernelOp.h"
#include "passes/Pipelines.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Time.h"
#include "runtime/abi/Problem.h"
#include "runtime/verify/Verify.h"
#include "tools/driver/ApplyPlan.h"

#include "mlir/IR/Verifier.h"

#include <map>

using namespace mlir;

namespace tbc::driver {

using program::InstructionKind;
using reshard::CollectiveCount;
using reshard::CollectiveKind;

static std::optional<CollectiveKind> collectiveKind(InstructionKind kind) {
  switch (kind) {
  case InstructionKind::AllReduce:
    return CollectiveKind::AllReduce;
  case InstructionKind::AllGather:
    return CollectiveKind::AllGather;
  case InstructionKind::ReduceScatter:
    return CollectiveKind::ReduceScatter;
  case InstructionKind::AllToAll:
    return CollectiveKind::AllToAll;
  case InstructionKind::Send:
    return CollectiveKind::Send;
  case InstructionKind::Permute:
    return CollectiveKind::Permute;
  case InstructionKind::Kernel:
  case InstructionKind::ShardSlice:
  case InstructionKind::Recv:
  case InstructionKind::Offload:
  case InstructionKind::Fetch:
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<CollectiveCount> countInstructions(const program::Program &program) {
  std::map<CollectiveCount, int64_t> counts; // counts set to 0
  for (int s = 0; s < program.numStages(); ++s) {
    const program::Stage &stage = program.stages[s];
    for (const schedule::Action &action : program::actionsOf(program, s)) {
      for (const program::Instruction &instruction : stage.block(action).instructions) {
        auto kind = collectiveKind(instruction.kind);
        if (!kind)
          continue;
        CollectiveCount line{};
        line.kind = *kind;
        line.axes = *kind == CollectiveKind::Send
                        ? program.mesh.axes[program.pipelineAxis].name
                        : program::toString(program.mesh, instruction.comm.axes);
        line.stage = s;
        line.bytes = program::messageBytes(program, stage, instruction);
        ++counts[line];
      }
    }
  }
  std::vector<CollectiveCount> result;
  for (auto &[line, count] : counts) {
    result.push_back(line);
    result.back().count = count;
  }
  return result;
}

static std::string describe(const CollectiveCount &line) {
  return "stage " + std::to_string(line.stage) + ": " + std::to_string(line.count) + " x " +
         reshard::name(line.kind) + " over " + line.axes + " of " + std::to_string(line.bytes) +
         " bytes";
}

std::string differences(const std::vector<CollectiveCount> &predicted,
                        const std::vector<CollectiveCount> &actual) {
  auto contains = [](const std::vector<CollectiveCount> &list, const CollectiveCount &line) {
    for (const CollectiveCount &other : list)
      if (other == line)
        return true;
    return false;
  };
  std::string text;
  for (const CollectiveCount &line : predicted)
    if (!contains(actual, line))
      text += "predicted, not in the Program: " + describe(line) + "\n";
  for (const CollectiveCount &line : actual)
    if (!contains(predicted, line))
      text += "in the Program, not predicted: " + describe(line) + "\n";
  return text;
}

Result<CompiledPlan> compilePlan(TrainingStep &step, const planner::Plan &plan,
                                 const cpu::CpuTarget *target, const cuda::CudaTarget *cudaTarget) {
  if (!plan.job.stepHash.empty() && plan.job.stepHash != step.hash)
    return problem(Problem::OtherModel,
                   "the plan was made for another model or other bindings (its step hash is " +
                       plan.job.stepHash.substr(0, 12) + ", this model's " +
                       step.hash.substr(0, 12) + "); plan again with `tbc plan`");
  CompiledPlan result;
  auto planned = planner::applyPlan(step.step.graph, plan);
  if (!planned)
    return planned.error();
  result.planned = std::move(*planned);
  const reshard::Graph &graph = result.planned.graph;
  const reshard::Assignment &assignment = result.planned.assignment;
  result.derivation = reshard::derive(graph, assignment);
  result.overlap = reshard::planOverlap(graph, result.derivation, plan.overlap);
  result.predicted =
      reshard::countCollectives(graph, assignment, result.derivation, result.overlap);
  result.predictedMemory =
      planner::stageMemory(graph, assignment, result.derivation, result.overlap, plan.job,
                           planner::stageDevices(plan), planner::scheduleOf(plan).actions);

  DiagnosticCollector diagnostics(*step.train.getContext());
  FailureOr<PartitionedStep> partitioned =
      runPlanPasses(annotatedModule(step, plan, result.planned));
  if (failed(partitioned) || failed(mlir::verify(*partitioned->module)))
    return diagnostics.error(ErrorCode::Other, "the step could not be partitioned");

  EmitOptions options;
  options.mesh = assignment.mesh;
  options.pipelineAxis = assignment.pipelineAxis;
  options.numStages = assignment.numStages;
  options.microBatches = assignment.microBatches;
  options.schedule = plan.schedule.value_or(schedule::kindWithoutPipeline);
  options.chunkStage = plan.chunkStage;
  options.metadata = {{"model", plan.job.modelPath}, {"step_hash", step.hash}};
  EmittedOps origins;
  FailureOr<program::Program> program = emitProgram(*partitioned, options, &origins);
  if (failed(program))
    return diagnostics.error(ErrorCode::Other, "the per-rank functions could not be emitted");
  result.program = std::move(*program);
  // Regions come first: the memory plan counts each as one kernel.
  region::RegionKernels regions;
  if (target) {
    region::prepareContext(*step.train.getContext());
    regions = cpu::formRegions(result.program, origins, *target);
    result.kernels = std::move(regions.sources);
  } else if (cudaTarget) {
    MLIRContext &context = *step.train.getContext();
    cuda::prepareContext(context);
    auto kernels = cuda::formCudaKernels(result.program, origins, context, *cudaTarget);
    if (!kernels)
      return kernels.error();
    result.cudaKernels = std::move(*kernels);
    regions = std::move(result.cudaKernels.regions);
  }
  result.kernelsApart = regions.apart;
  assignStreams(result.program);
  // The memory plan relies on these checks; it is checked later with the rest.
  Status status = program::checkWellFormed(result.program);
  if (status)
    status = verify::checkDataflow(result.program);
  if (!status)
    return Error{ErrorCode::VerificationFailed,
                 "the compiled Program fails its own check: " + status.error().message};
  planMemory(result.program, [&](int stage, program::BlockId id, int at, program::ValueId made,
                                 program::ValueId operand) {
    return regions.mayOverwrite(result.program, stage, id, at, made, operand);
  });

  if (status = verify::verifyProgram(result.program); !status)
    return Error{ErrorCode::VerificationFailed,
                 "the compiled Program fails its own check: " + status.error().message};
  std::string lines = differences(result.predicted, countInstructions(result.program));
  if (!lines.empty())
    return Error{ErrorCode::VerificationFailed,
                 "the Program's collectives are not those predicted:\n" + lines};
  return result;
}

} // namespace tbc::driver
