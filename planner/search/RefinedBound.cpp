//===- RefinedBound.cpp - Expensive lower bound on the step time ----------===//
//
// The expensive bound, for the few candidates that may beat the best plan found so far. It adds:
// - kernels divided evenly, or the placement's own bound;
// - recomputation forced by memory, from the most that all stages can keep together;
// - collectives that kernels cannot hide, with their starts;
// - the schedule's bubble and sends, for any cut;
// - the end of the step.
//
//===----------------------------------------------------------------------===//

#include "planner/bound/PipelineRoom.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/pins/Space.h"
#include "planner/predict/Evaluate.h"
#include "planner/reshard/SplitBackward.h"
#include "planner/search/Searcher.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

KeepBound &Searcher::keepBoundFor(const MeshShape &mesh, int64_t microBatch) {
  int64_t parts = mesh.tp * mesh.cp * mesh.ep, samples = microBatch * mesh.ep;
  return *keepBounds.get({parts, samples}, [&] {
    return std::make_unique<KeepBound>(costs.models.graphFor(samples), cluster, problem.repeat,
                                       double(parts));
  });
}

/// Returns a lower bound on the parameter-related bytes on all devices of a model together, for
/// parameters with the sums `of`.
double Searcher::fixedBytes(const Candidate &candidate, const DataMode &mode,
                            const ParameterTotals &of, bool isExpert) const {
  int zero = candidate.zero.zero;
  double shards = double(mode.groups[isExpert].zero.size);
  double bytes = of.bytes / (zero == 3 ? shards : 1) +
                 of.gradientBytes / (mode.keepsGradientShards ? shards : 1) +
                 (mode.offloadsStates ? 0 : of.stateBytes / (zero >= 1 ? shards : 1)) +
                 (candidate.zero.keepGathered ? of.backwardBytes : 0);
  return bytes / partsOf(candidate.mesh, isExpert);
}

/// Returns an upper bound on the bytes of one micro-batch kept by all stages together, in a plan of
/// less than `limit` seconds. Each stage keeps at least its part of the micro-batch whose backward
/// comes first. Offloaded residuals use host memory as well.
double Searcher::mostKeptBytes(const Candidate &candidate, const DataMode &mode, double limit) {
  const MeshShape &mesh = candidate.mesh;
  double usable =
      (double(limitBytes) - double(cluster.contextBytes)) / (1 + cluster.allocatorFraction);
  double fixed = 0;
  for (bool isExpert : {false, true})
    fixed += fixedBytes(candidate, mode, totals()[isExpert], isExpert);
  double host = candidate.offloadsResiduals ? double(cluster.usableHostBytes()) : 0;
  double kept = double(mesh.pp) * (usable + host) - fixed;
  // Schedules of thousands of stages are long, and the simple bound is close enough there.
  constexpr int64_t mostChunks = 512;
  if (mesh.pp == 1 || mesh.pp * candidate.schedule.chunksPerStage > mostChunks ||
      candidate.offloadsResiduals || problem.repeat.count == 0 || kept < 0)
    return kept;
  PipelineRoom room;
  room.block = blockPartsFor(candidate, mode);
  if (room.block.empty())
    return kept;
  room.count = double(problem.repeat.count);
  room.chunksPerStage = candidate.schedule.chunksPerStage;
  room.usableBytes = usable;
  room.mostSeconds =
      limit / double(candidate.accumulation) + mostSaved(double(candidate.microBatch * mesh.ep), 1);
  for (const schedule::Moments &stage : costs.schedules.momentsOf(candidate)) {
    int64_t least = stage[0][0].forward;
    for (const schedule::InFlight &chunk : stage[0])
      least = std::min(least, chunk.forward);
    room.inFlight.push_back(double(std::max<int64_t>(1, least)));
  }
  return std::min(kept, room.mostKeptBytes());
}

/// Returns the last forward op that reads `value`, also through views.
static int lastReader(const Graph &graph, int value) {
  int last = -1;
  for (int user : graph.values[value].users) {
    const GraphOp &op = graph.ops[user];
    if (op.phase != Phase::Forward)
      continue;
    last = std::max(last, user);
    if (op.kernelClass == KernelClass::None)
      for (int result : op.results)
        last = std::max(last, lastReader(graph, result));
  }
  return last;
}

