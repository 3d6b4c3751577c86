//===- PipelineRoom.h - What the stages of a pipeline can keep together -----===//
//
// Plain C++. A bound over every way to cut a model of repeated blocks into stages.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_PIPELINEROOM_H
#define TBC_PLANNER_CORE_PIPELINEROOM_H

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// What goes with one forward op of a repeated block, on one of the devices of a model.
struct BlockPart {
  double seconds = 0;   // of it and its backward, for one micro-batch, at least
  double keptBytes = 0; // of one micro-batch from its forward to its backward, if not made again
  double crossingBytes = 0; // of what is kept, that crosses to the ops after it
  double fixedBytes = 0;    // of its parameters, at least, with what belongs to them
};

/// A pipeline that holds `count` such blocks one after the other.
struct PipelineRoom {
  std::vector<BlockPart> block; // in forward order; together they take time and keep something
  double count = 0;
  /// By stage: of how many micro-batches it keeps at least, of whatever is kept there.
  std::vector<double> inFlight;
  double chunksPerStage = 1;
  double usableBytes = 0; // of one device
  /// No stage may take longer for one micro-batch, what saves time aside.
  double mostSeconds = 0;

  /// The most bytes of one micro-batch that all stages together can keep of the blocks; below 0
  /// where no cut holds all of them.
  ///
  /// A stage with n blocks, as its seconds count, keeps no more than what they have to keep, and no
  /// more than (usable - n * fixed) / inFlight: two lines in n, one rising and one falling, each up
  /// to what a chunk may hold beyond its share, for it may begin and end within a block. Of all
  /// ways to divide the blocks the greedy one is best, as the least of two lines is concave.
  double mostKeptBytes() const;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PIPELINEROOM_H
