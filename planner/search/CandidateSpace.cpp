//===- CandidateSpace.cpp - Enumeration of candidates ---------------------===//

#include "planner/search/CandidateSpace.h"
#include "planner/reshard/SequenceOrder.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

/// Listing the steps of more micro-batches per rank would take too long.
constexpr int64_t mostMicroBatches = int64_t(1) << 20;
/// Beyond this, products of sizes exceed 64 bits. On 2^20 devices it is 1 TiB on each.
constexpr double mostValueBytes = double(int64_t(1) << 60);
/// Beyond this, sums of the bytes on a rank exceed 64 bits, together with its states (checkBytes).
constexpr double mostRankBytes = double(int64_t(1) << 61);

/// Whether the schedule is too long or a value too large for the search; records the first reason.
bool CandidateSpace::isTooLarge(const Candidate &candidate) {
  const double samples = double(candidate.microBatch) * double(candidate.mesh.dataRanks());
  const bool isWide = samples * problem.measures.mostBytesPerSample > mostValueBytes;
  const int64_t chunks =
      candidate.mesh.pp == 1 ? 1 : candidate.mesh.pp * candidate.schedule.chunksPerStage;
  const bool isLong = candidate.accumulation > mostMicroBatches / chunks;
  const int64_t inFlight = candidate.mesh.pp == 1 ? 1 : candidate.accumulation;
  const double ofValues = problem.measures.mostBytesPerSample * double(problem.graph.values.size());
  const bool isHeavy = double(candidate.microBatch * inFlight) * ofValues > mostRankBytes;
  if ((isWide || isLong || isHeavy) && whyLeftOut.empty())
    whyLeftOut =
        "--batch " + std::to_string(candidate.batch) + " on " + std::to_string(problem.job.gpus) +
        (problem.job.gpus == 1 ? " device" : " devices") + ": plans with more than " +
        std::to_string(mostMicroBatches) +
        " micro-batches per rank and step, in a pipeline times its stages, with a tensor "
        "of more than 1 EiB, or with values of perhaps more than 2 EiB for a rank, are not "
        "looked at";
  return isWide || isLong || isHeavy;
}

/// Whether the candidate's schedule allows its number of micro-batches.
bool CandidateSpace::mayRun(const Candidate &candidate) {
  const std::optional<ScheduleKind> kind = candidate.schedule.schedule;
  if (!kind)
    return true;
  schedule::Pipeline pipeline = schedule::Pipeline::plain(int(candidate.mesh.pp));
  if (candidate.schedule.chunksPerStage > 1)
    pipeline.chunkStage = candidate.schedule.chunkStage(candidate.mesh.pp);
  std::string why = schedule::whyInvalid(*kind, pipeline, candidate.accumulation);
  if (whyNoSchedule.empty())
    whyNoSchedule = why;
  return why.empty();
}

/// Whether the stages of `mesh` have devices of one type each.
bool CandidateSpace::isPlaceable(const MeshShape &mesh) const {
  return !problem.isMixed || keepsTypesApart(problem.cluster, mesh.pp, mesh.numRanks() / mesh.pp);
}

Status CandidateSpace::checkTypes() const {
  Status first = Status::ok();
  if (!problem.isMixed)
    return first;
  for (const MeshShape &mesh : problem.space.meshes(problem.job.gpus)) {
    Result<StageDevices> devices =
        StageDevices::make(problem.cluster, mesh.pp, mesh.numRanks() / mesh.pp);
    if (devices)
      return Status::ok();
    if (first)
      first = devices.error();
  }
  return first;
}

