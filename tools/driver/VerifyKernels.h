//===- VerifyKernels.h - Compare the kernels of a run with the reference kernels -===//

#ifndef TBC_TOOLS_DRIVER_VERIFYKERNELS_H
#define TBC_TOOLS_DRIVER_VERIFYKERNELS_H

#include "runtime/cpu/CheckedMachine.h"
#include "tools/driver/Shrink.h"
#include "tools/driver/Verify.h"

#include <memory>
#include <string>
#include <vector>

namespace tbc::driver {

/// The sizes at which a kernel was compared.
enum class KernelSizes {
  AsIs,   // the Program's own
  Shrunk, // of the same plan with smaller factors, compiled anew
  Other,  // of the same plan with factors of 1, odd ones and ones with a tail
  NotRun  // not executed here
};
const char *name(KernelSizes sizes);

/// The executions of each kernel that are compared at one size. All ranks, micro-batches and layers
/// together execute a kernel thousands of times.
inline constexpr int64_t comparedExecutions = 8;

struct KernelLine {
  cpu::KernelComparison comparison;
  KernelSizes sizes = KernelSizes::AsIs;
};

/// The executable kernels of one Program: native ones, and those compiled from its regions.
struct ProgramKernels {
  std::shared_ptr<const cpu::CompiledKernels> compiled;
  std::shared_ptr<cpu::KernelComparisons> comparisons;
  /// Returns backends with native kernels and compiled regions; each kernel is compared with the
  /// reference as it runs.
  runtime::RankMachines machines() const;
};

/// Compiles a Program's region kernels for this machine and loads them. Errors: those of
/// `compileKernels`; Usage if this machine has no target.
Result<ProgramKernels> compileHere(const CompiledPlan &compiled);

/// Compiles `plan` for this machine's CPU. Errors: those of `compilePlan`.
Result<CompiledPlan> compileForThisMachine(TrainingStep &step, const planner::Plan &plan);

/// Runs one step of the plan at other sizes on all ranks, with the kernels of a run, and compares
/// each kernel with the reference. Every resizable factor is 1, then 2, 3 and 17 times the number
/// of its parts; 17 is one more than a vector of 16. Float inputs are in `range`. `notes` lists
/// skipped sizes: those refused by the model, and those after `mayGoOn` (the time budget) returned
/// false. Errors: those of compiling and executing; an op that does not fit a size is not an error.
Result<std::vector<KernelLine>>
verifyOtherSizes(const TrainingStep &step, const planner::Plan &plan,
                 const ShrinkOptions &shrinkOptions, uint64_t seed, const InputRange &range,
                 const std::function<bool()> &mayGoOn, std::vector<std::string> &notes);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_VERIFYKERNELS_H
