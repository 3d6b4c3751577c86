//===- Timeline.h - The predicted step as slices, sends and counters ------===//
//
// Plain C++. What `tbc timeline` draws, in whole nanoseconds. The actions of the stages and their
// times are those of the prediction (simulatedStepTime). Within an action the prediction has sums
// alone, and this file puts them in an order:
//
//   copies of residuals | waits for collectives between ops | kernels by class | wait for data
//
// Gathers of parameters and reductions of gradients begin with the kernels, so the wait at the end
// is their exposed part. An update waits for reductions, copies states, runs the optimizer, and
// waits for gathers.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_TIMELINE_H
#define TBC_PLANNER_VIEW_TIMELINE_H

#include "planner/plan/Plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// The threads of each stage. Sends follow, on as many threads as run at once.
enum class StageThread { Compute, WithinNode, BetweenNodes, Host, Sends };
inline constexpr int numStageThreads = 5;

struct Slice {
  int thread = 0; // a StageThread, or above it a further thread of sends
  int64_t beginNs = 0, endNs = 0;
  std::string name;
  const char *category = ""; // "step", "action", "kernel", "wait", "communication", "copy", "send"
  int64_t microBatch = -1;
  int chunk = -1;
  const char *part = ""; // name(StagePart)
  std::string axes;
  int64_t count = 0; // of kernels, collectives or copies
  double bytes = 0;
};

/// The arrow from a send to the action that needs it.
struct SendFlow {
  size_t slice = 0;     // the send, on the sending stage
  int stage = 0;        // the receiving one
  int64_t arriveNs = 0; // begin of the receiving action
};

/// Memory of a device from this moment on.
struct MemoryPoint {
  int64_t atNs = 0;
  int64_t fixed = 0;   // parameters, gradients, states, context, margin
  int64_t kept = 0;    // the lines "inputs" and "saved residuals"
  int64_t working = 0; // the lines "transients", "gathered parameters" and "collective buffers"
  int64_t total() const { return fixed + kept + working; }
};

struct StageTimeline {
  std::vector<Slice> slices; // parents before their children
  std::vector<SendFlow> flows;
  std::vector<MemoryPoint> memory; // ascending
  int numThreads = numStageThreads;
};

struct StepTimeline {
  int64_t stepNs = 0;
  bool sendsCrossNodes = false;
  std::vector<StageTimeline> stages;
};

/// The most actions of a step that is drawn.
inline constexpr int64_t mostActions = 200000;

/// Returns the predicted step of `plan`. Errors: Usage for a plan that cannot be drawn
/// (whyNotDrawable), whose chunks give another step time than its step_seconds, or with more than
/// mostActions actions.
/// Example: 2 stages with 4 micro-batches have 16 actions and 2 updates.
Result<StepTimeline> timelineOf(const Plan &plan);

/// Returns the trace of `ranks` in the format of chrome://tracing, which Perfetto reads: a process
/// per rank, with the slices of its stage. Without `ranks`: the first rank of each stage, which
/// stands for all of it. `more`: further events, without their braces. Source: Duan, "Trace Event
/// Format", 2016. Errors: Usage for more than 2 million events.
Result<std::string> traceJson(const StepTimeline &timeline, const Plan &plan,
                              const std::vector<int64_t> &ranks,
                              const std::vector<std::string> &more = {});

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_TIMELINE_H
