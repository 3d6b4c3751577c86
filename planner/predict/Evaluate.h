//===- Evaluate.h - Seconds and bytes of a derived step --------------------===//

#ifndef TBC_PLANNER_PREDICT_EVALUATE_H
#define TBC_PLANNER_PREDICT_EVALUATE_H

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/memory/Memory.h"
#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"
#include "planner/predict/OpSeconds.h"
#include "planner/predict/Time.h"
#include "planner/reshard/Kernels.h"
#include "planner/reshard/Overlap.h"

#include <vector>

namespace tbc::planner {

/// One execution of a counted collective, priced by kind, group and size.
double collectiveSeconds(const StageNetworks &networks, const reshard::Mesh &mesh,
                         const reshard::CollectiveCount &count);

/// Returns the prediction for a plan in its current form (perhaps edited by hand), by the same
/// code.
Result<Prediction> predict(const reshard::Graph &graph, const Plan &plan);

/// Predicts a derived step with any buckets and gathers. The arguments outlive it; of the plan it
/// reads neither `overlap` nor `prediction`.
class StepPredictor {
public:
  StepPredictor(const PlannedStep &step, const Plan &plan, const reshard::Derivation &derivation);

  /// Returns the step time with `overlap`.
  double seconds(const reshard::OverlapSettings &overlap) const;
  /// Returns the whole prediction with `overlap`.
  Prediction predict(const reshard::OverlapSettings &overlap) const;

private:
  const PlannedStep &step;
  const Plan &plan;
  const reshard::Derivation &derivation;
  const StageDevices devices;
  const PipelineSchedule schedule;
  const std::vector<KernelShare> shares;
  const reshard::BlockKernels kernels; // the same with any buckets and gathers
};

/// Derives the step and returns the exact prediction for one plan.
Prediction predictStep(const PlannedStep &step, const Plan &plan);
/// The same, for a derived step.
Prediction predictStep(const PlannedStep &step, const Plan &plan,
                       const reshard::Derivation &derivation);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_EVALUATE_H
