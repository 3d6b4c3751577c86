//===- PipelineBound.h - No cut of a model makes a schedule shorter --------===//
//
// Plain C++. A bound of the makespan of a pipeline schedule over all ways to cut the model.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_PIPELINEBOUND_H
#define TBC_PLANNER_CORE_PIPELINEBOUND_H

#include "planner/core/Time.h"

#include <vector>

namespace tbc::planner {

/// What a part of the model takes for one micro-batch, wherever it lies. Parts are not divided.
struct WorkShare {
  double forward = 0, backward = 0, weight = 0; // seconds in each phase
  double anyPhase = 0;                          // seconds in a phase that is not known
};

/// How often the phases of each chunk lie on chains of actions of one schedule that must follow
/// each other, in a mixture of such chains. The step takes at least the seconds of any chain, so of
/// any mixture, so whatever lies on whatever chunk, at least the sum over all parts of the least
/// that any chunk makes of it.
class ChainMixture {
public:
  /// A mixture that is good for work of the proportions of `total`: fictitious play (Brown 1951)
  /// of who cuts the model against who picks the longest chain.
  ChainMixture(const PipelineSchedule &schedule, const WorkShare &total);

  /// No cut of `parts` into the chunks of the schedule has a shorter makespan, where what one stage
  /// sends to another takes at least `sendSeconds`.
  double leastSeconds(const std::vector<WorkShare> &parts, double sendSeconds = 0) const;

  /// How often any phase of any chunk lies on the chains, at most.
  double mostOften() const;

private:
  struct Counts {
    double forward = 0, backward = 0, weight = 0;
    double of(const WorkShare &share) const;
  };
  bool partsBackward;
  std::vector<Counts> chunks;
  double sends = 0; // from stage to stage on a chain, in the mean
};

/// The shortest makespan of all cuts of `ops` (by forward op) into the chunks of `schedule`, at the
/// places where a stage may begin; infinite where there are too few. 0, not known, where there are
/// more than `mostCuts`.
double shortestCutSeconds(const PipelineSchedule &schedule, const std::vector<WorkShare> &ops,
                          const std::vector<bool> &mayBegin, double sendSeconds, int64_t mostCuts);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PIPELINEBOUND_H
