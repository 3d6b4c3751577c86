//===- Searcher.cpp - The parts of one search -----------------------------===//

#include "planner/search/Searcher.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tbc::planner {

Searcher::Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                   const Space &space, int64_t limitBytes, PinnedOps pinned, Workers &workers)
    : problem(graph, job, cluster, space, limitBytes, std::move(pinned)), costs(problem, counts),
      boundTables(costs), space(costs), bounder(boundTables, workers, counts),
      pricer(costs, counts) {}

std::vector<Candidate> Searcher::enumerate(const Pins &limits) {
  std::vector<Candidate> candidates = space.list(
      limits, {[&](const Candidate &candidate) { return bounder.mayDrop(candidate); },
               [&](const Candidate &candidate) { return bounder.mayDropForKept(candidate); }});
  howEnded = space.end();
  bounder.boundMemory(candidates);
  nothingFits = bounder.leastBytesOfAll() > double(problem.limitBytes) && !candidates.empty() &&
                howEnded == SearchEnd::Complete && space.leftOut().empty();
  if (!nothingFits && !bounder.boundTime(candidates, limits.deadline))
    howEnded = SearchEnd::TimeLimit;
  // Of modes with equal bounds, those between the weakest and the strongest come last: if the
  // strongest does not fit, they do not either (LookAhead::isRuledOut).
  std::vector<std::tuple<double, bool, int>> order; // there are many, and each is large
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate &candidate = candidates[i];
    candidate.order = int(i);
    order.push_back({nothingFits ? candidate.leastBytes : candidate.lowerBound,
                     candidate.recompute == RecomputeMode::Selective, int(i)});
  }
  std::sort(order.begin(), order.end());
  std::vector<Candidate> sorted;
  sorted.reserve(candidates.size());
  for (const auto &[bound, isBetween, i] : order)
    sorted.push_back(std::move(candidates[size_t(i)]));
  return sorted;
}

} // namespace tbc::planner
