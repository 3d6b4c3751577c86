//===- Profile.h - Costs of ranges of forward ops, for scoring ------------===//
//
// Plain C++. Sums over the forward order for one placement on tp devices, one micro-batch and one
// choice of recomputation. A stage is then priced without visiting its ops.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_PROFILE_H
#define TBC_PLANNER_SEARCH_PROFILE_H

#include "planner/cost/Buckets.h"
#include "planner/cost/Cost.h"
#include "planner/graph/FewerRepeats.h"
#include "planner/memory/Memory.h"
#include "planner/place/Place.h"
#include "planner/predict/Time.h"
#include "planner/search/RangeSums.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tbc::planner {

struct Profile {
  FoldedSums sums;                 // of forward ops
  FoldedMaximum liveBytes;         // by forward op: the peak in it or its backward
  FoldedMaximum largestParameter;  // by forward op: bytes of the parameters it uses
  FoldedMaximum workspaceBytes;    // by forward op: of its largest kernel, forward or backward
  FoldedMaximum fp8Bytes;          // the same of operands in 8 bits
  std::vector<double> crossing;    // by op of the shorter graph: crossingBytes
  std::vector<bool> stageMayBegin; // by forward op
  std::shared_ptr<const Folding> folding;

  int numForward() const { return folding->numOps(); }
  /// The bytes sent if a stage ends after forward op `op`.
  double crossingBytes(int op) const { return crossing[size_t(folding->like(op))]; }

  double modelStateBytes = 0, inputBytes = 0;
  bool lossIsSplit = false;   // over tp: it is summed once per step
  int64_t stepTotalBytes = 0; // of the scalars that are summed over all ranks instead
  int64_t stepStateBytes = 0; // of the scalars that every rank keeps
};

/// A graph with its micro-batch and its recomputation: shared by all placements.
struct ProfiledGraph {
  /// `fewer`: withFewerRepeats() of `original` or null. Then `graph` is the shorter one, and
  /// recomputation has to be the same in all occurrences (areAlike).
  ProfiledGraph(const reshard::Graph &original, const std::vector<bool> &recompute,
                const FewerRepeats *fewer);
  std::vector<int> cloneOf;  // by op, as withRecompute
  std::vector<int> sourceOf; // by op: the op of the original graph
  reshard::Graph graph;
  std::vector<int> anchors;  // by op, as forwardAnchors
  std::vector<bool> canWait; // by op, as weightOps
  /// From the forward ops of the original to those of `graph` with their costs.
  std::shared_ptr<const Folding> folding;
  std::vector<bool> mayBegin; // by forward op of the original, as stageMayBegin
};

/// Profiles the original graph of `profiled` with `strategies`, one per op of it, on `mesh`. The
/// mesh has adjacent devices and the axes ep, cp and tp, as far as they are longer than 1.
/// `isInOrder`: as in opKernelSeconds.
Profile makeProfile(const ProfiledGraph &profiled, const reshard::Mesh &mesh,
                    const std::vector<reshard::OpStrategy> &strategies, const Job &job,
                    const Cluster &cluster, bool isInOrder);

/// The distribution of parameters and gradients over data ranks, with the resulting group shapes.
struct DataMode {
  /// The ranks with the same parameters.
  struct Groups {
    GroupShape zero;   // of one rank for zero 0
    GroupShape reduce; // the others
  };

  int zero = 0;
  bool keepGathered = false;
  bool keepsGradientShards = false; // gradients reduced immediately
  bool reducesAtOnce = false;       // in the only backward of a step
  bool reducesLast = false;         // in the last of several: of the first chunk (GradientLast)
  bool offloadsStates = false;      // optimizer states and master weights
  // Of the executor:
  bool storesWeights = true;          // beside a master copy, where these are sharded
  double gradientFactor = 1;          // bytes of gradients, relative to tbc's
  std::optional<int64_t> bucketBytes; // as pinned
  int64_t gatherBytes = 0;            // of joined gathers, in the fastest plan
  std::array<Groups, 2> groups;       // as RangeSums::parameters

  /// Whether something stands between the steps of two parameters of a kind: a new parameter is
  /// gathered at once, and a state on the host is copied.
  bool stepsApart(bool isExpert) const {
    return offloadsStates || ((zero == 1 || zero == 2) && groups[isExpert].zero.size > 1);
  }
};

/// Two profiles of one placement: `recomputed` recomputes more. A range uses it for its first ops
/// and `kept` for its last ops.
struct Mix {
  const Profile *recomputed;
  const Profile *kept;
  Mix(const Profile &profile) : recomputed(&profile), kept(&profile) {}
  Mix(const Profile &recomputed, const Profile &kept) : recomputed(&recomputed), kept(&kept) {}

  /// Sums over forward ops [first, last), with those before `middle` from `recomputed`.
  RangeSums sums(int first, int middle, int last) const {
    RangeSums range = recomputed->sums(first, middle);
    range.add(kept->sums(middle, last), 1);
    return range;
  }
};

/// Returns the seconds of a chunk with these sums. `parts`: the schedule splits backward into dgrad
/// and wgrad.
StageSeconds profiledSeconds(const RangeSums &range, const DataMode &mode,
                             const NetworkCost &network, const Cluster &cluster, bool parts);

/// Forward ops [first, last). Those before `middle` recompute more; those before `offloadEnd` have
/// offloaded residuals.
struct ChunkRange {
  int first = 0, middle = 0, last = 0;
  int offloadEnd = 0;

  /// Sums over [begin, end), which lies within the range.
  RangeSums sums(const Mix &mix, int begin, int end) const {
    return mix.sums(begin, std::clamp(middle, begin, end), end);
  }
};

/// Returns the peak bytes of a stage with these chunks, over its `moments`, with margins and
/// context. `moments` has at least these chunks.
double profiledBytes(const Mix &mix, const std::vector<ChunkRange> &chunks,
                     const schedule::Moments &moments, const DataMode &mode, const Job &job,
                     const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PROFILE_H
