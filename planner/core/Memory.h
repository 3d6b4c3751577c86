//===- Memory.h - What every stage holds, line by line ---------------------===//

#ifndef TBC_PLANNER_CORE_MEMORY_H
#define TBC_PLANNER_CORE_MEMORY_H

#include "planner/core/Cluster.h"
#include "planner/core/Plan.h"
#include "planner/reshard/Graph.h"
#include "runtime/schedule/Schedule.h"

#include <vector>

namespace tbc::planner {

/// Bytes that are live while an op runs, beside residuals and what lasts the whole step. By op.
struct LiveBytes {
  std::vector<double> transients; // values of the block
  std::vector<double> gathered;   // parameters gathered from their stored shards
  std::vector<double> buffers;    // operands in another sharding than their value's home
};

/// Liveness over the blocks (chunk and phase) of a derived step: a value lives from its producer,
/// or if it comes from another stage from the block's begin, to its last user in the block; a
/// resharded operand from its reshard to its last user; a gathered parameter likewise, or with
/// keepGathered to the end of the stage's backward.
LiveBytes liveBytes(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation);

/// What every stage does in one step.
using StageActions = std::vector<std::vector<schedule::Action>>;

/// The most bytes of residuals that each stage holds at once, all micro-batches together: each from
/// the block that keeps it to the last that reads it.
std::vector<double> residualPeaks(const reshard::Graph &graph,
                                  const reshard::Assignment &assignment,
                                  const reshard::Derivation &derivation,
                                  const StageActions &actions);

/// The most micro-batches of which a stage has run something and not all.
int64_t mostMicroBatches(const std::vector<schedule::Action> &actions);

/// The bytes that a stage holds all through the step.
struct StaticBytes {
  double parameters = 0, master = 0, gradients = 0, state = 0, modelState = 0, inputs = 0;
};
std::vector<StaticBytes> staticBytes(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job);

/// The named lines of one stage from its parts; `inFlight` micro-batches hold inputs.
/// Context and allocator margin are added by the cluster's constants.
StageMemory memoryLines(const Cluster &cluster, const StaticBytes &fixed, double residuals,
                        int64_t inFlight, double transients, double gathered, double buffers);

/// memoryLines for every stage of a derived step, at the op where most is live.
std::vector<StageMemory> stageMemory(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job,
                                     const Cluster &cluster, const StageActions &actions);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_MEMORY_H
