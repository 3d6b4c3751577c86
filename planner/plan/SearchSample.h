//===- SearchSample.h - A sample of the scored candidates -------------------===//

#ifndef TBC_PLANNER_PLAN_SEARCHSAMPLE_H
#define TBC_PLANNER_PLAN_SEARCHSAMPLE_H

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

struct KeyProblem;

/// A scored candidate of a search, for people. Words are short forms of its decisions.
struct ScoredCandidate {
  std::string mesh; // with the form of context parallelism. Example: "pp=4 cp=2 tp=2, ring"
  std::string zero; // "DDP", "ZeRO-3", ..; "-" with one data rank
  int64_t microBatch = 1;
  std::string schedule;  // as scheduleText(); "none" without a pipeline
  std::string recompute; // with the offload, if any. Example: "full, offload optimizer"
  double stepSeconds = 0;
  /// Memory that is compared with the limit: the upper end of its interval, or its middle with
  /// --memory-risk.
  int64_t bytes = 0;
  bool fits = false;
  double boundSeconds = 0; // no plan of the candidate is faster
  /// 0: it became the plan; n: the n-th of the plan's alternatives; else it was only scored.
  std::optional<int64_t> rank;
};

/// A few of the candidates of a search. Those with the least time for their memory are always
/// among them (the Pareto front of stepSeconds and bytes), as are the plan and its alternatives.
struct SearchSample {
  static constexpr size_t mostCandidates = 200;

  int64_t listed = 0;                      // candidates that were listed and bounded
  int64_t scored = 0;                      // of these, the ones that no bound excluded
  std::vector<ScoredCandidate> candidates; // by time, then by memory

  bool isEmpty() const { return candidates.empty(); }
};

/// Returns which of `candidates`, which are in order of time and then of memory, no other beats or
/// equals in both. Example: of (1 s, 9 GiB), (2 s, 9 GiB) and (3 s, 4 GiB), the first and the last.
std::vector<bool> paretoFront(const std::vector<ScoredCandidate> &candidates);

/// The key "search" of plan.json: a row per candidate, with the cells of `columns`.
nlohmann::json searchJson(const SearchSample &sample);
/// Reads it; problems are reported.
SearchSample readSearch(const nlohmann::json &json, KeyProblem &problem);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_SEARCHSAMPLE_H