void CandidateSpace::listMesh(const MeshShape &mesh, int64_t batch,
                              std::vector<Candidate> &candidates) {
  const Space &space = problem.space;
  const std::vector<ScheduleChoice> schedules = space.schedules(mesh);
  const std::vector<ContextForm> contexts = space.contexts(mesh);
  for (int64_t microBatch : space.microBatches(mesh, batch)) {
    Candidate candidate;
    candidate.mesh = mesh;
    candidate.batch = batch;
    candidate.microBatch = microBatch;
    candidate.accumulation = batch / (mesh.dataRanks() * microBatch);
    candidate.offloadsStates = space.offload().states;
    candidate.offloadsResiduals = space.offload().residuals;
    std::vector<ScheduleChoice> possible;
    for (const ScheduleChoice &schedule : schedules) {
      candidate.schedule = schedule;
      if (!isTooLarge(candidate) && mayRun(candidate))
        possible.push_back(schedule);
    }
    for (const ZeroChoice &zero : space.zeroChoices(mesh)) {
      candidate.zero = zero;
      if (isLong && drops.ofMesh(candidate))
        continue;
      for (RecomputeMode recompute : space.recomputeModes())
        for (const ScheduleChoice &schedule : possible)
          for (ContextForm context : contexts) {
            candidate.context = context;
            candidate.recompute = recompute;
            candidate.schedule = schedule;
            if (!isLong || !drops.ofKept(candidate))
              candidates.push_back(candidate);
          }
    }
  }
}

/// Drops candidates to make the list shorter than the budget.
void CandidateSpace::dropMany(std::vector<Candidate> &candidates) {
  isLong = true;
  // Neighbours differ only by schedule and recomputation.
  const Candidate *previous = nullptr;
  bool isDropped = false;
  std::vector<Candidate> kept;
  for (const Candidate &candidate : candidates) {
    if (!previous || !(previous->mesh == candidate.mesh && previous->zero == candidate.zero &&
                       previous->microBatch == candidate.microBatch))
      isDropped = drops.ofMesh(candidate);
    previous = &candidate;
    if (!isDropped && !drops.ofKept(candidate))
      kept.push_back(candidate);
  }
  candidates = std::move(kept);
}

/// `isPossibleOnly`: skips meshes without scorable candidates.
void CandidateSpace::listOn(int64_t devices, bool isPossibleOnly, const Pins &limits,
                            std::vector<Candidate> &candidates) {
  if (howEnded != SearchEnd::Complete)
    return;
  const Space &space = problem.space;
  int64_t batch = problem.job.globalBatch;
  if (problem.job.batchIsDefault) { // rounded up, so that every data-parallel size divides it
    int64_t ranks = space.meshIsPinned() ? space.pinnedMesh().dataRanks() : devices;
    batch = (batch + ranks - 1) / ranks * ranks;
  }
  for (const MeshShape &mesh : space.meshes(devices)) {
    if ((mesh.dataRanks() > 1 && problem.graph.batchFactor < 0) || !isPlaceable(mesh))
      continue;
    if (isPossibleOnly &&
        (mesh.pp > problem.measures.numPositions || !problem.measures.mayDivide(mesh.tp)))
      continue;
    if (int64_t(candidates.size()) >= limits.budget.candidates && !isLong)
      dropMany(candidates);
    if (int64_t(candidates.size()) >= limits.budget.candidates)
      howEnded = SearchEnd::Budget;
    else if (!candidates.empty() && limits.deadline.isOver())
      howEnded = SearchEnd::TimeLimit;
    if (howEnded != SearchEnd::Complete)
      return;
    listMesh(mesh, batch, candidates);
  }
}

/// Returns numbers of devices below all of them, descending: the largest power of two, whole nodes,
/// the first groups of a mixed cluster, and large divisors of the batch. Devices may stay idle if
/// their number has no good divisors.
std::vector<int64_t> CandidateSpace::fewerDevices() const {
  const int64_t gpus = problem.job.gpus;
  std::vector<int64_t> fewer;
  int64_t power = 1;
  while (power * 2 <= gpus)
    power *= 2;
  fewer.push_back(power);
  fewer.push_back(gpus / problem.cluster.devicesPerNode * problem.cluster.devicesPerNode);
  int64_t ofFirstGroups = 0;
  for (const Cluster &group : problem.isMixed ? problem.cluster.groups : std::vector<Cluster>())
    fewer.push_back(ofFirstGroups += group.numNodes * group.devicesPerNode);
  for (int64_t divisor : divisorsOf(problem.job.globalBatch))
    if (divisor <= gpus && divisor * 2 > gpus)
      fewer.push_back(divisor);
  std::sort(fewer.rbegin(), fewer.rend());
  fewer.erase(std::unique(fewer.begin(), fewer.end()), fewer.end());
  return fewer;
}

