//===- PipelineRoom.h - Total kept bytes of a pipeline's stages -----------===//
//
// Plain C++. An upper bound over all cuts of a model of repeated blocks into stages.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_PIPELINEROOM_H
#define TBC_PLANNER_BOUND_PIPELINEROOM_H

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// The share of one forward op of a repeated block, on one of the devices of a model.
struct BlockPart {
  double seconds = 0;       // of it and its backward, for one micro-batch, at least
  double keptBytes = 0;     // of one micro-batch from forward to backward, without recomputation
  double crossingBytes = 0; // of the kept bytes, the part that crosses to the ops after it
  double fixedBytes = 0;    // of its parameters and their states, at least
};

/// A pipeline of `count` such blocks in sequence.
struct PipelineRoom {
  std::vector<BlockPart> block; // in forward order; their sums of seconds and of kept bytes are
                                // positive
  double count = 0;
  /// By stage: the least number of micro-batches whose values it keeps.
  std::vector<double> inFlight;
  double chunksPerStage = 1;
  double usableBytes = 0; // of one device
  /// The longest a stage may take for one micro-batch, without savings by recomputation.
  double mostSeconds = 0;

  /// Returns the most bytes of one micro-batch that all stages together can keep of the blocks;
  /// negative if no cut holds all of them.
  ///
  /// The number n of blocks on a stage is measured by its seconds. A stage keeps at most the bytes
  /// of its blocks, and at most (usable - n * fixed) / inFlight. These are two lines in n, one
  /// rising and one falling. Each has a margin for a chunk that begins and ends within a block. The
  /// minimum of two lines is concave, so the greedy division of the blocks is optimal.
  ///
  /// Example: one stage with 10 GB usable, 4 blocks of 1 GB fixed each and 2 micro-batches in
  /// flight. It keeps at most (10 - 4) / 2 = 3 GB of one micro-batch.
  double mostKeptBytes() const;
};

/// Returns the most bytes of one micro-batch that all stages together can keep from forward to
/// backward, in any cut of any model; negative if no cut fits. `usableBytes`: of one device.
/// `inFlight`: by stage, the least number of micro-batches whose values it keeps, at least 1.
/// `fixedBytes`: of all stages, for parameters and their states.
///
/// Theorem: with n_s in flight on stage s, for every m > 0
///     kept <= usable * (sum of max(1/m, 1/n_s)) - fixed / m.
///
/// Proof sketch: stage s has fixed_s + n_s kept_s <= usable. For n_s >= m, divided by m, and else
/// divided by n_s, this is kept_s + fixed_s / m <= usable * max(1/m, 1/n_s). The bound is convex
/// and piecewise linear in 1/m, so its minimum is at some m = n_s.
///
/// Example: two stages of 10 GB with 2 and 1 micro-batches in flight, and 12 GB fixed. m = 1 gives
/// 10 * (1 + 1) - 12 = 8 GB, and m = 2 gives 10 * (1/2 + 1) - 12 / 2 = 9 GB: at most 8 GB.
double mostKeptAnywhere(double usableBytes, const std::vector<double> &inFlight, double fixedBytes);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_PIPELINEROOM_H
