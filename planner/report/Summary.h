//===- Summary.h - A plan as text for a terminal ---------------------------===//

#ifndef TBC_PLANNER_REPORT_SUMMARY_H
#define TBC_PLANNER_REPORT_SUMMARY_H

#include "planner/plan/Plan.h"

#include <string>

namespace tbc::planner {

/// The plan in under 60 lines of plain text: verdict, mesh, stages, layer table, memory by line,
/// communication by kind, binding constraint, reasons, runners-up, assumptions.
std::string summarize(const Plan &plan);

/// Returns the stage of `plan`, which is applied, with the least headroom below its memory limit.
size_t fullestStage(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_SUMMARY_H
