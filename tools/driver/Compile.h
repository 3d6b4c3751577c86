//===- Compile.h - From a step and a plan to a checked Program --------------===//

#ifndef TBC_TOOLS_DRIVER_COMPILE_H
#define TBC_TOOLS_DRIVER_COMPILE_H

#include "codegen/cpu/FormRegions.h"
#include "codegen/cuda/FormCudaKernels.h"
#include "planner/core/Memory.h"
#include "planner/core/Plan.h"
#include "runtime/abi/Program.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// A plan made into a Program, with what the plan's own derivation said it would hold.
struct CompiledPlan {
  planner::PlannedStep planned;
  reshard::Derivation derivation;
  reshard::Overlap overlap;
  program::Program program;
  /// The collectives that the derivation promises, per step and stage.
  std::vector<reshard::CollectiveCount> predicted;
  /// The memory of every stage as the planner predicts it. The program's own is the arena of its
  /// memory plan, which planner::programBytes of this should be.
  std::vector<planner::StageMemory> predictedMemory;
  /// The functions of the program's regions, each once; of a program for GPUs cudaKernels instead.
  std::vector<cpu::KernelSource> kernels;
  cuda::CudaSources cudaKernels;
};

/// Partitions `step` as `plan` says, emits the Program and runs the independent checkers on it;
/// also checks that the Program's collectives are those predicted.
///
/// `target`, `cudaTarget`: the CPU or the GPUs, one of them at most, for which regions are formed
/// and their kernels emitted; null for a program of reference kernels alone.
///
/// Errors: Usage if the plan is for another model, and as of formCudaKernels; VerificationFailed
/// where a checker or the comparison with the prediction says no, which is a bug of the compiler.
Result<CompiledPlan> compilePlan(TrainingStep &step, const planner::Plan &plan,
                                 const cpu::CpuTarget *target = nullptr,
                                 const cuda::CudaTarget *cudaTarget = nullptr);

/// The collectives of one step of `program`, counted from its instructions and schedule alone.
std::vector<reshard::CollectiveCount> countInstructions(const program::Program &program);

/// One line per difference between two sorted lists; empty if they are equal.
std::string differences(const std::vector<reshard::CollectiveCount> &predicted,
                        const std::vector<reshard::CollectiveCount> &actual);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_COMPILE_H
