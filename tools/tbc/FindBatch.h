//===- FindBatch.h - The largest batch that fits --------------------------------===//

#ifndef TBC_TOOLS_TBC_FINDBATCH_H
#define TBC_TOOLS_TBC_FINDBATCH_H

#include "planner/core/Search.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::cli {

/// What is to be trained, where, and what is decided already.
struct BatchQuestion {
  const reshard::Graph &graph;
  const planner::Cluster &cluster;
  const planner::Pins &pins;
  std::string modelFile; // as this process opens it
  /// Whether what the model says fits is run here as well.
  bool isTried = false;
};

struct FoundBatch {
  int64_t samples = 0; // of a step, over all devices
  planner::Pins pins;  // those of the question, and that there is no accumulation
  /// For people: what more would take, and what a trial took.
  std::vector<std::string> assumptions;
};

/// The largest global batch for which there is a plan that fits without accumulation (in a pinned
/// pipeline: with as many micro-batches as it has stages), in multiples of what the devices can
/// share out: the data ranks of a pinned mesh times its stages, else the devices. More samples
/// never take less memory, so it is doubled until nothing fits and then bisected. Where it is to be
/// tried, less is taken until no rank of a run of two steps on this machine takes more memory than
/// the plan allows.
///
/// `tell` is told what is being done. Errors: those of planning; NoFeasiblePlan where not even the
/// least batch fits; Usage where the machine is too small for a trial; Other for a trial that
/// fails for another reason than memory.
Result<FoundBatch> findBatch(const BatchQuestion &question, const planner::Job &job,
                             const std::function<void(const std::string &)> &tell);

/// What the ranks of a run took.
struct TrialOutcome {
  bool fits = false;
  // Of the rank that came nearest to what it may hold, or most beyond:
  int64_t peakBytes = 0; // resident
  int64_t limitBytes = 0;
  int64_t predictedBytes = 0;
};

/// Compiles `plan` and runs two steps of it here with synthetic data and drawn weights, in
/// processes of their own that are ended as soon as one takes more than the devices of its stage
/// have. What the system ends for want of memory does not fit.
/// Errors: Usage where its ranks do not fit into this machine's free memory as predicted; Other
/// where compilation or the run fails, with what it said.
Result<TrialOutcome> tryPlan(const planner::Plan &plan, const std::string &modelFile);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_FINDBATCH_H
