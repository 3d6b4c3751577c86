//===- LowMfu.h - Why a plan uses little of its devices --------------------===//

#ifndef TBC_PLANNER_REPORT_LOWMFU_H
#define TBC_PLANNER_REPORT_LOWMFU_H

#include "planner/plan/Plan.h"

#include <string>

namespace tbc::planner {

/// Returns a warning if the predicted MFU is below 5 %, with the largest part of the step, and for
/// kernels the class that takes most of it. Empty for other plans, and if the model's FLOPs take a
/// device less than 1 ms at its peak: such steps consist of latencies. Example:
/// "MFU 1.2 %: 91 % of the step are kernels, and 88 % of these are elementwise; ...".
std::string lowMfuWarning(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_LOWMFU_H
