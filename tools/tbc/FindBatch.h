//===- FindBatch.h - Find the largest batch that fits ---------------------------===//

#ifndef TBC_TOOLS_TBC_FINDBATCH_H
#define TBC_TOOLS_TBC_FINDBATCH_H

#include "planner/search/Search.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::cli {

/// The job, its devices and the pinned decisions.
struct BatchQuestion {
  const reshard::Graph &graph;
  const planner::Cluster &cluster;
  const planner::Pins &pins;
  std::string modelFile; // path for this process
  /// Whether to confirm the model's answer by trial runs on this machine.
  bool isTried = false;
};

struct FoundBatch {
  int64_t samples = 0; // per step, over all devices
  planner::Pins pins;  // those of the question, and no accumulation
  /// Text for the user: memory of a larger batch, and of the trial.
  std::vector<std::string> assumptions;
};

/// Finds the largest global batch with a plan that fits without accumulation. A pinned pipeline
/// uses as many micro-batches as stages. Batches are multiples of the unit that devices can share:
/// data ranks x stages of a pinned mesh, else the devices. Memory grows with samples, so the search
/// doubles until a batch does not fit, then bisects. Example: 8, 16, 32 fit, 64 does not, 48 fits,
/// 56 does not: 48.
///
/// With trials, the batch shrinks until every rank of a two-step run on this machine stays within
/// the plan's limit. `tell` receives progress messages.
///
/// Errors: those of planning; NoFeasiblePlan if the smallest batch does not fit; Usage if the
/// machine is too small for a trial; Other if a trial fails for another reason than memory.
Result<FoundBatch> findBatch(const BatchQuestion &question, const planner::Job &job,
                             const std::function<void(const std::string &)> &tell);

/// The memory of a trial run's ranks.
struct TrialOutcome {
  bool fits = false;
  // These describe the rank with the least headroom, or the largest excess.
  int64_t peakBytes = 0; // resident
  int64_t limitBytes = 0;
  int64_t predictedBytes = 0;
};

/// Compiles `plan` and runs two steps on this machine, with synthetic data and random weights. The
/// ranks are separate processes, ended as soon as one exceeds the memory of its stage's devices. A
/// process killed by the system for lack of memory counts as not fitting. Errors: Usage if the
/// predicted memory exceeds this machine's free memory; Other if compilation or the run fails, with
/// its output.
Result<TrialOutcome> tryPlan(const planner::Plan &plan, const std::string &modelFile);

/// Sets the program that trials execute, by default the running one: within Python that is no tbc.
void setTrialProgram(const std::string &path);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_FINDBATCH_H
