//===- NameModel.cpp - Module names of a model's ops --------------------------===//

#include "tools/driver/NameModel.h"

using namespace mlir;

namespace tbc::driver {

/// Returns the module path from an op's location, where the importer put it after the node's name;
/// empty if there is none.
static std::string moduleOf(Location loc) {
  if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      if (std::string module = moduleOf(part); !module.empty())
        return module;
    return "";
  }
  auto node = dyn_cast<NameLoc>(loc);
  auto module = node ? dyn_cast<NameLoc>(node.getChildLoc()) : NameLoc();
  return module ? module.getName().str() : "";
}

std::shared_ptr<const planner::ModelNames> nameModel(const TrainingStep &step) {
  auto names = std::make_shared<planner::ModelNames>();
  for (const frontend::ParameterSource &source : step.model.parameters)
    if (!source.displayName.empty())
      names->parameters[source.name] = source.displayName;
  const reshard::Graph &graph = step.step.graph;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (std::string module = moduleOf(step.step.ops[op]->getLoc()); !module.empty())
      names->modules[graph.ops[op].id] = std::move(module);
  for (const reshard::GraphValue &value : graph.values) {
    auto path = names->parameters.find(value.name);
    if (value.role != reshard::ValueRole::Parameter || path == names->parameters.end())
      continue;
    size_t dot = path->second.rfind('.');
    if (dot != std::string::npos)
      for (int user : value.users)
        names->modules.emplace(graph.ops[user].id, path->second.substr(0, dot));
  }
  planner::placeByReaders(graph, *names);
  return names;
}

} // namespace tbc::driver
