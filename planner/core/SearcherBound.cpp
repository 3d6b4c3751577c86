//===- SearcherBound.cpp - No plan of a candidate is faster ------------------===//
//
// A cheap bound for each candidate, and a dear one for the few that could still be better than what
// the search has found. Both are sums of what nothing can avoid: kernels divided evenly (with tp
// the placement's own bound), collectives that kernels cannot hide, the schedule's bubble whatever
// the cut, what memory forces to be computed again, and the update.
//
//===----------------------------------------------------------------------===//

#include "planner/core/Evaluate.h"
#include "planner/core/KeepBound.h"
#include "planner/core/PipelineBound.h"
#include "planner/core/Recompute.h"
#include "planner/core/Searcher.h"

#include <algorithm>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// The kernel of `op` if it divided evenly over the devices of a model: no strategy is faster.
double Searcher::dividedSeconds(const Graph &batched, int op, int64_t devices) const {
  LocalWork work = localWork(batched, op, OpStrategy());
  work.flops /= double(devices);
  work.bytes /= double(devices);
  return kernelSeconds(cluster, batched.ops[op].kernelClass, work);
}

/// Kernels of the ops of `part` (null: all) in one micro-batch if each divided evenly over the
/// devices of a model: no strategy is faster.
double Searcher::idealSecondsOf(const Graph &batched, int64_t devices,
                                const std::vector<bool> *part) const {
  double total = 0;
  for (int op = 0; op < int(batched.ops.size()); ++op) {
    if (part && !(*part)[op])
      continue;
    total += dividedSeconds(batched, op, devices);
  }
  return total;
}

double Searcher::idealSeconds(int64_t devices, int64_t microBatch) {
  auto [found, isNew] = ideals.emplace(std::make_pair(devices, microBatch), 0.0);
  if (isNew)
    found->second = idealSecondsOf(graphFor(microBatch), devices, nullptr);
  return found->second;
}

double Searcher::leastSeconds(int64_t tp, int64_t microBatch) {
  double ideal = idealSeconds(tp, microBatch);
  if (tp == 1 || repeat.count == 0)
    return ideal;
  auto [found, isNew] = leasts.emplace(std::make_pair(tp, microBatch), ideal);
  if (!isNew)
    return found->second;
  const Graph &batched = graphFor(microBatch);
  double bound = placementBound(batched, repeat.ops, tp, job, cluster, space.tensorAxisIsPinned());
  double without = idealSecondsOf(batched, tp, &repeat.ops);
  return found->second += double(repeat.count) * std::max(0.0, bound - without);
}

double Searcher::leastSeconds(const MeshShape &mesh, int64_t microBatch) {
  int64_t parts = mesh.cp * mesh.ep, samples = microBatch * mesh.ep;
  double ideal = idealSeconds(mesh.tp * parts, samples);
  // Where tp has to split what it can, it can no less inside of experts.
  if (mesh.ep > 1 && space.tensorAxisIsPinned())
    return ideal;
  // A part of a kernel or of a collective takes no less than that part of its time.
  return std::max(ideal, leastSeconds(mesh.tp, samples) / double(parts));
}

/// Of all stages together, what no plan of the candidate avoids once per step.
double Searcher::leastUpdateSeconds(const Candidate &candidate, const DataMode &mode) {
  const Totals &of = totals();
  const MeshShape &mesh = candidate.mesh;
  double shards = double(mode.groups[0].zero.size); // ep is among them
  double devices = double(mesh.tp) * (candidate.zero.zero > 0 ? shards : double(mesh.ep));
  // Every stage has as much on average; the step ends with the one that has most.
  double seconds = updateSeconds(cluster, of.updateBytes / devices, of.trained);
  if (candidate.zero.zero == 1 || candidate.zero.zero == 2)
    seconds += transferSeconds(candidate, mode, CollectiveKind::AllGather, of.trainedBytes);
  return seconds / double(mesh.pp);
}

