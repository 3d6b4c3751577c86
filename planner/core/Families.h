//===- Families.h - Strategies by name, and the simplest of equals ---------===//
//
// Plain C++. Two plans of one family differ in sizes alone: "DDP" on 16 devices with micro-batches
// of 16 or of 32 samples. Runners-up show the best of each family; of plans that are about as fast
// the one of the simplest family is the answer.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_FAMILIES_H
#define TBC_PLANNER_CORE_FAMILIES_H

#include "planner/core/Explore.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// How the ranks that share a model's gradients keep its state, the simplest first.
enum class DataFamily {
  None, ///< one data-parallel rank
  Ddp,
  Zero1,
  Zero2,
  Fsdp, ///< SHARD_GRAD_OP and ZeRO-3, over one axis
  Hsdp  ///< the same over fsdp, replicated over dp
};

/// The axes of a plan that divide the model, and how its data-parallel ranks keep state.
struct Family {
  DataFamily data = DataFamily::None;
  bool pp = false, ep = false, cp = false, tp = false;

  /// How many axes divide the model.
  int modelAxes() const { return int(pp) + int(ep) + int(cp) + int(tp); }
  auto key() const { return std::make_tuple(data, pp, ep, cp, tp); }
  bool operator==(const Family &o) const { return key() == o.key(); }
  bool operator<(const Family &o) const { return key() < o.key(); }
  bool isDdp() const { return data == DataFamily::Ddp && modelAxes() == 0; }
};

/// E.g. dp=2 fsdp=4 tp=2 with ZeRO-3 is HSDP with tp.
Family familyOf(const MeshShape &mesh, const ZeroChoice &zero);
inline Family familyOf(const Candidate &candidate) {
  return familyOf(candidate.mesh, candidate.zero);
}

/// How much a mode of recomputation computes again: "none" 0, "selective" 1, "full" 2.
int recomputeRank(const std::string &recompute);

/// Orders plans from simple to complicated: fewer axes that divide the model, DDP before ZeRO
/// before FSDP before HSDP, fewer axes, less recomputation, nothing on the host, the simpler
/// pipeline schedule, a model that stays within one node; then by the tenths of memory that are
/// left free.
///
/// Example: dp=16 with DDP is simpler than fsdp=16, and that than dp=2 fsdp=8.
bool isSimpler(const Plan &a, const Plan &b);

/// Moves the simplest of the plans that meet `goal` within `tie` of the fastest to the front; the
/// fastest, if it is another, is second. `exact` is ordered by time. E.g. with 0.02, of 72.0 ms
/// (fsdp=16) and 73.2 ms (dp=16) the latter. A thousandth is always a tie.
void preferSimplest(std::vector<ExactCandidate> &exact, MemoryVerdict goal, double tie);

/// The candidates whose families are to be compared with what a search found.
struct FamilyQuestion {
  /// In order of their bounds, and those ruled out because they cannot fit.
  const std::vector<Candidate> &candidates, &hopeless;
  const std::vector<Candidate> &scored; ///< of `candidates`, so far
  double fastestSeconds;                ///< of those that fit
  double tie;                           ///< as in Pins
  int top;                              ///< families of interest beside those within the tie
};

/// The best candidate, scored, of each family that is of interest and has none better in
/// `question.scored`: DDP, whether it fits or not; families that may be within the tie; the `top`
/// with the least bounds.
std::vector<Candidate> bestOfFamilies(Searcher &searcher, const FamilyQuestion &question,
                                      const Deadline &deadline);

/// The runners-up of `exact`, of which the first is the answer, in order of time: the fastest, DDP,
/// the best of each other family, then others, at most `most`.
std::vector<const ExactCandidate *> runnersUp(const std::vector<ExactCandidate> &exact,
                                              size_t most);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_FAMILIES_H
