//===- Decisions.h - The decisions of a plan ------------------------------===//
//
// Each is a type; their words stand in flags and in plan.json.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_DECISIONS_H
#define TBC_PLANNER_PLAN_DECISIONS_H

#include "planner/graph/RecomputeBlocks.h"
#include "planner/plan/OpPlacement.h"
#include "runtime/schedule/Schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

using schedule::ScheduleKind;

/// The placement of the tensors of some forward ops, equal for all of them. An op without a
/// decision splits its batch over dp, fsdp and ep and nothing else. Backward ops follow their
/// forward op. A decision that does not name cp leaves it to the plan's form of context
/// parallelism.
struct OpDecision {
  OpPlacement placement;
  std::vector<std::string> ops; // ids
};

struct ParameterDecision {
  int zero = 0;
  bool keepGathered = false;
  std::vector<std::string> zeroAxes;
  std::vector<std::string> reduceAxes;
  bool operator==(const ParameterDecision &o) const {
    return zero == o.zero && keepGathered == o.keepGathered && zeroAxes == o.zeroAxes &&
           reduceAxes == o.reduceAxes;
  }
};

struct ParameterOverride {
  ParameterDecision decision;
  std::vector<std::string> parameters; // names
};

/// Data in host memory instead of device memory, in the terms of --offload.
struct Offload {
  bool optimizer = false; ///< states and master weights, but for scalars of the whole step
  /// The graph blocks with offloaded residuals, if any. For people only; `ops` decides.
  std::optional<BlockShare> residuals;
  std::vector<std::string> ops; ///< forward ops whose kept results are on the host

  bool isNone() const { return !optimizer && !residuals && ops.empty(); }
};

/// Returns "none", "optimizer", "residuals", "residuals 3/8" or "optimizer and residuals".
std::string offloadText(const Offload &offload);
/// The inverse of offloadText(), without ops; nullopt for any other text.
std::optional<Offload> parseOffload(const std::string &text);

/// The largest prefetch depth in gathers. It exceeds the gathers of any block, so it means all.
inline constexpr int64_t maxPrefetch = 4096;

/// Returns the word of flags and of plan.json. Example: "none" without pipeline, "1f1b".
std::string scheduleWord(std::optional<ScheduleKind> schedule);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_DECISIONS_H
