//===- CutBound.h - Bound on pipelines of indivisible parts ---------------===//
//
// Plain C++. A lower bound on the makespan over all assignments of indivisible parts of a model to
// pipeline stages. PipelineBound.h bounds the waits of a schedule; this file bounds the longest
// stage.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_CUTBOUND_H
#define TBC_PLANNER_BOUND_CUTBOUND_H

#include "planner/bound/PipelineBound.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Parts of a model in forward order, each on one stage. Bounds how evenly they can be divided.
class CutBound {
public:
  /// `ops` by forward op, in seconds for one micro-batch; a stage may begin at the ops flagged in
  /// `mayBegin`.
  CutBound(const std::vector<WorkShare> &ops, const std::vector<bool> &mayBegin);

  struct Pipeline {
    int64_t stages = 1, accumulation = 1;
    bool hasOneChunk = true;    // each stage is then a run of consecutive parts
    bool partsBackward = false; // zero-bubble
    double sendSeconds = 0;     // from one stage to the next, at least
  };

  /// Returns a lower bound on the makespan over all assignments of the parts, between `least` and
  /// `limit`. The search stops at `limit`, because no caller needs more.
  ///
  /// With one chunk per stage, stage s begins after the first micro-batch has passed forward
  /// through all stages before it. Unless backward is split, it ends before its last micro-batch
  /// has passed back through them. In between it runs all its own work. The greedy cut is optimal:
  /// it puts as many parts as possible on each stage in turn. Taking fewer leaves more to later
  /// stages, and their waits do not shrink.
  ///
  /// With several chunks per stage, the stages are bins of any parts. Their number is bounded by
  /// Martello and Toth (Discrete Applied Mathematics 28 (1990), L2). Example: parts of 3, 3 and 3 s
  /// in bins of 5 s take 3 bins.
  double leastSeconds(const Pipeline &pipeline, double least, double limit) const;

private:
  bool mayTake(const Pipeline &pipeline, double seconds) const;
  int64_t leastBins(double capacity) const;

  std::vector<WorkShare> parts;
  std::vector<double> sizes, sums; // of parts, descending; prefix sums of `sizes`
};

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_CUTBOUND_H