/// Returns the parts of the repeated block by op, in forward order. Empty if other ops lie between
/// its first and its last occurrence, or if it keeps nothing.
std::vector<BlockPart> Searcher::blockPartsFor(const Candidate &candidate, const DataMode &mode) {
  const MeshShape &mesh = candidate.mesh;
  int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  int numForward = problem.numForward, first = 0, counted = 0;
  while (first < numForward && !problem.repeat.ops[first])
    ++first;
  int length = 0;
  while (first + length < numForward && problem.repeat.ops[first + length])
    ++length;
  auto isCounted = [&](int op) { return problem.repeat.like[op] >= 0; };
  int begin = 0, end = numForward;
  while (begin < numForward && !isCounted(begin))
    ++begin;
  while (end > begin && !isCounted(end - 1))
    --end;
  for (int op = begin; op < end; ++op)
    counted += isCounted(op);
  if (counted != end - begin || counted != length * problem.repeat.count)
    return {};

  const Work &work = workOf(devices, samples);
  std::vector<double> kept = keepBoundFor(mesh, candidate.microBatch).keptWhereFree();
  std::vector<BlockPart> block(static_cast<size_t>(length));
  double keptBytes = 0;
  for (int i = 0; i < length; ++i) {
    int op = first + i;
    const WorkShare &share = work.byOp[size_t(op)];
    block[size_t(i)].seconds = share.forward + share.backward + share.weight;
    block[size_t(i)].keptBytes = kept[size_t(op)];
    keptBytes += kept[size_t(op)];
    if (kept[size_t(op)] == 0)
      continue;
    int last = op;
    for (int value : graph.ops[op].results)
      last = std::max(last, lastReader(graph, value));
    for (int at = op; at < last; ++at) // between ops of this block and later ones
      block[size_t((at - first) % length)].crossingBytes += kept[size_t(op)];
  }
  for (const GraphParameter &parameter : graph.parameters)
    addFixed(candidate, mode, parameter, first, block);
  return keptBytes > 0 ? block : std::vector<BlockPart>();
}

