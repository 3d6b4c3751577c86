//===- Nsight.h - Exports of Nsight Systems --------------------------------===//
//
// Plain C++ and SQLite. Reads what `nsys export --type sqlite` writes, by the tables of NVIDIA's
// "SQLite Export Schema Reference": CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and _RUNTIME,
// NVTX_EVENTS and StringIds.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_NSIGHT_H
#define TBC_PLANNER_VIEW_NSIGHT_H

#include "planner/plan/Plan.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace tbc::planner {

/// Whether the file at `path` is an SQLite database, by its first 16 bytes.
bool isSqlite(const std::string &path);

/// Whether `text` names the range of a step: "step", "train_step", "training step", "iteration",
/// "iter" or "ProfilerStep", in any case, and optionally a number. Example: "step 12".
bool isStepRange(const std::string &text);

/// Returns the kind of action of an NVTX range: "forward", "backward", "weight" (wgrad) or "update"
/// (also "optimizer"), by the begin of its text, in any case; else "".
/// Example: "Optimizer.step#AdamW.step" is "update".
std::string actionOfRange(const std::string &text);

/// Returns the last step of each process in the database at `path`, in the form of
/// `tbc run --profile`.
///
/// 1. A step is an NVTX range by isStepRange(). A kernel or copy belongs to it, if its process
///    launched it meanwhile, from any thread.
/// 2. NCCL's kernels are collectives by their names. Another kernel has the action of the outermost
///    NVTX range that its process was in at the launch. Example: a forward within "backward" is
///    recompute, and counts as backward. Without such ranges kernels have no action.
/// 3. Processes are ranks in the order of their devices, from `firstRank` on. It may be left out
///    if there are as many processes as ranks.
///
/// Errors: Usage, if the database has no kernels, no step, or not the ranks of `plan`.
Result<nlohmann::json> fromNsight(const std::string &path, const Plan &plan,
                                  std::optional<int64_t> firstRank);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_NSIGHT_H
