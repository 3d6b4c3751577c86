//===- HeterogeneousBound.h - Bound on stages of several device types -----===//

#ifndef TBC_PLANNER_BOUND_HETEROGENEOUSBOUND_H
#define TBC_PLANNER_BOUND_HETEROGENEOUSBOUND_H

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// The work of a whole micro-batch on stages with one type of device.
struct DeviceKindWork {
  std::vector<double> secondsOfOps;
  double savedSeconds = 0; // at most, by recomputation
  int64_t stages = 0;      // of this type
};

/// Returns a lower bound on the kernel seconds of one micro-batch on the slowest stage, for any
/// assignment of ops to stages. `kinds` is not empty, and its lists of ops have equal lengths.
///
/// Theorem: for any weights w_s >= 0 of the stages with sum 1, the slowest stage takes at least
/// sum over ops of min over stages of w_s t_s(op), less sum over types of w_s saved_s.
///
/// Proof sketch: a maximum is at least a weighted mean, sum of w_s t_s over the stages. In this
/// mean each op costs w_s t_s(op) on its stage s, at least the minimum over the stages.
/// Recomputation saves at most saved_s on all stages of a type together. The weights here are the
/// stages' speeds, 1 / (seconds of all ops). The bound is exact if all ops differ by the same
/// factor and are freely divisible.
///
/// Example: all ops take 4 s on the stage of speed 1 and 4/3 s on the stage of speed 3. The weights
/// are 1/4 and 3/4, and each op costs at least a fourth of its slower time: 1 s together.
double slowestStageSeconds(const std::vector<DeviceKindWork> &kinds);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_HETEROGENEOUSBOUND_H
