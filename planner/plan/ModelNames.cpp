//===- ModelNames.cpp - Display names for the parts of a model ------------===//

#include "planner/plan/ModelNames.h"

#include <algorithm>
#include <charconv>
#include <optional>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the entry of op `op`, or of its forward op; empty if there is none.
static std::string entryOf(const std::map<std::string, std::string> &modules, const Graph &graph,
                           int op) {
  for (int index : {op, graph.ops[size_t(op)].forwardOp}) {
    if (index < 0)
      continue;
    auto found = modules.find(graph.ops[size_t(index)].id);
    if (found != modules.end())
      return found->second;
  }
  return "";
}

std::string moduleOf(const Job &job, const Graph &graph, int op) {
  return job.names ? entryOf(job.names->modules, graph, op) : "";
}

std::string shownModuleOf(const Job &job, const Graph &graph, int op) {
  std::string module = moduleOf(job, graph, op);
  return module.empty() && job.names ? entryOf(job.names->placed, graph, op) : module;
}

NumberedModule numberedModule(const std::string &path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const char *last = path.data() + end;
    int64_t number = 0;
    auto [rest, error] = std::from_chars(path.data() + begin, last, number);
    if (error == std::errc() && rest == last && begin > 0)
      return {path.substr(0, begin - 1), number};
    begin = end + 1;
  }
  return {};
}

std::string commonModule(const std::string &a, const std::string &b) {
  size_t common = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool aEnds = i == a.size() || a[i] == '.', bEnds = i == b.size() || b[i] == '.';
    if (aEnds && bEnds)
      common = i;
    if (i == a.size() || i == b.size() || a[i] != b[i])
      break;
  }
  return a.substr(0, common);
}

namespace {

/// Finds the modules around ops that have none.
class Placer {
public:
  Placer(const Graph &graph, ModelNames &names) : graph(graph), names(names) {}

  void place() {
    std::vector<int> ops; // without a module
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].phase == Phase::Forward && !graph.ops[op].generator &&
          names.modules.count(graph.ops[op].id) == 0)
        ops.push_back(int(op));
    std::for_each(ops.rbegin(), ops.rend(), [&](int op) { placeIn(op, readersModule(op)); });
    for (int op : ops)
      placeIn(op, producersModule(op));
  }

private:
  std::string moduleAt(int op) const {
    std::string module = entryOf(names.modules, graph, op);
    return module.empty() ? entryOf(names.placed, graph, op) : module;
  }

  std::string readersModule(int op) const {
    std::optional<std::string> around;
    for (int value : graph.ops[size_t(op)].results)
      for (int user : graph.values[size_t(value)].users)
        if (graph.ops[size_t(user)].phase == Phase::Forward)
          add(around, user);
    return around.value_or("");
  }

  std::string producersModule(int op) const {
    std::optional<std::string> around;
    for (int value : graph.ops[size_t(op)].operands)
      if (int producer = graph.values[size_t(value)].producer; producer >= 0)
        add(around, producer);
    return around.value_or("");
  }

  void add(std::optional<std::string> &around, int op) const {
    if (const std::string module = moduleAt(op); !module.empty())
      around = around ? commonModule(*around, module) : module;
  }

  void placeIn(int op, std::string module) {
    if (!module.empty())
      names.placed.emplace(graph.ops[size_t(op)].id, std::move(module));
  }

  const Graph &graph;
  ModelNames &names;
};

} // namespace

void placeByReaders(const Graph &graph, ModelNames &names) { Placer(graph, names).place(); }

std::string displayName(const Job &job, const reshard::GraphValue &value) {
  if (!job.names)
    return value.name;
  auto found = job.names->parameters.find(value.name);
  return found == job.names->parameters.end() ? value.name : found->second;
}

} // namespace tbc::planner
