//===- ParameterBound.cpp - Bounds on updates, gathers and reductions -----===//

#include "planner/search/ParameterBound.h"

using namespace tbc::reshard;

namespace tbc::planner {

bool reducesInBackward(const Candidate &candidate) {
  return candidate.accumulation == 1 && candidate.mesh.pp == 1;
}

/// Returns the seconds of collectives over the zero group, one for each counted parameter
/// (`count`); reductions may be joined. Each rank has its share of their `bytes`.
static double transferSeconds(const BoundTables &tables, const Candidate &candidate,
                              const DataMode &mode, CollectiveKind kind,
                              double ParameterTotals::*count, double ParameterTotals::*bytes) {
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    const GroupShape &group = mode.groups[isExpert].zero;
    double start = network.seconds(kind, group, 0);
    double number = kind == CollectiveKind::ReduceScatter
                        ? leastReductions(mode.bucketBytes, of.*count)
                        : of.*count;
    seconds += number * start - start +
               network.seconds(kind, group, of.*bytes / parameterParts(candidate.mesh, isExpert));
  }
  return seconds;
}

double reduceStepSeconds(const BoundTables &tables, const Candidate &candidate,
                         const DataMode &mode) {
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    const DataMode::Groups &groups = mode.groups[isExpert];
    double bytes = of.gradientBytes / parameterParts(candidate.mesh, isExpert);
    auto add = [&](CollectiveKind kind, const GroupShape &group, double local) {
      double start = network.seconds(kind, group, 0);
      seconds += leastReductions(mode.bucketBytes, of.trained) * start - start +
                 network.seconds(kind, group, local);
    };
    if (candidate.zero.zero == 1)
      add(CollectiveKind::ReduceScatter, groups.zero, bytes);
    add(CollectiveKind::AllReduce, groups.reduce,
        bytes / (candidate.zero.zero == 0 ? 1 : double(groups.zero.size)));
  }
  return seconds;
}

double leastUpdateSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode) {
  const MeshShape &mesh = candidate.mesh;
  double bytes = 0;
  int64_t trained = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    double shards = candidate.zero.zero > 0 ? double(mode.groups[isExpert].zero.size) : 1;
    bytes += of.updateBytes / (parameterParts(mesh, isExpert) * shards);
    trained += int64_t(of.trained);
  }
  // Every stage has the average share; the step ends with the stage with the largest share.
  double seconds = updateSeconds(tables.costs.problem.cluster, bytes, trained);
  if (candidate.zero.zero == 1 || candidate.zero.zero == 2)
    seconds += transferSeconds(tables, candidate, mode, CollectiveKind::AllGather,
                               &ParameterTotals::trained, &ParameterTotals::trainedBytes);
  if (!reducesInBackward(candidate))
    seconds += reduceStepSeconds(tables, candidate, mode);
  return seconds / double(mesh.pp);
}

double leastScalarSeconds(const CostTables &costs, const MeshShape &shape) {
  const Mesh mesh = shape.mesh();
  const int64_t totalBytes = costs.problem.graph.stepTotalBytes;
  std::vector<AxisRef> axes;
  for (const std::string &name : totalBytes > 0 ? axisNames() : tokenAxisNames())
    if (int axis = mesh.axisIndex(name); axis >= 0)
      axes.push_back(wholeAxis(mesh, axis));
  const NetworkCost &network = costs.meshes.networkFor(shape);
  constexpr double lossBytes = 4;
  return network.seconds(CollectiveKind::AllReduce, network.groupShape(axes),
                         totalBytes > 0 ? double(totalBytes) : lossBytes);
}

double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, const WorkShare &total, double recomputeSeconds) {
  const Cluster &cluster = tables.costs.problem.cluster;
  double forward = 0, backward = 0;
  if (candidate.zero.zero >= 2)
    backward += transferSeconds(tables, candidate, mode, CollectiveKind::ReduceScatter,
                                &ParameterTotals::trained, &ParameterTotals::gradientBytes);
  if (candidate.zero.zero == 3) {
    forward += transferSeconds(tables, candidate, mode, CollectiveKind::AllGather,
                               &ParameterTotals::inForward, &ParameterTotals::forwardBytes);
    if (!candidate.zero.keepGathered)
      backward += transferSeconds(tables, candidate, mode, CollectiveKind::AllGather,
                                  &ParameterTotals::inBackward, &ParameterTotals::backwardBytes);
  }
  return exposedSeconds(cluster, forward, total.forward) +
         exposedSeconds(cluster, backward, total.backward + total.weight + recomputeSeconds);
}

double exposedSeconds(const Cluster &cluster, double transfer, double kernels) {
  return cluster.exposedSeconds(transfer, cluster.overlapFraction * kernels);
}

} // namespace tbc::planner