/// Adds `parameter` to the first op of `block` that reads it, unless an op outside the block reads
/// it.
void Searcher::addFixed(const Candidate &candidate, const DataMode &mode,
                        const GraphParameter &parameter, int first,
                        std::vector<BlockPart> &block) const {
  const GraphValue &value = graph.values[parameter.value];
  if (value.users.empty() || value.users[0] < first || value.users[0] >= first + int(block.size()))
    return;
  bool inBackward = false, isExpert = false;
  for (int user : value.users) {
    if (!problem.repeat.ops[user])
      return;
    inBackward |= graph.ops[user].phase != Phase::Forward;
    isExpert |= graph.ops[user].expertLoop >= 0;
  }
  ParameterTotals of;
  double elements = double(value.layout.numElements());
  of.bytes = elements * double(value.layout.elementBytes);
  of.backwardBytes = inBackward ? of.bytes : 0;
  if (parameter.gradient >= 0) {
    of.gradientBytes = elements * double(graph.values[parameter.gradient].layout.elementBytes);
    of.stateBytes =
        elements * double(job.stateBytesPerElement() + masterBytes(value.layout.elementBytes));
  }
  block[size_t(value.users[0] - first)].fixedBytes += fixedBytes(candidate, mode, of, isExpert);
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

const Searcher::Work &Searcher::workOf(int64_t parts, int64_t samples) {
  return works.get({parts, samples}, [&] { return computeWork(parts, samples); });
}

/// Sums the divided kernel seconds by forward op (with its backward ops) and phase, and the
/// possible changes by recomputation.
Searcher::Work Searcher::computeWork(int64_t parts, int64_t samples) {
  Work work;
  const Graph &batched = costs.models.graphFor(samples); // without recomputation
  const std::vector<double> seconds = wholeWorkFor(samples).dividedSeconds(cluster, parts);
  const std::vector<int> anchors = forwardAnchors(batched);
  const std::vector<bool> canWait = weightOps(batched), mayBegin = stageMayBegin(batched);
  work.byOp.resize(size_t(numForwardOps(batched)));
  for (int op = 0; op < int(batched.ops.size()); ++op) {
    WorkShare &share = work.byOp[anchors[size_t(op)]];
    (batched.ops[op].phase == Phase::Forward ? share.forward
     : canWait[size_t(op)]                   ? share.weight
                                             : share.backward) += seconds[size_t(op)];
  }
  const std::vector<AgainSeconds> again = secondsOfRunningAgain(batched, cluster, double(parts));
  for (size_t op = 0; op < again.size(); ++op) {
    const AgainSeconds &of = again[op];
    work.byOp[op].lessForward += of.lessForward;
    work.byOp[op].moreBackward += of.moreBackward;
    if (of.forwardReader >= 0)
      work.byOp[size_t(of.forwardReader)].foundForward += of.foundForward;
    if (int reader = of.backwardReader; reader >= 0) {
      WorkShare &share = work.byOp[size_t(anchors[size_t(reader)])];
      (canWait[size_t(reader)] ? share.foundWeight : share.foundBackward) += of.foundBackward;
    }
  }
  for (const WorkShare &share : work.byOp) {
    work.leastByOp.push_back(share.least());
    work.least.add(work.leastByOp.back(), 1);
    work.largest = std::max(work.largest, work.leastByOp.back().seconds());
  }
  work.inOrder = WorkInOrder(work.byOp, mayBegin);
  work.total = work.inOrder.total;
  work.cuts.emplace(work.leastByOp, mayBegin);
  return work;
}

/// Returns the least seconds of the ops outside of repeated blocks over tp, beyond their evenly
/// divided kernels: the placement's own bound for these ops.
double Searcher::placedBeyondBlocks(int64_t tp, int64_t samples) {
  if (tp == 1)
    return 0;
  return beyondBlocks.get({tp, samples}, [&] { return computePlacedBeyondBlocks(tp, samples); });
}

double Searcher::computePlacedBeyondBlocks(int64_t tp, int64_t samples) {
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
  double placed = placementBound(batched, outside, tp, job, cluster, space.tensorAxisIsPinned());
  return std::max(0.0, placed - idealSecondsOf(samples, tp, &outside));
}

/// Returns a mixture for work with roughly the proportions of `total`, so many candidates share
/// one.
const ChainMixture &Searcher::mixtureFor(const Candidate &candidate, const WorkShare &total,
                                         bool isFine) {
  constexpr double parts = 128;
  const double whole = total.forward + total.backward + total.weight;
  std::array<int, 3> of;
  const double seconds[] = {total.forward, total.backward, total.weight};
  for (size_t phase = 0; phase < of.size(); ++phase)
    of[phase] = whole > 0 ? int(std::lround(seconds[phase] / whole * parts)) : 0;
  const ScheduleChoice &choice = candidate.schedule;
  return mixtures.get({choice.kind(), choice.chunksPerStage, choice.thereAndBack, candidate.mesh.pp,
                       candidate.accumulation, of, isFine},
                      [&] {
                        return ChainMixture(costs.schedules.scheduleFor(candidate).schedule,
                                            {of[0] / parts, of[1] / parts, of[2] / parts}, isFine);
                      });
}

/// Returns a lower bound on the seconds of the longest send between stages, the larger of two
/// bounds.
/// - (1) With one chunk per stage: the first stage sends all bytes live across the first cut, at
///   least those of the cheapest cut.
/// - (2) The chunks have `hops` stage boundaries at distinct cut positions. At each, a value made
///   by the last ops before it is read by the first ops after it. So one boundary costs at least
///   the `hops`-th cheapest position. Example: cuts of 1, 2, 4 MiB and 2 hops give at least 2 MiB.
double Searcher::leastSendSeconds(const Candidate &candidate) {
  const double samples = double(candidate.microBatch);
  auto bytesOf = [&](const Crossing &at) { return at.bytesPerSample * samples + at.bytes; };
  double least = infinity;
  if (candidate.schedule.chunksPerStage == 1)
    for (const Crossing &at : crossing.get([&] { return leastCrossing(graph); }))
      least = std::min(least, bytesOf(at));
  if (least == infinity)
    least = 0;
  std::vector<std::pair<double, int64_t>> sent; // with the number of such positions
  for (const auto &[at, count] : readAcross.get([&] { return readAcrossCuts(graph); }))
    sent.push_back({bytesOf(at), count});
  std::sort(sent.begin(), sent.end());
  int64_t hops = numHops(candidate);
  for (const auto &[bytes, count] : sent)
    if ((hops -= count) <= 0) {
      least = std::max(least, bytes);
      break;
    }
  if (least == 0)
    return 0;
  const NetworkCost &network = costs.meshes.networkFor(candidate.mesh);
  double parts = double(candidate.mesh.tp * candidate.mesh.cp);
  return network.seconds(CollectiveKind::Send, network.stageGroupShape({0, 1}), least / parts);
}

/// Returns the number of moves of a micro-batch from one stage to another in its forward.
int64_t Searcher::numHops(const Candidate &candidate) const {
  const std::vector<int> &stageOf = costs.schedules.chunksFor(candidate).stageOf;
  int64_t hops = 0;
  for (size_t chunk = 1; chunk < stageOf.size(); ++chunk)
    hops += stageOf[chunk] != stageOf[chunk - 1];
  return hops;
}

/// Returns the bytes per sample of `value`, and its bytes independent of the number of samples.
static std::pair<double, double> bytesBySample(const Graph &graph, int value) {
  const TensorLayout &layout = graph.values[value].layout;
  const double bytes = double(layout.numElements() * layout.elementBytes);
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      for (const Factor &factor : segment.factors)
        if (factor.id == graph.batchFactor)
          return {bytes / double(factor.size), 0};
  return {0, bytes};
}

/// Returns the bytes read across each position where a stage may begin, with counts of equal ones.
/// A position gets the largest value made since the previous position and read before the next.
std::vector<std::pair<Searcher::Crossing, int64_t>> Searcher::readAcrossCuts(const Graph &graph) {
  const int numForward = numForwardOps(graph);
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  std::map<std::pair<double, double>, int64_t> counts;
  for (int begin = 1, before = 0; begin < numForward; ++begin) {
    if (!mayBegin[size_t(begin)])
      continue;
    std::pair<double, double> most{0, 0};
    for (int op = begin; op == begin || (op < numForward && !mayBegin[size_t(op)]); ++op)
      for (int value : graph.ops[op].operands) {
        const int producer = graph.values[value].producer;
        if (producer >= before && producer < begin && !graph.ops[producer].generator)
          most = std::max(most, bytesBySample(graph, value));
      }
    ++counts[most];
    before = begin;
  }
  std::vector<std::pair<Crossing, int64_t>> result;
  for (const auto &[most, count] : counts)
    result.push_back({{most.first, most.second}, count});
  return result;
}

/// Returns the bytes live across each position where a stage may begin, without duplicates: values
/// made before it and read in forward after it. Example: a residual stream of 8 MB per sample
/// crosses every layer boundary.
std::vector<Searcher::Crossing> Searcher::leastCrossing(const Graph &graph) {
  int numForward = numForwardOps(graph);
  std::vector<bool> mayBegin = stageMayBegin(graph);
  std::vector<Crossing> change(size_t(numForward) + 1);
  for (const GraphValue &value : graph.values) {
    if (value.producer < 0 || value.producer >= numForward || graph.ops[value.producer].generator)
      continue;
    int last = -1;
    for (int user : value.users)
      if (user < numForward)
        last = std::max(last, user);
    if (last <= value.producer)
      continue;
    const auto [perSample, bytes] = bytesBySample(graph, int(&value - graph.values.data()));
    Crossing &begin = change[size_t(value.producer) + 1], &end = change[size_t(last) + 1];
    begin.bytesPerSample += perSample;
    begin.bytes += bytes;
    end.bytesPerSample -= perSample;
    end.bytes -= bytes;
  }
  // Equal ones appear once.
  std::map<std::pair<double, double>, bool> seen;
  std::vector<Crossing> result;
  Crossing at;
  for (int op = 0; op < numForward; ++op) {
    at.bytesPerSample += change[size_t(op)].bytesPerSample;
    at.bytes += change[size_t(op)].bytes;
    if (op > 0 && mayBegin[size_t(op)] &&
        seen.emplace(std::make_pair(at.bytesPerSample, at.bytes), true).second)
      result.push_back(at);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The bound
//===----------------------------------------------------------------------===//

/// Returns the candidates with cp covered by this one, see mayBeContext: with a factor of tp on cp,
/// or, if not every tp is tried, of a data axis.
std::vector<Candidate> Searcher::contextVariants(const Candidate &candidate) const {
  std::vector<Candidate> variants;
  if (!mayBeContext(candidate))
    return variants;
  bool hadNone = candidate.mesh.tokenRanks() == 1;
  for (const char *axis : {"tp", "dp", "fsdp"}) {
    bool isTensor = std::string(axis) == "tp";
    if (!isTensor && space.tensorAxisIsOpen())
      continue;
    Candidate next = candidate;
    for (int64_t cp : divisorsOf(*next.mesh.find(axis))) {
      if (cp == 1)
        continue;
      next = candidate;
      *next.mesh.find(axis) /= cp;
      next.mesh.cp = cp;
      next.accumulation = next.batch / (next.mesh.dataRanks() * next.microBatch);
      if (!hadNone) {
        variants.push_back(next);
        continue;
      }
      for (const ZeroChoice &zero : space.zeroChoices(next.mesh)) {
        next.zero = zero;
        variants.push_back(next);
      }
    }
  }
  return variants;
}

Searcher::BoundKey Searcher::boundKeyOf(const Candidate &candidate) {
  // The bound holds for any recomputation, so it is shared by all modes.
  const ScheduleChoice &of = candidate.schedule;
  return {candidate.mesh.sizes(),      candidate.microBatch,
          candidate.accumulation,      candidate.zero.zero,
          candidate.zero.keepGathered, of.kind(),
          of.chunksPerStage,           of.thereAndBack};
}

double Searcher::boundWithContexts(const Candidate &candidate, double limit) {
  return preparedBounds.get({boundKeyOf(candidate), limit}, [&] {
    double seconds = computeRefinedBound(candidate, limit);
    for (const Candidate &variant : contextVariants(candidate))
      if (seconds > candidate.provenBound)
        seconds = std::min(seconds, computeRefinedBound(variant, limit));
    return std::min(std::max(seconds, candidate.provenBound), limit);
  });
}

double Searcher::refinedBound(const Candidate &candidate, double limit) {
  auto [found, isNew] = refinedBounds.try_emplace(boundKeyOf(candidate));
  RefinedBound &known = found->second;
  if (isNew || known.isTooLow(limit))
    known = {boundWithContexts(candidate, limit), limit};
  return known.seconds;
}

double Searcher::boundAhead(const Candidate &candidate, double limit) {
  auto known = refinedBounds.find(boundKeyOf(candidate));
  bool isKnown = known != refinedBounds.end() && !known->second.isTooLow(limit);
  return isKnown ? known->second.seconds : boundWithContexts(candidate, limit);
}

/// Returns the exposed part of a `transfer`-second collective that overlaps with `kernels` seconds
/// of compute. It is convex in `transfer`, so the exposed time of a sum is at most the sum of the
/// exposed times.
double Searcher::exposedSeconds(double transfer, double kernels) const {
  return cluster.exposedSeconds(transfer, cluster.overlapFraction * kernels);
}

/// Returns the exposed part of the gathers and reductions of each micro-batch, by phase.
double Searcher::exposedData(const Candidate &candidate, const DataMode &mode,
                             const WorkShare &total, double again) {
  double forward = 0, backward = 0;
  if (candidate.zero.zero >= 2)
    backward += transferSeconds(candidate, mode, CollectiveKind::ReduceScatter,
                                &ParameterTotals::trained, &ParameterTotals::gradientBytes);
  if (candidate.zero.zero == 3) {
    forward += transferSeconds(candidate, mode, CollectiveKind::AllGather,
                               &ParameterTotals::inForward, &ParameterTotals::forwardBytes);
    if (!candidate.zero.keepGathered)
      backward += transferSeconds(candidate, mode, CollectiveKind::AllGather,
                                  &ParameterTotals::inBackward, &ParameterTotals::backwardBytes);
  }
  return exposedSeconds(forward, total.forward) +
         exposedSeconds(backward, total.backward + total.weight + again);
}

/// Returns the seconds of one micro-batch of `seconds` through all chunks forward and backward,
/// without wgrad if the schedule splits it off.
double Searcher::passSeconds(const Candidate &candidate, const Work &known, double seconds) {
  bool parts = schedule::splitsBackward(candidate.schedule.kind());
  return (parts ? known.least.forward + known.least.backward : seconds) +
         2 * double(numHops(candidate)) * leastSendSeconds(candidate);
}

/// Returns a lower bound on the pipeline's seconds for any cut: `least` or more; stops at `limit`.
/// `more`: seconds beyond `known` in unknown positions. `again`: seconds added by recomputation.
double Searcher::scheduleSeconds(const Candidate &candidate, const Work &known, double more,
                                 double again, double least, double limit) {
  const ScheduleChoice &choice = candidate.schedule;
  const double send = leastSendSeconds(candidate);
  CutBound::Pipeline pipeline;
  pipeline.stages = candidate.mesh.pp;
  pipeline.accumulation = candidate.accumulation;
  pipeline.hasOneChunk = choice.chunksPerStage == 1;
  pipeline.partsBackward = schedule::splitsBackward(choice.kind());
  pipeline.sendSeconds = send;
  least = known.cuts->leastSeconds(pipeline, least, limit);
  constexpr int64_t mostTasks = 1 << 16; // some hundredths of a second
  int64_t tasks = candidate.mesh.pp * choice.chunksPerStage * candidate.accumulation;
  if (least >= limit || tasks > mostTasks)
    return least;
  const double seconds = known.total.seconds() + more + again;
  for (bool isFine : {false, true}) {
    const ChainMixture &mixture = mixtureFor(candidate, known.total, isFine);
    least = std::max(least, mixture.leastSeconds(known.inOrder, more, send, again, false));
    if (least >= limit)
      break;
    if (mixture.mostSeconds() * seconds >= limit)
      least = std::max(least, mixture.leastSeconds(known.inOrder, more, send, again, true));
    // More rounds, if they may prove that no cut is faster than `limit`.
    if (least >= limit || mixture.mostSeconds() * seconds < limit)
      break;
  }
  constexpr int64_t mostTries = 1 << 14;
  if (least < limit && tasks <= mostTries)
    least = std::max(least, shortestCutSeconds(costs.schedules.scheduleFor(candidate).schedule,
                                               known.leastByOp, known.inOrder.mayBegin, send,
                                               mostTries / tasks));
  return least;
}

/// Returns the expensive bound of one candidate; infinite if its kept values cannot fit. `kernels`
/// are divided evenly, `more` is communication in unknown positions, `again` is recomputation, and
/// `end` is the end of the step.
double Searcher::computeRefinedBound(const Candidate &candidate, double limit) {
  const MeshShape &mesh = candidate.mesh;
  const DataMode mode = boundMode(costs, candidate);
  int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  double room = mostKeptBytes(candidate, mode, limit);
  double again = room < 0 ? infinity : keepBoundFor(mesh, candidate.microBatch).leastSeconds(room);
  if (again == infinity)
    return again;

  const Work &known = workOf(devices, samples);
  const WorkShare &total = known.total;
  double kernels = total.forward + total.backward + total.weight;
  double between = leastSeconds(mesh, candidate.microBatch) - kernels -
                   (mostSaved(double(samples), 1) - mostSaved(double(samples), double(devices)));
  if (mesh.ep == 1 || !space.tensorAxisIsPinned())
    between += placedBeyondBlocks(mesh.tp, samples) / double(mesh.cp * mesh.ep);
  // In any position.
  const double more = std::max(0.0, between) + costs.meshes.batchSumSeconds(mesh).total() +
                      expertSeconds(mesh, candidate.microBatch) +
                      exposedData(candidate, mode, total, std::max(0.0, again));
  double accumulation = double(candidate.accumulation);
  const double seconds = kernels + more + again;
  const ScheduleChoice &choice = candidate.schedule;
  // Each op lies wholly on one stage.
  double least = std::max(seconds * accumulation / double(mesh.pp), known.largest * accumulation);
  if (std::optional<double> waits =
          schedule::leastIdleShare(choice.kind(), choice.chunksPerStage, schedule::Chunking::Any))
    least = std::max(
        least, schedule::pipelineLowerBound(seconds, mesh.pp, candidate.accumulation, *waits));
  if (mesh.pp > 1)
    least = std::max(least, passSeconds(candidate, known, seconds));
  const double scalars = leastScalarSeconds(mesh);
  double end = std::max(scalars, leastUpdateSeconds(candidate, mode) + scalars / double(mesh.pp));
  if (reducesInBackward(candidate))
    end += exposedSeconds(reduceStepSeconds(candidate, mode),
                          total.backward + total.weight + std::max(0.0, again));
  if (mesh.pp > 1 && least + end < limit)
    least = std::max(least, scheduleSeconds(candidate, known, more, again, least, limit - end));
  return std::max(least + end, candidate.provenBound);
}

} // namespace tbc::planner
