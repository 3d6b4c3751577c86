//===- StepWalk.h - Walks a step as a rank runs it ------------------------===//
//
// Walks the step block by block, as a rank would run it, with a table of available placements. An
// operand that is not available in the placement wanted by its op must be resharded.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_STEPWALK_H
#define TBC_TESTS_TOOLS_STEPWALK_H

#include "tests/tools/IndependentCollectives.h"
#include "tests/tools/StepMessages.h"
#include "tests/tools/StepPlaces.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tbc::test {

class StepWalk {
public:
  StepWalk(const StepPlaces &places, const JoinedSizes &sizes)
      : places(places), graph(places.graph), assignment(places.assignment), sizes(sizes),
        moves(assignment.mesh), messages(graph, assignment.mesh) {}

  /// Returns the communication of the step. Call it once.
  StepMessages run();

private:
  /// Chunk and phase.
  using Block = std::pair<int, reshard::Phase>;

  /// A gradient is reduced after its op, a total of all micro-batches after the last one's op or in
  /// the update, a stored parameter gathered before its first reader, and a new one after the
  /// optimizer.
  enum class Purpose { Gradient, LastTotal, StoredParameter, NewParameter };

  /// A reduction or gather, alone or joined with others of its purpose.
  struct Joinable {
    int value, stage, chunk; // -1: in the update
    reshard::Phase phase;
    Placement from, to;
    int64_t count;
    Purpose purpose = Purpose::Gradient;
  };

  void execute(int op);
  void reduceLast(int value, int stage);
  void sendRound(int op);
  void bring(int value, int chunk, reshard::Phase phase, const Placement &want);
  void gather(int p, int chunk, reshard::Phase phase);
  bool isKeptGathered(int p, int chunk) const;
  Block blockWith(int value, int chunk) const;
  Placement arrived(int value, int chunk);
  Placement kept(int value, int chunk);
  Placement choose(int value, int chunk);
  void sends();
  void update();

  // StepReductions.cpp
  int64_t limitOf(Purpose purpose) const;
  bool mayWait(const Joinable &joinable);
  void joinAlike();
  void moveTogether(const std::vector<const Joinable *> &members);

  const StepPlaces &places;
  const reshard::Graph &graph;
  const reshard::Assignment &assignment;
  const JoinedSizes sizes;
  TensorMoves moves;
  StepMessages messages;
  std::map<std::tuple<int, int, reshard::Phase>, std::set<Placement>>
      atHand;                                      // besides the home placement
  std::map<std::pair<int, int>, Placement> keptAs; // by value and the chunk that keeps it
  std::set<std::tuple<int, int, reshard::Phase>> gathered;
  std::vector<Joinable> joinables;                                          // in order
  std::set<std::tuple<int, int, reshard::Phase, Placement>> readReductions; // by ops of the block
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_STEPWALK_H
