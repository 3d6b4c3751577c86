//===- Profile.h - What ranges of forward ops cost, for scoring ------------===//
//
// Plain C++. One placement on tp devices at one micro-batch, with one way to recompute, as sums
// over the forward order, so that a stage is priced without looking at its ops.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_PROFILE_H
#define TBC_PLANNER_CORE_PROFILE_H

#include "planner/core/Buckets.h"
#include "planner/core/Cost.h"
#include "planner/core/Memory.h"
#include "planner/core/Place.h"
#include "planner/core/Time.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tbc::planner {

/// Of parameters, at the first op that uses each: local bytes after tp and ep.
struct ParameterSums {
  double gathersForward = 0, gatherForwardBytes = 0;   // used by forward ops
  double gathersBackward = 0, gatherBackwardBytes = 0; // used by backward ops
  double bytes = 0;
  double trained = 0, trainedBytes = 0, gradientBytes = 0, ownedElements = 0, updateBytes = 0;
  double masterBytes = 0;

  void add(const ParameterSums &o, double sign);
};

/// Sums over forward ops [0, i), each with the backward ops that go with it.
struct RangeSums {
  double forward = 0, backward = 0, recompute = 0;
  double operandsForward = 0, operandsBackward = 0;
  double residualBytes = 0;
  // Of the backward, what a schedule may part from it: of the kernels, the recomputation and the
  // collectives between ops; of the residuals, those that it reads; and the cotangents that it
  // reads, which are kept for it.
  double weight = 0, recomputeWeight = 0, operandsWeight = 0;
  double weightResidualBytes = 0, cotangentBytes = 0;
  /// Parameters that every rank along ep holds, and those that ep splits.
  std::array<ParameterSums, 2> parameters;

  RangeSums operator-(const RangeSums &o) const;
  void operator+=(const RangeSums &o);
};

/// The largest of any range of values, in constant time (sparse table).
class RangeMaximum {
public:
  RangeMaximum() = default;
  explicit RangeMaximum(std::vector<double> values);
  /// Of values [first, last); 0 if there are none.
  double operator()(int first, int last) const;

private:
  std::vector<std::vector<double>> levels; // levels[k][i]: of 2^k values from i
};

struct Profile {
  int numForward = 0;
  std::vector<RangeSums> sums;       // numForward + 1 entries
  RangeMaximum liveBytes;            // by forward op: the most that is live in it or its backward
  RangeMaximum largestParameter;     // by forward op: bytes of the parameters it uses
  std::vector<double> crossingBytes; // by forward op: what is sent if a stage ends after it
  std::vector<bool> stageMayBegin;   // by forward op
  double modelStateBytes = 0, inputBytes = 0;
  bool lossIsSplit = false;   // over tp: it is summed once per step
  int64_t stepTotalBytes = 0; // of the scalars that are summed over all ranks instead
  int64_t stepStateBytes = 0; // of the scalars that every rank keeps
};

/// A graph, at its micro-batch, with what its backward computes again: what all placements share.
struct ProfiledGraph {
  ProfiledGraph(const reshard::Graph &graph, const std::vector<bool> &recompute);
  std::vector<int> cloneOf, sourceOf; // by op, as withRecompute
  reshard::Graph graph;
  std::vector<int> anchors;   // by op, as forwardAnchors
  std::vector<bool> canWait;  // by op, as weightOps
  std::vector<bool> mayBegin; // by forward op, as stageMayBegin
};

/// Profiles `profiled` with `strategies`, one per op of the graph that it was made of, on `mesh`,
/// which has the axes ep, cp and tp where they are longer than 1: adjacent devices. `isInOrder`: as
/// opKernelSeconds.
Profile makeProfile(const ProfiledGraph &profiled, const reshard::Mesh &mesh,
                    const std::vector<reshard::OpStrategy> &strategies, const Job &job,
                    const Cluster &cluster, bool isInOrder);

/// How parameters and gradients are spread over data ranks, with the group shapes that come of it.
struct DataMode {
  /// The ranks that hold the same parameters.
  struct Groups {
    GroupShape zero;   // of one rank for zero 0
    GroupShape reduce; // the others
  };

  int zero = 0;
  bool keepGathered = false;
  bool keepsGradientShards = false;   // of what is reduced right away
  bool offloadsStates = false;        // optimizer states and master weights are on the host
  std::optional<int64_t> bucketBytes; // as pinned
  std::array<Groups, 2> groups;       // as RangeSums::parameters
};

/// Two profiles of one placement: ranges begin with ops as in `again`, which recomputes more, and
/// end with ops as in `kept`.
struct Mix {
  const Profile *again;
  const Profile *kept;
  Mix(const Profile &profile) : again(&profile), kept(&profile) {}
  Mix(const Profile &again, const Profile &kept) : again(&again), kept(&kept) {}

  /// Of forward ops [first, last), those before `middle` as in `again`.
  RangeSums sums(int first, int middle, int last) const {
    RangeSums range = again->sums[middle] - again->sums[first];
    range += kept->sums[last] - kept->sums[middle];
    return range;
  }
};

/// Seconds of a chunk of these sums. `parts`: the schedule parts the backward.
StageSeconds profiledSeconds(const RangeSums &range, const DataMode &mode,
                             const NetworkCost &network, const Cluster &cluster, bool parts);

/// Forward ops [first, last), those before `middle` recomputing more; what is kept of those before
/// `away` is on the host.
struct ChunkRange {
  int first = 0, middle = 0, last = 0;
  int away = 0;

  /// Of what is kept of [begin, end), which lies within the range.
  RangeSums sums(const Mix &mix, int begin, int end) const {
    return mix.sums(begin, std::clamp(middle, begin, end), end);
  }
};

/// Bytes of a stage of these chunks, when it holds most of `moments`, each of as many chunks at
/// least; margins and context included.
double profiledBytes(const Mix &mix, const std::vector<ChunkRange> &chunks,
                     const schedule::Moments &moments, const DataMode &mode, const Job &job,
                     const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PROFILE_H
