//===- HeterogeneousBound.cpp - Bound on stages of several device types ---===//

#include "planner/bound/HeterogeneousBound.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tbc::planner {

double slowestStageSeconds(const std::vector<DeviceKindWork> &kinds) {
  std::vector<double> totals; // by kind
  double speeds = 0, least = 0;
  for (const DeviceKindWork &kind : kinds) {
    totals.push_back(std::accumulate(kind.secondsOfOps.begin(), kind.secondsOfOps.end(), 0.0));
    speeds += double(kind.stages) / totals.back();
  }
  for (size_t op = 0; op < kinds[0].secondsOfOps.size(); ++op) {
    double ofOp = std::numeric_limits<double>::infinity();
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      ofOp = std::min(ofOp, kinds[kind].secondsOfOps[op] / totals[kind] / speeds);
    least += ofOp;
  }
  for (size_t kind = 0; kind < kinds.size(); ++kind)
    least -= kinds[kind].savedSeconds / totals[kind] / speeds;
  return least;
}

} // namespace tbc::planner
