//===- Plan.h - The planner's answer --------------------------------------===//
//
// Plain C++. PlanFile.h reads and writes it; PlanApply.h applies it to a graph.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_PLAN_H
#define TBC_PLANNER_PLAN_PLAN_H

#include "planner/devices/Cluster.h"
#include "planner/plan/Decisions.h"
#include "planner/plan/Job.h"
#include "planner/plan/Layout.h"
#include "planner/plan/MeshShape.h"
#include "planner/plan/Prediction.h"
#include "planner/plan/Reasons.h"
#include "planner/plan/SearchLimits.h"
#include "planner/plan/SearchSample.h"
#include "planner/reshard/Overlap.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

struct Plan {
  Job job;
  Cluster cluster;
  MeshShape mesh;
  /// The form of context parallelism for ops with several loops over the sequence (only with cp >
  /// 1).
  reshard::ContextForm context = reshard::ContextForm::AllGather;
  bool zigzag = false; // the order of the sequence over cp; false: contiguous
  int64_t idleDevices = 0;
  int64_t memoryLimitBytes = 0;         // --memory-limit; 0: what the cluster allows
  int64_t microBatch = 1;               // samples per data rank
  int64_t accumulation = 1;             // micro-batches per step and data rank
  std::optional<ScheduleKind> schedule; // none without pipeline
  /// The stage (pp coordinate) of each chunk; empty: one chunk per stage, in order.
  std::vector<int> chunkStage;
  std::vector<OpDecision> ops;
  ParameterDecision parameterDefault;
  std::vector<ParameterOverride> parameterOverrides;
  /// The id of the first forward op of each chunk, in forward order; the first entry is the first
  /// op of all. Without virtual stages a chunk is a stage.
  std::vector<std::string> stages;
  /// For people: the module at the start of each chunk; empty, or as many as `stages`.
  std::vector<std::string> stageNames;
  Recompute recompute;                   // for people only; the ops decide
  std::vector<std::string> recomputeOps; // forward ops with recomputed results
  Offload offload;
  reshard::OverlapSettings overlap;

  Layout layout; // follows from the decisions above; may be empty
  Prediction prediction;
  /// Lower bound on the step time, in this cost model, of any plan for this job with this memory
  /// verdict or a better one.
  double lowerBoundSeconds = 0;
  SearchEnd searchEnd = SearchEnd::Complete;
  std::string bindingConstraint;
  std::vector<BlockRow> blocks;
  std::vector<Alternative> alternatives;
  SearchSample search;               // empty in plans of earlier builds
  std::vector<std::string> warnings; // shown first, before the plan
  std::vector<std::string> assumptions;
  std::vector<Reason> reasons;

  int64_t numChunks() const { return chunkStage.empty() ? mesh.pp : int64_t(chunkStage.size()); }
  /// Returns the memory limit of one device: the pinned limit, or the cluster's usable memory if
  /// less.
  int64_t limitBytes() const { return limitBytes(cluster); }
  /// The same for a stage on `devices`.
  int64_t limitBytes(const Cluster &devices) const;
};

/// Returns the contradiction between the plan's schedule and its stages, chunks and micro-batches,
/// or "".
std::string whyInvalidSchedule(const Plan &plan);

/// Describes the schedule with its chunks. Example: "1f1b", "interleaved x2" (two chunks per
/// stage), "zero-bubble V" (V-shaped).
std::string scheduleText(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLAN_H
