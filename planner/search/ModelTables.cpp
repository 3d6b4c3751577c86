//===- ModelTables.cpp - Placements and profiles shared by candidates -----===//

#include "planner/search/ModelTables.h"
#include "planner/cost/KernelShares.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/reshard/Rebatch.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

const Graph &ModelTables::graphFor(int64_t samples) const {
  return graphs.get(samples, [&] { return withBatch(problem.graph, samples); });
}

const std::vector<KernelShare> &ModelTables::sharesFor(const Cluster &devices,
                                                       int64_t samples) const {
  return shares.get({devices.hasKernelWorkspace, samples}, [&] {
    const Graph &batched = graphFor(samples);
    if (!devices.executor.isOwn())
      return kernelShares(devices, batched);
    const BlockKernels &blocks =
        kernels.get(samples > 1, [&] { return planUnsplitKernels(batched); });
    return ownKernelShares(devices, batched, blocks);
  });
}

const std::vector<uint64_t> &ModelTables::hashes() const {
  return structure.get([&] { return structuralHashes(problem.graph); });
}

const std::vector<bool> &ModelTables::flagsFor(RecomputeMode recompute, int64_t samples) const {
  return flags.get({samples, recompute}, [&] {
    const Graph &batched = graphFor(samples);
    const bool joinsMatmuls =
        executorOf(problem.cluster).isOwn() && problem.cluster.hasKernelWorkspace;
    std::vector<bool> recomputed =
        recompute == RecomputeMode::None && problem.space.recompute().isOpen()
            ? freeToRecompute(batched, joinsMatmuls)
            : recomputeFlags(batched, recompute, executorOf(problem.cluster).recomputesBlocks);
    problem.pinned.applyTo(recomputed);
    return recomputed;
  });
}

double ModelTables::unforcedKeptBytes(int64_t samples) const {
  return unforcedKept.get(samples, [&] {
    return leastKeptBytes(graphFor(samples), flagsFor(RecomputeMode::None, samples));
  });
}

const FewerRepeats *ModelTables::fewerRepeatsFor(int64_t samples, RecomputeMode recompute,
                                                 const std::vector<OpStrategy> &strategies) const {
  const std::optional<FewerRepeats> &fewer =
      fewerRepeats.get([&] { return withFewerRepeats(problem.graph); });
  if (!fewer)
    return nullptr;
  const std::vector<bool> &recomputed = flagsFor(recompute, samples);
  for (size_t op = 0; op < fewer->sameAs.size(); ++op) {
    const auto like = size_t(fewer->sameAs[op]);
    if (recomputed[op] != recomputed[like] || strategies[op].loopAxes != strategies[like].loopAxes)
      return nullptr;
  }
  return &*fewer;
}

const ProfiledGraph &ModelTables::profiledGraphFor(int64_t samples, RecomputeMode recompute,
                                                   const FewerRepeats *fewer) const {
  return profiledGraphs.get({samples, recompute, fewer != nullptr}, [&] {
    return ProfiledGraph(graphFor(samples), flagsFor(recompute, samples), fewer);
  });
}

//===----------------------------------------------------------------------===//
// Placements and strategies
//===----------------------------------------------------------------------===//

const Placement &ModelTables::placementFor(int64_t tp, int64_t microBatch, bool hasExperts) const {
  // On one device all placements are the same.
  auto key = std::make_tuple(tp, tp == 1 ? 0 : microBatch, tp > 1 && hasExperts);
  return placements.get(key, [&] { return computePlacement(tp, microBatch, hasExperts); });
}

Placement ModelTables::computePlacement(int64_t tp, int64_t microBatch, bool hasExperts) const {
  Graph inside;
  if (hasExperts) {
    inside = graphFor(microBatch);
    for (GraphOp &op : inside.ops)
      if (op.expertLoop >= 0)
        op.loops[op.expertLoop].kind = LoopKind::Fixed;
  }
  // One placement for all; on heterogeneous devices, the first group determines it.
  const Cluster &devices = problem.isMixed ? problem.cluster.groups[0] : problem.cluster;
  Placement placement = place(hasExperts ? inside : graphFor(microBatch), tp, problem.job, devices,
                              double(microBatch) / double(problem.job.globalBatch),
                              problem.space.tensorAxisIsPinned(), problem.pinned,
                              tp == 1 ? nullptr : &sharesFor(devices, microBatch));
  counts.strategies += placement.compared;
  return placement;
}

const std::vector<OpStrategy> *ModelTables::strategiesFor(const ModelSplit &split,
                                                          int64_t microBatch) const {
  if (split.ep == 1 && split.cp == 1)
    return &placementFor(split.tp, microBatch, /*hasExperts=*/false).strategies;
  const Strategies &known = splitStrategies(split, microBatch);
  return known.ofOps.empty() ? nullptr : &known.ofOps;
}

