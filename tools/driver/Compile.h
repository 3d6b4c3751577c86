//===- Compile.h - From a step and a plan to a checked Program --------------===//

#ifndef TBC_TOOLS_DRIVER_COMPILE_H
#define TBC_TOOLS_DRIVER_COMPILE_H

#include "codegen/cpu/CpuTarget.h"
#include "codegen/cuda/FormCudaKernels.h"
#include "codegen/region/FormRegions.h"
#include "planner/memory/Memory.h"
#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"
#include "runtime/abi/Program.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// A plan compiled to a Program, with the planner's predictions of it.
struct CompiledPlan {
  planner::PlannedStep planned;
  reshard::Derivation derivation;
  reshard::Overlap overlap;
  program::Program program;
  /// The predicted collectives, per step and stage.
  std::vector<reshard::CollectiveCount> predicted;
  /// The planner's predicted memory of every stage. The Program's arena, from its memory plan,
  /// should equal `planner::programBytes` of it.
  std::vector<planner::StageMemory> predictedMemory;
  /// The functions of the program's regions, each once. A program for GPUs has `cudaKernels`
  /// instead.
  std::vector<region::KernelSource> kernels;
  cuda::CudaSources cudaKernels;
  /// Predicted kernels of several ops that the target executes op by op.
  int64_t kernelsApart = 0;
};

/// Partitions `step` by `plan`, emits the Program and runs the independent checkers on it. Also
/// compares the Program's collectives with the prediction.
///
/// `target`, `cudaTarget`: the CPU or the GPUs to form regions and emit kernels for, at most one of
/// them. Both null: a program of reference kernels.
///
/// Errors: Usage if the plan is for another model, and those of `formCudaKernels`.
/// VerificationFailed if a checker or the comparison fails, which is a bug of the compiler.
Result<CompiledPlan> compilePlan(TrainingStep &step, const planner::Plan &plan,
                                 const cpu::CpuTarget *target = nullptr,
                                 const cuda::CudaTarget *cudaTarget = nullptr);

/// Counts the collectives of one step of `program` from its instructions and schedule alone.
std::vector<reshard::CollectiveCount> countInstructions(const program::Program &program);

/// Returns one line per difference between two sorted lists; empty if they are equal.
std::string differences(const std::vector<reshard::CollectiveCount> &predicted,
                        const std::vector<reshard::CollectiveCount> &actual);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_COMPILE_H
