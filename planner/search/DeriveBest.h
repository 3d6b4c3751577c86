//===- DeriveBest.h - Exact derivation of the best candidates -------------===//

#ifndef TBC_PLANNER_SEARCH_DERIVEBEST_H
#define TBC_PLANNER_SEARCH_DERIVEBEST_H

#include "planner/search/Searcher.h"
#include "planner/support/Workers.h"

#include <limits>
#include <map>
#include <vector>

namespace tbc::planner {

/// The limits for derived plans, and the number of derivations.
struct DeriveLimits {
  const Cluster &cluster;       // unchanged: the searcher may use it at its upper end
  int64_t memoryLimitBytes = 0; // as in a plan
  /// The required verdict. "Fits" below means this verdict or a better one.
  MemoryVerdict goal = MemoryVerdict::Fits;
  size_t top = 1;   // always derived
  size_t most = 16; // until one fits; small graphs have more
  const Deadline &deadline;
  double fastest = std::numeric_limits<double>::infinity(); // seconds of a plan known before

  /// Returns the memory limit in bytes of a device.
  int64_t limitBytes(const Cluster &devices) const;
  /// Returns the bytes by which `plan` exceeds the limit; negative if it fits.
  int64_t excessBytes(const Plan &plan) const;
};

/// Sorts by step time, plans that meet `goal` first; ties in order of enumeration.
void sortExact(std::vector<ExactCandidate> &exact, MemoryVerdict goal);

/// Keeps the best of each group (groupOf), the best of all first.
void keepBestOfGroups(std::vector<ExactCandidate> &exact, MemoryVerdict goal);

/// Whether a graph is small enough to derive candidates exhaustively.
bool isSmallGraph(const reshard::Graph &graph);

/// Derived candidates, by Candidate::order.
using DerivedCandidates = std::map<int, ExactCandidate>;

/// Derives the best of `scored` candidates exactly: the first `top`, and more while the next might
/// be better or no plan fits. Returns the best first, and each group of candidates (groupOf) once.
/// Takes candidates that are in `derived` from there, and adds the others.
///
/// Scores have a small error, so all candidates within that error of the best are derived. Scores
/// know less about single tensors, and these count in a small graph. There `scored` has all scored
/// candidates, not only the best of each group, and more are derived. In a very small graph every
/// candidate is derived, and its cuts are moved one at a time, before the search reports that no
/// plan fits.
Result<std::vector<ExactCandidate>> deriveBest(Searcher &searcher, Workers &workers,
                                               const reshard::Graph &graph,
                                               std::vector<Candidate> scored,
                                               const DeriveLimits &limits, const OverlapPins &pins,
                                               DerivedCandidates &derived);

/// Derives one candidate op by op, as deriveBest.
Result<ExactCandidate> deriveExactly(Searcher &searcher, const reshard::Graph &graph,
                                     Candidate candidate, const DeriveLimits &limits,
                                     const OverlapPins &pins);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_DERIVEBEST_H
