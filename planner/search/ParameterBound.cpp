//===- ParameterBound.cpp - Bounds on updates, gathers and reductions -----===//

#include "planner/search/ParameterBound.h"
#include "planner/bound/JoinedBound.h"
#include "planner/predict/Update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace tbc::reshard;

namespace tbc::planner {

double hidingFraction(const Cluster &cluster, const Candidate &candidate) {
  const bool isSplit = schedule::splitsBackward(candidate.schedule.kind());
  if (candidate.mesh.pp > 1)
    return executorOf(cluster).isOwn() && !isSplit ? std::numeric_limits<double>::infinity() : 0;
  if (reducesInLastBackward(cluster, candidate))
    return cluster.overlapFraction;
  return cluster.executor.reducesInLastBackward(candidate.zero.zero) ? cluster.executor.lastBackward
                                                                     : 0;
}

/// Whether the last backward of a step has its reductions: it is the only one of the only stage.
static bool reducesAtOnce(const Cluster &cluster, const Candidate &candidate,
                          const DataMode &mode) {
  return mode.reducesAtOnce && !cluster.executor.reducesInLastBackward(candidate.zero.zero);
}

namespace {

/// A kind of collectives over a group.
struct Message {
  CollectiveKind kind;
  GroupShape group;
  double shards; // among which the bytes of a tensor are divided before
};

} // namespace

/// Returns a lower bound on the seconds of `message` for tensors of `sizes`, with at most
/// `mostBytes` or one tensor in each. Each rank has its share of their bytes.
static double joinedSeconds(const BoundTables &tables, const Candidate &candidate, bool isExpert,
                            const Message &message, const std::map<double, double> &sizes,
                            double mostBytes, double leastCount = 1) {
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  const double parts = parameterParts(candidate.mesh, isExpert) * message.shards;
  std::map<double, double> local;
  for (auto [size, count] : sizes)
    local[size / parts] += count;
  return leastJoinedSeconds(
      [&](double bytes) { return network.seconds(message.kind, message.group, bytes); }, local,
      mostBytes, leastCount);
}

/// Returns the most bytes of reductions in a bucket; infinite if the plan chooses.
static double mostBucketBytes(const DataMode &mode) {
  return mode.bucketBytes ? double(*mode.bucketBytes) : std::numeric_limits<double>::infinity();
}

/// Returns the seconds of gathers of stored parameters: each of at most mode.gatherBytes, or as
/// many as the executor joins.
static double gatherStoredSeconds(const BoundTables &tables, const Candidate &candidate,
                                  const DataMode &mode,
                                  std::map<double, double> ParameterTotals::*sizes) {
  const double joined = double(tables.costs.problem.cluster.executor.joinedGathers);
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const Message message{CollectiveKind::AllGather, mode.groups[isExpert].zero, 1};
    const std::map<double, double> &here = tables.totals[isExpert].*sizes;
    double number = 0, least = 1;
    for (auto [size, count] : here)
      number += count;
    double most = double(mode.gatherBytes);
    if (most == 0 && joined > 1) {
      most = std::numeric_limits<double>::infinity();
      least = std::ceil(number / joined);
    }
    seconds += joinedSeconds(tables, candidate, isExpert, message, here, most, least);
  }
  return seconds;
}

/// Returns the seconds of gathers of new parameters, which are joined by the size of buckets.
static double gatherNewSeconds(const BoundTables &tables, const Candidate &candidate,
                               const DataMode &mode) {
  const bool joins = executorOf(tables.costs.problem.cluster).joinsUpdates;
  double seconds = 0;
  for (bool isExpert : {false, true})
    seconds += joinedSeconds(
        tables, candidate, isExpert, {CollectiveKind::AllGather, mode.groups[isExpert].zero, 1},
        tables.totals[isExpert].trainedSizes, joins ? mostBucketBytes(mode) : 0);
  return seconds;
}

