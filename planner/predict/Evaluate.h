//===- Evaluate.h - Seconds and bytes of a derived step --------------------===//

#ifndef TBC_PLANNER_PREDICT_EVALUATE_H
#define TBC_PLANNER_PREDICT_EVALUATE_H

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/memory/Memory.h"
#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"
#include "planner/predict/Time.h"
#include "planner/reshard/Overlap.h"

#include <vector>

namespace tbc::planner {

/// Seconds per execution of every op of a derived step and of its communication.
struct OpSeconds {
  std::vector<double> kernel;
  std::vector<double> operands;    // collectives between ops
  std::vector<double> gather;      // of stored parameters
  std::vector<double> reduceMicro; // of gradients, each micro-batch
  /// Once per step, by stage.
  std::vector<double> reduceStep, parameterStep;
  /// Sends of one micro-batch, by sending chunk.
  std::vector<double> sendForward, sendBackward;
};

/// `isInOrder`: the ranks of a sequence have its parts in order, not zigzag.
/// Writes the communication of each chunk to `work`, if it is given: one entry per chunk.
OpSeconds opSeconds(const reshard::Graph &graph, const reshard::Assignment &assignment,
                    const reshard::Derivation &derivation, const StageDevices &devices,
                    bool isInOrder, const reshard::Overlap &overlap = {},
                    std::vector<ChunkSeconds> *work = nullptr);

/// Returns the bytes moved by an update of `owned` elements: parameter, gradient, master and state
/// are read once, and all but the gradient written once. `stateBytes`: per element, as the bytes of
/// parameter and gradient.
double updateBytes(double owned, int64_t stateBytes, int64_t parameterBytes, int64_t gradientBytes);

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

/// Returns the seconds of every chunk, summed over its ops. Work once per step of a stage is added
/// to its first chunk. Writes the work behind them to `work`, if it is given.
std::vector<StageSeconds> chunkSeconds(const PlannedStep &step,
                                       const reshard::Derivation &derivation,
                                       const reshard::Overlap &overlap, const Job &job,
                                       const StageDevices &devices,
                                       std::vector<ChunkSeconds> *work = nullptr);

/// One execution of a counted collective, priced by kind, group and size.
double collectiveSeconds(const StageNetworks &networks, const reshard::Mesh &mesh,
                         const reshard::CollectiveCount &count);

/// Returns the prediction for a plan in its current form (perhaps edited by hand), by the same
/// code.
Result<Prediction> predict(const reshard::Graph &graph, const Plan &plan);

/// Derives the step and returns the exact prediction for one plan.
Prediction predictStep(const PlannedStep &step, const Plan &plan);
/// The same, for a derived step.
Prediction predictStep(const PlannedStep &step, const Plan &plan,
                       const reshard::Derivation &derivation);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_EVALUATE_H
