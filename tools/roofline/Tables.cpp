//===- Tables.cpp - Print tables of kernel launches ------------------------===//

#include "planner/report/Summary.h"
#include "planner/support/Format.h"
#include "tools/roofline/Roofline.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace tbc::roofline {

namespace {

using Json = nlohmann::ordered_json;

/// A row of the table: a kind, or one launch.
struct Row {
  std::string what, place;
  By by = By::Kernel;
  int64_t launches = 0, blocks = 0;
  double bytes = 0, flops = 0, seconds = 0;
  Bound bound = Bound::Memory;
};

std::vector<Row> rowsOf(const program::Program &program, const std::vector<Estimate> &estimates,
                        int stage, bool all) {
  std::vector<Row> rows;
  if (all) {
    for (const Estimate &e : estimates)
      if (e.launch.stage == stage) {
        auto times = double(e.launch.perStep);
        rows.push_back({e.launch.what, e.launch.place(program), e.launch.by,
                        e.launch.perStep * e.launches, e.blocks, times * e.bytes, times * e.flops,
                        times * e.seconds, e.bound});
      }
    return rows;
  }
  for (const Kind &kind : kindsOf(estimates))
    if (kind.stage == stage)
      rows.push_back({kind.what, "", kind.by, kind.launches, kind.fewestBlocks, kind.bytes,
                      kind.flops, kind.seconds, kind.bound()});
  return rows;
}

Row totalOf(const std::vector<Row> &rows) {
  Row total;
  for (const Row &row : rows) {
    total.launches += row.launches;
    total.bytes += row.bytes;
    total.flops += row.flops;
    total.seconds += row.seconds;
  }
  return total;
}

std::string formatted(const char *form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string formatFlops(double flops) {
  if (flops == 0)
    return "0 ";
  if (flops >= 1e12)
    return formatted("%.2f T", flops / 1e12);
  return flops >= 1e9 ? formatted("%.2f G", flops / 1e9) : formatted("%.2f M", flops / 1e6);
}

/// Shortens a list of ops. Example: "norm_scale_grad+reduce_sum" stays, a long one becomes
/// "cast+mul+… (12 ops)".
std::string shortened(const std::string &what) {
  constexpr size_t width = 40;
  if (what.size() <= width)
    return what;
  auto ops = std::count(what.begin(), what.end(), '+') + 1;
  std::string ending = "+.. (" + std::to_string(ops) + " ops)";
  size_t cut = what.rfind('+', width - ending.size());
  return what.substr(0, cut == std::string::npos ? width - ending.size() : cut) + ending;
}

std::string deviceLine(const Machine &machine, bool isCuda) {
  const planner::Cluster &cluster = machine.cluster;
  auto bf16 = cluster.peakFlopsPerSecond.find("bf16");
  std::string line = cluster.name + ": " +
                     formatted("%.0f GB/s", cluster.memoryBytesPerSecond / 1e9) + ", " +
                     formatted("%.4g TFLOP/s of vectors", cluster.vectorFlopsPerSecond / 1e12);
  if (bf16 != cluster.peakFlopsPerSecond.end())
    line += ", " + formatted("%.4g TFLOP/s of bf16 matrices", bf16->second / 1e12);
  line += ", " + planner::formatSeconds(cluster.launchSeconds) + " a launch";
  if (machine.processor)
    line += ", " + std::to_string(machine.processor->multiprocessors) + " multiprocessors";
  else if (isCuda)
    line += "; its multiprocessors are not known, so every kernel counts as filling the device";
  return line + "\n";
}

std::string tableOfStage(const std::vector<Row> &rows, int multiprocessors, bool all) {
  std::string text;
  char line[512];
  std::snprintf(line, sizeof line, "  %-40s %-8s %8s %10s %9s %9s %6s  %s\n", "kernel", "by",
                "launches", "bytes", "flops", "time", "share", "bound by");
  text += line;
  double seconds = std::max(totalOf(rows).seconds, 1e-12);
  for (const Row &row : rows) {
    std::string bound = name(row.bound);
    if (row.bound == Bound::Blocks && row.blocks > 0)
      bound += ": " + std::to_string(row.blocks) + " of " + std::to_string(multiprocessors);
    std::snprintf(line, sizeof line, "  %-40s %-8s %8lld %10s %9s %9s %4.0f %%  %s%s\n",
                  shortened(row.what).c_str(), name(row.by), (long long)row.launches,
                  planner::formatBytes(row.bytes).c_str(), formatFlops(row.flops).c_str(),
                  planner::formatSeconds(row.seconds).c_str(), 100 * row.seconds / seconds,
                  bound.c_str(), all ? ("; " + row.place).c_str() : "");
    text += line;
  }
  return text;
}

Json jsonOf(const Row &row, double total, bool all) {
  Json json = {{"kernel", row.what},
               {"by", name(row.by)},
               {"launches", row.launches},
               {"bytes", row.bytes},
               {"flops", row.flops},
               {"seconds", row.seconds},
               {"share", total > 0 ? row.seconds / total : 0},
               {"bound", name(row.bound)}};
  if (all)
    json["place"] = row.place;
  if (row.blocks > 0)
    json["blocks"] = row.blocks;
  return json;
}

} // namespace

std::string tableOf(const program::Program &program, const std::vector<Estimate> &estimates,
                    const Machine &machine, bool isCuda, const TableOptions &options) {
  Json stages = Json::array();
  std::string text = deviceLine(machine, isCuda);
  for (int stage = 0; stage < program.numStages(); ++stage) {
    std::vector<Row> rows = rowsOf(program, estimates, stage, options.all);
    Row total = totalOf(rows);
    text +=
        "stage " + std::to_string(stage) + ": " + std::to_string(total.launches) +
        " launches a step, " + planner::formatBytes(total.bytes) + ", " + formatFlops(total.flops) +
        "FLOP, " + planner::formatSeconds(total.seconds) +
        " at the roofline, without communication\n" +
        tableOfStage(rows, machine.processor ? machine.processor->multiprocessors : 0, options.all);
    Json kernels = Json::array();
    for (const Row &row : rows)
      kernels.push_back(jsonOf(row, total.seconds, options.all));
    stages.push_back({{"launches", total.launches},
                      {"bytes", total.bytes},
                      {"flops", total.flops},
                      {"seconds", total.seconds},
                      {"kernels", kernels}});
  }
  if (!options.json)
    return text;
  Json json = {{"format", "tbc-roofline"},
               {"version", 1},
               {"target", isCuda ? "cuda" : "cpu"},
               {"cluster", machine.cluster.name},
               {"multiprocessors",
                machine.processor ? Json(machine.processor->multiprocessors) : Json(nullptr)},
               {"stages", stages}};
  return json.dump(1) + "\n";
}

} // namespace tbc::roofline
