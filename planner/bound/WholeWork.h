//===- WholeWork.h - Kernel seconds without any split ---------------------===//

#ifndef TBC_PLANNER_BOUND_WHOLEWORK_H
#define TBC_PLANNER_BOUND_WHOLEWORK_H

#include "planner/cost/Cost.h"

#include <optional>
#include <vector>

namespace tbc::planner {

/// The FLOPs and bytes of the ops of an unsplit graph, equal ops stored once. A model has a few
/// kinds of ops, often repeated, and bounds ask for many numbers of devices.
class WholeWork {
public:
  /// `shares`: kernelShares() of `graph`.
  WholeWork(const reshard::Graph &graph, const std::vector<KernelShare> &shares);

  /// Returns by op the seconds of its kernel, divided evenly over the `devices` of a model: a lower
  /// bound on every strategy.
  std::vector<double> dividedSeconds(const Cluster &cluster, int64_t devices) const;

private:
  struct Kind {
    reshard::KernelClass kernelClass;
    LocalWork work;
    std::optional<LocalWork> inFp8; // of a matmul that a strategy may have in 8 bits
    int64_t ranksInFp8;             // of planner/reshard/Fp8.h
    reshard::LaunchesFn launchesOf; // of `shapes`; unset: work.launches
    std::vector<std::vector<int64_t>> shapes;
  };
  std::vector<Kind> kinds;
  std::vector<int> kindOf; // by op
};

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_WHOLEWORK_H
