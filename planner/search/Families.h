//===- Families.h - Strategies by name, and the simplest of equals --------===//
//
// Plain C++. Two plans of one family differ only in sizes: "DDP" on 16 devices with micro-batches
// of 16 or of 32 samples. Runners-up show the best of each family. Among plans of nearly equal
// speed, the answer is the one of the simplest family.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_FAMILIES_H
#define TBC_PLANNER_SEARCH_FAMILIES_H

#include "planner/search/Searcher.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// Placement of gradients and state over the data-parallel ranks, the simplest first.
enum class DataFamily {
  None, ///< one data-parallel rank
  Ddp,
  Zero1,
  Zero2,
  Fsdp, ///< SHARD_GRAD_OP and ZeRO-3, over one axis
  Hsdp  ///< the same over fsdp, replicated over dp
};

/// The axes of a plan that divide the model, and the state placement of its data-parallel ranks.
struct Family {
  DataFamily data = DataFamily::None;
  bool pp = false, ep = false, cp = false, tp = false;

  /// Returns the number of axes that divide the model.
  int modelAxes() const { return int(pp) + int(ep) + int(cp) + int(tp); }
  auto key() const { return std::make_tuple(data, pp, ep, cp, tp); }
  bool operator==(const Family &o) const { return key() == o.key(); }
  bool operator<(const Family &o) const { return key() < o.key(); }
  bool isDdp() const { return data == DataFamily::Ddp && modelAxes() == 0; }
};

/// Returns the family of a mesh. Example: dp=2 fsdp=4 tp=2 with ZeRO-3 is HSDP with tp.
Family familyOf(const MeshShape &mesh, const ZeroChoice &zero);
inline Family familyOf(const Candidate &candidate) {
  return familyOf(candidate.mesh, candidate.zero);
}

/// Orders plans from simple to complicated, by these keys in turn: fewer axes dividing the model;
/// DDP before ZeRO before FSDP before HSDP; fewer axes; less recomputation; nothing on the host;
/// the simpler pipeline schedule; a model within one node; more tenths of memory left free.
///
/// Example: dp=16 with DDP is simpler than fsdp=16, and fsdp=16 is simpler than dp=2 fsdp=8.
bool isSimpler(const Plan &a, const Plan &b);

/// Moves the simplest plan to the front, among the plans that meet `goal` within `tie` of the
/// fastest. The fastest, if it is another, is second. `exact` is ordered by time. Example: with
/// 0.02, 73.2 ms (dp=16) comes before 72.0 ms (fsdp=16). A thousandth is always a tie.
void preferSimplest(std::vector<ExactCandidate> &exact, MemoryVerdict goal, double tie);

/// The candidates whose families are compared with the result of a search.
struct FamilyQuestion {
  /// In order of their bounds; `hopeless` has those excluded because they cannot fit.
  const std::vector<Candidate> &candidates, &hopeless;
  const std::vector<Candidate> &scored; ///< of `candidates`, so far
  double fastestSeconds;                ///< of the fitting ones
  double tie;                           ///< as in Pins
  int top;                              ///< number of families of interest beside those within the
                                        ///< tie
};

/// Returns the best candidate, scored, of each family of interest, unless `question.scored` has a
/// better one of that family. Families of interest: DDP, even if it does not fit; families possibly
/// within the tie; the `top` families with the least bounds.
std::vector<Candidate> bestOfFamilies(Searcher &searcher, const FamilyQuestion &question,
                                      const Deadline &deadline);

/// Returns at most `most` runners-up of `exact`, whose first entry is the answer. Order of
/// preference: the fastest, DDP, the best of each other family, then others. They are sorted by
/// time.
std::vector<const ExactCandidate *> runnersUp(const std::vector<ExactCandidate> &exact,
                                              size_t most);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_FAMILIES_H
