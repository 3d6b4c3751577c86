//===- Bounder.cpp - Bounds of lists of candidates ------------------------===//

#include "planner/search/Bounder.h"
#include "planner/search/CandidateBound.h"
#include "planner/search/Families.h"
#include "planner/search/KeptBytesBound.h"
#include "planner/search/KernelBound.h"
#include "planner/search/LeastMemory.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>

namespace tbc::planner {

bool Bounder::mayDrop(const Candidate &candidate) {
  if (mayBeContext(problem, candidate) || familyOf(candidate).isDdp())
    return false;
  const double bytes = leastBytes(tables, candidate);
  const bool isDropped = bytes > double(problem.limitBytes);
  if (isDropped)
    leastOfDropped = std::min(leastOfDropped, bytes);
  return isDropped;
}

bool Bounder::mayDropForKept(const Candidate &candidate) const {
  return problem.space.recomputeModes().size() > 1 && candidate.mesh.cp == 1 &&
         (candidate.microBatch > 1 || problem.graph.sequenceFactor < 0) &&
         !familyOf(candidate).isDdp() && keepsTooMuch(tables, candidate);
}

void Bounder::boundMemory(std::vector<Candidate> &candidates) {
  const bool mayHaveContext = !problem.space.meshIsPinned() && problem.graph.sequenceFactor >= 0;
  leastOfAll = mayHaveContext ? leastBytesAnywhere(problem.graph, problem.job, problem.cluster,
                                                   problem.space.offload().states)
                              : std::numeric_limits<double>::infinity();
  leastOfAll = std::min(leastOfAll, leastOfDropped);
  for (Candidate &candidate : candidates) {
    candidate.leastBytes = leastBytes(tables, candidate);
    leastOfAll = std::min(leastOfAll, candidate.leastBytes);
  }
}

/// Makes the values shared by many candidates first, so that threads do not wait for each other.
void Bounder::shareWork(const std::vector<Candidate> &candidates, const Deadline &deadline) {
  std::set<int64_t> samples{1};
  std::map<std::array<int64_t, 4>, const Candidate *> parts;
  for (const Candidate &candidate : candidates) {
    const MeshShape &mesh = candidate.mesh;
    samples.insert(candidate.microBatch * mesh.ep);
    parts.emplace(std::array{mesh.tp, mesh.cp, mesh.ep, candidate.microBatch}, &candidate);
  }
  std::vector<int64_t> batches(samples.begin(), samples.end());
  workers.run(batches.size(), [&](size_t i) {
    if (!deadline.isOver())
      tables.wholeWorkFor(batches[i]);
  });
  std::vector<const Candidate *> list;
  for (const auto &[key, candidate] : parts)
    list.push_back(candidate);
  workers.run(list.size(), [&](size_t i) {
    if (!deadline.isOver())
      leastRecomputedSeconds(tables, list[i]->mesh, list[i]->microBatch);
  });
}

bool Bounder::boundTime(std::vector<Candidate> &candidates, const Deadline &deadline) {
  if (workers.count() > 1)
    shareWork(candidates, deadline);
  std::atomic<bool> isOver{false};
  const double least = peakRateSeconds(problem); // for candidates without time to bound
  counts.bounded += int64_t(candidates.size());
  constexpr size_t number = 256; // candidates per task
  workers.run((candidates.size() + number - 1) / number, [&](size_t part) {
    size_t end = std::min(candidates.size(), (part + 1) * number);
    if (deadline.isOver())
      isOver = true;
    for (size_t i = part * number; i < end; ++i) {
      const TimeBounds bounds =
          isOver ? TimeBounds{least, least} : candidateBounds(tables, candidates[i]);
      candidates[i].lowerBound = bounds.lower;
      candidates[i].provenBound = bounds.proven;
    }
  });
  return !isOver;
}

Bounder::Key Bounder::keyOf(const Candidate &candidate) {
  const ScheduleChoice &of = candidate.schedule;
  return {candidate.mesh.sizes(),      candidate.microBatch,
          candidate.accumulation,      candidate.zero.zero,
          candidate.zero.keepGathered, of.kind(),
          of.chunksPerStage,           of.thereAndBack};
}

/// Returns the key of a bound. A candidate without variants has one bound for both.
Bounder::MeshesKey Bounder::meshesKeyOf(const Candidate &candidate, BoundMeshes meshes) const {
  return {keyOf(candidate), mayBeContext(problem, candidate) ? meshes : BoundMeshes::Own};
}

double Bounder::computed(const Candidate &candidate, double limit, BoundMeshes meshes) {
  return knownAhead.get({meshesKeyOf(candidate, meshes), limit},
                        [&] { return refinedBound(tables, candidate, limit, meshes); });
}

double Bounder::refined(const Candidate &candidate, double limit, BoundMeshes meshes) {
  auto [found, isNew] = known.try_emplace(meshesKeyOf(candidate, meshes));
  Refined &entry = found->second;
  if (isNew || entry.isTooLow(limit))
    entry = {computed(candidate, limit, meshes), limit};
  return entry.seconds;
}

double Bounder::refinedFinally(const Candidate &candidate, double limit) {
  auto [found, isNew] = finals.try_emplace(keyOf(candidate));
  if (isNew)
    found->second =
        refinedBound(tables, candidate, limit, BoundMeshes::WithContexts, /*isFinal=*/true);
  return found->second;
}

double Bounder::refinedAhead(const Candidate &candidate, double limit, BoundMeshes meshes) {
  auto found = known.find(meshesKeyOf(candidate, meshes));
  bool isKnown = found != known.end() && !found->second.isTooLow(limit);
  return isKnown ? found->second.seconds : computed(candidate, limit, meshes);
}

} // namespace tbc::planner
