//===- PlanView.h - A plan as the content of a report ----------------------===//
//
// Plain C++. The view model of `tbc report`: everything that the page shows, computed from a Plan
// alone. The page draws these numbers, and their sums, shares and differences.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_PLANVIEW_H
#define TBC_PLANNER_VIEW_PLANVIEW_H

#include "planner/plan/Plan.h"
#include "planner/report/Sensitivity.h"
#include "planner/view/Against.h"
#include "planner/view/LayoutView.h"
#include "planner/view/MeshView.h"
#include "planner/view/StepView.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// One number or word about the job or the cluster, as text with its unit.
struct FactView {
  std::string name, value, note;
};

struct FactGroup {
  std::string title;
  std::vector<FactView> facts;
};

/// Seconds of a step spent for one purpose (TimeSplit).
struct TimePart {
  std::string name, meaning;
  double seconds = 0;
};

/// Collectives of one kind over the same axes, on the stage that spends most time in them.
struct CollectiveSum {
  std::string kind, axes;
  int stage = 0;
  int64_t count = 0; // per step
  double bytes = 0;  // per step and rank
  double seconds = 0;
};

/// Another scored plan.
struct OtherPlan {
  std::string name; // describe()
  double stepSeconds = 0;
  int64_t peakBytes = 0;
  MemoryVerdict memory = MemoryVerdict::DoesNotFit;
  std::string note; // its disadvantage
  bool isSimpler = false;
};

/// A candidate of the search, as a point of time and memory.
struct SearchPoint {
  ScoredCandidate candidate;
  bool isFront = false; // no other candidate beats or equals it in time and in memory
  std::string note;     // its disadvantage
};

/// A decision about named ops or parameters.
struct NamedDecision {
  std::string decision;           // for example "recompute"
  std::vector<std::string> names; // in the format of IdList.h
  int64_t count = 0;
};

/// A pipeline chunk.
struct ChunkView {
  int stage = 0;
  std::string begin;  // module at its begin, or else the op
  std::string op;     // id of its first op
  double seconds = 0; // forward and backward of one micro-batch
};

/// The limit of a device of a stage, and the interval of its need, in bytes.
struct StageRoom {
  int64_t limit = 0, low = 0, high = 0;
};

/// A measured step of the plan.
struct MeasuredView {
  std::string profile; // path of the file
  int64_t numRanks = 0;
  std::vector<Residual> residuals;
};

struct PlanView {
  std::string file, model;
  std::vector<std::string> decisions; // the parts of describe()
  std::string verdict;                // one sentence
  double samplesPerSecond = 0, tokensPerSecond = 0;
  int fullestStage = 0;
  std::string whyNotSimpler; // one sentence
  std::string searchNote;    // empty if the search was complete
  std::vector<FactGroup> job, cluster;
  MeshView mesh;
  StepView step;
  LayoutView layout;
  std::vector<ChunkView> chunks;
  std::vector<StageRoom> rooms; // by stage
  std::vector<TimePart> time;
  std::vector<CollectiveSum> collectives;
  std::vector<OtherPlan> others;
  std::vector<SearchPoint> points;
  std::vector<NamedDecision> named;
  std::string text;                       // the plan as text for a terminal
  std::optional<Sensitivity> sensitivity; // if the caller has one
  std::optional<MeasuredView> measured;   // if the caller has a profile
  Plan plan;
};

/// Returns why `plan` cannot be drawn without its model, with what to do, or "": its decisions were
/// edited, or it lacks the seconds of its chunks.
std::string whyNotDrawable(const Plan &plan);

/// Returns the view of `plan`, as read from `file`. The plan need not have been applied to a graph.
PlanView viewOf(const Plan &plan, const std::string &file);

/// Whether `other` is a simpler plan than `plan`: it has, in this order, fewer axes that divide the
/// model (tp, pp, cp, ep), a lower ZeRO stage, or fewer axes. Example: dp=8 is simpler than fsdp=8,
/// and fsdp=8 is simpler than fsdp=4 tp=2. Source: docs/planning.md, "The simplest of equals".
bool isSimpler(const Alternative &other, const Plan &plan);

/// Returns the views as JSON: {"format": "tbc-report", "version": 1, "plans": [..]}. Times are in
/// seconds, memory in bytes.
std::string toJson(const std::vector<PlanView> &views);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_PLANVIEW_H
