//===- ModelTables.h - Placements and profiles shared by candidates -------===//

#ifndef TBC_PLANNER_SEARCH_MODELTABLES_H
#define TBC_PLANNER_SEARCH_MODELTABLES_H

#include "planner/reshard/Kernels.h"
#include "planner/search/MeshTables.h"
#include "planner/search/ModelSplit.h"
#include "planner/search/Profile.h"
#include "planner/search/SearchCounts.h"
#include "planner/support/OnceMap.h"
#include "planner/support/Workers.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Memo tables of the model: graphs by micro-batch, recomputed ops, placements, strategies and
/// profiles. The first request, on any thread, makes a value. A value depends only on its key and
/// on the problem, so no answer depends on the order of requests. Thread-safe.
class ModelTables {
public:
  /// `counts` counts the compared strategies.
  ModelTables(const SearchProblem &problem, const MeshTables &meshes, RunningCounts &counts)
      : problem(problem), meshes(meshes), counts(counts) {}

  /// Returns the graph with `samples` samples per micro-batch.
  const reshard::Graph &graphFor(int64_t samples) const;
  /// Returns kernelShares() of that graph for a program of `devices`, a group of the problem.
  const std::vector<KernelShare> &sharesFor(const Cluster &devices, int64_t samples) const;
  /// Returns structuralHashes() of the graph.
  const std::vector<uint64_t> &hashes() const;
  /// Returns by op whether mode `recompute` recomputes it, with the user's pins.
  const std::vector<bool> &flagsFor(RecomputeMode recompute, int64_t samples) const;
  /// Returns leastKeptBytes() without forced recomputation.
  double unforcedKeptBytes(int64_t samples) const;
  /// Returns the strategies of all ops on split.mesh(); null if the form of cp does not suit the
  /// model.
  const std::vector<reshard::OpStrategy> *strategiesFor(const ModelSplit &split,
                                                        int64_t microBatch) const;
  /// Returns why the candidate's form of context parallelism does not suit the model, or "".
  const std::string &refusedContext(const Candidate &candidate) const;
  /// Whether the ops allow the candidate's split: an unpinned tp splits some op, the form of cp
  /// suits the model, and the pins of ops hold.
  bool mayPlace(const Candidate &candidate) const;

  /// Returns the profile on the devices of stage `stage`. Placement and kept values are the same on
  /// all stages.
  const Profile &profileOf(const Candidate &candidate, RecomputeMode recompute,
                           int stage = 0) const;
  /// Returns the profiles of the candidate's recomputation mode and of the next weaker mode.
  Mix mixOf(const Candidate &candidate) const;
  /// Returns `mix`, which is of stage 0, for stage `stage`.
  Mix mixOn(const Candidate &candidate, const Mix &mix, int stage) const;
  /// Whether only some blocks of the candidate may recompute.
  bool isPartial(const Candidate &candidate) const;

  /// Makes the values used by the scoring of `candidates` ahead, on all threads.
  void prepare(const std::vector<const Candidate *> &candidates, Workers &workers) const;

private:
  struct Strategies {
    std::vector<reshard::OpStrategy> ofOps;
    std::string whyNot; // if there are none
  };
  /// `hasExperts`: the experts lie on ep, and tp splits the inner dims of each.
  const Placement &placementFor(int64_t tp, int64_t microBatch, bool hasExperts) const;
  Placement computePlacement(int64_t tp, int64_t microBatch, bool hasExperts) const;
  const Strategies &splitStrategies(const ModelSplit &split, int64_t microBatch) const;
  Strategies computeStrategies(const ModelSplit &split, int64_t microBatch) const;
  /// Returns the graph with fewer repeats if `strategies` and recomputation are the same in all
  /// occurrences; else null.
  const FewerRepeats *fewerRepeatsFor(int64_t samples, RecomputeMode recompute,
                                      const std::vector<reshard::OpStrategy> &strategies) const;
  const ProfiledGraph &profiledGraphFor(int64_t samples, RecomputeMode recompute,
                                        const FewerRepeats *fewer) const;

  const SearchProblem &problem;
  const MeshTables &meshes;
  RunningCounts &counts;
  mutable OnceMap<int64_t, reshard::Graph> graphs;
  mutable OnceMap<bool, reshard::BlockKernels> kernels; // by whether there are several samples
  /// By whether kernels may have a workspace, and by samples: all groups have one executor.
  mutable OnceMap<std::pair<bool, int64_t>, std::vector<KernelShare>> shares;
  mutable Once<std::vector<uint64_t>> structure;
  mutable OnceMap<std::pair<int64_t, RecomputeMode>, std::vector<bool>> flags;
  mutable OnceMap<int64_t, double> unforcedKept; // by samples
  mutable OnceMap<std::tuple<int64_t, int64_t, bool>, Placement> placements;
  mutable OnceMap<std::pair<ModelSplit, int64_t>, Strategies> strategies;
  mutable Once<std::optional<FewerRepeats>> fewerRepeats;
  mutable OnceMap<std::tuple<int64_t, RecomputeMode, bool>, ProfiledGraph> profiledGraphs;
  mutable OnceMap<std::tuple<ModelSplit, int64_t, RecomputeMode, StageKind>, Profile> profiles;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_MODELTABLES_H
