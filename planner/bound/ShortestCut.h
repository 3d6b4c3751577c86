//===- ShortestCut.h - All cuts of a small model, one by one --------------===//
//
// Plain C++. The shortest makespan of a pipeline schedule over all cuts of a model with few of
// them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_SHORTESTCUT_H
#define TBC_PLANNER_BOUND_SHORTESTCUT_H

#include "planner/bound/PipelineBound.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace tbc::planner {

/// Seconds of the sends between stages, for any cut. `chunkOf`: by part.
struct PieceSends {
  /// A send from the chunk of part `from` to each chunk of other stages with a part of `to`.
  struct Send {
    bool isForward = true;
    int from = 0;
    std::vector<int> to; // ascending
    double seconds = 0;
  };
  std::vector<Send> sends;
  double least = 0; // of all sends of a chunk in one phase

  /// Sets the seconds of the sends of `times`, as planner::chunkTimes does.
  void setTimes(const schedule::Pipeline &pipeline, const std::vector<int> &chunkOf,
                std::vector<schedule::ChunkTimes> &times) const;
};

/// Returns the least seconds of the sends of one micro-batch on its way through all chunks and
/// back, over all cuts of `numPieces` parts. `stageOf`: by chunk.
///
/// Theorem: chunk c sends each value that it makes and that a part after it reads, if no chunk up
/// to that part's lies on the stage of c; a part k places on lies at most k chunks on. Backward is
/// the same in reverse. Every send takes at least the first one (planner::chunkTimes). Dynamic
/// programming over the ends of chunks, for each value of the first send.
///
/// Example: parts 0 and 2 make and read a value of 1 s, and part 1 only a parameter. With stages 0,
/// 1, 1, 0 a first chunk that ends after part 0 sends it, because part 2 lies on chunk 1 or 2.
double leastPassSends(const std::vector<int> &stageOf, const PieceSends &sends, size_t numPieces);

/// Returns the number of cuts of ops into `numChunks` chunks, at the ops flagged in `mayBegin`. 0
/// if there are too few of these. Example: 3 positions and 3 chunks have 3 cuts.
double numCuts(const std::vector<bool> &mayBegin, size_t numChunks);

/// Returns the shortest makespan over all cuts of `ops` (by forward op) into the chunks of
/// `schedule`, at the ops flagged in `mayBegin`. Infinite if there are too few of these. Returns 0,
/// unknown, if there are more than `mostCuts` cuts. Makespans above `limit` do not matter: if all
/// are, the result is any number above it.
///
/// The parts of `sends` are the runs of ops between the flagged ones. The sends of a cut are known:
/// those that count begin on one chunk and end on another.
///
/// Cuts are left out as soon as one stage alone takes longer than `limit` or than a cut found
/// before. Example: 4 micro-batches, a limit of 30 s, and a first chunk of 8 s: the step takes at
/// least 32 s, so no cut with this chunk or a longer one is simulated.
double shortestCutSeconds(const PipelineSchedule &schedule, const std::vector<WorkShare> &ops,
                          const std::vector<bool> &mayBegin, const PieceSends &sends,
                          int64_t mostCuts, double limit = std::numeric_limits<double>::infinity());

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_SHORTESTCUT_H
