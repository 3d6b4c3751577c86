//===- BoundTables.cpp - Results shared by the bounds of candidates -------===//

#include "planner/search/BoundTables.h"
#include "planner/bound/HeterogeneousBound.h"
#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"
#include "planner/place/Place.h"
#include "planner/predict/Update.h"
#include "planner/search/GraphMeasures.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

BoundTables::BoundTables(const CostTables &costs)
    : costs(costs), totals(parameterTotals(costs.problem.graph, costs.problem.job,
                                           [](const GraphParameter &) { return true; })),
      ends(endTensors(costs.problem.graph)), problem(costs.problem) {}

const DividedTotals &BoundTables::totalsDividedBy(int64_t tp) const {
  return divided.get(tp, [&] {
    return dividedTotals(problem.graph, problem.job, tp,
                         [](const GraphParameter &) { return true; });
  });
}

const std::vector<ParameterReaders> &BoundTables::readersDividedBy(int64_t tp) const {
  return readers.get(tp, [&] {
    return parameterReaders(problem.graph, problem.job, costs.models.hashes(), tp,
                            !executorOf(problem.cluster).isOwn());
  });
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

const std::vector<KernelShare> &BoundTables::sharesFor(int64_t samples) const {
  return costs.models.sharesFor(problem.cluster, samples);
}

const WholeWork &BoundTables::wholeWorkFor(int64_t samples) const {
  return wholeWorks.get(
      samples, [&] { return WholeWork(costs.models.graphFor(samples), sharesFor(samples)); });
}

/// Returns the shares of the ops of an update on whole matrices.
static std::vector<KernelShare> frameworkShares(const Graph &graph) {
  std::vector<KernelShare> shares;
  for (const GraphOp &op : graph.ops)
    shares.push_back(frameworkShare(graph, op));
  return shares;
}

/// Sums the evenly divided kernels of the ops of `part`; null: of all ops.
static double dividedSeconds(const WholeWork &whole, const Cluster &cluster, int64_t devices,
                             const std::vector<bool> *part) {
  const std::vector<double> seconds = whole.dividedSeconds(cluster, devices);
  double total = 0;
  for (size_t op = 0; op < seconds.size(); ++op)
    if (!part || (*part)[op])
      total += seconds[op];
  return total;
}

double BoundTables::idealSeconds(int64_t devices, int64_t samples) const {
  return ideals.get({devices, samples}, [&] {
    return dividedSeconds(wholeWorkFor(samples), problem.cluster, devices, nullptr);
  });
}

double BoundTables::leastSeconds(int64_t tp, int64_t samples) const {
  if (tp == 1 || problem.repeat.count == 0)
    return idealSeconds(tp, samples);
  return leasts.get({tp, samples}, [&] { return computeLeastSeconds(tp, samples); });
}

double BoundTables::computeLeastSeconds(int64_t tp, int64_t samples) const {
  const Repeat &repeat = problem.repeat;
  double bound =
      placementBound(costs.models.graphFor(samples), repeat.ops, tp, problem.job, problem.cluster,
                     problem.space.tensorAxisIsPinned(), &sharesFor(samples));
  double divided = dividedSeconds(wholeWorkFor(samples), problem.cluster, tp, &repeat.ops);
  return idealSeconds(tp, samples) + double(repeat.count) * std::max(0.0, bound - divided);
}

double BoundTables::beyondBlocks(int64_t tp, int64_t samples) const {
  if (tp == 1)
    return 0;
  return beyonds.get({tp, samples}, [&] { return computeBeyondBlocks(tp, samples); });
}

double BoundTables::computeBeyondBlocks(int64_t tp, int64_t samples) const {
  constexpr size_t mostOps = 4000; // some hundredths of a second
  const Graph &batched = costs.models.graphFor(samples);
  std::vector<bool> outside(batched.ops.size(), true);
  if (problem.repeat.count > 0) {
    std::vector<int> anchors = forwardAnchors(batched);
    for (size_t op = 0; op < outside.size(); ++op)
      outside[op] = problem.repeat.like[anchors[op]] < 0;
  }
  if (size_t(std::count(outside.begin(), outside.end(), true)) > mostOps)
    return 0;
  double placed = placementBound(batched, outside, tp, problem.job, problem.cluster,
                                 problem.space.tensorAxisIsPinned(), &sharesFor(samples));
  return std::max(0.0,
                  placed - dividedSeconds(wholeWorkFor(samples), problem.cluster, tp, &outside));
}

const DividedWork &BoundTables::workFor(int64_t devices, int64_t samples) const {
  return works.get({devices, samples}, [&] {
    return divideWork(costs.models.graphFor(samples), wholeWorkFor(samples), sharesFor(samples),
                      problem.cluster, devices);
  });
}

double BoundTables::computeHeterogeneous(const MeshShape &mesh, int64_t microBatch) const {
  const StageDevices &devices = costs.meshes.stagesFor(mesh).devices;
  const int64_t samples = microBatch * mesh.ep, parts = mesh.tp * mesh.cp * mesh.ep;
  std::map<int, DeviceKindWork> byGroup; // kernels do not see nodes
  for (int stage = 0; stage < int(mesh.pp); ++stage) {
    DeviceKindWork &kind = byGroup[devices.kindOf(stage).group];
    if (kind.stages++ > 0)
      continue;
    kind.secondsOfOps = wholeWorkFor(samples).dividedSeconds(devices.of(stage), parts);
    MostSaved saved = mostSavedByRunningAgain(costs.models.graphFor(1), devices.of(stage));
    kind.savedSeconds =
        saved.launchSeconds + saved.movementSeconds * double(samples) / double(parts);
  }
  std::vector<DeviceKindWork> kinds;
  for (auto &[group, kind] : byGroup)
    kinds.push_back(std::move(kind));
  return slowestStageSeconds(kinds);
}

double BoundTables::heterogeneousSeconds(const MeshShape &mesh, int64_t microBatch) const {
  if (costs.meshes.stagesFor(mesh).devices.isUniform())
    return 0;
  return heterogeneous.get(
      {microBatch * mesh.ep, mesh.tp * mesh.cp * mesh.ep, mesh.pp, mesh.numRanks() / mesh.pp},
      [&] { return computeHeterogeneous(mesh, microBatch); });
}

static double leastMatrixSeconds(const SearchProblem &problem, bool isExpert, int64_t devices) {
  double seconds = 0;
  for (const GraphParameter &parameter : problem.graph.parameters) {
    const GraphValue &value = problem.graph.values[size_t(parameter.value)];
    if (!parameter.matrices || parameter.gradient < 0 || value.users.empty() ||
        isOfExperts(problem.graph, parameter) != isExpert)
      continue;
    if (!isStack(parameter.matrices.get(), int(value.layout.dims.size()))) {
      seconds += planner::matrixSeconds(problem.cluster, parameter, Sharding());
      continue;
    }
    const Graph &update = parameter.matrices->graph;
    const std::vector<double> kernels =
        WholeWork(update, frameworkShares(update)).dividedSeconds(problem.cluster, devices);
    seconds += std::accumulate(kernels.begin(), kernels.end(), 0.0);
  }
  return seconds;
}

double BoundTables::matrixSeconds(bool isExpert, int64_t devices) const {
  return matrices.get({isExpert, devices},
                      [&] { return leastMatrixSeconds(problem, isExpert, devices); });
}

//===----------------------------------------------------------------------===//
// Recomputation
//===----------------------------------------------------------------------===//

double BoundTables::mostSaved(double samples, double parts) const {
  const MostSaved &saved = saving.get(
      [&] { return mostSavedByRunningAgain(costs.models.graphFor(1), problem.cluster); });
  return saved.launchSeconds + saved.movementSeconds * samples / parts;
}

const KeepBound &BoundTables::keepBoundFor(int64_t devices, int64_t samples) const {
  return *keepBounds.get({devices, samples}, [&] {
    return std::make_unique<KeepBound>(costs.models.graphFor(samples), problem.cluster,
                                       problem.repeat, double(devices), &sharesFor(samples));
  });
}

//===----------------------------------------------------------------------===//
// Communication and schedules
//===----------------------------------------------------------------------===//

double BoundTables::expertSeconds(const MeshShape &mesh, int64_t microBatch) const {
  if (mesh.ep == 1 || mesh.cp > 1)
    return 0;
  return exchangeSeconds.get({mesh.ep, mesh.tp, microBatch},
                             [&] { return computeExpertSeconds(mesh.ep, mesh.tp, microBatch); });
}

std::vector<BoundTables::Exchange> BoundTables::exchangesOver(int64_t ep) const {
  const ModelSplit split{1, ep, 1, ContextForm::AllGather};
  const std::vector<OpStrategy> *strategies = costs.models.strategiesFor(split, 1);
  if (!strategies)
    return {};
  const Graph &batched = costs.models.graphFor(ep);
  Assignment assignment;
  assignment.mesh = split.mesh();
  assignment.strategies = *strategies;
  assignment.exchangesTokens = !executorOf(problem.cluster).isOwn();
  ParameterPlan plan;
  plan.reduceAxes.push_back(wholeAxis(assignment.mesh, axisIndex(assignment.mesh, Axis::Expert)));
  assignment.parameterPlans.assign(batched.parameters.size(), plan);
  std::map<std::tuple<CollectiveKind, int64_t, bool>, double> counts;
  for (const Reshard &reshard : derive(batched, assignment).reshards) {
    const int producer = batched.values[reshard.value].producer;
    if (reshard.where != Where::Operand || producer < 0 ||
        (batched.ops[producer].phase == Phase::Forward && reshard.phase != Phase::Forward))
      continue;
    const bool hasBatch = hasFactor(batched.values[reshard.value].layout, batched.batchFactor);
    for (const Collective &step : reshard.steps)
      counts[{step.kind, step.bytes, hasBatch}] += 1;
  }
  std::vector<Exchange> list;
  for (const auto &[key, count] : counts)
    list.push_back({std::get<0>(key), double(std::get<1>(key)), std::get<2>(key), count});
  return list;
}

double BoundTables::computeExpertSeconds(int64_t ep, int64_t tp, int64_t microBatch) const {
  const Mesh mesh = ModelSplit{tp, ep, 1, ContextForm::AllGather}.mesh();
  const NetworkCost network(problem.cluster, mesh);
  std::vector<AxisRef> experts, both;
  for (Axis axis : {Axis::Expert, Axis::Tensor})
    if (const int index = axisIndex(mesh, axis); index >= 0)
      both.push_back(wholeAxis(mesh, index));
  experts.push_back(both.front());
  const GroupShape narrow = network.groupShape(experts), wide = network.groupShape(both);
  double seconds = 0;
  for (const Exchange &exchange : exchanges.get(ep, [&] { return exchangesOver(ep); })) {
    const double bytes = exchange.bytes * (exchange.hasBatch ? double(microBatch) : 1);
    auto least = [&](CollectiveKind kind) {
      const double own = network.seconds(kind, narrow, bytes / double(tp));
      return tp == 1 ? own : std::min(own, network.seconds(kind, wide, bytes));
    };
    const bool isGather = exchange.kind == CollectiveKind::AllGather;
    const bool isScatter = exchange.kind == CollectiveKind::ReduceScatter;
    if (tp > 1 && !isGather && !isScatter)
      continue; // it may have another kind beside tp
    double each = least(exchange.kind);
    if (tp > 1 && isScatter)
      each = std::min(each, least(CollectiveKind::AllReduce));
    seconds += exchange.count * each;
  }
  return seconds;
}

const std::vector<SampledBytes> &BoundTables::firstSendsFor(int64_t others) const {
  return sends.get(others, [&] { return firstSends(problem.graph, others); });
}

/// Returns the least seconds of a send of `bytes` between neighbouring stages.
static double leastNeighbourSend(const NetworkCost &network, int64_t stages, double bytes) {
  double least = INFINITY;
  for (int stage = 0; stage + 1 < int(stages); ++stage)
    least = std::min(least, network.seconds(CollectiveKind::Send,
                                            network.stageGroupShape({stage, stage + 1}), bytes));
  return least;
}

const std::vector<SentValue> &BoundTables::sentValuesOfGraph() const {
  return sent.get([&] { return sentValues(problem.graph); });
}

PieceSends pieceSends(const BoundTables &tables, const Candidate &candidate, double least) {
  const MeshShape &mesh = candidate.mesh;
  const NetworkCost &network = tables.costs.meshes.networkFor(mesh);
  PieceSends sends;
  sends.least = least;
  std::map<double, double> known; // seconds by bytes
  for (const SentValue &value : tables.sentValuesOfGraph()) {
    const double bytes = value.bytes.at(double(candidate.microBatch));
    auto [found, isNew] = known.try_emplace(bytes, 0);
    if (isNew)
      found->second = leastNeighbourSend(network, mesh.pp, bytes / double(mesh.tp * mesh.cp));
    sends.sends.push_back({value.isForward, value.producer, value.readers, found->second});
  }
  return sends;
}

/// Returns the key of the sends of a candidate: micro-batch, parts of a value, stages and their
/// ranks.
static std::array<int64_t, 4> sendsKeyOf(const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  return {candidate.microBatch, mesh.tp * mesh.cp, mesh.pp, mesh.numRanks() / mesh.pp};
}

double BoundTables::passSendSeconds(const Candidate &candidate, double least) const {
  constexpr double mostSteps = 1 << 24; // some hundredths of a second
  const auto numPieces = double(problem.measures.numPositions);
  const ScheduleChoice &choice = candidate.schedule;
  const auto numChunks = double(candidate.mesh.pp * choice.chunksPerStage);
  if (numPieces * numPieces * numPieces * numChunks > mostSteps)
    return 0;
  return passSends.get({sendsKeyOf(candidate), choice.chunksPerStage, choice.thereAndBack}, [&] {
    return leastPassSends(costs.schedules.chunksFor(candidate).stageOf,
                          pieceSends(*this, candidate, least), size_t(numPieces));
  });
}

CutSeconds BoundTables::computeCutSeconds(const MeshShape &mesh, int64_t microBatch) const {
  const CutSends &cuts =
      sendsOverCuts.get([&] { return cutSends(problem.graph, sentValuesOfGraph()); });
  const NetworkCost &network = costs.meshes.networkFor(mesh);
  std::vector<double> kinds;
  for (const SampledBytes &bytes : cuts.kinds) {
    const double all = bytes.at(double(microBatch));
    kinds.push_back(
        all == 0 ? 0 : leastNeighbourSend(network, mesh.pp, all / double(mesh.tp * mesh.cp)));
  }
  CutSeconds seconds;
  const std::vector<bool> mayBegin = stageMayBegin(problem.graph);
  std::vector<double> both;
  for (size_t op = 0; op < cuts.forward.size(); ++op) {
    seconds.sends.forward.push_back(kinds[size_t(cuts.forward[op])]);
    seconds.sends.backward.push_back(kinds[size_t(cuts.backward[op])]);
    if (op > 0 && mayBegin[op])
      both.push_back(seconds.sends.forward.back() + seconds.sends.backward.back());
  }
  std::sort(both.begin(), both.end());
  if (!both.empty())
    seconds.typical = both[both.size() / 2] / 2;
  seconds.cheapest.push_back(0);
  for (double of : both)
    seconds.cheapest.push_back(seconds.cheapest.back() + of);
  return seconds;
}

const CutSeconds &BoundTables::cutSecondsFor(const Candidate &candidate) const {
  return secondsOverCuts.get(sendsKeyOf(candidate), [&] {
    return computeCutSeconds(candidate.mesh, candidate.microBatch);
  });
}

const ChainMixture &BoundTables::mixtureFor(const Candidate &candidate, const WorkShare &total,
                                            double sendSeconds, bool isFine) const {
  constexpr double parts = 128, sendSteps = 2; // steps of a factor of sqrt(2)
  const double whole = total.forward + total.backward + total.weight;
  const auto partsOf = [&](double seconds) {
    return whole > 0 ? int(std::lround(seconds / whole * parts)) : 0;
  };
  const std::array<int, 3> of = {partsOf(total.forward), partsOf(total.backward),
                                 partsOf(total.weight)};
  const ScheduleChoice &choice = candidate.schedule;
  // Sends of less than 2^-20 of a micro-batch do not count.
  const int send =
      std::max(-40, int(std::lround(sendSteps * std::log2(std::max(1e-9, sendSeconds / whole)))));
  const double sendShare = send > -40 ? std::exp2(send / sendSteps) : 0;
  return mixtures.get({choice.kind(), choice.chunksPerStage, choice.thereAndBack, candidate.mesh.pp,
                       candidate.accumulation, of, send, isFine},
                      [&] {
                        return ChainMixture(costs.schedules.scheduleFor(candidate),
                                            {of[0] / parts, of[1] / parts, of[2] / parts},
                                            sendShare, isFine);
                      });
}

} // namespace tbc::planner
