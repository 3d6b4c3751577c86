//===- Chunks.cpp - The chunks of a step's ops -----------------------------===//

#include "planner/reshard/Chunks.h"

#include <algorithm>

namespace tbc::reshard {

int numForwardOps(const Graph &graph) {
  auto isForward = [](const GraphOp &op) { return op.phase == Phase::Forward; };
  return int(std::partition_point(graph.ops.begin(), graph.ops.end(), isForward) -
             graph.ops.begin());
}

std::vector<int> forwardAnchors(const Graph &graph) {
  std::vector<int> anchors(graph.ops.size(), -1);
  for (int index = 0; index < int(graph.ops.size()); ++index) {
    const GraphOp &op = graph.ops[index];
    if (op.phase == Phase::Forward) {
      anchors[index] = index;
      continue;
    }
    if (op.forwardOp >= 0) {
      anchors[index] = op.forwardOp;
      continue;
    }
    for (int value : op.results) {
      int primal = graph.values[value].cotangentOf;
      if (primal >= 0 && graph.values[primal].producer >= 0)
        anchors[index] = graph.values[primal].producer;
    }
    if (anchors[index] >= 0)
      continue;
    for (int value : op.operands) {
      int producer = graph.values[value].producer;
      if (producer >= 0 && !graph.ops[producer].generator)
        anchors[index] =
            anchors[index] < 0 ? anchors[producer] : std::min(anchors[index], anchors[producer]);
    }
    if (anchors[index] < 0) // reads only inputs and constant-derived values: begins the backward
      anchors[index] = std::max(0, numForwardOps(graph) - 1);
  }
  return anchors;
}

void setChunks(Graph &graph, const std::vector<int> &firstOps) {
  std::vector<int> anchors = forwardAnchors(graph);
  for (size_t op = 0; op < graph.ops.size(); ++op)
    graph.ops[op].chunk =
        int(std::upper_bound(firstOps.begin(), firstOps.end(), anchors[op]) - firstOps.begin()) - 1;
}

} // namespace tbc::reshard
