//===- LeastMemory.cpp - Lower bounds on memory ---------------------------===//

#include "planner/search/LeastMemory.h"
#include "planner/graph/Values.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

double leastBytesAnywhere(const Graph &graph, const Job &job, const Cluster &cluster,
                          bool offloadsStates) {
  const Executor &executor = executorOf(cluster);
  double owned = 0;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    if (value.users.empty())
      continue;
    const bool isCast = parameter.gradient >= 0 && masterBytes(value.layout.elementBytes) > 0;
    owned += isCast && !executor.storesWeights ? 0 : fullBytes(value.layout);
    if (parameter.gradient < 0)
      continue;
    owned += executor.gradientFactor() * fullBytes(graph.values[parameter.gradient].layout);
    if (!offloadsStates)
      owned += fullBytes(value.layout) / double(value.layout.elementBytes) *
               double(job.stateBytesPerElement(parameter) + masterBytes(value.layout.elementBytes));
  }
  return owned / double(job.gpus) * (1 + cluster.allocatorFraction) + double(cluster.contextBytes);
}

double leastBytes(const BoundTables &tables, const Candidate &candidate) {
  const SearchProblem &problem = tables.costs.problem;
  const MeshShape &mesh = candidate.mesh;
  const DataMode mode = boundMode(tables.costs, candidate);
  const DividedTotals &totals = tables.totalsDividedBy(mesh.tp);
  double bytes = 0; // of all stages together
  for (bool isExpert : {false, true})
    bytes += leastParameterBytes(mesh, mode, totals.divided[isExpert], isExpert) +
             leastParameterBytes(mesh, mode, totals.whole[isExpert], isExpert) * double(mesh.tp);
  const double fixed = bytes / double(mesh.pp);
  const double result = double(candidate.microBatch) * problem.measures.mostResultPerSample /
                        double(mesh.tp * mesh.cp);
  double owned = mesh.pp == 1 ? fixed + result : std::max(fixed, result);
  for (const ParameterReaders &readers : tables.readersDividedBy(mesh.tp))
    owned = std::max(owned, leastReaderBytes(mesh, candidate.microBatch, mode, readers));
  return owned * (1 + problem.cluster.allocatorFraction) + double(problem.cluster.contextBytes);
}

} // namespace tbc::planner
