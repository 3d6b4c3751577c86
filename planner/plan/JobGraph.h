//===- JobGraph.h - The graph of a model as a job runs it -----------------===//

#ifndef TBC_PLANNER_PLAN_JOBGRAPH_H
#define TBC_PLANNER_PLAN_JOBGRAPH_H

#include "planner/devices/Cluster.h"
#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"

namespace tbc::planner {

/// Returns `graph` as `job` runs it on `cluster`: with its imbalance of experts, and with the
/// matmuls that the executor of `cluster` multiplies in 8 bits, if the job asks for that.
reshard::Graph graphOfJob(reshard::Graph graph, const Job &job, const Cluster &cluster);

/// Errors: Usage if `job` asks for matmuls in 8 bits, and the executor of `cluster` has no such
/// matmuls, or `graph`, a result of graphOfJob(), has none.
Status checkMatmulPrecision(const reshard::Graph &graph, const Job &job, const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_JOBGRAPH_H
