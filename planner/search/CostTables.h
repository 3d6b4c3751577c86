//===- CostTables.h - Results shared by candidates ------------------------===//

#ifndef TBC_PLANNER_SEARCH_COSTTABLES_H
#define TBC_PLANNER_SEARCH_COSTTABLES_H

#include "planner/search/ModelTables.h"
#include "planner/search/ScheduleTable.h"

namespace tbc::planner {

/// The memo tables of one search. Functions over `const CostTables &` are pure: the same arguments
/// give the same result, on any thread and in any order. Only the time of a first request differs.
struct CostTables {
  CostTables(const SearchProblem &problem, RunningCounts &counts)
      : problem(problem), meshes(problem), models(problem, meshes, counts) {}
  CostTables(const CostTables &) = delete; // its tables refer to each other

  const SearchProblem &problem;
  const ScheduleTable schedules;
  const MeshTables meshes;
  const ModelTables models;
};

/// Whether the candidate shards parameter-related data over the axis `name`: with ZeRO over all
/// axes that split tokens, except dp beside fsdp.
bool isZeroAxis(const Candidate &candidate, const std::string &name);

/// Returns the most bytes of stored parameters that a plan on `mesh` gathers together if it may
/// choose; 0: the executor decides.
int64_t gatherUnit(const SearchProblem &problem, const MeshShape &mesh);

/// Whether plans of the candidate complete gradients of the first stage in its last backward.
bool reducesInLastBackward(const Cluster &cluster, const Candidate &candidate);

/// Returns the distribution of parameters and gradients over the data ranks, with group shapes on
/// `network`.
DataMode dataMode(const CostTables &costs, const Candidate &candidate, const NetworkCost &network);
/// The same for bounds: on the network with all devices as good as the best.
DataMode boundMode(const CostTables &costs, const Candidate &candidate);
/// The same on the devices of stage 0.
DataMode firstMode(const CostTables &costs, const Candidate &candidate);
/// Returns `mode`, which is of stage 0, for stage `stage`.
DataMode modeOn(const CostTables &costs, const Candidate &candidate, const DataMode &mode,
                int stage);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_COSTTABLES_H
