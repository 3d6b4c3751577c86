//===- OpSeconds.h - Seconds of the ops of a derived step -------------------===//

#ifndef TBC_PLANNER_PREDICT_OPSECONDS_H
#define TBC_PLANNER_PREDICT_OPSECONDS_H

#include "planner/cost/Cost.h"
#include "planner/devices/StageDevices.h"
#include "planner/plan/ChunkSeconds.h"
#include "planner/reshard/Overlap.h"

#include <vector>

namespace tbc::planner {

/// Seconds per execution of every op of a derived step and of its communication.
struct OpSeconds {
  std::vector<double> kernel;
  std::vector<double> launch;      // of the host, for the kernels
  std::vector<double> operands;    // collectives between ops
  std::vector<double> gather;      // of stored parameters
  std::vector<double> reduceMicro; // of gradients, each micro-batch
  /// Of both, those at the ends of a block (BlockEnds.h); not counted above.
  std::vector<double> firstGather, lastReduce;
  /// Once per step, by stage.
  std::vector<double> reduceStep, reduceLast, lastReduceStep, parameterStep;
  /// Sends of one micro-batch, by sending chunk.
  std::vector<double> sendForward, sendBackward;
};

/// Returns the kernelShares() of `graph` on `devices`.
std::vector<KernelShare> sharesOf(const reshard::Graph &graph, const StageDevices &devices);

/// `isInOrder`: the ranks of a sequence have its parts in order, not zigzag.
/// Writes the communication of each chunk to `work`, if it is given: one entry per chunk. `shares`:
/// sharesOf() `graph`, or null: computed here.
OpSeconds opSeconds(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation, const StageDevices &devices,
                    bool isInOrder, const reshard::Overlap &overlap = {},
                    std::vector<ChunkSeconds> *work = nullptr,
                    const std::vector<KernelShare> *shares = nullptr);

/// Returns the first chunk of each stage. It counts the work once per step.
std::vector<int> firstChunks(const reshard::Assignment &assignment);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_OPSECONDS_H
