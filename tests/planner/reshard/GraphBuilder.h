//===- GraphBuilder.h - Small training steps, written like einsums ---------===//

#ifndef TBC_TESTS_PLANNER_RESHARD_GRAPHBUILDER_H
#define TBC_TESTS_PLANNER_RESHARD_GRAPHBUILDER_H

#include "planner/reshard/Graph.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::reshard::test {

/// Builds a Graph op by op. A tensor is a string with a letter per dim. Every letter is a factor
/// with a size, and the letters of an op are its loops. Example: "bi,io->bo" is a matmul with the
/// reduction i.
class GraphBuilder {
public:
  explicit GraphBuilder(std::map<char, int64_t> sizes) : sizes(std::move(sizes)) {}

  /// Makes letter `letter` another loop over the factor of `factor`.
  void alias(char letter, char factor) { factors[letter] = factor; }
  /// Makes `letter` unshardable in ops added from now on.
  void fix(char letter) { kinds[letter] = LoopKind::Fixed; }

  int input(const std::string &name, const std::string &dims);
  int state(const std::string &name, const std::string &dims);
  /// A trained parameter; its gradient is set by `gradient`.
  int parameter(const std::string &name, const std::string &dims);
  void gradient(int parameterValue, int gradientValue);

  /// Adds a forward op and returns its first result.
  int forward(const std::string &id, const std::string &spec, std::vector<int> operands);
  /// Adds a backward op of the producer of `of`; its results are cotangents of `cotangentsOf`, in
  /// order.
  int backward(const std::string &id, int of, const std::string &spec, std::vector<int> operands,
               std::vector<int> cotangentsOf = {});
  /// The sum of two or more values of the same dims, in the phase given.
  int sum(const std::string &id, Phase phase, std::vector<int> operands);
  /// A data-independent value.
  int generator(const std::string &id, const std::string &dims);

  GraphOp &opOf(int value) { return graph.ops[graph.values[value].producer]; }
  int opIndex(const std::string &id) const;
  int valueIndex(const std::string &name) const;
  /// The letters of a value's dims.
  const std::string &dims(int value) const { return names[value]; }

  Graph graph;
  int stage = 0; // of the ops added from now on

private:
  int addValue(const std::string &name, const std::string &dims, ValueRole role);
  int addOp(GraphOp op, const std::string &spec);
  FactorId factorOf(char letter) const;

  std::map<char, int64_t> sizes;
  std::map<char, char> factors;
  std::map<char, LoopKind> kinds;
  std::vector<std::string> names; // dims per value
};

/// Puts `axes` on the loop over letter `letter` (a factor id) of the op.
void shard(const Graph &graph, OpStrategy &strategy, int op, char letter,
           const std::vector<AxisRef> &axes);

/// An assignment without sharded tensors.
Assignment replicated(const Graph &graph, const Mesh &mesh);
/// The batch on `axes` in every op.
Assignment dataParallel(const Graph &graph, const Mesh &mesh, const std::vector<AxisRef> &axes);

/// x W1 + b1, relu, W2 + b2, loss, and the gradients of W1, b1, W2, b2 (in this order), with batch
/// b.
GraphBuilder mlp(int64_t b, int64_t i, int64_t h, int64_t o);

/// Returns the executions of one kind over one set of axes ("" for any), summed over all stages.
int64_t executions(const std::vector<CollectiveCount> &counts, CollectiveKind kind,
                   const std::string &axes = "");
std::string show(const std::vector<CollectiveCount> &counts);

} // namespace tbc::reshard::test

#endif // TBC_TESTS_PLANNER_RESHARD_GRAPHBUILDER_H
