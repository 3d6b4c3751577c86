//===- ChunkSeconds.h - Where the predicted seconds of a chunk go ---------===//
//
// Plain C++. The key prediction.chunks of plan.json: everything that the prediction of the step
// time is made of. So a reader without the model draws the predicted step (predict/Time.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_CHUNKSECONDS_H
#define TBC_PLANNER_PLAN_CHUNKSECONDS_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tbc::planner {

/// Seconds of one stage, or of one chunk of a stage: per micro-batch unless "step" is in the name.
struct StageSeconds {
  double forward = 0, backward = 0;                 // kernels
  double recompute = 0;                             // recomputed kernels, in the backward
  double operandsForward = 0, operandsBackward = 0; // collectives between ops
  double gatherForward = 0, gatherBackward = 0;     // gathers of stored parameters
  double reduceMicro = 0;                           // reductions of gradients, each micro-batch
  // Of both, those at the ends of a block: the first gather and the last reduction. Not counted
  // above.
  double firstGatherForward = 0, firstGatherBackward = 0, lastReduceMicro = 0;
  double reduceStep = 0;                    // of accumulated gradients
  double reduceLast = 0;                    // the same, begun in the last backward
  double lastReduceStep = 0;                // of these the last one, not counted above
  double parameterStep = 0;                 // gathers after the update, the step's scalars
  double updateStep = 0;                    // the optimizer's kernels
  double sendForward = 0, sendBackward = 0; // to the next stage, to the previous one
  /// Both ranks of a message between stages are held by the executor.
  double messageForward = 0, messageBackward = 0;
  // The wgrad phase, if the schedule splits it from backward; then not counted above.
  double weight = 0, recomputeWeight = 0; // kernels
  double operandsWeight = 0;              // collectives between ops
  double dataWeight = 0;                  // gathers of parameters and reductions of gradients
  /// Copies between device and host, of residuals by phase and of optimizer states.
  double hostForward = 0, hostBackward = 0, hostWeight = 0, hostStep = 0;
  /// The host's time to launch the kernels of a phase. The device waits for as much of it as the
  /// phase's other parts do not hide.
  double launchForward = 0, launchBackward = 0, launchWeight = 0;

  void operator+=(const StageSeconds &o);
};

/// One of the numbers of StageSeconds.
using StagePart = double StageSeconds::*;

struct NamedStagePart {
  const char *name; // in plan.json
  StagePart part;
};
/// All of them. Example: {"operands_forward", &StageSeconds::operandsForward}.
const std::vector<NamedStagePart> &stageParts();
/// Returns the name of plan.json.
const char *name(StagePart part);

/// Kernels of one class, collectives of one kind over the same axes, or copies: added up over one
/// part of a chunk. Example: 48 all_reduces over tp of 604 MB together, 7.1 ms.
struct WorkSum {
  std::string name; // "matmul", "all_reduce", "optimizer", "copy"
  std::string axes; // of a collective, joined by "+"; else empty
  int64_t count = 0;
  double bytes = 0; // of messages and copies
  double seconds = 0;
  bool operator==(const WorkSum &o) const {
    return name == o.name && axes == o.axes && count == o.count && bytes == o.bytes &&
           seconds == o.seconds;
  }
};

/// The seconds of one chunk, and the work behind each of them. The work of a part adds up to its
/// seconds, but for rounding.
struct ChunkSeconds {
  StageSeconds seconds;
  std::map<std::string, std::vector<WorkSum>> work; // by name of the part; sorted by name and axes

  void add(StagePart part, const std::string &name, const std::string &axes, double bytes,
           double seconds);
  /// Returns the work of `part`, or none.
  const std::vector<WorkSum> &of(StagePart part) const;
  bool operator==(const ChunkSeconds &o) const;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_CHUNKSECONDS_H
