//===- LayerBegins.cpp - The layers of a model, by their names ------------===//

#include "planner/search/LayerBegins.h"
#include "planner/graph/Stages.h"
#include "planner/plan/ModelNames.h"

#include <algorithm>
#include <map>
#include <string>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

struct Layers {
  double flops = 0;
  std::map<int64_t, std::vector<int>> ops; // forward ops by number of the layer
};

} // namespace

std::vector<int> layerBegins(const Graph &graph, const Job &job) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  std::map<std::string, Layers> lists;
  for (int op = 0; op < int(mayBegin.size()); ++op) {
    const NumberedModule layer = numberedModule(moduleOf(job, graph, op));
    if (layer.number < 0)
      continue;
    lists[layer.list].flops += graph.ops[size_t(op)].flops;
    lists[layer.list].ops[layer.number].push_back(op);
  }
  auto most = std::max_element(lists.begin(), lists.end(), [](const auto &a, const auto &b) {
    return a.second.flops < b.second.flops;
  });
  std::vector<int> begins;
  if (most == lists.end())
    return begins;
  for (const auto &[number, ops] : most->second.ops) {
    auto first = std::find_if(ops.begin(), ops.end(), [&](int op) { return mayBegin[size_t(op)]; });
    if (number != most->second.ops.begin()->first && first != ops.end())
      begins.push_back(*first);
  }
  std::sort(begins.begin(), begins.end());
  return begins;
}

} // namespace tbc::planner
