//===- RangeSums.h - Sums and maxima over ranges of forward ops ------------===//
//
// Plain C++. The ops of 61 equal layers have equal costs. A profile keeps costs by op of the graph
// with fewer repeats and answers for ranges of all ops, so it is as small as that graph. A search
// has hundreds of profiles.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_RANGESUMS_H
#define TBC_PLANNER_SEARCH_RANGESUMS_H

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Sums of parameters, each counted at its first user: local bytes after tp and ep.
struct ParameterSums {
  double gathersForward = 0, gatherForwardBytes = 0;   // used by forward ops
  double gathersBackward = 0, gatherBackwardBytes = 0; // used by backward ops
  double bytes = 0;
  double trained = 0, trainedBytes = 0, gradientBytes = 0, stateBytes = 0, updateBytes = 0;
  double updateTensors = 0; // planner::updateTensors
  double masterBytes = 0;
  /// Of the parameters whose update reads whole matrices: their number and bytes, and the seconds
  /// of this part on a rank, without gathers over the zero group.
  double matrices = 0, matrixBytes = 0, matrixSeconds = 0;
  /// Of these: bytes of states that no zero group divides, and the number with sums over all
  /// shards.
  double wholeStateBytes = 0, totals = 0;

  void add(const ParameterSums &o, double sign);
};

/// Sums over some forward ops, each with its backward ops.
struct RangeSums {
  double forward = 0, backward = 0, recompute = 0;
  double operandsForward = 0, operandsBackward = 0;
  double launchForward = 0, launchBackward = 0; // of the host, recomputation included
  double residualBytes = 0;
  // The part of the backward that a schedule may split off as wgrad: its kernels, recomputation and
  // collectives between ops; its residuals; and its cotangents, kept for it.
  double weight = 0, recomputeWeight = 0, operandsWeight = 0, launchWeight = 0;
  double weightResidualBytes = 0, cotangentBytes = 0;
  /// Parameters whole on every rank along ep, and parameters split by ep.
  std::array<ParameterSums, 2> parameters;

  void add(const RangeSums &o, double sign);
};

/// For each op, the op of a shorter graph with its costs. Both go on one by one within a run.
/// Example: {0, 1, 2, 1, 2, 3} has the runs {0, 1, 2} and {1, 2, 3}.
class Folding {
public:
  struct Run {
    int first = 0;          // op
    int begin = 0, end = 0; // ops of the shorter graph
  };
  /// A place between ops, within a run: before op `at` of the shorter graph.
  struct Place {
    int run = 0, at = 0;
  };

  /// `likeOf`: by op, the op of the shorter graph.
  explicit Folding(const std::vector<int> &likeOf);

  int numOps() const { return int(places.size()) - 1; }
  const std::vector<Run> &allRuns() const { return runs; }
  const Run &run(int index) const { return runs[size_t(index)]; }
  /// The place before `op`, in the run of `op`; numOps() is the end.
  Place place(int op) const { return places[size_t(op)]; }
  /// The op of the shorter graph with the costs of `op`.
  int like(int op) const { return place(op).at; }

private:
  std::vector<Run> runs;
  std::vector<Place> places; // numOps() + 1
};

/// Costs of any range of ops, in constant time: prefix sums over the shorter graph, and over runs.
class FoldedSums {
public:
  /// The difference of two prefixes.
  class Range {
  public:
    /// Returns the sum of `get`, which is linear: of a member, or of several.
    template <typename Get> double operator()(Get get) const {
      const double within = get(*last) - get(*first);
      return firstRun == lastRun ? within : within + (get(*lastRun) - get(*firstRun));
    }

  private:
    friend class FoldedSums;
    const RangeSums *first, *last;       // of the shorter graph
    const RangeSums *firstRun, *lastRun; // FoldedSums::before of their runs
  };

  FoldedSums() = default;
  /// `at`: costs by op of the shorter graph.
  FoldedSums(std::shared_ptr<const Folding> folding, const std::vector<RangeSums> &at);

  Range range(int first, int last) const {
    const Folding::Place begin = folding->place(first), end = folding->place(last);
    Range range;
    range.first = &prefix[size_t(begin.at)];
    range.last = &prefix[size_t(end.at)];
    range.firstRun = &before[size_t(begin.run)];
    range.lastRun = &before[size_t(end.run)];
    return range;
  }
  /// The sums over ops [first, last).
  RangeSums operator()(int first, int last) const;

private:
  std::shared_ptr<const Folding> folding;
  std::vector<RangeSums> prefix; // by op of the shorter graph: of those before it
  std::vector<RangeSums> before; // by run: of all ops before it, less the prefix at its begin
};

/// The maximum of any range of values, in constant time (sparse table).
class RangeMaximum {
public:
  RangeMaximum() = default;
  explicit RangeMaximum(std::vector<double> values);
  /// Returns the maximum of values [first, last); 0 if empty.
  double operator()(int first, int last) const;

private:
  std::vector<std::vector<double>> levels; // levels[k][i]: of 2^k values from i
};

/// The same for folded ops.
class FoldedMaximum {
public:
  FoldedMaximum() = default;
  /// `values`: by op of the shorter graph.
  FoldedMaximum(std::shared_ptr<const Folding> folding, std::vector<double> values);
  /// Returns the maximum over ops [first, last); 0 if empty.
  double operator()(int first, int last) const;

private:
  std::shared_ptr<const Folding> folding;
  RangeMaximum within; // by op of the shorter graph
  RangeMaximum ofRuns; // by run
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_RANGESUMS_H
