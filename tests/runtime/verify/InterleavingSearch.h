//===- InterleavingSearch.h - All interleavings of the ranks ---------------===//
//
// Tries all orders of events to check the conclusions that runtime/verify draws from one order. It
// shares no code with runtime/verify: ranks are processes with queues, and stages do not matter.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_VERIFY_INTERLEAVINGSEARCH_H
#define TBC_TESTS_RUNTIME_VERIFY_INTERLEAVINGSEARCH_H

#include "runtime/abi/Program.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace tbc::verify {

/// A blocking operation of a rank.
struct RankOp {
  enum class Kind { Send, Recv, Meet };
  Kind kind = Kind::Meet;
  int peer = -1;          // rank, for a send or receive
  int64_t channel = 0;    // for a send or receive
  int lane = 0;           // for a send or receive
  std::vector<int> group; // ranks of a meeting
  std::string what;       // of a meeting: must be equal on all ranks
  int chunk = 0;          // chunk of its forward block
  int instruction = -1;   // index in the block
};

/// Returns the operations of each rank in the forward blocks of a Program, for its only
/// micro-batch.
std::vector<std::vector<RankOp>> rankOps(const program::Program &program);

/// The possible outcomes over all orders.
struct Outcomes {
  bool canFinish = false;
  bool canGetStuck = false;
  /// A receive gets a message of another channel, a meeting joins different operations, or a
  /// message is left over at the end.
  bool canMismatch = false;
  /// The last stuck state: per rank the index of the blocked operation, or -1 if the rank has
  /// ended.
  std::vector<int> stuckAt;
  int64_t numStates = 0;
  int64_t numEnds = 0; // states without a successor
};

/// Depth-first search over all states. A state is the progress of each rank and the content of each
/// queue (one per lane and ordered pair of ranks).
class InterleavingSearch {
public:
  /// `isBuffered`: a send puts its message into the queue of its pair and continues. Otherwise a
  /// send waits until its peer is at the matching receive, and both continue together.
  InterleavingSearch(const std::vector<std::vector<RankOp>> &ranks, bool isBuffered)
      : ranks(ranks), isBuffered(isBuffered) {
    for (const std::vector<RankOp> &ops : ranks)
      for (const RankOp &op : ops)
        numLanes = std::max(numLanes, size_t(op.lane) + 1);
  }

  Outcomes run();

private:
  struct State {
    std::vector<uint8_t> next;               // by rank
    std::vector<std::vector<int64_t>> queue; // by queueOf: channels
    std::string key() const;
  };

  void visit(const State &state);
  const RankOp *current(const State &state, int rank) const {
    return state.next[rank] < ranks[rank].size() ? &ranks[rank][state.next[rank]] : nullptr;
  }
  size_t queueOf(int from, int to, int lane) const {
    return (size_t(from) * ranks.size() + size_t(to)) * numLanes + size_t(lane);
  }
  void trySend(const State &state, int rank, std::vector<State> &successors);
  void tryRecv(const State &state, int rank, std::vector<State> &successors);
  void tryMeet(const State &state, int rank, std::vector<State> &successors);
  void end(const State &state);

  const std::vector<std::vector<RankOp>> &ranks;
  bool isBuffered;
  size_t numLanes = 1;
  std::unordered_set<std::string> seen;
  Outcomes outcomes;
};

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_INTERLEAVINGSEARCH_H
