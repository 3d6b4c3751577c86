//===- SearcherShared.cpp - Results shared by candidates ------------------===//
//
// Made by the first candidate with a request, on any thread.
//
//===----------------------------------------------------------------------===//

#include "planner/devices/StageDevices.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/pins/Space.h"
#include "planner/search/Searcher.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

const Graph &Searcher::graphFor(int64_t microBatch) {
  return graphs.get(microBatch, [&] { return withBatch(graph, microBatch); });
}

const std::vector<uint64_t> &Searcher::hashes() {
  return knownHashes.get([&] { return structuralHashes(graph); });
}

const Placement &Searcher::placementFor(int64_t tp, int64_t microBatch, bool hasExperts) {
  // On one device all placements are the same.
  auto key = std::make_tuple(tp, tp == 1 ? 0 : microBatch, tp > 1 && hasExperts);
  return placements.get(key, [&] {
    Graph inside;
    if (hasExperts) {
      inside = graphFor(microBatch);
      for (GraphOp &op : inside.ops)
        if (op.expertLoop >= 0)
          op.loops[op.expertLoop].kind = LoopKind::Fixed;
    }
    // One placement for all; on heterogeneous devices, the first group determines it.
    const Cluster &devices = cluster.isMixed() ? cluster.groups[0] : cluster;
    Placement placement =
        place(hasExperts ? inside : graphFor(microBatch), tp, job, devices,
              double(microBatch) / double(job.globalBatch), space.tensorAxisIsPinned(), pinned);
    counted.strategies += placement.compared;
    return placement;
  });
}

const std::vector<bool> &Searcher::flagsFor(RecomputeMode recompute, int64_t microBatch) {
  return flags.get({microBatch, recompute}, [&] {
    const Graph &batched = graphFor(microBatch);
    std::vector<bool> again = recompute == RecomputeMode::None && space.recomputeIsOpen()
                                  ? freeToRecompute(batched)
                                  : recomputeFlags(batched, recompute);
    pinned.applyTo(again);
    return again;
  });
}

const ProfiledGraph &Searcher::profiledGraphFor(int64_t microBatch, RecomputeMode recompute) {
  return profiledGraphs.get({microBatch, recompute}, [&] {
    return ProfiledGraph(graphFor(microBatch), flagsFor(recompute, microBatch));
  });
}

Searcher::ModelSplit Searcher::splitOf(const Candidate &candidate) {
  return {candidate.mesh.tp, candidate.mesh.ep, candidate.mesh.cp, candidate.context};
}

Searcher::ModelSplit Searcher::withoutContext(ModelSplit split) {
  split.cp = 1;
  split.form = ContextForm::AllGather;
  return split;
}

Mesh Searcher::meshOf(const ModelSplit &split) {
  MeshShape mesh;
  mesh.tp = split.tp;
  mesh.ep = split.ep;
  mesh.cp = split.cp;
  return mesh.mesh();
}

const std::vector<OpStrategy> *Searcher::strategiesFor(const ModelSplit &split,
                                                       int64_t microBatch) {
  if (split.ep == 1 && split.cp == 1)
    return &placementFor(split.tp, microBatch, /*hasExperts=*/false).strategies;
  const KnownStrategies &known = splitStrategies(split, microBatch);
  return known.ofOps.empty() ? nullptr : &known.ofOps;
}

const Searcher::KnownStrategies &Searcher::splitStrategies(const ModelSplit &split,
                                                           int64_t microBatch) {
  return strategies.get({split, microBatch}, [&] {
    const Graph &batched = graphFor(microBatch * split.ep);
    Mesh mesh = meshOf(split);
    KnownStrategies known;
    known.ofOps = placementFor(split.tp, microBatch, split.ep > 1).strategies;
    for (OpStrategy &strategy : known.ofOps) // tp may not be the only axis
      for (auto &[loop, axes] : strategy.loopAxes)
        for (AxisRef &axis : axes)
          axis.axis = mesh.axisIndex("tp");
    if (split.ep > 1)
      known.ofOps = withExperts(batched, known.ofOps, {wholeAxis(mesh, mesh.axisIndex("ep"))});
    std::string why;
    if (split.cp > 1)
      why = addContext(batched, known.ofOps, {wholeAxis(mesh, mesh.axisIndex("cp"))}, split.form);
    if (!why.empty()) {
      known.whyNot = std::string("--context ") + name(split.form) + ": " + why;
      known.ofOps.clear();
    }
    return known;
  });
}

const std::string &Searcher::refusedContext(const Candidate &candidate) {
  return splitStrategies(splitOf(candidate), candidate.microBatch).whyNot;
}

const Searcher::KnownSchedule &Searcher::scheduleFor(const Candidate &candidate,
                                                     int64_t accumulation) {
  const ScheduleChoice &choice = candidate.schedule;
  int64_t pp = candidate.mesh.pp;
  return knownSchedules.get(
      {choice.kind(), choice.chunksPerStage, choice.thereAndBack, pp, accumulation}, [&] {
        KnownSchedule known;
        known.schedule =
            PipelineSchedule::make(choice.schedule, pp, choice.chunkStage(pp), accumulation);
        for (const std::vector<schedule::Action> &actions : known.schedule.actions)
          known.moments.push_back(schedule::fullestMoments(actions, choice.chunksPerStage));
        return known;
      });
}

