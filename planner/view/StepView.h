//===- StepView.h - The schedule and the memory of a step over time --------===//
//
// Plain C++. plan.json has the predicted seconds of every chunk and one table of memory per stage.
// The schedule's generator gives the order of all actions, and predict/Time.h their times. One
// assumption is added: residuals of a micro-batch grow over its forward and shrink over its
// backward (or its wgrad, if backward is split). All other memory stays the same during the step.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_STEPVIEW_H
#define TBC_PLANNER_VIEW_STEPVIEW_H

#include "planner/plan/Plan.h"
#include "runtime/schedule/Schedule.h"

#include <utility>
#include <vector>

namespace tbc::planner {

/// Residuals of a stage over the step: points (seconds, share of the most), joined by lines. The
/// share is of the bytes of the lines "inputs" and "saved residuals", and 1 at the peak.
struct KeptCurve {
  std::vector<std::pair<double, double>> points;
  double peakSeconds = 0; // the first moment with share 1
  bool isSliced = false;  // points are the largest values of equal slices of the step
};

struct StepView {
  schedule::Pipeline pipeline;
  std::vector<schedule::ChunkTimes> times; // by chunk
  int64_t microBatches = 1;          // of the timeline; fewer than in the step if those are many
  schedule::Timeline timeline;       // without the update
  double wholeSeconds = 0;           // makespan of all micro-batches
  double endSeconds = 0;             // of the step after its last backward
  std::vector<double> bubbleSeconds; // by stage, of all micro-batches
  std::vector<KeptCurve> kept;       // by stage
};

/// The most events of a timeline, and points of all curves.
inline constexpr int64_t mostEvents = 8000, mostPoints = 8000;

/// Returns the predicted seconds of each chunk; 0 in a plan without prediction.chunks. Sends within
/// a stage take none.
std::vector<schedule::ChunkTimes> chunkTimes(const Plan &plan);

/// Returns the step of `plan`.
StepView stepView(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_STEPVIEW_H
