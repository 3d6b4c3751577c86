//===- ClusterCommand.cpp - tbc cluster ------------------------------------------===//

#include "planner/devices/Cluster.h"
#include "planner/plan/PlanFile.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct ClusterOptions {
  std::string name;
  std::string output = "-";
  bool json = false;
};

} // namespace

static std::string tableRow(const planner::Cluster &cluster) {
  char row[160];
  std::snprintf(row, sizeof row, "%-16s %8lld %8.1f %10.0f %10.0f %10.1f %10.1f%s\n",
                cluster.name.c_str(), (long long)cluster.devicesPerNode,
                double(cluster.memoryBytes) / double(1 << 30),
                cluster.peakFlopsPerSecond.at("bf16") / 1e12, cluster.memoryBytesPerSecond / 1e9,
                cluster.intraNode.bytesPerSecond / 1e9, cluster.interNode.bytesPerSecond / 1e9,
                cluster.name == planner::defaultClusterName ? "  (default)" : "");
  return row;
}

/// Returns clusters as JSON, each with the keys that it has in a plan.
static std::string jsonOf(const std::vector<planner::Cluster> &clusters) {
  std::string text = "{\"format\": \"tbc-cluster\", \"version\": 1, \"clusters\": [\n";
  for (size_t i = 0; i < clusters.size(); ++i) {
    std::string object = planner::writeCluster(clusters[i]);
    object.pop_back(); // removes the newline
    text += (i == 0 ? "" : ",\n") + object;
  }
  return text + "\n]}\n";
}

/// Lists all presets, one per line.
static Result<std::string> listPresets(bool json) {
  char head[160];
  std::snprintf(head, sizeof head,
                "%-16s %8s %8s %10s %10s %10s %10s\n%-16s %8s %8s %10s %10s %10s"
                " %10s\n",
                "cluster", "devices", "memory", "bf16", "memory", "inside", "between", "",
                "per node", "GiB", "TFLOP/s", "GB/s", "GB/s", "GB/s");
  std::string table = head;
  std::vector<planner::Cluster> clusters;
  for (const std::string &name : planner::clusterPresets()) {
    auto cluster = planner::loadCluster(name);
    if (!cluster)
      return cluster.error();
    table += tableRow(*cluster);
    clusters.push_back(std::move(*cluster));
  }
  if (json)
    return jsonOf(clusters);
  return table +
         "\ninside, between: what one device gets of the network in a node and between nodes, one\n"
         "direction. tbc cluster NAME -o my.toml writes one to start your own from.\n";
}

/// Refuses `text`, of cluster `name`, if its paths would change meaning in the folder of `output`.
static Status checkPaths(const std::string &name, const std::string &text,
                         const std::string &output) {
  namespace fs = std::filesystem;
  auto folderOf = [](const std::string &file) {
    std::error_code ignored;
    return fs::weakly_canonical(fs::absolute(file, ignored).parent_path(), ignored);
  };
  std::vector<std::string> files = planner::filesOfNodes(text);
  if (output == "-" || files.empty() || folderOf(name) == folderOf(output))
    return Status::ok();
  return Error{ErrorCode::Usage, "-o " + output + ": " + name + " names nodes by the file " +
                                     files[0] +
                                     ", a path from its own folder; write it into that folder"};
}

static Result<int> runCluster(const ClusterOptions &options) {
  if (options.name.empty()) {
    auto list = listPresets(options.json);
    if (!list)
      return list.error();
    std::optional<FittedOutput> fitted;
    if (!options.json)
      fitted.emplace();
    if (Status status = writeFile(options.output, *list); !status)
      return status.error();
    return 0;
  }
  auto cluster = planner::loadCluster(options.name);
  if (!cluster)
    return ofKind(Problem::BadCluster, cluster.error());
  auto text = planner::clusterText(options.name);
  if (!text)
    return text.error();
  if (Status status = options.json ? Status::ok() : checkPaths(options.name, *text, options.output);
      !status)
    return status.error();
  if (Status status = writeFile(options.output, options.json ? jsonOf({*cluster}) : *text); !status)
    return status.error();
  return 0;
}

void addClusterCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("cluster", "List the cluster presets, or print and check one");
  auto options = std::make_shared<ClusterOptions>();
  command->add_option("cluster", options->name,
                      "Preset or TOML file to print; without it all presets are listed");
  command->add_option("-o,--output", options->output, "Write it here (- for stdout)")
      ->capture_default_str();
  command->add_flag("--json", options->json, "As JSON, with the keys it has in a plan");
  command->callback(
      [options, setAction] { setAction([options] { return runCluster(*options); }); });
}

} // namespace tbc::cli
