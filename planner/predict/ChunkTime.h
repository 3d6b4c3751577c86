//===- ChunkTime.h - Seconds of the chunks of a derived step ----------------===//

#ifndef TBC_PLANNER_PREDICT_CHUNKTIME_H
#define TBC_PLANNER_PREDICT_CHUNKTIME_H

#include "planner/devices/StageDevices.h"
#include "planner/plan/Job.h"
#include "planner/plan/PlanApply.h"
#include "planner/predict/OpSeconds.h"

#include <vector>

namespace tbc::planner {

/// Returns the seconds of every chunk, summed over its ops. Work once per step of a stage is added
/// to its first chunk. Writes the work behind them to `work`, if it is given. `shares`: as
/// opSeconds.
std::vector<StageSeconds> chunkSeconds(const PlannedStep &step,
                                       const reshard::Derivation &derivation,
                                       const reshard::Overlap &overlap, const Job &job,
                                       const StageDevices &devices,
                                       std::vector<ChunkSeconds> *work = nullptr,
                                       const std::vector<KernelShare> *shares = nullptr);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_CHUNKTIME_H
