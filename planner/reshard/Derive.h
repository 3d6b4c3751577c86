//===- Derive.h - Internals of derive -------------------------------------===//
//
// Plain C++, internal to planner/reshard. Rule numbers in comments refer to the rules at `derive`
// in Graph.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_DERIVE_H
#define TBC_PLANNER_RESHARD_DERIVE_H

#include "planner/reshard/Graph.h"

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace tbc::reshard {

/// Caches results of `reshard` for one mesh and cost.
class ReshardMemo {
public:
  ReshardMemo(const Mesh &mesh, const CollectiveCost &cost) : mesh(mesh), cost(cost) {}
  const std::vector<Collective> &steps(const TensorLayout &layout, const Sharding &from,
                                       const Sharding &to);

private:
  const Mesh &mesh;
  const CollectiveCost &cost;
  std::map<std::vector<int64_t>, std::vector<Collective>> known;
};

/// Facts about ops and values that both parts of `derive` look up.
struct StepIndex {
  std::vector<bool> skipped;                  // per op: an add that only joins parts of a gradient
  std::vector<int> parameterOf;               // per value: its parameter, or -1
  std::vector<std::vector<int>> gradientsFor; // per value: the parameters of its gradient sums
  std::vector<int> stateFor;                  // per value: the state input replaced by it, or -1
};

/// The first part of `derive`: shardings. Fills in all of the derivation but its reshards,
/// residuals and transfers.
class ShardingChooser {
public:
  /// The arguments must outlive the object; `out` has its gradient parts.
  ShardingChooser(const Graph &graph, const Assignment &assignment, const StepIndex &index,
                  Derivation &out);
  void run();

private:
  // Derive.cpp: required and produced shardings of each op.
  void findWanted();
  void produce(int op);      // rule 1, deferral
  bool defers(int op) const; // rule 1, deferral
  bool isUsed(int value) const;
  /// Returns the required shardings of `value` at every use by an op, in op order.
  std::vector<const Sharding *> wantsOf(int value) const;

  // DeriveGenerators.cpp
  void splitGenerators();
  bool leavesBlocks(int value) const;
  std::optional<OpStrategy> strategyFor(int op, const Sharding &sharding) const;

  // DeriveHomes.cpp
  void chooseHomes();
  Sharding majority(int value) const;                // rule 4
  Sharding completed(int value) const;               // rule 1
  bool scatter(int value, Sharding &sharding) const; // rule 1, reduce_scatter
  void placeParameter(int parameter);                // rules 4 and 5
  Sharding gradientOf(int parameter) const;          // rule 5

  const Graph &graph;
  const Assignment &assignment;
  const StepIndex &index;
  Derivation &out;
  std::vector<bool> deferred; // per value: an additive op passes on its partial axes
};

/// The second part of `derive`: communication between the shardings of the first. Adds reshards,
/// residuals and transfers.
class CommunicationDeriver {
public:
  /// The arguments must outlive the object; `out` has its shardings.
  CommunicationDeriver(const Graph &graph, const Assignment &assignment, const StepIndex &index,
                       const CollectiveCost &cost, Derivation &out);
  void run();

private:
  // DeriveUses.cpp: in blocks.
  void emit(int op);
  void use(int op, int operand);                                     // rule 2
  const Sharding &baseOf(int value, int op, const Sharding &wanted); // rule 3
  int gather(int parameter, int op);                                 // rule 4
  void complete(int op, int value);                                  // rule 1
  void send(int value);                                              // rule 6
  void transfer(int value, int toChunk, Phase phase, const Sharding &sharding);
  const Sharding &keep(int value, int chunk, const Sharding &atHand, const Sharding &wanted);

  // DeriveStep.cpp: once per step.
  void finishStep();
  void totalStep();
  void finishParameter(int parameter);
  void findReducedLast();      // rule 5
  void reduceInLastBackward(); // rule 5
  void totalParameter(int parameter, int stage);

  // TokenExchange.h
  void exchange(Reshard &reshard, int op, bool isResult, int tensor);
  void keepRows(int op);
  bool hasKeptRows(int op, int operand) const;

  int add(Reshard reshard);
  bool isForward(int value) const;
  bool isGenerated(int value) const;
  int chunkOf(int value) const { return graph.ops[graph.values[value].producer].chunk; }
  int stageOf(int value) const { return assignment.stageOf(chunkOf(value)); }

  struct Copy {
    int chunk;
    Phase phase;
    Sharding sharding;
    int reshard;
  };
  const Copy *findCopy(int value, int chunk, Phase phase, const Sharding &sharding) const;

  const Graph &graph;
  const Assignment &assignment;
  const StepIndex &index;
  ReshardMemo memo;
  Derivation &out;
  std::vector<std::vector<Copy>> copies;               // per value: results of `reshards`
  std::map<std::pair<int, int>, Sharding> kept;        // value, chunk -> residual
  std::map<std::tuple<int, int, Phase>, int> gathered; // parameter, chunk, phase -> reshard
  std::set<std::tuple<int, int, Phase>> sent;          // value, chunk, phase
};

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_DERIVE_H
