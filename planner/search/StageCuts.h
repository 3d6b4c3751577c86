//===- StageCuts.h - Stage cuts of candidates -----------------------------===//

#ifndef TBC_PLANNER_SEARCH_STAGECUTS_H
#define TBC_PLANNER_SEARCH_STAGECUTS_H

#include "planner/search/CostTables.h"
#include "planner/search/Partition.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// Cuts the model of a candidate into pipeline chunks. Candidates with the same profile, number of
/// chunks and devices share a StageCutter. Thread-safe.
class StageCuts {
public:
  /// `counts` counts the compared stages.
  StageCuts(const CostTables &costs, RunningCounts &counts)
      : costs(costs), problem(costs.problem), counts(counts) {}

  /// Returns the first op of each chunk: chunks of equal time if they fit, else the best fitting
  /// cut found, else chunks of equal time. Nothing if the graph has too few positions.
  std::optional<std::vector<int>> cut(const Candidate &candidate, const Profile &profile,
                                      const DataMode &mode) const;
  /// Returns the possible cuts: SearchProblem::stageBegins, else positions suited to the size of
  /// the graph.
  std::vector<int> positions(const Profile &profile, int64_t chunks) const;

private:
  const StageCutter &cutterFor(const Candidate &candidate, const Profile &profile) const;
  std::unique_ptr<StageCutter> makeHeterogeneous(const Candidate &candidate,
                                                 const Profile &profile) const;
  std::optional<std::vector<int>> cutWithin(const Candidate &candidate, const Profile &profile,
                                            const DataMode &mode, const StageCutter &cutter) const;

  const CostTables &costs;
  const SearchProblem &problem;
  RunningCounts &counts;
  /// By profile, number of chunks and whether they span several nodes. For heterogeneous devices
  /// also by ranks of a stage, chunks of a stage and whether these are V-shaped.
  mutable OnceMap<std::tuple<const Profile *, int64_t, bool, std::array<int64_t, 3>>,
                  std::unique_ptr<StageCutter>>
      cutters;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_STAGECUTS_H
