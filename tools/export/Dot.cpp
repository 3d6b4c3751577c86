//===- Dot.cpp - A plan as a drawing for Graphviz ---------------------------===//

#include "tools/export/Dot.h"

#include "planner/plan/Describe.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <map>

namespace tbc::exporter {

using planner::format;

static std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text)
    result += c == '"' ? std::string("\\\"") : std::string(1, c);
  return result + "\"";
}

/// Returns the modules of a chunk in a few words. Example: "transformer.h.0 to 5".
static std::string contentOf(const PlanFacts &facts, size_t chunk) {
  const std::set<int64_t> &blocks = facts.chunks[chunk].blocks;
  if (blocks.empty())
    return format("%zu modules", facts.plan->layout.chunks[chunk].modules.size());
  std::string text = facts.blockPath + format(".%lld", (long long)*blocks.begin());
  if (blocks.size() > 1)
    text += format(" to %lld", (long long)*blocks.rbegin());
  return text;
}

/// Returns the collectives of a stage by kind and axes, the most bytes first.
static std::string collectivesOf(const PlanFacts &facts, int stage) {
  std::map<std::string, double> bytes;
  for (const planner::LayoutCollective &line : facts.plan->layout.collectives) {
    if (std::find(line.stages.begin(), line.stages.end(), stage) == line.stages.end())
      continue;
    std::string axes;
    for (const std::string &axis : line.axes)
      axes += (axes.empty() ? "" : "+") + axis;
    bytes[line.kind + " " + axes] += double(line.bytes) * double(line.count);
  }
  std::vector<std::pair<double, std::string>> rows;
  for (const auto &[what, sum] : bytes)
    rows.push_back({-sum, what});
  std::sort(rows.begin(), rows.end());
  std::string text;
  for (const auto &[sum, what] : rows)
    text += "\\n" + what + ": " + planner::formatBytes(-sum);
  return text;
}

Result<Exported> writeDot(const PlanFacts &facts) {
  const planner::Plan &plan = *facts.plan;
  std::string text = "digraph plan {\n  rankdir=LR;\n  node [shape=box];\n  label=" +
                     quoted(planner::describe(plan)) + ";\n";
  for (int64_t stage = 0; stage < plan.mesh.pp; ++stage) {
    text += format("  subgraph cluster_%lld {\n", (long long)stage);
    std::string label = format("stage %lld, %lld ranks", (long long)stage,
                               (long long)(plan.mesh.numRanks() / plan.mesh.pp));
    if (size_t(stage) < plan.prediction.stages.size())
      label +=
          ", " + planner::formatBytes(double(plan.prediction.stages[size_t(stage)].totalBytes()));
    text += "    label=" + quoted(label + collectivesOf(facts, int(stage))) + ";\n";
    for (size_t chunk = 0; chunk < facts.chunks.size(); ++chunk) {
      if (facts.chunks[chunk].stage != int(stage))
        continue;
      std::string what = format("chunk %zu\\n", chunk) + contentOf(facts, chunk);
      if (chunk < plan.prediction.stageSeconds.size())
        what += "\\n" + planner::formatSeconds(plan.prediction.stageSeconds[chunk]);
      text += format("    chunk%zu [label=", chunk) + quoted(what) + "];\n";
    }
    text += "  }\n";
  }
  for (size_t chunk = 1; chunk < facts.chunks.size(); ++chunk)
    text += format("  chunk%zu -> chunk%zu;\n", chunk - 1, chunk);
  return Exported{text + "}\n", {}};
}

} // namespace tbc::exporter
