//===- Searcher.h - Scoring of candidates, with what they share kept -------===//

#ifndef TBC_PLANNER_CORE_SEARCHER_H
#define TBC_PLANNER_CORE_SEARCHER_H

#include "planner/core/Partition.h"
#include "planner/core/Pins.h"
#include "planner/core/Profile.h"
#include "planner/core/Search.h"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// One complete configuration, bounded and then scored.
struct Candidate {
  MeshShape mesh;
  ZeroChoice zero;
  int64_t batch = 1; // global, perhaps rounded up
  int64_t microBatch = 1, accumulation = 1;
  std::string schedule, recompute;
  double lowerBound = 0;
  int order = 0; // of enumeration

  // Set by scoring.
  std::vector<int> firstOps;
  double seconds = 0;
  double peakBytes = 0;
  int fullestStage = 0;
  bool feasible = false;
};

/// Scores candidates of one job in closed form.
class Searcher {
public:
  Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
           int64_t limitBytes);

  /// Every candidate with its lower bound, cheapest bound first, ties in order of enumeration.
  std::vector<Candidate> enumerate();

  /// Fills in the rest. False where the graph has too few places for the stages, or tp, not being
  /// pinned, would split nothing. `refine`: looks
  /// for better stage cuts by pricing their neighbours.
  bool score(Candidate &candidate, bool refine);

  /// The plan that `candidate` stands for, without predictions.
  Plan planOf(const Candidate &candidate);

  int64_t evaluations = 0; // candidates scored

private:
  const reshard::Graph &graphFor(int64_t microBatch);
  const Placement &placementFor(int64_t tp, int64_t microBatch);
  const std::vector<bool> &flagsFor(const std::string &recompute, int64_t microBatch);
  const Profile &profileFor(int64_t tp, int64_t microBatch, const std::string &recompute);
  double idealSeconds(int64_t tp, int64_t microBatch);
  const NetworkCost &networkFor(const MeshShape &mesh);
  DataMode dataMode(const Candidate &candidate);
  void price(Candidate &candidate, const Profile &profile, const DataMode &mode);
  void refineCuts(Candidate &candidate, const Profile &profile, const DataMode &mode);
  double lossSeconds(const Candidate &candidate, const Profile &profile);
  void enumerateOn(int64_t devices, std::vector<Candidate> &candidates);
  std::optional<std::vector<int>> cut(const Candidate &candidate, const Profile &profile,
                                      const DataMode &mode);
  double stageBytes(const Candidate &candidate, const Profile &profile, const DataMode &mode,
                    int first, int last, int64_t inFlight) const;

  const reshard::Graph &graph;
  const Job &job;
  const Cluster &cluster;
  const Space &space;
  int64_t limitBytes;

  std::map<int64_t, reshard::Graph> graphs;
  std::map<std::pair<int64_t, int64_t>, Placement> placements;
  std::map<std::pair<int64_t, std::string>, std::vector<bool>> flags;
  std::map<std::tuple<int64_t, int64_t, std::string>, Profile> profiles;
  std::map<std::pair<int64_t, int64_t>, double> ideals;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, std::unique_ptr<NetworkCost>> networks;
  std::map<std::tuple<const Profile *, int64_t, bool>, std::unique_ptr<StageCutter>> cutters;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCHER_H
