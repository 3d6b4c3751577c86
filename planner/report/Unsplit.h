//===- Unsplit.h - Work not split over tp ---------------------------------===//

#ifndef TBC_PLANNER_REPORT_UNSPLIT_H
#define TBC_PLANNER_REPORT_UNSPLIT_H

#include "planner/plan/PlanApply.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the kinds of forward ops without a tp split in `step`, if they are at least a twentieth
/// of the FLOPs: one line each, for people.
std::vector<std::string> unsplitWork(const PlannedStep &step);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_UNSPLIT_H
