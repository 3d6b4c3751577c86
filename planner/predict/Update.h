//===- Update.h - The update of parameters: bytes, launches, seconds -------===//

#ifndef TBC_PLANNER_PREDICT_UPDATE_H
#define TBC_PLANNER_PREDICT_UPDATE_H

#include "planner/devices/Cluster.h"
#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"
#include "planner/reshard/Sharding.h"

#include <cstdint>

namespace tbc::planner {

/// Returns the bytes moved by an update of `owned` elements: parameter, gradient, master and state
/// are read once, and all but the gradient written once. `stateBytes`: per element, as the bytes of
/// parameter and gradient.
double updateBytes(double owned, int64_t stateBytes, int64_t parameterBytes, int64_t gradientBytes);

/// Returns the bytes that the sums over a whole parameter read on a rank with `owned` elements of
/// its state: each reads a f32 tensor of them (reshard::MatrixUpdate::totals).
double totalsBytes(const reshard::GraphParameter &parameter, double owned);

/// Returns the tensors that an update of `parameter` alone reads and writes: gradient, old and new
/// value, moments, and the parameter beside a master copy. An update on whole matrices counts as a
/// launch of its own (reshard::maxLaunchTensors). Example: 8 for Adam of bf16.
int64_t updateTensors(const reshard::GraphParameter &parameter, const Job &job,
                      int64_t parameterBytes);

/// Returns an estimate of the launches that step `kernels` parameters with `tensors` tensors in
/// all, whose kernels are neighbours. The count of a plan is exact (updateKernels,
/// reshard::joinLaunches). Example: 148 parameters with 8 tensors each take 3 launches on GPUs.
double updateLaunches(const Cluster &cluster, double kernels, double tensors);

/// The same, as a lower bound for any stage's share. Theorem: the sum of this bound over stages is
/// at most the sum of their launches. Proof: a launch has at most `maxLaunchTensors` tensors, one
/// of which is the learning rate, and no tensor of a parameter is in two launches.
double leastUpdateLaunches(const Cluster &cluster, double kernels, double tensors);

/// Returns the seconds of the kernels of `parameter`'s update on whole matrices, on a rank where
/// these have sharding `matrices` (reshard::matrixSharding); 0 for an update of single elements.
double matrixSeconds(const Cluster &cluster, const reshard::GraphParameter &parameter,
                     const reshard::Sharding &matrices);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_UPDATE_H
