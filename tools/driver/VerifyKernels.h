//===- VerifyKernels.h - The kernels that a run uses, on this machine -------===//

#ifndef TBC_TOOLS_DRIVER_VERIFYKERNELS_H
#define TBC_TOOLS_DRIVER_VERIFYKERNELS_H

#include "runtime/cpu/CheckedMachine.h"
#include "tools/driver/Shrink.h"
#include "tools/driver/Verify.h"

#include <memory>
#include <string>
#include <vector>

namespace tbc::driver {

/// On which sizes a kernel was compared.
enum class KernelSizes {
  AsIs,   // the Program's own
  Shrunk, // of the same plan with smaller factors, compiled anew
  Other,  // of the same plan with factors of 1, odd ones and such with a tail, compiled anew
  NotRun  // nowhere here
};
const char *name(KernelSizes sizes);

struct KernelLine {
  cpu::KernelComparison comparison;
  KernelSizes sizes = KernelSizes::AsIs;
};

/// The kernels of one Program, ready to be executed: native ones, and those compiled of its
/// regions.
struct ProgramKernels {
  std::shared_ptr<const cpu::CompiledKernels> compiled;
  std::shared_ptr<cpu::KernelComparisons> comparisons;
  /// Native kernels with compiled regions, each compared with the reference kernels as it is
  /// executed.
  runtime::RankMachines machines() const;
};

/// Compiles the regions' kernels of a Program, for this machine, and loads them. Errors: as of
/// compileKernels; Usage, this machine has no target.
Result<ProgramKernels> compileHere(const CompiledPlan &compiled);

/// Compiles `plan` for this machine's CPU. Errors: as of compilePlan.
Result<CompiledPlan> compileForThisMachine(TrainingStep &step, const planner::Plan &plan);

/// Executes one step of the plan at other sizes on all ranks, with the kernels that a run would
/// use, and compares each of them with the reference kernels: every resizable factor is 1, then 2,
/// 3 and 17 times the number of its parts (one more than vectors of 16 hold). Sizes that the model
/// does not allow are left out, and said in `notes`; so is what the budget does not allow, which is
/// `mayGoOn`. Errors: none of an op that does not fit; those of compiling and executing.
Result<std::vector<KernelLine>>
verifyOtherSizes(const TrainingStep &step, const planner::Plan &plan, int64_t ranks, uint64_t seed,
                 const std::function<bool()> &mayGoOn, std::vector<std::string> &notes);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_VERIFYKERNELS_H
