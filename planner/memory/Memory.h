//===- Memory.h - Memory of every stage, line by line ---------------------===//

#ifndef TBC_PLANNER_MEMORY_MEMORY_H
#define TBC_PLANNER_MEMORY_MEMORY_H

#include "planner/devices/Cluster.h"
#include "planner/devices/StageDevices.h"
#include "planner/plan/Plan.h"
#include "planner/reshard/Kernels.h"
#include "planner/reshard/Overlap.h"
#include "runtime/schedule/Schedule.h"

#include <utility>
#include <vector>

namespace tbc::planner {

/// Live bytes while an op runs, by op, without residuals and data of the whole step.
struct LiveBytes {
  std::vector<double> transients; // values of the block
  std::vector<double> gathered;   // parameters gathered from their stored shards
  std::vector<double> buffers;    // operands in another sharding than their value's home
};

/// Returns the peak over the instructions of each op (stepBuffers).
LiveBytes liveBytes(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation, const reshard::Overlap &overlap = {});

/// The actions of every stage in one step.
using StageActions = std::vector<std::vector<schedule::Action>>;

/// The bytes held by a stage throughout the step, and (`inputs`) those of one micro-batch.
struct StaticBytes {
  double parameters = 0, master = 0, gradients = 0, state = 0, modelState = 0, inputs = 0;
  double hostMaster = 0, hostState = 0; // the parts of master and state on the host
  double castShards = 0;                // of parameters: sharded, with a master copy
};
std::vector<StaticBytes> staticBytes(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation, const Job &job);

/// Returns the workspace in bytes of op `op` with `strategy` on a device of `cluster`: of a
/// library's kernel, or 0. Example: the backward of routed experts sorts its tokens there.
int64_t workspaceBytes(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                       const Cluster &cluster);

/// Returns the bytes of the operands of matmul `op` in 8 bits, if it isInFp8() in a program of tbc,
/// or 0. Programs share them between all matmuls, beside the memory plan.
int64_t fp8Bytes(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                 const Cluster &cluster);

/// The operand of the cross entropy on a rank, for one micro-batch.
struct Logits {
  int op = -1; // that sums over the classes; -1: none
  int64_t elements = 0, elementBytes = 0;
};
Logits logitsOf(const reshard::Graph &graph, const reshard::Derivation &derivation);

/// Returns the named memory lines of every stage of a derived step. They follow the program's
/// memory plan, buffer by buffer and with the same layout, then add context and allocator margin
/// from the stage's cluster.
///
/// - Inputs, residuals and gathered parameters kept for backward count once per micro-batch in
///   flight.
/// - Transients, gathered parameters and collective buffers are taken at the peak instruction.
///   Holes between them count as transients.
/// - The kernel workspace is that of the largest kernel of the stage (GraphOp::workspace), if the
///   cluster's kernels have one. That of matmuls in fp8 is of the largest of them (fp8Bytes).
/// - An update reuses the memory of micro-batch data; its excess over that counts as well.
///
/// `kernels`: as stepBuffers.
std::vector<StageMemory> stageMemory(const reshard::Graph &graph,
                                     const reshard::Assignment &assignment,
                                     const reshard::Derivation &derivation,
                                     const reshard::Overlap &overlap, const Job &job,
                                     const StageDevices &devices, const StageActions &actions,
                                     const reshard::BlockKernels *kernels = nullptr);

/// Returns the lower and upper end of a stage's memory in bytes. The program's share is exact;
/// context and margin have the uncertainty of the cluster file, and are at least 0.
std::pair<int64_t, int64_t> memoryInterval(const StageMemory &memory, const Cluster &cluster);

/// Returns `cluster` with device context and allocator margin at the upper ends of their intervals.
/// A plan whose middle estimate fits there fits on `cluster`. Example: a context of 1.2 GiB +- 0.4
/// GiB and a margin of 3 % +- 2 % become 1.6 GiB and 5 %, both exact.
Cluster atUpperEnd(const Cluster &cluster);

/// Returns the program's bytes on the device: all lines except kernel workspace, operands in fp8,
/// device context and allocator margin.
int64_t programBytes(const StageMemory &memory);

} // namespace tbc::planner

#endif // TBC_PLANNER_MEMORY_MEMORY_H