/// The time on the wire of a collective of all parameters of a model, `bytes` together, over the
/// zero group, each rank with its part of them.
double Searcher::transferSeconds(const Candidate &candidate, const DataMode &mode,
                                 CollectiveKind kind, double bytes) {
  const NetworkCost &network = networkFor(candidate.mesh);
  const GroupShape &group = mode.groups[0].zero;
  if (candidate.mesh.ep > 1) // experts have another group
    return 0;
  return network.seconds(kind, group, bytes / double(candidate.mesh.tp)) -
         network.seconds(kind, group, 0);
}

const Searcher::Totals &Searcher::totals() {
  if (knownTotals.trained >= 0)
    return knownTotals;
  Totals &of = knownTotals;
  of.trained = 0;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    double bytes = double(value.layout.numElements() * value.layout.elementBytes);
    bool inForward = false, inBackward = false;
    for (int user : value.users) {
      inForward |= graph.ops[user].phase == Phase::Forward;
      inBackward |= graph.ops[user].phase != Phase::Forward;
    }
    of.bytes += value.users.empty() ? 0 : bytes;
    of.forwardBytes += inForward ? bytes : 0;
    of.backwardBytes += inBackward ? bytes : 0;
    if (parameter.gradient < 0 || value.users.empty())
      continue;
    double elements = double(value.layout.numElements());
    int64_t gradientBytes = graph.values[parameter.gradient].layout.elementBytes;
    ++of.trained;
    of.trainedBytes += bytes;
    of.gradientBytes += elements * double(gradientBytes);
    of.stateBytes +=
        elements * double(job.stateBytesPerElement() + masterBytes(value.layout.elementBytes));
    of.updateBytes += updateBytes(job, elements, value.layout.elementBytes, gradientBytes);
  }
  return of;
}

/// The most that computing ops again saves in a micro-batch of `samples` divided over `parts`.
double Searcher::mostSaved(double samples, double parts) {
  if (!saving)
    saving = mostSavedByRunningAgain(graphFor(1), cluster);
  return saving->launchSeconds + saving->movementSeconds * samples / parts;
}

/// leastSeconds() where ops may be computed again. Kernels divided over fewer devices than all
/// save more of their time, but take more to begin with; next to collectives that may be worth it.
double Searcher::secondsWhateverIsKept(const MeshShape &mesh, int64_t microBatch) {
  return std::max(idealWhateverIsKept(mesh, microBatch),
                  leastSeconds(mesh, microBatch) - mostSaved(double(microBatch * mesh.ep), 1));
}

double Searcher::idealWhateverIsKept(const MeshShape &mesh, int64_t microBatch) {
  int64_t samples = microBatch * mesh.ep, parts = mesh.tp * mesh.cp * mesh.ep;
  return idealSeconds(parts, samples) - mostSaved(double(samples), double(parts));
}

/// Whether what is proven of the candidate has to hold for meshes with cp as well, which are not
/// enumerated: with a part of tp on cp, or of the data axes, where no other candidate stands for
/// that. Larger micro-batches are no worse over data ranks.
bool Searcher::mayBeContext(const Candidate &candidate) const {
  return !space.meshIsPinned() && graph.sequenceFactor >= 0 && candidate.microBatch == 1 &&
         (candidate.mesh.tp > 1 || !space.tensorAxisIsOpen());
}

/// The bound that holds for every plan with the candidate's mesh, micro-batch, ZeRO and schedule,
/// and the one for those with chunks of equal length on a stage, which are what the search looks
/// at.
void Searcher::bound(Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  double seconds = secondsWhateverIsKept(mesh, candidate.microBatch);
  double proven =
      mayBeContext(candidate) ? idealWhateverIsKept(mesh, candidate.microBatch) : seconds;
  const ScheduleChoice &choice = candidate.schedule;
  int64_t stages = mesh.pp, accumulation = candidate.accumulation;
  double update = leastUpdateSeconds(candidate, dataMode(candidate));
  if (choice.schedule != "interleaved" && choice.schedule != "zero-bubble") {
    candidate.provenBound = pipelineLowerBound(proven, stages, accumulation) + update;
    candidate.lowerBound = pipelineLowerBound(seconds, stages, accumulation) + update;
    return;
  }
  bool parts = choice.schedule == "zero-bubble";
  // However long the chunks: a stage has its share of the work, and one micro-batch passes all of
  // them there and back, but for what is parted from the backward, at most half of the work.
  candidate.provenBound =
      proven * std::max(double(accumulation) / double(stages), parts ? 0.5 : 1.0) + update;
  // What a stage waits for first is one chunk of each stage before it, and with weight parts to
  // fill the end of the step the forward of that alone: with recomputation a fourth of the chunk.
  double waits = (parts ? 0.25 : 1.0) / double(choice.chunksPerStage);
  candidate.lowerBound = std::max(
      candidate.provenBound, pipelineLowerBound(seconds, stages, accumulation, waits) + update);
}

