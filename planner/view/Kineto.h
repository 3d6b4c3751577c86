//===- Kineto.h - Profiles of PyTorch --------------------------------------===//
//
// Plain C++. Reads the trace of torch.profiler (Kineto) of one rank.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_KINETO_H
#define TBC_PLANNER_VIEW_KINETO_H

#include "planner/plan/Plan.h"

#include <nlohmann/json.hpp>

#include <string>

namespace tbc::planner {

/// Whether `trace`, with a list "traceEvents", is of torch.profiler.
bool isKineto(const nlohmann::json &trace);

/// Returns the collective of a kernel of NCCL; "" for another kernel. Point-to-point kernels are
/// sends between stages, or without stages an all_to_all.
/// Example: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" is an all_reduce.
std::string collectiveOfKernel(const std::string &kernel, const Plan &plan);

/// Returns the last ProfilerStep of a trace of torch.profiler in the form of `tbc run --profile`:
/// kernels on the device, without a block, and NCCL's kernels as collectives by their names.
///
/// Errors: Usage, if it has no step, no kernel in it, or does not say its rank.
Result<nlohmann::json> fromKineto(const nlohmann::json &trace, const std::string &source,
                                  const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_KINETO_H
