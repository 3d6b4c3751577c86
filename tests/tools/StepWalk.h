//===- StepWalk.h - A step as a rank runs it ---------------------------------===//
//
// The step is walked block by block as a rank would run it, with a table of what is at hand: an
// operand that is not there in the placement its op wants must be brought there.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_STEPWALK_H
#define TBC_TESTS_TOOLS_STEPWALK_H

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
  /// `bucketBytes` as in expectedSignature.
  StepWalk(const StepPlaces &places, int64_t bucketBytes)
      : places(places), graph(places.graph), assignment(places.assignment),
        bucketBytes(bucketBytes), moves(assignment.mesh), messages(graph, assignment.mesh) {}

  /// What the step communicates. Once.
  StepMessages run();

private:
  /// Chunk and phase.
  using Block = std::pair<int, reshard::Phase>;

  /// A gradient that is completed after the op that makes it, alone or with others.
  struct Reduction {
    int value, stage, chunk; // chunk -1: in the update
    reshard::Phase phase;
    Placement from, to;
    int64_t count;
  };

  void execute(int op);
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
  bool mayWait(const Reduction &reduction);
  void joinReductions();
  void reduceTogether(const std::vector<const Reduction *> &members);

  const StepPlaces &places;
  const reshard::Graph &graph;
  const reshard::Assignment &assignment;
  int64_t bucketBytes;
  TensorMoves moves;
  StepMessages messages;
  std::map<std::tuple<int, int, reshard::Phase>, std::set<Placement>>
      atHand;                                      // besides what serves as it is
  std::map<std::pair<int, int>, Placement> keptAs; // by value and chunk that keeps it
  std::set<std::tuple<int, int, reshard::Phase>> gathered;
  std::vector<Reduction> reductions; // of gradients, in order
  std::set<std::tuple<int, int, reshard::Phase, Placement>> readReductions; // by ops of the block
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_STEPWALK_H