KeepBound &Searcher::keepBoundFor(const MeshShape &mesh, int64_t microBatch) {
  int64_t parts = mesh.tp * mesh.cp * mesh.ep, samples = microBatch * mesh.ep;
  auto &bound = keepBounds[{parts, samples}];
  if (!bound)
    bound = std::make_unique<KeepBound>(graphFor(samples), cluster, repeat, double(parts));
  return *bound;
}

/// What all stages may keep of one micro-batch of the candidate, together: each keeps at least what
/// it has of the micro-batch that it takes back first. What may lie on the host takes of its memory
/// too.
double Searcher::mostKeptBytes(const Candidate &candidate, const DataMode &mode) {
  const Totals &of = totals();
  const MeshShape &mesh = candidate.mesh;
  double usable =
      (double(limitBytes) - double(cluster.contextBytes)) / (1 + cluster.allocatorFraction);
  double tp = double(mesh.tp), shards = double(mode.groups[0].zero.size), ep = double(mesh.ep);
  int zero = candidate.zero.zero;
  double fixed = of.bytes / (zero == 3 ? shards : ep) +
                 of.gradientBytes / (zero >= 2 ? shards : ep) +
                 (mode.offloadsStates ? 0 : of.stateBytes / (zero >= 1 ? shards : ep)) +
                 (candidate.zero.keepGathered ? of.backwardBytes / ep : 0);
  if (candidate.offloadsResiduals)
    usable += double(cluster.usableHostBytes());
  return double(mesh.pp) * usable - fixed / tp;
}

const Searcher::Work &Searcher::workOf(int64_t parts, int64_t samples) {
  auto [found, isNew] = works.try_emplace({parts, samples});
  Work &work = found->second;
  if (!isNew)
    return work;
  const ProfiledGraph &profiled = profiledGraphFor(samples, "none");
  const Graph &batched = profiled.graph;
  std::vector<WorkShare> shares(size_t(numForwardOps(batched)));
  for (int op = 0; op < int(batched.ops.size()); ++op) {
    WorkShare &share = shares[profiled.anchors[op]];
    double seconds = dividedSeconds(batched, op, parts);
    (batched.ops[op].phase == Phase::Forward ? share.forward
     : profiled.canWait[op]                  ? share.weight
                                             : share.backward) += seconds;
  }
  // Of ops that take the same the same chunk is the cheapest.
  std::map<std::tuple<double, double, double>, int> counts;
  for (const WorkShare &share : shares) {
    work.largest = std::max(work.largest, share.forward + share.backward + share.weight);
    ++counts[{share.forward, share.backward, share.weight}];
  }
  for (const auto &[share, count] : counts) {
    const auto &[forward, backward, weight] = share;
    work.shares.push_back({forward * count, backward * count, weight * count});
    work.total.forward += forward * count;
    work.total.backward += backward * count;
    work.total.weight += weight * count;
  }
  return work;
}

const ChainMixture &Searcher::mixtureFor(const Candidate &candidate, const WorkShare &total) {
  const ScheduleChoice &choice = candidate.schedule;
  auto &mixture = mixtures[{choice.schedule, choice.chunksPerStage, choice.thereAndBack,
                            candidate.mesh.pp, candidate.accumulation}];
  if (!mixture)
    mixture = std::make_unique<ChainMixture>(
        scheduleFor(candidate, candidate.accumulation).schedule, total);
  return *mixture;
}

