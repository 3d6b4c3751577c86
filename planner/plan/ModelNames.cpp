//===- ModelNames.cpp - Display names for the parts of a model ------------===//

#include "planner/plan/ModelNames.h"

namespace tbc::planner {

std::string moduleOf(const Job &job, const reshard::Graph &graph, int op) {
  if (!job.names)
    return "";
  for (int of : {op, graph.ops[op].forwardOp}) {
    if (of < 0)
      continue;
    auto found = job.names->modules.find(graph.ops[of].id);
    if (found != job.names->modules.end())
      return found->second;
  }
  return "";
}

std::string displayName(const Job &job, const reshard::GraphValue &value) {
  if (!job.names)
    return value.name;
  auto found = job.names->parameters.find(value.name);
  return found == job.names->parameters.end() ? value.name : found->second;
}

} // namespace tbc::planner
