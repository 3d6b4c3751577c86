//===- Bounder.h - Bounds of lists of candidates --------------------------===//

#ifndef TBC_PLANNER_SEARCH_BOUNDER_H
#define TBC_PLANNER_SEARCH_BOUNDER_H

#include "planner/search/BoundTables.h"
#include "planner/search/RefinedBound.h"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Bounds lists of candidates on all threads, and remembers refined bounds.
class Bounder {
public:
  /// `counts` counts the bounded candidates.
  Bounder(const BoundTables &tables, Workers &workers, RunningCounts &counts)
      : tables(tables), problem(tables.costs.problem), workers(workers), counts(counts) {}

  /// Whether memory rules out `candidate`, and no bound or reason of another one needs it: it
  /// covers no mesh with cp (mayBeContext) and is not DDP. Before boundMemory().
  bool mayDrop(const Candidate &candidate);
  /// Whether the values that `candidate` keeps rule it out (planner::keepsTooMuch), and neither an
  /// answer, a bound nor a variant with cp needs it: one with recomputation has the same bounds.
  bool mayDropForKept(const Candidate &candidate) const;
  /// Sets `leastBytes` of all candidates.
  void boundMemory(std::vector<Candidate> &candidates);
  /// Returns a lower bound on the fullest device of any plan, after boundMemory().
  double leastBytesOfAll() const { return leastOfAll; }
  /// Whether memory rules out `candidate`.
  bool isHopeless(const Candidate &candidate) const {
    return candidate.leastBytes > double(problem.limitBytes);
  }

  /// Sets `lowerBound` and `provenBound` of all candidates. Returns false if the deadline came
  /// first: the remaining ones get peakRateSeconds().
  bool boundTime(std::vector<Candidate> &candidates, const Deadline &deadline);

  /// Returns refinedBound() of `candidate`. Reuses the result for an earlier limit if it is as
  /// strong.
  double refined(const Candidate &candidate, double limit, BoundMeshes meshes);
  /// Returns the final refinedBound() of `candidate` and its variants with cp.
  double refinedFinally(const Candidate &candidate, double limit);
  /// Computes the result of refined() ahead. Thread-safe, but not concurrently with refined().
  double refinedAhead(const Candidate &candidate, double limit, BoundMeshes meshes);

  /// All inputs of a refined bound except its limit. It holds for any recomputation, so candidates
  /// of all modes share it.
  using Key =
      std::tuple<std::array<int64_t, 6>, int64_t, int64_t, int, bool, ScheduleKind, int, bool>;
  static Key keyOf(const Candidate &candidate);

private:
  struct Refined {
    double seconds = 0, limit = 0;
    /// Whether a larger `limit` may give a better bound.
    bool isTooLow(double newLimit) const { return seconds >= limit && limit < newLimit; }
  };
  using MeshesKey = std::pair<Key, BoundMeshes>;
  void shareWork(const std::vector<Candidate> &candidates, const Deadline &deadline);
  MeshesKey meshesKeyOf(const Candidate &candidate, BoundMeshes meshes) const;
  double computed(const Candidate &candidate, double limit, BoundMeshes meshes);

  const BoundTables &tables;
  const SearchProblem &problem;
  Workers &workers;
  RunningCounts &counts;
  double leastOfAll = 0, leastOfDropped = std::numeric_limits<double>::infinity();
  std::map<MeshesKey, Refined> known;                       // requested one after another
  std::map<Key, double> finals;                             // for the limit of the proof
  OnceMap<std::pair<MeshesKey, double>, double> knownAhead; // by limit
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_BOUNDER_H