/// Returns the messages of the reduction of a gradient in each micro-batch (`isMicro`), or once per
/// step.
static std::vector<Message> reductionsOf(const Candidate &candidate, const DataMode &mode,
                                         bool isExpert, bool isMicro) {
  const DataMode::Groups &groups = mode.groups[isExpert];
  const int zero = candidate.zero.zero;
  std::vector<Message> messages;
  if (isMicro ? zero >= 2 : zero == 1)
    messages.push_back({CollectiveKind::ReduceScatter, groups.zero, 1});
  if (!isMicro)
    messages.push_back(
        {CollectiveKind::AllReduce, groups.reduce, zero == 0 ? 1 : double(groups.zero.size)});
  return messages;
}

double reduceStepSeconds(const BoundTables &tables, const Candidate &candidate,
                         const DataMode &mode) {
  double seconds = 0;
  for (bool isExpert : {false, true})
    for (const Message &message : reductionsOf(candidate, mode, isExpert, /*isMicro=*/false))
      seconds += joinedSeconds(tables, candidate, isExpert, message,
                               tables.totals[isExpert].gradientSizes, mostBucketBytes(mode));
  return seconds;
}

/// Returns a lower bound on the seconds of updates on whole matrices, with the gathers of those
/// that are split over the ZeRO group alone; summed over the stages.
static double matrixUpdateSeconds(const BoundTables &tables, const Candidate &candidate,
                                  const DataMode &mode) {
  double seconds = 0;
  for (bool isExpert : {false, true}) {
    const ParameterTotals &of = tables.totals[isExpert];
    if (of.matrices == 0)
      continue;
    const double parts = parameterParts(candidate.mesh, isExpert);
    const GroupShape &group = mode.groups[isExpert].zero;
    const bool isSharded = candidate.zero.zero > 0;
    seconds += tables.matrixSeconds(isExpert, int64_t(parts) * (isSharded ? group.size : 1));
    if (isSharded && parts == 1)
      seconds += joinedSeconds(tables, candidate, isExpert, {CollectiveKind::AllGather, group, 1},
                               of.matrixSizes, 0);
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
  double seconds =
      updateSeconds(cluster, bytes, launches) + matrixUpdateSeconds(tables, candidate, mode);
  if (candidate.zero.zero == 1 || candidate.zero.zero == 2)
    seconds += gatherNewSeconds(tables, candidate, mode);
  if (hidingFraction(cluster, candidate) == 0 && !reducesAtOnce(cluster, candidate, mode))
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

/// Lower bounds on the seconds of reductions in backward. `last` of them are of the last bucket,
/// with no kernel behind it; 0 if other reductions may hide there too.
struct Reductions {
  double all = 0, last = 0;
};

/// Lower bounds on the seconds of gathers and reductions of a micro-batch, with the first gather of
/// a block that no kernel hides.
struct DataSeconds {
  double forward = 0, firstForward = 0;
  double backward = 0, firstBackward = 0; // gathers
  std::vector<Reductions> reductions;     // one of these holds
};

} // namespace

/// Whether the ends of blocks are known: with one stage, in tbc's own Programs.
static bool showsEnds(const Cluster &cluster, const Candidate &candidate) {
  return cluster.executor.isOwn() && candidate.mesh.pp == 1;
}

/// Returns bounds for the cases that one bucket has all reductions of the kind of the last one, and
/// that another bucket follows on the first.
static std::vector<Reductions> reductionSeconds(const BoundTables &tables,
                                                const Candidate &candidate, const DataMode &mode) {
  const Cluster &cluster = tables.costs.problem.cluster;
  const NetworkCost &network = tables.costs.meshes.networkFor(candidate.mesh);
  const EndTensor &end = tables.ends.lastGradient;
  Reductions joint, several;
  for (bool isExpert : {false, true}) {
    std::vector<Message> messages = reductionsOf(candidate, mode, isExpert, /*isMicro=*/true);
    if (reducesAtOnce(cluster, candidate, mode))
      for (const Message &message : reductionsOf(candidate, mode, isExpert, /*isMicro=*/false))
        messages.push_back(message);
    for (const Message &message : messages) {
      auto seconds = [&](double leastCount) {
        return joinedSeconds(tables, candidate, isExpert, message,
                             tables.totals[isExpert].gradientSizes, mostBucketBytes(mode),
                             leastCount);
      };
      const bool isLast = isExpert == end.isExpert;
      const double parts = parameterParts(candidate.mesh, isExpert) * message.shards;
      joint.all += seconds(1);
      joint.last += isLast ? seconds(1) : 0;
      several.all += seconds(isLast ? 2 : 1);
      several.last += isLast ? network.seconds(message.kind, message.group, end.bytes / parts) : 0;
    }
  }
  if (!showsEnds(cluster, candidate) || end.bytes == 0)
    return {{joint.all, 0}};
  return {joint, several};
}

/// Returns the least seconds to gather one of the parameters of `sizes`.
static double leastGatherSeconds(const BoundTables &tables, const Candidate &candidate,
                                 const DataMode &mode,
                                 std::map<double, double> ParameterTotals::*sizes) {
  double least = std::numeric_limits<double>::infinity();
  for (bool isExpert : {false, true})
    if (const std::map<double, double> &here = tables.totals[isExpert].*sizes; !here.empty())
      least =
          std::min(least, joinedSeconds(tables, candidate, isExpert,
                                        {CollectiveKind::AllGather, mode.groups[isExpert].zero, 1},
                                        {{here.begin()->first, 1}}, 0));
  return std::isfinite(least) ? least : 0;
}

static DataSeconds dataSeconds(const BoundTables &tables, const Candidate &candidate,
                               const DataMode &mode) {
  const bool hasEnds = showsEnds(tables.costs.problem.cluster, candidate);
  DataSeconds seconds;
  seconds.reductions = reductionSeconds(tables, candidate, mode);
  if (candidate.zero.zero < 3)
    return seconds;
  seconds.forward = gatherStoredSeconds(tables, candidate, mode, &ParameterTotals::forwardSizes);
  const EndTensor &end = tables.ends.firstForward;
  if (hasEnds && end.bytes > 0)
    seconds.firstForward = joinedSeconds(
        tables, candidate, end.isExpert,
        {CollectiveKind::AllGather, mode.groups[end.isExpert].zero, 1}, {{end.bytes, 1}}, 0);
  if (candidate.zero.keepGathered)
    return seconds;
  seconds.backward = gatherStoredSeconds(tables, candidate, mode, &ParameterTotals::backwardSizes);
  if (hasEnds)
    seconds.firstBackward =
        leastGatherSeconds(tables, candidate, mode, &ParameterTotals::backwardSizes);
  return seconds;
}

/// Returns the exposed part of `all` seconds of transfers beside `kernels` seconds, of which `end`
/// are exposed.
static double exposedWithEnd(const Cluster &cluster, double all, double end, double kernels) {
  return end + exposedSeconds(cluster, std::max(0.0, all - end), kernels);
}

double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, const WorkShare &total, double recomputeSeconds) {
  const Cluster &cluster = tables.costs.problem.cluster;
  const DataSeconds data = dataSeconds(tables, candidate, mode);
  double backward = std::numeric_limits<double>::infinity();
  for (const Reductions &reductions : data.reductions)
    backward = std::min(backward, exposedWithEnd(cluster, data.backward + reductions.all,
                                                 data.firstBackward + reductions.last,
                                                 total.backward + total.weight + recomputeSeconds));
  return exposedWithEnd(cluster, data.forward, data.firstForward, total.forward) + backward;
}

double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, double kernels) {
  const DataSeconds data = dataSeconds(tables, candidate, mode);
  double least = std::numeric_limits<double>::infinity();
  for (const Reductions &reductions : data.reductions)
    least = std::min(least, exposedWithEnd(tables.costs.problem.cluster,
                                           data.forward + data.backward + reductions.all,
                                           data.firstForward + data.firstBackward + reductions.last,
                                           kernels));
  return least;
}

double exposedSeconds(const Cluster &cluster, double transfer, double kernels) {
  return cluster.exposedSeconds(transfer, cluster.overlapFraction * kernels);
}

} // namespace tbc::planner
