//===- GraphSimulator.h - Executes a derivation on many ranks --------------===//
//
// Runs a graph twice, in integers modulo a prime: serially, and on all ranks by a Derivation alone.
// Every op is a sum of products over its loops. An op without reduction is then squared, so an
// incomplete sum cannot pass unnoticed: (1 + 2)^2 is not 1^2 + 2^2.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PLANNER_RESHARD_GRAPHSIMULATOR_H
#define TBC_TESTS_PLANNER_RESHARD_GRAPHSIMULATOR_H

#include "planner/reshard/Graph.h"
#include "tests/planner/reshard/Simulator.h"

#include <map>

namespace tbc::reshard::test {

constexpr int64_t kPrime = 1000000007;

/// The global value of every tensor, executed serially.
std::vector<LocalTensor> runSerially(const Graph &graph);

/// One step of one micro-batch on all ranks of all stages. The mesh has no pipeline axis: every
/// stage has a mesh of its own.
class GraphSimulator {
public:
  GraphSimulator(const Graph &graph, const Assignment &assignment, const Derivation &derivation);

  /// Runs forward, backward and the reductions of the update, and compares gradients, states and
  /// loss with the serial run. Returns the first difference, or "".
  std::string run();

private:
  using Ranks = std::vector<LocalTensor>;
  using Key = std::pair<int, Sharding>;
  struct Block {
    int chunk;
    Phase phase;
    bool operator<(const Block &o) const {
      return chunk != o.chunk ? chunk < o.chunk : phase < o.phase;
    }
  };

  void provideInputs();
  void runOp(int op);
  /// Runs the reshards at the cursor while `mine` returns true.
  void runReshards(const std::function<bool(const Reshard &)> &mine);
  Ranks reshardTensor(const Reshard &reshard, Ranks ranks);
  const Ranks *get(const Block &block, int value, const Sharding &sharding);
  void compare(const std::string &what, int value, const Sharding &sharding, const Ranks &ranks);
  void finishLoss();
  void finishGradient(int parameter);
  void fail(const std::string &why) {
    if (failure.empty())
      failure = why;
  }
  std::string nameOf(int value) const { return graph.values[value].name; }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  std::vector<LocalTensor> serial;
  std::map<Block, std::map<Key, Ranks>> blocks;
  size_t cursor = 0;  // into derivation.reshards
  size_t numSent = 0; // of derivation.transfers
  std::string failure;
};

} // namespace tbc::reshard::test

#endif // TBC_TESTS_PLANNER_RESHARD_GRAPHSIMULATOR_H
