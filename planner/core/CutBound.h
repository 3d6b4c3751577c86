//===- CutBound.h - What parts that are not divided cost a pipeline --------===//
//
// Plain C++. A bound of the makespan over all ways to put parts of a model on the stages of a
// pipeline. PipelineBound.h bounds the waits of a schedule; here it is the longest stage.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_CUTBOUND_H
#define TBC_PLANNER_CORE_CUTBOUND_H

#include "planner/core/PipelineBound.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Parts of a model in forward order, none of which is divided among stages: how evenly can they
/// be shared out?
class CutBound {
public:
  /// `ops` by forward op, in seconds for one micro-batch; a stage may begin where `mayBegin` says.
  CutBound(const std::vector<WorkShare> &ops, const std::vector<bool> &mayBegin);

  struct Pipeline {
    int64_t stages = 1, accumulation = 1;
    bool hasOneChunk = true;    // per stage, so a stage is a run of parts
    bool partsBackward = false; // zero-bubble
    double sendSeconds = 0;     // from one stage to the next, at least
  };

  /// No way to share out the parts has a makespan below this, which is at least `least` and no more
  /// than `limit`: beyond that nobody asks.
  ///
  /// With one chunk per stage, stage s begins when the first micro-batch has passed the forward of
  /// all stages before it, and without parted backwards ends before its last one has passed them
  /// back; in between it runs all of its own. Of all ways to cut, taking as much as goes onto each
  /// stage in turn is best: what it takes less it leaves to the stages after it, and those wait for
  /// no more than that. With several chunks the stages are bins, of any parts: the bound of
  /// Martello and Toth (Discrete Applied Mathematics 28 (1990), L2) says how many those take.
  double leastSeconds(const Pipeline &pipeline, double least, double limit) const;

private:
  bool mayTake(const Pipeline &pipeline, double seconds) const;
  int64_t leastBins(double capacity) const;

  std::vector<WorkShare> parts;
  std::vector<double> sizes, sums; // of parts, descending, and of those before each
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_CUTBOUND_H
