//===- InterleavingSearch.h - Every order in which ranks can go on ---------===//
//
// What runtime/verify concludes from one order of events, found by trying all of them. Shares no
// code with it: ranks are processes with queues, whatever their stage.
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

/// One blocking operation of a rank.
struct RankOp {
  enum class Kind { Send, Recv, Meet };
  Kind kind = Kind::Meet;
  int peer = -1;          // rank, of a send or receive
  int64_t channel = 0;    // of a send or receive
  int lane = 0;           // of a send or receive
  std::vector<int> group; // ranks, of a meeting
  std::string what;       // of a meeting: what all have to agree on
  int chunk = 0;          // the forward block in which it stands
  int instruction = -1;   // where it stands there
};

/// What each rank does in the forward blocks of a Program, for its only micro-batch.
std::vector<std::vector<RankOp>> rankOps(const program::Program &program);

/// What can come of them.
struct Outcomes {
  bool canFinish = false;
  bool canGetStuck = false;
  /// A message is received on another channel, a meeting is of different operations, or a message
  /// is left over at the end.
  bool canMismatch = false;
  /// Of the last stuck state: per rank the operation it waits at, or -1 at its end.
  std::vector<int> stuckAt;
  int64_t numStates = 0;
  int64_t numEnds = 0; // states without a successor
};

/// Depth first over all states: how far each rank has come, and what is in the queue of each
/// lane of an ordered pair of ranks.
class InterleavingSearch {
public:
  /// `isBuffered`: a send puts its message into the queue of its pair and goes on. Else it waits
  /// until its peer is at a receive from it, and both go on together.
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
