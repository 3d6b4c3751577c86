//===- Memory.h - What every stage holds, line by line ---------------------===//

#ifndef TBC_PLANNER_CORE_MEMORY_H
#define TBC_PLANNER_CORE_MEMORY_H

#include "planner/core/Cluster.h"
#include "planner/core/Plan.h"
#include "planner/core/StageDevices.h"
#include "planner/reshard/Overlap.h"
#include "runtime/schedule/Schedule.h"

#include <utility>
#include <vector>

namespace tbc::planner {

/// Bytes that are live while an op runs, beside residuals and what lasts the whole step. By op.
struct LiveBytes {
  std::vector<double> transients; // values of the block
  std::vector<double> gathered;   // parameters gathered from their stored shards
  std::vector<double> buffers;    // operands in another sharding than their value's home
};

/// When most is live of what is there for each op (stepBuffers).
LiveBytes liveBytes(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation, const reshard::Overlap &overlap = {});

/// What every stage does in one step.
using StageActions = std::vector<std::vector<schedule::Action>>;

/// The bytes that a stage holds all through the step, and (inputs) those of one micro-batch.
struct StaticBytes {
  double parameters = 0, master = 0, gradients = 0, state = 0, modelState = 0, inputs = 0;
  double hostMaster = 0, hostState = 0; // of master and state, what lies on the host
};
std::vector<StaticBytes> staticBytes(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job);

/// The named lines of every stage of a derived step: what the program's memory plan will have,
/// buffer by buffer and laid out as there; then context and allocator margin by the
/// constants of the stage's cluster. Inputs, residuals and gathered parameters that are kept for
/// backward are those of all micro-batches in flight. Transients, gathered parameters and
/// collective buffers are those at the instruction where most is live, holes between them counted
/// as transients; what an update takes beyond all that, in the place of what lives for a
/// micro-batch, too.
std::vector<StageMemory> stageMemory(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation,
                                     const reshard::Overlap &overlap, const Job &job,
                                     const StageDevices &devices, const StageActions &actions);

/// The least and the most that a stage may take: what the program owns is exact, context and margin
/// are as sure as the cluster file says, and neither is less than nothing.
std::pair<int64_t, int64_t> memoryInterval(const StageMemory &memory, const Cluster &cluster);

/// `cluster` with device context and allocator margin at the upper ends of their intervals, on
/// which a plan whose middle fits is one that fits on `cluster`. With a context of 1.2 GiB +- 0.4
/// GiB and a margin of 3 % +- 2 % these are 1.6 GiB and 5 %, both sure.
Cluster atUpperEnd(const Cluster &cluster);

/// What the program owns on the device: all lines but device context and allocator margin.
int64_t programBytes(const StageMemory &memory);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_MEMORY_H