const ModelTables::Strategies &ModelTables::splitStrategies(const ModelSplit &split,
                                                            int64_t microBatch) const {
  return strategies.get({split, microBatch}, [&] { return computeStrategies(split, microBatch); });
}

ModelTables::Strategies ModelTables::computeStrategies(const ModelSplit &split,
                                                       int64_t microBatch) const {
  const Graph &batched = graphFor(microBatch * split.ep);
  Mesh mesh = split.mesh();
  Strategies known;
  known.ofOps = placementFor(split.tp, microBatch, split.ep > 1).strategies;
  for (OpStrategy &strategy : known.ofOps) // tp may not be the only axis
    for (auto &[loop, axes] : strategy.loopAxes)
      for (AxisRef &axis : axes)
        axis.axis = axisIndex(mesh, Axis::Tensor);
  if (split.ep > 1)
    known.ofOps =
        withExperts(batched, known.ofOps, {wholeAxis(mesh, axisIndex(mesh, Axis::Expert))});
  std::string why;
  if (split.cp > 1)
    why = addContext(batched, known.ofOps, {wholeAxis(mesh, axisIndex(mesh, Axis::Context))},
                     split.form);
  if (!why.empty()) {
    known.whyNot = std::string("--context ") + name(split.form) + ": " + why;
    known.ofOps.clear();
  }
  return known;
}

const std::string &ModelTables::refusedContext(const Candidate &candidate) const {
  return splitStrategies(splitOf(candidate), candidate.microBatch).whyNot;
}

static bool splitsAnything(const Placement &placement) {
  for (const OpStrategy &strategy : placement.strategies)
    for (const auto &[loop, axes] : strategy.loopAxes)
      if (!axes.empty())
        return true;
  return false;
}

bool ModelTables::mayPlace(const Candidate &candidate) const {
  // Devices that repeat the work of others are effectively idle.
  if (candidate.mesh.tp > 1 && !problem.space.meshIsPinned() &&
      !splitsAnything(placementFor(candidate.mesh.tp, candidate.microBatch, candidate.mesh.ep > 1)))
    return false;
  const ModelSplit split = splitOf(candidate);
  const std::vector<OpStrategy> *ofOps = strategiesFor(split, candidate.microBatch);
  int tensorAxis = axisIndex(split.mesh(), Axis::Tensor);
  return ofOps && problem.pinned.areMetBy(problem.graph, *ofOps, tensorAxis);
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

const Profile &ModelTables::profileOf(const Candidate &candidate, RecomputeMode recompute,
                                      int stage) const {
  const StageDevices &devices = meshes.stagesFor(candidate.mesh).devices;
  const ModelSplit split = splitOf(candidate);
  const int64_t microBatch = candidate.microBatch;
  const StageKind kind = devices.isUniform() ? StageKind() : devices.kindOf(stage);
  return profiles.get({split, microBatch, recompute, kind}, [&] {
    const std::vector<OpStrategy> &ofOps = *strategiesFor(split, microBatch);
    const int64_t samples = microBatch * split.ep;
    return makeProfile(
        profiledGraphFor(samples, recompute, fewerRepeatsFor(samples, recompute, ofOps)),
        split.mesh(), ofOps, problem.job, devices.of(stage),
        split.cp > 1 && !problem.takesZigzag(split.cp));
  });
}

Mix ModelTables::mixOf(const Candidate &candidate) const {
  return Mix(profileOf(candidate, candidate.recompute),
             profileOf(candidate, weakerMode(candidate.recompute)));
}

Mix ModelTables::mixOn(const Candidate &candidate, const Mix &mix, int stage) const {
  const StageDevices &devices = meshes.stagesFor(candidate.mesh).devices;
  if (!problem.isMixed || devices.kindOf(stage) == devices.kindOf(0))
    return mix;
  const Profile &stronger = profileOf(candidate, candidate.recompute, stage);
  if (mix.recomputed == mix.kept)
    return stronger;
  return Mix(stronger, profileOf(candidate, weakerMode(candidate.recompute), stage));
}

bool ModelTables::isPartial(const Candidate &candidate) const {
  return candidate.recompute != RecomputeMode::None && problem.space.mayBePartial();
}

void ModelTables::prepare(const std::vector<const Candidate *> &candidates,
                          Workers &workers) const {
  if (workers.count() == 1)
    return; // made at the first request
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
    const StageDevices &devices = meshes.stagesFor(candidate->mesh).devices;
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

} // namespace tbc::planner