std::vector<Candidate> CandidateSpace::list(const Pins &limits, const Exclusions &mayDrop) {
  drops = mayDrop;
  const bool meshIsPinned = problem.space.meshIsPinned();
  const int64_t gpus = problem.job.gpus;
  std::vector<Candidate> candidates;
  listOn(gpus, /*isPossibleOnly=*/!meshIsPinned, limits, candidates);
  if (candidates.empty()) // then scoring gives the reason
    listOn(gpus, /*isPossibleOnly=*/false, limits, candidates);
  if (!meshIsPinned)
    for (int64_t devices : fewerDevices())
      if (devices > 0 && devices < gpus)
        listOn(devices, /*isPossibleOnly=*/true, limits, candidates);
  return candidates;
}

/// Whether a factor of another axis may become cp.
bool CandidateSpace::mayHaveContext(const Candidate &candidate) const {
  return candidate.mesh.cp == 1 && candidate.microBatch == 1 && !problem.space.meshIsPinned() &&
         problem.graph.sequenceFactor >= 0;
}

/// Returns the variants of `candidate` with a factor of `axis` moved to cp, in no form yet.
std::vector<Candidate> CandidateSpace::moved(const Candidate &candidate, Axis axis) {
  const Space &space = problem.space;
  std::vector<Candidate> result;
  for (int64_t cp : {2, 4, 8, 16}) {
    Candidate next = candidate;
    int64_t &size = next.mesh.of(axis);
    // A pipeline of one stage would have another schedule.
    if (size % cp != 0 || (axis == Axis::Pipeline && size == cp))
      continue;
    size /= cp;
    next.mesh.cp = cp;
    next.accumulation = next.batch / next.mesh.dataRanks();
    std::vector<int64_t> microBatches = space.microBatches(next.mesh, next.batch);
    bool mayTake = std::count(microBatches.begin(), microBatches.end(), next.microBatch) > 0;
    if (!space.allowed(next.mesh) || !mayTake || !mayRun(next) || !isPlaceable(next.mesh) ||
        (space.isZigzag() && !whyNoZigzag(problem.graph, cp).empty()))
      continue;
    const bool hadNone = candidate.mesh.tokenRanks() == 1;
    for (const ZeroChoice &zero : space.zeroChoices(next.mesh)) {
      next.zero = hadNone ? zero : candidate.zero;
      if (hadNone || zero == candidate.zero)
        result.push_back(next);
    }
  }
  return result;
}

std::vector<Candidate> CandidateSpace::inForms(const Candidate &candidate, size_t most) const {
  std::vector<Candidate> result;
  Candidate next = candidate;
  for (ContextForm form : problem.space.contexts(candidate.mesh)) {
    if (result.size() == most)
      break;
    next.context = form;
    if (costs.models.strategiesFor(splitOf(next), next.microBatch))
      result.push_back(next);
  }
  return result;
}

std::vector<Candidate> CandidateSpace::withContext(const Candidate &candidate) {
  std::vector<Candidate> result;
  if (!mayHaveContext(candidate))
    return result;
  for (Axis axis : {Axis::Data, Axis::ShardedData, Axis::Tensor, Axis::Pipeline})
    for (const Candidate &next : moved(candidate, axis))
      for (Candidate &inForm : inForms(next))
        result.push_back(std::move(inForm));
  return result;
}

std::vector<Candidate> CandidateSpace::withContextOfTensors(const Candidate &candidate) {
  return mayHaveContext(candidate) ? moved(candidate, Axis::Tensor) : std::vector<Candidate>();
}

} // namespace tbc::planner
