//===- Count.cpp - The list of collectives of one step ---------------------===//

#include "planner/reshard/Graph.h"

#include <tuple>

namespace tbc::reshard {

static auto keyOf(const CollectiveCount &c) {
  return std::tie(c.stage, c.kind, c.axes, c.bytes, c.count);
}

bool CollectiveCount::operator<(const CollectiveCount &o) const { return keyOf(*this) < keyOf(o); }
bool CollectiveCount::operator==(const CollectiveCount &o) const {
  return keyOf(*this) == keyOf(o);
}

std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation) {
  std::map<CollectiveCount, int64_t> counts; // keys have count 0
  for (const Reshard &reshard : derivation.reshards) {
    for (const Collective &step : reshard.steps) {
      if (step.kind == CollectiveKind::ShardSlice)
        continue;
      CollectiveCount line;
      line.kind = step.kind;
      line.axes = step.axes.empty() ? "pp" : toString(assignment.mesh, step.axes);
      line.stage = reshard.stage;
      line.bytes = step.bytes;
      counts[line] += reshard.perStep ? 1 : assignment.microBatches;
    }
  }
  std::vector<CollectiveCount> result;
  for (const auto &[line, count] : counts) {
    result.push_back(line);
    result.back().count = count;
  }
  return result;
}

} // namespace tbc::reshard
