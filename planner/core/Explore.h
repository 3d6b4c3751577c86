//===- Explore.h - One pass over the space ---------------------------------===//

#ifndef TBC_PLANNER_CORE_EXPLORE_H
#define TBC_PLANNER_CORE_EXPLORE_H

#include "planner/core/Searcher.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// A candidate that was derived op by op.
struct ExactCandidate {
  Candidate candidate;
  Plan plan; // with its prediction
};

struct Exploration {
  /// By exact step time, ties in order of enumeration; those that fit before those that do not.
  std::vector<ExactCandidate> exact;
  std::vector<Candidate> scored; // every candidate scored, in order of lower bounds
  double lowerBoundSeconds = 0;  // the least over all candidates
  /// Where the best one fits: the best of the same configurations if memory were planned without
  /// its margin, if that is faster.
  std::optional<ExactCandidate> tight;
  /// Whether no plan fits, by a bound: `exact` has then the nearest of those with least bounds, or
  /// if the goal was Fits, nothing.
  bool provesNothingFits = false;
  double leastBytes = 0; // that any plan takes on its fullest device, by the same bound
  SearchEnd end = SearchEnd::Complete;
  int64_t numCandidates = 0, numScored = 0; // listed, and scored in their turn
  std::string leftOut;                      // what was left out because numbers are too large
  SearchCounts counts;

  /// Whether something has the verdict `goal` or a better one.
  bool hasFit(MemoryVerdict goal) const {
    return !exact.empty() && exact.front().plan.prediction.meets(goal);
  }
};

/// What an exploration is for.
enum class Purpose {
  Answer,     ///< the best plan, its runners-up and its bound
  Cost,       ///< the best plan alone
  Suggestion, ///< a plan that fits, near the best, within a small budget
};

/// Scores what bounds do not exclude, then derives the `top` best of different configurations
/// exactly, and more while the next might still be better or nothing fits yet. "Fits" is to have
/// the verdict `pins.memoryGoal`.
Result<Exploration> explore(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, int top, Purpose purpose,
                            const Progress &progress = {});

/// Why nothing fits and what would change that. `exploration` has no exact candidate that fits.
Error explainInfeasible(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                        const Pins &pins, const Exploration &exploration);

/// e.g. "dp=2 fsdp=4, ZeRO-3, micro-batch 2 x 4, 1f1b, recompute none".
std::string describe(const Plan &plan);
/// Of communication between ops on `mesh`, e.g. "tp and cp communication", or, where no axis splits
/// the model (batch norms are synchronised there as well), "communication between ops".
std::string betweenOpsName(const MeshShape &mesh);
/// e.g. "ZeRO-1", "SHARD_GRAD_OP", "DDP".
std::string zeroName(int zero, bool keepGathered);

/// The blocks of the layer table of `plan`, priced on the step it was applied to: repeated ones
/// once, or if not `folded` every repeat by itself.
std::vector<BlockRow> blockRows(const reshard::Graph &graph, const PlannedStep &step,
                                const Plan &plan, bool folded = true);

/// The modules in which the ops `ids` are, or where the graph has none for one, its id.
std::vector<std::string> stageNames(const reshard::Graph &graph, const Job &job,
                                    const std::vector<std::string> &ids);

/// The kinds of forward ops that `step` does not split over tp, where they are a twentieth of the
/// FLOPs or more: one line each, for people.
std::vector<std::string> unsplitWork(const PlannedStep &step);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_EXPLORE_H
