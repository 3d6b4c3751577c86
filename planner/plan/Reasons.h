//===- Reasons.h - A plan explained ---------------------------------------===//
//
// For people; no decision follows from it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_REASONS_H
#define TBC_PLANNER_PLAN_REASONS_H

#include "planner/plan/Decisions.h"
#include "planner/plan/MeshShape.h"
#include "planner/plan/Prediction.h"
#include "planner/reshard/Graph.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// Another scored configuration, with its disadvantage.
struct Alternative {
  MeshShape mesh;
  ParameterDecision data;
  reshard::ContextForm context = reshard::ContextForm::AllGather;
  int64_t microBatch = 1, accumulation = 1;
  std::optional<ScheduleKind> schedule; // as in a plan
  Recompute recompute;
  std::vector<int> chunkStage; // as in a plan
  Offload offload;             // without ops
  double stepSeconds = 0;
  int64_t peakBytes = 0;
  MemoryVerdict memory = MemoryVerdict::DoesNotFit;
  std::string note;
};

enum class Origin { Pinned, Solved, Propagated, Forced };

struct Reason {
  std::string decision; // "mesh", "zero", ...
  std::string value;
  Origin origin = Origin::Solved;
  std::string text;
};

/// A repeated part of the graph, for the layer table.
struct BlockRow {
  std::string name;    // modules of the model, a star where repeats differ; else as firstOp
  std::string firstOp; // id, a star where repeats differ
  int64_t count = 1;
  int64_t ops = 0;
  int64_t parameters = 0;    // elements, of one repeat
  std::string split;         // e.g. "tp: 4 of 9 matmuls by column/row"
  double seconds = 0;        // forward and backward of one micro-batch, one repeat
  int64_t residualBytes = 0; // per micro-batch, one repeat
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_REASONS_H
