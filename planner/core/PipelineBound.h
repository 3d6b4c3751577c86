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
  // What may change where ops are run again (savedByRunningAgain). By phase, where it finds what it
  // reads in registers, as ops before it are run again:
  double foundForward = 0, foundBackward = 0, foundWeight = 0;
  // Where it is run again itself: what forward no longer takes, and what backward takes more.
  double lessForward = 0, moreBackward = 0;

  void add(const WorkShare &o, double times);
  /// Where whatever saves most is run again, in the phases that save.
  WorkShare least() const;
  double seconds() const { return forward + backward + weight + anyPhase; }
};

/// The parts of a model in forward order, of which many are alike.
struct WorkInOrder {
  std::vector<WorkShare> kinds;
  std::vector<int> kindOf;    // by part
  std::vector<bool> mayBegin; // by part: whether a stage may begin there
  WorkShare total;

  WorkInOrder() = default;
  WorkInOrder(const std::vector<WorkShare> &parts, std::vector<bool> mayBegin);
};

/// How often the phases of each chunk lie on chains of actions of one schedule that must follow
/// each other, in a mixture of such chains. The step takes at least the seconds of any chain, so of
/// any mixture, so whatever lies on whatever chunk, at least the sum over all parts of the least
/// that any chunk makes of it.
class ChainMixture {
public:
  /// A mixture that is good for work of the proportions of `total`: fictitious play (Brown 1951)
  /// of who cuts the model against who picks the longest chain. `isFine`: of more rounds.
  ChainMixture(const PipelineSchedule &schedule, const WorkShare &total, bool isFine = false);

  /// No cut of `work` into the chunks of the schedule has a shorter makespan, where `anywhere`
  /// seconds more are in phases that are not known and what one stage sends to another takes at
  /// least `sendSeconds`, whichever parts are run again so that all of that together adds
  /// `againSeconds` to a micro-batch, or more. Infinite where there are too few parts.
  ///
  /// What running parts again changes counts as often as the phases do in which it changes; of that
  /// the same number l of times is `againSeconds` each, wherever it falls, and what is beyond l the
  /// least that any part and chunk can make of it. This holds for each l; the best of a few is
  /// taken. `isInOrder`: of all cuts, chunks in the order of the model, by dynamic programming;
  /// else each part counts as on the chunk that is best for it, which takes less to work out.
  double leastSeconds(const WorkInOrder &work, double anywhere, double sendSeconds,
                      double againSeconds, bool isInOrder) const;

  /// The shortest makespan that was found for `total` as one part that can be divided in any way,
  /// sends aside: no mixture proves more of it.
  double mostSeconds() const { return most; }

private:
  struct Counts {
    double forward = 0, backward = 0, weight = 0;
    double least() const;
    double of(const WorkShare &share, double agains) const;
  };
  std::vector<double> byKind(const WorkInOrder &work, double agains) const;
  double anyhow(const WorkInOrder &work, const std::vector<double> &byKind) const;
  double inOrder(const WorkInOrder &work, const std::vector<double> &byKind) const;
  bool partsBackward;
  std::vector<Counts> chunks;
  double most = 0;
  double sends = 0; // from stage to stage on a chain, in the mean
};

/// The shortest makespan of all cuts of `ops` (by forward op) into the chunks of `schedule`, at the
/// places where a stage may begin; infinite where there are too few. 0, not known, where there are
/// more than `mostCuts`.
double shortestCutSeconds(const PipelineSchedule &schedule, const std::vector<WorkShare> &ops,
                          const std::vector<bool> &mayBegin, double sendSeconds, int64_t mostCuts);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PIPELINEBOUND_H
