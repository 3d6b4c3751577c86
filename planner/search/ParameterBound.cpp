//===- ParameterBound.cpp - Bounds on updates, gathers and reductions -----===//

#include "planner/search/ParameterBound.h"
#include "planner/predict/Update.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

double hidingFraction(const Cluster &cluster, const Candidate &candidate) {
  const bool isSplit = schedule::splitsBackward(candidate.schedule.kind());
  if (candidate.mesh.pp > 1)
    return executorOf(cluster).isOwn() && !isSplit ? std::numeric_limits<double>::infinity() : 0;
  if (reducesInLastBackward(cluster, candidate))
    return cluster.overlapFraction;
  if (cluster.executor.reducesInLastBackward(candidate.zero.zero))
    return cluster.executor.lastBackward;
  return candidate.accumulation == 1 ? cluster.overlapFraction : 0;
}

/// Returns the seconds of gathers over the zero group: one for each parameter, or fewer if they are
/// joined. Each rank has its share of their bytes. `part`: the least part of a gather that a
/// parameter of so many bytes on a rank takes.
template <typename Part>
static double gatherSeconds(const BoundTables &tables, const Candidate &candidate,
                            const DataMode &mode, std::map<double, double> ParameterTotals::*sizes,
                            Part part) {
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    auto gather = [&](double size) {
      return network.seconds(CollectiveKind::AllGather, mode.groups[isExpert].zero, size);
    };
    double apart = 0, number = 0, bytes = 0, least = 0;
    for (auto [size, count] : tables.totals[isExpert].*sizes) {
      const double local = size / parameterParts(candidate.mesh, isExpert);
      apart += count * gather(local);
      number += count;
      bytes += local * count;
      least += part(local) * count;
    }
    constexpr double rounding = 1e-9;
    least = std::max(1.0, std::ceil(least - rounding));
    seconds += least >= number ? apart : (least - 1) * gather(0) + gather(bytes);
  }
  return seconds;
}

/// The same for stored parameters. A gather has at most mode.gatherBytes, or is of one parameter.
static double gatherStoredSeconds(const BoundTables &tables, const Candidate &candidate,
                                  const DataMode &mode,
                                  std::map<double, double> ParameterTotals::*sizes) {
  const double joined = double(tables.costs.problem.cluster.executor.joinedGathers);
  const double most = double(mode.gatherBytes);
  return gatherSeconds(tables, candidate, mode, sizes, [=](double bytes) {
    return most > 0 ? std::min(1.0, bytes / most) : 1 / joined;
  });
}

/// The same for new parameters, which are joined by the size of buckets.
static double gatherNewSeconds(const BoundTables &tables, const Candidate &candidate,
                               const DataMode &mode) {
  const bool joins = executorOf(tables.costs.problem.cluster).joinsUpdates;
  const double part = !joins || mode.bucketBytes == 0 ? 1 : 0;
  return gatherSeconds(tables, candidate, mode, &ParameterTotals::trainedSizes,
                       [=](double) { return part; });
}

/// Returns the seconds of reductions of gradients over the zero group, which may be joined.
static double scatterSeconds(const BoundTables &tables, const Candidate &candidate,
                             const DataMode &mode) {
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  constexpr CollectiveKind kind = CollectiveKind::ReduceScatter;
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    const GroupShape &group = mode.groups[isExpert].zero;
    double start = network.seconds(kind, group, 0);
    seconds +=
        leastJoined(mode.bucketBytes, of.trained) * start - start +
        network.seconds(kind, group, of.gradientBytes / parameterParts(candidate.mesh, isExpert));
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
      seconds += leastJoined(mode.bucketBytes, of.trained) * start - start +
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
  const Cluster &cluster = tables.costs.problem.cluster;
  double bytes = 0, launches = 0, neighbours = 0, tensors = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    double shards = candidate.zero.zero > 0 ? double(mode.groups[isExpert].zero.size) : 1;
    bytes += of.updateBytes / (parameterParts(mesh, isExpert) * shards);
    (mode.stepsApart(isExpert) ? launches : neighbours) += of.trained;
    tensors += mode.stepsApart(isExpert) ? 0 : of.updateTensors;
  }
  // Every stage has the average share; the step ends with the stage with the largest share.
  launches += leastUpdateLaunches(cluster, neighbours, tensors);
  double seconds = updateSeconds(cluster, bytes, launches);
  if (candidate.zero.zero == 1 || candidate.zero.zero == 2)
    seconds += gatherNewSeconds(tables, candidate, mode);
  if (hidingFraction(cluster, candidate) == 0)
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

namespace {

/// Seconds of gathers and reductions of a micro-batch.
struct DataSeconds {
  double forward = 0, backward = 0;
};

} // namespace

static DataSeconds dataSeconds(const BoundTables &tables, const Candidate &candidate,
                               const DataMode &mode) {
  DataSeconds seconds;
  if (candidate.zero.zero >= 2)
    seconds.backward += scatterSeconds(tables, candidate, mode);
  if (candidate.zero.zero == 3) {
    seconds.forward += gatherStoredSeconds(tables, candidate, mode, &ParameterTotals::forwardSizes);
    if (!candidate.zero.keepGathered)
      seconds.backward +=
          gatherStoredSeconds(tables, candidate, mode, &ParameterTotals::backwardSizes);
  }
  return seconds;
}

double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, const WorkShare &total, double recomputeSeconds) {
  const Cluster &cluster = tables.costs.problem.cluster;
  const DataSeconds data = dataSeconds(tables, candidate, mode);
  return exposedSeconds(cluster, data.forward, total.forward) +
         exposedSeconds(cluster, data.backward, total.backward + total.weight + recomputeSeconds);
}

double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, double kernels) {
  const DataSeconds data = dataSeconds(tables, candidate, mode);
  return exposedSeconds(tables.costs.problem.cluster, data.forward + data.backward, kernels);
}

double exposedSeconds(const Cluster &cluster, double transfer, double kernels) {
  return cluster.exposedSeconds(transfer, cluster.overlapFraction * kernels);
}

} // namespace tbc::planner
