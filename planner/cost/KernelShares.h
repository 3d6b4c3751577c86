//===- KernelShares.h - Shares of ops in known kernels --------------------===//

#ifndef TBC_PLANNER_COST_KERNELSHARES_H
#define TBC_PLANNER_COST_KERNELSHARES_H

#include "planner/cost/Cost.h"
#include "planner/reshard/Kernels.h"

#include <vector>

namespace tbc::planner {

/// Returns kernelShares() of `graph` for tbc's own programs on `cluster`. `kernels`:
/// reshard::planUnsplitKernels() of `graph`, or of the same graph with another batch. Kernels do
/// not see the number of samples, except that a loop of one iteration is no loop. Example: the
/// kernels for 2 samples are those for 8, but may not be those for 1.
std::vector<KernelShare> ownKernelShares(const Cluster &cluster, const reshard::Graph &graph,
                                         const reshard::BlockKernels &kernels);

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_KERNELSHARES_H
