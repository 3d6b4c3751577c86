//===- Fp8Notes.h - What matmuls in 8 bits are worth ----------------------===//

#ifndef TBC_PLANNER_REPORT_FP8NOTES_H
#define TBC_PLANNER_REPORT_FP8NOTES_H

#include "planner/plan/PlanApply.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns warnings for people about the matmuls in fp8 of `plan`, which `step` is, if it has any:
/// - that the same plan is faster without them. Rounding moves the bytes of operands, so matmuls
///   need long sums to pay for it;
/// - how many keep their types, with their share of the FLOPs, because a rank has sizes of them
///   that are no multiples of 16, or too many bytes (isInFp8).
///
/// `graph`: of the model, as search() takes it. Errors: those of predict().
Result<std::vector<std::string>> fp8Warnings(const reshard::Graph &graph, const PlannedStep &step,
                                             const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_FP8NOTES_H
