//===- Fp8Matmuls.cpp - Matmuls in 8 bits ----------------------------------===//

#include "planner/graph/Fp8Matmuls.h"
#include "planner/graph/Values.h"
#include "runtime/memory/Fp8Workspace.h"

#include <algorithm>

using namespace tbc::reshard;
namespace fp8 = tbc::program::fp8;

namespace tbc::planner {

namespace {

/// The matmuls of a graph that an executor rounds.
class Rounded {
public:
  Rounded(const Graph &graph, const Fp8Rule &rule) : graph(graph), rule(rule) { findHeads(); }

  bool has(const GraphOp &op) const {
    if (op.operands.size() < 2 || !areFloats(op))
      return false;
    if (!rule.linearOnly)
      return op.kernelClass == KernelClass::Matmul;
    const int forward = op.forwardOp;
    return isProduct(op) && forward >= 0 && isLinear(forward);
  }

private:
  static bool isProduct(const GraphOp &op) {
    return op.kernelClass == KernelClass::Matmul || op.kernelClass == KernelClass::GroupedMatmul;
  }

  bool areFloats(const GraphOp &op) const {
    return std::all_of(op.operands.begin(), op.operands.begin() + 2, [&](int value) {
      const DType dtype = graph.values[size_t(value)].dtype;
      return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
    });
  }

  /// Whether forward op `index` multiplies with a parameter, and makes no logits.
  bool isLinear(int index) const {
    const GraphOp &op = graph.ops[size_t(index)];
    return isProduct(op) && !isHead[size_t(index)] &&
           std::any_of(op.operands.begin(), op.operands.end(), [&](int value) {
             return graph.values[size_t(source(value))].role == ValueRole::Parameter;
           });
  }

  /// Returns the value that `value` is a view or a cast of.
  int source(int value) const {
    for (;;) {
      const int producer = graph.values[size_t(value)].producer;
      if (producer < 0)
        return value;
      const GraphOp &op = graph.ops[size_t(producer)];
      if (op.operands.empty() || !(isView(op) || op.function == ElementFunction::Cast))
        return value;
      value = op.operands[0];
    }
  }

  /// Notes the matmuls that make logits, perhaps with a bias.
  void findHeads() {
    isHead.assign(graph.ops.size(), false);
    std::vector<int> values;
    for (const GraphOp &op : graph.ops)
      if (op.logitsOperand >= 0)
        values.push_back(op.operands[size_t(op.logitsOperand)]);
    while (!values.empty()) {
      const int producer = graph.values[size_t(source(values.back()))].producer;
      values.pop_back();
      if (producer < 0)
        continue;
      const GraphOp &op = graph.ops[size_t(producer)];
      if (isProduct(op))
        isHead[size_t(producer)] = true;
      else if (op.function == ElementFunction::Sum)
        values.insert(values.end(), op.operands.begin(), op.operands.end());
    }
  }

  const Graph &graph;
  const Fp8Rule &rule;
  std::vector<bool> isHead; // by op
};

} // namespace

Graph withFp8Matmuls(Graph graph, const Executor &executor) {
  std::vector<bool> rounded;
  const Rounded ofGraph(graph, executor.fp8);
  for (const GraphOp &op : graph.ops)
    rounded.push_back(executor.fp8.exists && ofGraph.has(op));
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (rounded[op])
      graph.ops[op].fp8 = {true, executor.isOwn() ? fp8::mostWorkspaceBytes : 0};
  return graph;
}

} // namespace tbc::planner
