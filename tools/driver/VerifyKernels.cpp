//===- VerifyKernels.cpp - Compare the kernels of a run with the reference kernels -===//

#include "tools/driver/VerifyKernels.h"

#include "codegen/cpu/CompileKernels.h"
#include "codegen/cpu/KernelCache.h"

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

namespace tbc::driver {

const char *name(KernelSizes sizes) {
  switch (sizes) {
  case KernelSizes::AsIs:
    return "as is";
  case KernelSizes::Shrunk:
    return "shrunk";
  case KernelSizes::Other:
    return "other sizes";
  case KernelSizes::NotRun:
    return "not run";
  }
  return "";
}

runtime::RankMachines ProgramKernels::machines() const {
  cpu::CheckOptions options;
  options.native.compiled = compiled;
  options.comparisons = comparisons;
  return [options](int64_t) -> Result<runtime::MachineMaker> { return checkedMachine(options); };
}

Result<CompiledPlan> compileForThisMachine(TrainingStep &step, const planner::Plan &plan) {
  auto target = cpu::findCpuTarget("native");
  if (!target)
    return target.error();
  return compilePlan(step, plan, &*target);
}

Result<ProgramKernels> compileHere(const CompiledPlan &compiled) {
  ProgramKernels kernels;
  kernels.comparisons = std::make_shared<cpu::KernelComparisons>(comparedExecutions);
  if (compiled.kernels.empty())
    return kernels;
  auto target = cpu::findCpuTarget("native");
  if (!target)
    return target.error();
  std::string path = (std::filesystem::temp_directory_path() / "tbc-verify-XXXXXX").string();
  int descriptor = mkstemp(path.data());
  if (descriptor < 0)
    return Error{ErrorCode::Other, "cannot make a temporary file like " + path};
  ::close(descriptor);
  constexpr const char *anyHash = "verify";
  std::optional<cpu::KernelCache> cache = cpu::KernelCache::ofUser();
  auto written =
      cpu::compileKernels(compiled.kernels, *target, anyHash, path, cache ? &*cache : nullptr);
  Status status = written ? Status::ok() : Status(written.error());
  if (status) {
    auto file = program::OpenFile::open(path);
    auto loaded = file ? cpu::CompiledKernels::open(*file, anyHash)
                       : Result<std::shared_ptr<const cpu::CompiledKernels>>(file.error());
    if (loaded)
      kernels.compiled = *loaded;
    else
      status = loaded.error();
  }
  // Loaded libraries stay usable after their file is removed.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!status)
    return status.error();
  return kernels;
}

/// Runs one step of `plan` on all ranks and compares every kernel.
static Result<std::vector<cpu::KernelComparison>> compareKernels(TrainingStep &step,
                                                                 const planner::Plan &plan,
                                                                 uint64_t seed,
                                                                 const InputRange &range) {
  auto compiled = compileForThisMachine(step, plan);
  if (!compiled)
    return compiled.error();
  auto kernels = compileHere(*compiled);
  if (!kernels)
    return kernels.error();
  auto data = makeRunData(step, plan, 1, kernels::Arith::Native, seed, range);
  if (!data)
    return data.error();
  auto run = runParallel(compiled->program, *data, kernels::Arith::Native, kernels->machines());
  if (!run)
    return run.error();
  return kernels->comparisons->list();
}

Result<std::vector<KernelLine>>
verifyOtherSizes(const TrainingStep &step, const planner::Plan &plan,
                 const ShrinkOptions &shrinkOptions, uint64_t seed, const InputRange &range,
                 const std::function<bool()> &mayGoOn, std::vector<std::string> &notes) {
  std::vector<KernelLine> lines;
  for (int64_t each : {1, 2, 3, 17}) {
    std::string sizes = "sizes of " + std::to_string(each) + " per part";
    if (!mayGoOn()) {
      notes.push_back(sizes + ": not run, the budget is used up");
      continue;
    }
    auto other = shrinkTo(step, plan, shrinkOptions, each);
    if (!other) {
      notes.push_back(sizes + ": not run, " + other.error().message);
      continue;
    }
    auto compared = compareKernels(*other->step, other->plan, seed, range);
    if (!compared) {
      notes.push_back(sizes + ": not run, " + compared.error().message);
      continue;
    }
    for (cpu::KernelComparison &one : *compared)
      lines.push_back({std::move(one), KernelSizes::Other});
  }
  return lines;
}

} // namespace tbc::driver