const std::vector<schedule::Moments> &Searcher::momentsOf(const Candidate &candidate) {
  int64_t enough = 4 * candidate.mesh.pp * candidate.schedule.chunksPerStage;
  bool holdsAll = schedule::keepsAllMicroBatches(candidate.schedule.kind());
  return scheduleFor(candidate,
                     holdsAll ? candidate.accumulation : std::min(enough, candidate.accumulation))
      .moments;
}

static bool splitsAnything(const Placement &placement) {
  for (const OpStrategy &strategy : placement.strategies)
    for (const auto &[loop, axes] : strategy.loopAxes)
      if (!axes.empty())
        return true;
  return false;
}

/// Whether the ops allow the candidate's split.
bool Searcher::mayPlace(const Candidate &candidate) {
  // Devices that repeat the work of others are effectively idle.
  if (candidate.mesh.tp > 1 && !space.meshIsPinned() &&
      !splitsAnything(placementFor(candidate.mesh.tp, candidate.microBatch, candidate.mesh.ep > 1)))
    return false;
  const std::vector<OpStrategy> *strategies =
      strategiesFor(splitOf(candidate), candidate.microBatch);
  int tensorAxis = meshOf(splitOf(candidate)).axisIndex("tp");
  return strategies && pinned.areMetBy(graph, *strategies, tensorAxis);
}

/// Whether only some blocks of the candidate may recompute.
bool Searcher::isPartial(const Candidate &candidate) const {
  return candidate.recompute != RecomputeMode::None && space.mayRecomputeInPart();
}

void Searcher::prepare(const std::vector<const Candidate *> &candidates) {
  if (workers.count() == 1)
    return; // made when it is asked for
  std::map<std::tuple<ModelSplit, int64_t>, const Candidate *> splits;
  for (const Candidate *candidate : candidates)
    splits.emplace(std::make_tuple(splitOf(*candidate), candidate->microBatch), candidate);
  std::vector<const Candidate *> list;
  for (const auto &[key, candidate] : splits)
    list.push_back(candidate);
  workers.run(list.size(), [&](size_t i) { mayPlace(*list[i]); });

  struct Wanted {
    const Candidate *candidate;
    RecomputeMode recompute;
    int stage;
  };
  std::map<std::tuple<ModelSplit, int64_t, RecomputeMode, StageKind>, Wanted> wanted;
  for (const Candidate *candidate : candidates) {
    if (!mayPlace(*candidate))
      continue;
    const StageDevices &devices = stagesFor(candidate->mesh).devices;
    std::vector<RecomputeMode> modes{candidate->recompute};
    if (isPartial(*candidate))
      modes.push_back(weakerMode(candidate->recompute));
    for (RecomputeMode mode : modes)
      for (int stage = 0; stage < (devices.isUniform() ? 1 : int(candidate->mesh.pp)); ++stage)
        wanted.try_emplace({splitOf(*candidate), candidate->microBatch, mode,
                            devices.isUniform() ? StageKind() : devices.kindOf(stage)},
                           Wanted{candidate, mode, stage});
  }
  std::vector<Wanted> asked;
  for (const auto &[key, of] : wanted)
    asked.push_back(of);
  workers.run(asked.size(), [&](size_t i) {
    profileOf(*asked[i].candidate, asked[i].recompute, asked[i].stage);
  });
}

const Searcher::BatchSumSeconds &Searcher::batchSumSeconds(const MeshShape &shape) {
  return batchSumSeconds(shape, networkFor(shape), {-1, 0, false});
}

const Searcher::BatchSumSeconds &Searcher::batchSumSeconds(const MeshShape &shape,
                                                           const NetworkCost &network,
                                                           const StageKind &kind) {
  return knownBatchSums.get({shape.sizes(), kind}, [&] {
    BatchSumSeconds seconds;
    seconds.forward.assign(size_t(numForward) + 1, 0);
    seconds.backward = seconds.forward;
    const Mesh mesh = shape.mesh();
    std::vector<AxisRef> data;
    for (const char *name : {"dp", "fsdp"})
      if (int axis = mesh.axisIndex(name); axis >= 0)
        data.push_back(wholeAxis(mesh, axis));
    const GroupShape group = network.groupShape(data);
    for (const BatchSum &sum : sumsOverBatch.get([&] { return batchSums(graph); })) {
      double bytes = sum.bytes / double(shape.tp);
      double atOnce = network.seconds(CollectiveKind::AllReduce, group, bytes);
      double inParts = network.seconds(CollectiveKind::ReduceScatter, group, bytes) +
                       network.seconds(CollectiveKind::AllGather, group, bytes);
      (sum.isForward ? seconds.forward : seconds.backward)[size_t(sum.anchor) + 1] +=
          std::min(atOnce, inParts);
    }
    for (size_t op = 1; op <= size_t(numForward); ++op) {
      seconds.forward[op] += seconds.forward[op - 1];
      seconds.backward[op] += seconds.backward[op - 1];
    }
    return seconds;
  });
}

} // namespace tbc::planner
