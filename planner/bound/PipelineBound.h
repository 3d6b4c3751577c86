//===- PipelineBound.h - Makespan bound over all cuts of a model ----------===//
//
// Plain C++. A lower bound on the makespan of a pipeline schedule, over all cuts of the model.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_PIPELINEBOUND_H
#define TBC_PLANNER_BOUND_PIPELINEBOUND_H

#include "planner/predict/Time.h"

#include <vector>

namespace tbc::planner {

/// Seconds of an indivisible part of the model for one micro-batch, on any chunk.
struct WorkShare {
  double forward = 0, backward = 0, weight = 0; // seconds in each phase
  double anyPhase = 0;                          // seconds in an unknown phase
  // Possible changes by recomputation (secondsOfRunningAgain). By phase: the saving if the part
  // reads recomputed operands from registers.
  double foundForward = 0, foundBackward = 0, foundWeight = 0;
  // If the part itself is recomputed: the saving in forward, and the extra time in backward.
  double lessForward = 0, moreBackward = 0;

  void add(const WorkShare &o, double times);
  /// The least work: every saving recomputation taken, in the phases that it shortens.
  WorkShare least() const;
  double seconds() const { return forward + backward + weight + anyPhase; }
};

/// The parts of a model in forward order; many are alike.
struct WorkInOrder {
  std::vector<WorkShare> kinds;
  std::vector<int> kindOf;    // by part
  std::vector<bool> mayBegin; // by part: whether a stage may begin there
  WorkShare total;

  WorkInOrder() = default;
  WorkInOrder(const std::vector<WorkShare> &parts, std::vector<bool> mayBegin);
};

/// Seconds of sends between the stages of neighbouring chunks, at least.
struct SendSeconds {
  double least = 0; // of every send
  /// By part with which a chunk begins: seconds of the send to it in forward, and from it in
  /// backward. Empty: `least` everywhere.
  std::vector<double> forward, backward;

  /// Raises all sends to `seconds`.
  void atLeast(double seconds);
  double forwardTo(size_t part) const { return forward.empty() ? least : forward[part]; }
  double backwardFrom(size_t part) const { return backward.empty() ? least : backward[part]; }
};

/// A weighted mean of chains of actions that must follow each other in one schedule, given as the
/// mean count of each phase of each chunk. The step takes at least the seconds of any chain, so
/// also of any mean of chains. This holds for any assignment of parts to chunks. So the step takes
/// at least the sum over all parts of each part's least cost on any chunk.
class ChainMixture {
public:
  /// Builds a mixture for work with the proportions of `total`. Fictitious play (Brown 1951) finds
  /// chains: one player cuts the model, the other picks the longest chain. Then the chains get the
  /// weights that prove most. `isFine`: more rounds, and chains through each chunk: the first
  /// micro-batch on its way to the chunk, all actions of its stage, and the way back. Example: 16
  /// stages with 1F1B, 32 micro-batches of 1 s and 80 rounds prove 2.93 s of 2.94 s; equal weights
  /// prove 2.72 s.
  /// `sendSeconds`: roughly those of a send, so that chains with many sends are found. Example:
  /// with 1F1B every micro-batch waits for two sends, on a chain that goes between two stages.
  ChainMixture(const PipelineSchedule &schedule, const WorkShare &total, double sendSeconds = 0,
               bool isFine = false);

  /// Returns a lower bound on the makespan over all cuts of `work` into the schedule's chunks;
  /// infinite if there are too few parts.
  /// - `anywhere`: additional seconds in unknown phases.
  /// - `sends`: if not in order, `sends.least` counts for all of them.
  /// - `againSeconds`: least seconds that recomputation of parts adds to a micro-batch, with all
  ///   effects.
  ///
  /// A change by recomputation counts as often as its phase. For a number l, l of these occurrences
  /// cost `againSeconds` each, on any chunk. The rest costs at least the minimum over parts and
  /// chunks. This holds for each l, and the best of a few is taken.
  ///
  /// `isInOrder`: bounds over cuts with chunks in model order, by dynamic programming. Otherwise
  /// each part counts on its cheapest chunk, a weaker bound that is faster to compute.
  double leastSeconds(const WorkInOrder &work, double anywhere, const SendSeconds &sends,
                      double againSeconds, bool isInOrder) const;

  /// The shortest makespan found for `total` as one freely divisible part, with the sends of the
  /// constructor. No mixture proves more for these.
  double mostSeconds() const { return most; }

private:
  struct Counts {
    double forward = 0, backward = 0, weight = 0;
    double sendsForward = 0;  // to it, from the chunk before
    double sendsBackward = 0; // to it, from the chunk after
    double least() const;
    double of(const WorkShare &share, double agains) const;
  };
  std::vector<double> byKind(const WorkInOrder &work, double agains) const;
  double anyhow(const WorkInOrder &work, const std::vector<double> &byKind) const;
  double inOrder(const WorkInOrder &work, const std::vector<double> &byKind,
                 const SendSeconds &sends) const;
  bool partsBackward;
  std::vector<Counts> chunks;
  double most = 0;
  double numSends = 0; // mean number of sends on a chain
};

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_PIPELINEBOUND_H
