//===- WholeWork.h - What ops take where nothing is split ------------------===//

#ifndef TBC_PLANNER_CORE_WHOLEWORK_H
#define TBC_PLANNER_CORE_WHOLEWORK_H

#include "planner/core/Cost.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// What the ops of a graph move and compute where nothing is split, of ops that are alike once: a
/// model is a few kinds of ops, often repeated, and bounds ask for many numbers of devices.
class WholeWork {
public:
  explicit WholeWork(const reshard::Graph &graph);

  /// By op, the seconds of its kernel if it divided evenly over the `devices` of a model: no
  /// strategy is faster.
  std::vector<double> dividedSeconds(const Cluster &cluster, int64_t devices) const;

private:
  struct Kind {
    std::string kernelClass;
    LocalWork work;
  };
  std::vector<Kind> kinds;
  std::vector<int> kindOf; // by op
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_WHOLEWORK_H