double Searcher::refinedBound(const Candidate &candidate) {
  // Whatever is recomputed, so the same for every mode.
  const ScheduleChoice &of = candidate.schedule;
  auto [found, isNew] = refinedBounds.try_emplace(
      {candidate.mesh.sizes(), candidate.microBatch, candidate.accumulation, candidate.zero.zero,
       candidate.zero.keepGathered, of.schedule, of.chunksPerStage, of.thereAndBack});
  if (isNew)
    found->second = computeRefinedBound(candidate);
  return found->second;
}

double Searcher::computeRefinedBound(const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  const DataMode mode = dataMode(candidate);
  int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  double room = mostKeptBytes(candidate, mode);
  double again = room < 0 ? infinity : keepBoundFor(mesh, candidate.microBatch).leastSeconds(room);
  if (again == infinity)
    return again;

  const Work &known = workOf(devices, samples);
  const WorkShare &total = known.total;
  double kernels = total.forward + total.backward + total.weight;
  WorkShare more; // wherever it falls
  double between = leastSeconds(mesh, candidate.microBatch) - kernels -
                   (mostSaved(double(samples), 1) - mostSaved(double(samples), double(devices)));
  if (mayBeContext(candidate))
    between = 0;
  more.anyPhase = std::max(0.0, again) + std::max(0.0, between);
  // What of the gathers and reductions of each micro-batch the kernels cannot hide.
  const Totals &of = totals();
  double forward = 0, backward = 0;
  if (candidate.zero.zero >= 2)
    backward += transferSeconds(candidate, mode, CollectiveKind::ReduceScatter, of.gradientBytes);
  if (candidate.zero.zero == 3) {
    forward += transferSeconds(candidate, mode, CollectiveKind::AllGather, of.forwardBytes);
    if (!candidate.zero.keepGathered)
      backward += transferSeconds(candidate, mode, CollectiveKind::AllGather, of.backwardBytes);
  }
  auto exposed = [&](double transfer, double seconds) {
    return std::max(0.0, transfer - cluster.overlapFraction * seconds);
  };
  more.anyPhase += exposed(forward, total.forward) +
                   exposed(backward, total.backward + total.weight + std::max(0.0, again));
  std::vector<WorkShare> work = known.shares;
  work.push_back(more);

  double accumulation = double(candidate.accumulation), least = 0;
  double seconds = kernels + more.anyPhase;
  const ScheduleChoice &choice = candidate.schedule;
  constexpr int64_t mostTasks = 1 << 14; // some milliseconds
  if (choice.schedule != "interleaved" && choice.schedule != "zero-bubble")
    least = pipelineLowerBound(seconds, mesh.pp, candidate.accumulation);
  else if (mesh.pp * choice.chunksPerStage * candidate.accumulation <= mostTasks)
    least = mixtureFor(candidate, total).leastSeconds(work);
  least = std::max(least, seconds * accumulation / double(mesh.pp));
  // No op is divided among stages.
  least = std::max(least, accumulation * known.largest);
  double step = least + std::min(0.0, again) * accumulation + leastUpdateSeconds(candidate, mode);
  if (mesh.pp == 1 && candidate.zero.zero < 2) {
    CollectiveKind kind =
        candidate.zero.zero == 0 ? CollectiveKind::AllReduce : CollectiveKind::ReduceScatter;
    const GroupShape &group =
        candidate.zero.zero == 0 ? mode.groups[0].reduce : mode.groups[0].zero;
    const NetworkCost &network = networkFor(mesh);
    double bytes = mesh.ep > 1 ? 0 : of.gradientBytes / double(mesh.tp);
    step += exposed(network.seconds(kind, group, bytes) - network.seconds(kind, group, 0),
                    total.backward + total.weight + std::max(0.0, again));
  }
  return std::max(step, candidate.provenBound);
}

} // namespace tbc::planner
