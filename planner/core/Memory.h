//===- Memory.h - What every stage holds, line by line ---------------------===//

#ifndef TBC_PLANNER_CORE_MEMORY_H
#define TBC_PLANNER_CORE_MEMORY_H

#include "planner/core/Cluster.h"
#include "planner/core/Plan.h"
#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// Bytes that are live while an op runs, beside residuals and what lasts the whole step. By op.
struct LiveBytes {
  std::vector<double> transients; // values of the block
  std::vector<double> gathered;   // parameters gathered from their stored shards
  std::vector<double> buffers;    // operands in another sharding than their value's home
};

/// Liveness over the blocks (stage and phase) of a derived step: a value lives from its producer,
/// or if it comes from another stage from the block's begin, to its last user in the block; a
/// resharded operand from its reshard to its last user; a gathered parameter likewise, or with
/// keepGathered to the end of the stage's backward.
LiveBytes liveBytes(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation);

/// Bytes of one micro-batch's residuals, by stage.
std::vector<double> residualBytes(const reshard::Graph &graph, int numStages,
                                  const reshard::Derivation &derivation);

/// The bytes that a stage holds all through the step.
struct StaticBytes {
  double parameters = 0, master = 0, gradients = 0, state = 0, modelState = 0, inputs = 0;
};
std::vector<StaticBytes> staticBytes(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job);

/// The named lines of one stage from its parts; `inFlight` micro-batches hold residuals and inputs.
/// Context and allocator margin are added by the cluster's constants.
StageMemory memoryLines(const Cluster &cluster, const StaticBytes &fixed, double residuals,
                        int64_t inFlight, double transients, double gathered, double buffers);

/// memoryLines for every stage of a derived step, at the op where most is live.
std::vector<StageMemory> stageMemory(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job,
                                     const Cluster &cluster, const std::vector<int64_t> &inFlight);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_MEMORY_H
