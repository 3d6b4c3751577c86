//===- Count.cpp - The list of collectives of one step ---------------------===//

#include "planner/reshard/Count.h"
#include "planner/reshard/Overlap.h"
#include "runtime/mesh/Axes.h"

#include <tuple>

namespace tbc::reshard {

std::string axesText(const Mesh &mesh, const Collective &collective) {
  return collective.axes.empty() ? mesh::row(mesh::Axis::Pipeline).name
                                 : toString(mesh, collective.axes);
}

static auto keyOf(const CollectiveCount &c) {
  return std::tie(c.stage, c.kind, c.axes, c.bytes, c.count);
}

bool CollectiveCount::operator<(const CollectiveCount &o) const { return keyOf(*this) < keyOf(o); }
bool CollectiveCount::operator==(const CollectiveCount &o) const {
  return keyOf(*this) == keyOf(o);
}

std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation) {
  return countCollectives(graph, assignment, derivation, {});
}

std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation,
                                              const Overlap &overlap) {
  std::map<CollectiveCount, int64_t> counts; // keys have count 0
  auto add = [&](const Collective &step, int stage, int64_t times) {
    CollectiveCount line;
    line.kind = step.kind;
    line.axes = axesText(assignment.mesh, step);
    line.stage = stage;
    line.bytes = step.bytes;
    counts[line] += times;
  };
  forEachCollective(derivation, overlap, [&](const Reshard &reshard, const Collective &step) {
    add(step, reshard.stage, reshard.perStep ? 1 : assignment.microBatches);
  });
  for (size_t op = 0; op < graph.ops.size(); ++op)
    for (const Collective &step :
         ringCollectives(graph, static_cast<int>(op), assignment.strategies[op]))
      add(step, assignment.stageOf(graph.ops[op].chunk), assignment.microBatches);
  std::vector<CollectiveCount> result;
  for (const auto &[line, count] : counts) {
    result.push_back(line);
    result.back().count = count;
  }
  return result;
}

} // namespace tbc::reshard
