//===- SweepCases.h - Every strategy on every model of eight layers -------===//
//
// The table of the sweep. A row is a way to train. It applies to every model except the excluded
// ones, whose reason is checked. A new way to train is a new row in SweepCases.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_SWEEPCASES_H
#define TBC_TESTS_TOOLS_SWEEPCASES_H

#include "tests/tools/PlanSupport.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::test {

/// Edits a plan of the planner. `graph`: of the model, at the plan's batch. Errors: properties that
/// the model lacks for the edit.
using PlanEdit = Result<planner::Plan> (*)(planner::Plan plan, const reshard::Graph &graph);

struct SweepRow {
  std::string name;
  PlanRequest request;
  PlanEdit edit = nullptr;
  /// By model: part of the message with which planner or edit refuse it.
  std::map<std::string, std::string> excluded = {};
};

const std::vector<std::string> &sweepModels();
const std::vector<SweepRow> &sweepRows();

/// Returns the plan of a row for a model.
Result<planner::Plan> sweepPlan(const Model &model, const SweepRow &row);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_SWEEPCASES_H
