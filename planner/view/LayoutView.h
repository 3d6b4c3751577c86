//===- LayoutView.h - Parameters, boundaries and causes of a plan ----------===//

#ifndef TBC_PLANNER_VIEW_LAYOUTVIEW_H
#define TBC_PLANNER_VIEW_LAYOUTVIEW_H

#include "planner/plan/Plan.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::planner {

/// Parameters with equal shapes and placements.
struct ParameterRow {
  std::vector<std::string> names; // in the format of IdList.h
  int64_t count = 0;
  std::string shape, dtype;
  std::string stored, used, gradient, state; // placements
  std::string lifetime;                      // of the gathered parameter
  LayoutParameters group;                    // the same in full
  std::map<int, int64_t> byStage;            // number of them on each stage that holds some
};

/// The activations around some repeats of a graph block.
struct BoundaryRow {
  std::string block;
  int64_t first = 0, last = 0; // repeats
  std::string inputs, outputs; // one tensor per line
};

/// Collectives with one cause.
struct CauseRow {
  std::string kind, purpose, cause, axes;
  std::vector<int> stages;
  int64_t bytes = 0, count = 0; // of one execution; per step
  double seconds = 0;           // of all; 0 if the plan has no price for that size
};

struct LayoutView {
  std::string stale; // why the layout cannot be shown, or ""
  std::vector<LayoutAxis> axes;
  std::vector<ParameterRow> parameters;
  std::vector<BoundaryRow> boundaries;
  std::vector<CauseRow> causes; // the longest first
};

/// Returns a placement in one line: the axes of each dim, then partial sums and flat storage.
/// Examples: "(tp, -) partial dp"; "(-, -) flat fsdp"; "([12/tp 64][12/tp 64], -)" for two segments
/// of 12 heads over tp and their width of 64.
std::string toString(const TensorPlacement &placement);

/// Returns the layout of `plan`; empty without one, or if it belongs to other decisions.
LayoutView layoutView(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_LAYOUTVIEW_H
