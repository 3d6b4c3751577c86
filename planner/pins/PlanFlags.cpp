//===- PlanFlags.cpp - The decisions of a plan as flags of tbc plan --------===//

#include "planner/pins/PlanFlags.h"

#include "planner/pins/Conditions.h"
#include "runtime/schedule/Schedule.h"

namespace tbc::planner {

std::string literalGlob(const std::string &name) {
  std::string glob;
  for (char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\')
      glob += '\\';
    glob += c;
  }
  return glob;
}

static std::string meshFlag(const MeshShape &mesh) {
  std::string text;
  for (const auto &[axis, size] : mesh.axes())
    if (size > 1)
      text += (text.empty() ? "" : ",") + std::string(axis) + "=" + std::to_string(size);
  return text.empty() ? "dp=1" : text;
}

/// Returns a mode with a share of blocks as in flags. Example: "selective:8".
static std::string withShare(const std::string &mode, const BlockShare &share) {
  return share.isAll() ? mode : mode + ":" + std::to_string(share.blocks);
}

static std::string offloadFlag(const Offload &offload) {
  if (!offload.residuals)
    return offload.optimizer ? "optimizer" : "none";
  return withShare(offload.optimizer ? "all" : "residuals", *offload.residuals);
}

static std::string numberFlag(int64_t number) {
  return number == 0 ? "none" : std::to_string(number);
}

/// Adds the recomputed ops of a plan whose mode recomputes none: ops inside of the kernels of
/// backward, which --recompute auto takes and --recompute none does not.
static void addRecomputedOps(const Plan &plan, std::vector<std::string> &flags) {
  if (plan.recompute.mode == RecomputeMode::None)
    for (const std::string &op : plan.recomputeOps)
      flags.insert(flags.end(), {"--pin", literalGlob(op) + "=recompute"});
}

/// Adds schedule, chunks and the beginnings of stages.
static void addPipeline(const Plan &plan, std::vector<std::string> &flags) {
  if (plan.mesh.pp == 1)
    return;
  flags.insert(flags.end(), {"--schedule", scheduleWord(plan.schedule)});
  if (!plan.chunkStage.empty()) {
    const int stages = int(plan.mesh.pp), each = int(plan.chunkStage.size()) / stages;
    const bool isVee = plan.chunkStage == schedule::Pipeline::vee(stages, each).chunkStage;
    flags.insert(flags.end(),
                 {"--virtual-stages", std::to_string(each), "--placement", isVee ? "v" : "loop"});
  }
  for (size_t stage = 1; stage < plan.stages.size(); ++stage)
    flags.insert(flags.end(), {"--pin", literalGlob(plan.stages[stage]) + "=begin"});
}

std::vector<std::string> flagsOf(const Plan &plan) {
  const ParameterDecision &data = plan.parameterDefault;
  std::vector<std::string> flags = {"--mesh", meshFlag(plan.mesh)};
  if (data.keepGathered) // --zero 3 gathers again in backward
    flags.insert(flags.end(), {"--strategy", zeroWord({data.zero, data.keepGathered})});
  else
    flags.insert(flags.end(), {"--zero", std::to_string(data.zero)});
  flags.insert(flags.end(),
               {"--micro-batch", std::to_string(plan.microBatch), "--recompute",
                withShare(name(plan.recompute.mode), plan.recompute.share), "--offload",
                offloadFlag(plan.offload), "--bucket-size", numberFlag(plan.overlap.bucketBytes),
                "--gather-size", numberFlag(plan.overlap.gatherBytes), "--prefetch",
                numberFlag(plan.overlap.prefetch)});
  if (plan.mesh.cp > 1)
    flags.insert(flags.end(), {"--context", reshard::name(plan.context), "--sequence-order",
                               plan.zigzag ? "zigzag" : "contiguous"});
  addPipeline(plan, flags);
  addRecomputedOps(plan, flags);
  return flags;
}

} // namespace tbc::planner
