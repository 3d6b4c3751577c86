//===- Pricer.h - Scoring of candidates -----------------------------------===//

#ifndef TBC_PLANNER_SEARCH_PRICER_H
#define TBC_PLANNER_SEARCH_PRICER_H

#include "planner/search/StageCuts.h"

namespace tbc::planner {

/// Scores candidates in closed form: stage cuts, recomputed and offloaded blocks, seconds and peak
/// bytes. Thread-safe.
class Pricer {
public:
  /// `counts` counts the priced candidates.
  Pricer(const CostTables &costs, RunningCounts &counts)
      : costs(costs), problem(costs.problem), counts(counts), cuts(costs, counts) {}

  /// Scores `candidate`. Returns false if the graph has too few positions for the stages, or if an
  /// unpinned tp would split nothing. `refine`: improves stage cuts by pricing neighbouring cuts.
  bool score(Candidate &candidate, bool refine) const;
  /// Moves the beginning of chunk `chunk` of a scored candidate to forward op `first`, between its
  /// neighbours' beginnings, and scores it again.
  void moveCut(Candidate &candidate, size_t chunk, int first) const;

private:
  void price(Candidate &candidate, const Mix &mix, const DataMode &mode) const;
  std::vector<StageSeconds> chunkSeconds(const Candidate &candidate, const Mix &mix,
                                         const DataMode &mode) const;
  double stepSeconds(const Candidate &candidate, const std::vector<StageSeconds> &chunks) const;
  void priceBytes(Candidate &candidate, const Mix &mix, const DataMode &mode) const;
  double lossSeconds(const Candidate &candidate, const Profile &profile) const;
  void refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode) const;

  const CostTables &costs;
  const SearchProblem &problem;
  RunningCounts &counts;
  const StageCuts cuts;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PRICER_H
