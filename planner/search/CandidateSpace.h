//===- CandidateSpace.h - Enumeration of candidates -----------------------===//

#ifndef TBC_PLANNER_SEARCH_CANDIDATESPACE_H
#define TBC_PLANNER_SEARCH_CANDIDATESPACE_H

#include "planner/search/CostTables.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tbc::planner {

/// The candidates that a long list leaves out.
struct Exclusions {
  std::function<bool(const Candidate &)> ofMesh; ///< without regard to schedule and recomputation
  std::function<bool(const Candidate &)> ofKept; ///< with regard to them
};

/// The candidates of a search: every mesh, micro-batch, ZeRO, schedule and recomputation allowed by
/// the pins, without bounds.
class CandidateSpace {
public:
  explicit CandidateSpace(const CostTables &costs) : costs(costs), problem(costs.problem) {}

  /// Returns all candidates in a fixed order. The budget and the deadline of `limits` may end the
  /// list early (end()). A list longer than the budget leaves out the candidates accepted by
  /// `mayDrop`.
  std::vector<Candidate> list(const Pins &limits, const Exclusions &mayDrop);
  /// Whether list() ended early, and the reason.
  SearchEnd end() const { return howEnded; }
  /// The reason for omitted candidates with too large numbers, or "".
  const std::string &leftOut() const { return whyLeftOut; }
  /// The reason why a requested schedule does not allow some number of micro-batches, or "".
  const std::string &refusedSchedule() const { return whyNoSchedule; }
  /// An error if every open mesh of all devices has a stage with devices of several types.
  Status checkTypes() const;

  /// Returns variants of `candidate`, which has no cp, with a factor of another axis moved to cp,
  /// in every form allowed by the model and the pins. Only with one sample per micro-batch: larger
  /// ones are better split over data ranks, which need no communication between ops.
  std::vector<Candidate> withContext(const Candidate &candidate);
  /// Returns the same variants with a factor of tp alone, in no form yet. If every tp is tried,
  /// each mesh with cp is such a variant of one listed candidate. Example: pp=2 tp=8 gives cp=2
  /// tp=4, cp=4 tp=2 and cp=8 tp=1.
  std::vector<Candidate> withContextOfTensors(const Candidate &candidate);
  /// Returns `candidate`, which has cp, in the forms allowed by the model and the pins, at most the
  /// first `most` of them.
  std::vector<Candidate> inForms(const Candidate &candidate, size_t most = SIZE_MAX) const;

private:
  void listOn(int64_t devices, bool isPossibleOnly, const Pins &limits,
              std::vector<Candidate> &candidates);
  void dropMany(std::vector<Candidate> &candidates);
  void listMesh(const MeshShape &mesh, int64_t batch, std::vector<Candidate> &candidates);
  std::vector<int64_t> fewerDevices() const;
  bool isPlaceable(const MeshShape &mesh) const;
  bool mayRun(const Candidate &candidate);
  bool isTooLarge(const Candidate &candidate);
  bool mayHaveContext(const Candidate &candidate) const;
  std::vector<Candidate> moved(const Candidate &candidate, Axis axis);

  const CostTables &costs;
  const SearchProblem &problem;
  Exclusions drops;
  bool isLong = false; // the list reached the budget before some candidates were dropped
  SearchEnd howEnded = SearchEnd::Complete;
  std::string whyLeftOut;
  std::string whyNoSchedule; // for the first omitted pipeline
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CANDIDATESPACE_H
