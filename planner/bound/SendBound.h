//===- SendBound.h - Bound on the sends of a pipeline ---------------------===//
//
// Plain C++. A lower bound on the bytes of every send between pipeline stages, over all cuts of the
// model.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_SENDBOUND_H
#define TBC_PLANNER_BOUND_SENDBOUND_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Bytes as a linear function of the samples in a micro-batch.
struct SampledBytes {
  double perSample = 0, fixed = 0;
  double at(double samples) const { return perSample * samples + fixed; }
};

/// Returns, by position of the forward order where a stage may begin (equal ones once), a lower
/// bound on the bytes that the first chunk sends in forward if it ends there. `others`: the number
/// of chunks after the first before its stage has one again (chunksElsewhere), at least 1.
///
/// Counts the values made before position p whose next reader r >= p has fewer than `others`
/// positions after p up to r. Proof: each chunk after the second begins at such a position, so r
/// lies on one of the `others` chunks. The value is sent to its stage.
///
/// Example: a residual stream of 8 MB per sample crosses every layer boundary, and the next layer
/// reads it. With one chunk per stage every value counts that is read after p. With stages 0, 1, 0,
/// 1, `others` is 1: those count that are read before the next position.
std::vector<SampledBytes> firstSends(const reshard::Graph &graph, int64_t others);

/// A value that an op on a later chunk than its producer's reads in forward, or one on an earlier
/// chunk in backward. A *piece* is a run of ops between neighbouring positions where a stage may
/// begin, with their backward; a chunk is a run of whole pieces.
struct SentValue {
  SampledBytes bytes;
  bool isForward = true;
  int producer = 0;         // a piece
  std::vector<int> readers; // pieces, ascending, without the producer
};

/// Returns the values that the stages of `graph` may send.
///
/// Theorem: every chunk on another stage that has a reader gets the value in a send of its own,
/// from the chunk of its producer (reshard::derive). Constants, and sums of gradients, which each
/// stage has for itself, do not count.
///
/// Example: x of 8 MB, made in piece 0, is read in the pieces 1 and 5. If these lie on two chunks
/// of other stages, 16 MB are sent.
std::vector<SentValue> sentValues(const reshard::Graph &graph);

/// Bytes that every pair of neighbouring chunks on different stages sends. Many cuts have equal
/// ones.
struct CutSends {
  std::vector<SampledBytes> kinds;
  /// By forward op: the index of the bytes sent in forward to a chunk that begins with it, and of
  /// those sent back by that chunk.
  std::vector<int> forward, backward;
};

/// Returns lower bounds on the sends over the cut before each forward op where a stage may begin; 0
/// bytes elsewhere.
///
/// Counts the values (`sentValues`) that the piece before the cut makes and the piece after it
/// reads, and the reverse in backward.
///
/// Proof: the last piece of a chunk is the one before the cut, and the first piece of the next
/// chunk the one after it.
///
/// Example: x of 8 MB leaves an attention layer for an MLP of two matmuls with 28 MB between them.
/// The cut before the MLP sends 8 MB, that between the matmuls at least 28 MB; the residual stream
/// also crosses the second one, but the piece before it does not make it.
CutSends cutSends(const reshard::Graph &graph, const std::vector<SentValue> &values);

/// Returns the number of chunks after the first before its stage has one again; without such a
/// chunk, the number of chunks. `stageOf`: by chunk. Example: 2 for 0, 1, 2, 0, 1, 2 and for 0, 1,
/// 1, 0; 3 for 0, 1, 2.
int64_t chunksElsewhere(const std::vector<int> &stageOf);

/// Returns a lower bound on the bytes of every send of a micro-batch, forward and backward, over
/// all cuts: the least of firstSends(). The first two chunks must be on different stages. No other
/// send is priced lower than the first chunk's in forward (chunkTimes).
///
/// Example: positions with 3, 2 and 4 MiB give at least 2 MiB.
double leastSendBytes(const std::vector<SampledBytes> &sends, double samples);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_SENDBOUND_H
