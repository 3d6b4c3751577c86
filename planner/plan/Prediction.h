//===- Prediction.h - The predicted time and memory of a plan -------------===//

#ifndef TBC_PLANNER_PLAN_PREDICTION_H
#define TBC_PLANNER_PLAN_PREDICTION_H

#include "planner/plan/ChunkSeconds.h"
#include "planner/reshard/Graph.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// A line of the memory table of one stage.
struct MemoryLine {
  std::string name;
  int64_t bytes = 0;
};

struct StageMemory {
  std::vector<MemoryLine> lines; // of the device
  std::vector<MemoryLine> host;  // in its share of the host's memory; empty if unused
  int64_t totalBytes() const;
  int64_t hostBytes() const;
};

/// Seconds of one step on the slowest rank, by purpose. They add up to the step time.
struct TimeSplit {
  double compute = 0;    // forward and backward kernels
  double recompute = 0;  // recomputed forward kernels
  double operands = 0;   // exposed collectives between ops (tensor parallelism)
  double data = 0;       // exposed gathers of parameters and reductions of gradients
  double pipeline = 0;   // sends and bubble
  double update = 0;     // optimizer
  double host = 0;       // copies between device and host
  double launches = 0;   // the device waits for the host to launch kernels
  double hiddenData = 0; // data communication behind compute: not part of the sum
  double total() const {
    return compute + recompute + operands + data + pipeline + update + host + launches;
  }
};

/// A part of TimeSplit.
struct TimeRow {
  const char *key;  // in plan.json
  const char *name; // in reports
  double TimeSplit::*seconds;
};
/// Returns the parts that total() adds, in this order. Example: {"operands", "between ops", ...}.
const std::vector<TimeRow> &timeRows();

/// One line of the list of collectives of a step; `seconds` is one execution.
struct CollectiveLine {
  reshard::CollectiveCount count;
  double seconds = 0;
};

/// Whether the memory for a plan suffices, the surest first. The need is an interval
/// (memoryInterval). Example: 182 to 194 GiB with the middle at 188 GiB; a limit of 190 GiB is
/// Tight.
enum class MemoryVerdict {
  Fits,      ///< the upper end of the interval is within the limit
  Tight,     ///< only the middle is
  DoesNotFit ///< not even the middle is
};

/// Returns the word of plan.json: "fits", "tight", "does not fit".
const char *name(MemoryVerdict verdict);

struct Prediction {
  double stepSeconds = 0;
  double lowSeconds = 0, highSeconds = 0;
  int64_t peakBytes = 0; // on the fullest stage, context and margins included
  int64_t lowBytes = 0, highBytes = 0;
  int64_t limitBytes = 0;
  int64_t hostBytes = 0, hostLimitBytes = 0;        // the same for a device's share of the host
  MemoryVerdict memory = MemoryVerdict::DoesNotFit; // of both
  double modelFlops = 0; // of one step over all ranks, without recomputation
  double mfu = 0;
  std::vector<StageMemory> stages;
  TimeSplit time;
  int slowestStage = 0;
  std::vector<double> stageSeconds; // forward and backward of one micro-batch, by chunk
  /// The source of the step time, by chunk; empty if the plan was written without it.
  std::vector<ChunkSeconds> chunks;
  std::vector<CollectiveLine> collectives;

  bool fits() const { return memory == MemoryVerdict::Fits; }
  /// Whether the verdict is `goal` or better.
  bool meets(MemoryVerdict goal) const { return memory <= goal; }
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PREDICTION_H
