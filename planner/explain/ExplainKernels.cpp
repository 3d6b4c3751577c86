//===- ExplainKernels.cpp - The kernels of a plan, and their bounds -------===//

#include "planner/cost/Cost.h"
#include "planner/devices/StageDevices.h"
#include "planner/explain/Explain.h"
#include "planner/plan/PlanDevices.h"
#include "planner/reshard/Split.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// Kernels of one kind, in one step of a device.
struct KernelSum {
  double launches = 0, flops = 0, bytes = 0, seconds = 0;
  double atRoof = 0;                                // seconds at the device's own rates
  double arithmetic = 0, movement = 0, waiting = 0; // seconds; waiting: the gaps before launches

  const char *boundBy() const {
    const double most = std::max({arithmetic, movement, waiting});
    return most == 0 ? "-" : most == waiting ? "launch" : most == arithmetic ? "flops" : "memory";
  }
};

/// Phase, kind of op, class.
using PricedKind = std::tuple<std::string, std::string, std::string>;
using KernelSums = std::map<PricedKind, KernelSum>;

} // namespace

static const char *phaseName(const ExplainedPlan &explained, int op) {
  const Phase phase = explained.step.graph.ops[size_t(op)].phase;
  if (phase == Phase::Forward)
    return "forward";
  return explained.step.isRecomputed(op) ? "again" : "backward";
}

/// Adds the kernels that round the operands of a matmul to 8 bits, `times` each.
static void addRounding(const char *phase, const Cluster &cluster, const LocalWork &work,
                        double times, KernelSums &sums) {
  KernelSum &sum = sums[{phase, "round to fp8", name(KernelClass::Rounding)}];
  sum.launches += times * work.roundingLaunches;
  sum.bytes += times * work.roundingBytes;
  sum.seconds += times * roundingSeconds(cluster, work);
  sum.atRoof += times * work.roundingBytes / cluster.memoryBytesPerSecond;
  sum.movement +=
      times * (roundingSeconds(cluster, work) - work.roundingLaunches * cluster.launchSeconds);
  sum.waiting += times * work.roundingLaunches * cluster.launchSeconds;
}

/// Adds `times` executions of op `op`, which has `share` in its kernel.
static void addOp(const ExplainedPlan &explained, const Cluster &cluster, int op,
                  const KernelShare &share, double times, KernelSums &sums) {
  const Graph &graph = explained.step.graph;
  const OpStrategy &strategy = explained.derivation.strategyOf(explained.step.assignment, op);
  const GraphOp &graphOp = graph.ops[size_t(op)];
  if (graphOp.kernelClass == KernelClass::None && !share.isCopy)
    return;
  const LocalWork work = localWork(graph, op, strategy, share);
  const KernelClass rated =
      share.isCopy ? KernelClass::Elementwise : ratedClass(graphOp.kernelClass, work.dtype);
  const double blocks = times * double(streamedBlocks(graph, op, strategy));
  const double rounding = blocks * roundingSeconds(cluster, work);
  const double launches =
      times * opLaunches(graph, op, strategy, share) - blocks * work.roundingLaunches;
  if (work.roundingLaunches > 0)
    addRounding(phaseName(explained, op), cluster, work, blocks, sums);
  KernelSum &sum = sums[{phaseName(explained, op), graphOp.kind, name(rated)}];
  sum.launches += launches;
  sum.flops += blocks * work.flops;
  sum.bytes += blocks * work.bytes;
  sum.seconds +=
      times * opKernelSeconds(cluster, graph, op, strategy, share, !explained.step.isZigzag) -
      rounding;
  LocalWork exact = work;
  exact.depth = 0; // sums of any length at the full rate
  const double executedAtPeak =
      arithmeticSeconds(cluster, rated, exact) * cluster.kernel(rated).flopsFraction;
  sum.atRoof += blocks * std::max(executedAtPeak, work.bytes / cluster.memoryBytesPerSecond);
  const auto [arithmetic, movement] = busySeconds(cluster, rated, work);
  sum.arithmetic += blocks * arithmetic;
  sum.movement += blocks * movement;
  sum.waiting += launches * cluster.launchSeconds;
}

/// Adds the parts of a chunk's prediction beside the kernels of its ops: the update, and the passes
/// of an executor.
static void addRest(const ChunkSeconds &chunk, const Cluster &cluster, double microBatches,
                    KernelSums &sums) {
  const std::vector<std::tuple<StagePart, const char *, double>> parts = {
      {&StageSeconds::forward, "forward", microBatches},
      {&StageSeconds::backward, "backward", microBatches},
      {&StageSeconds::weight, "backward", microBatches},
      {&StageSeconds::recompute, "again", microBatches},
      {&StageSeconds::recomputeWeight, "again", microBatches},
      {&StageSeconds::updateStep, "update", 1.0}};
  for (auto [part, phase, times] : parts)
    for (const WorkSum &work : chunk.of(part)) {
      if (parseKernelClass(work.name))
        continue;
      KernelSum &sum = sums[{phase, work.name, name(KernelClass::Elementwise)}];
      sum.bytes += times * work.bytes;
      sum.seconds += times * work.seconds;
      sum.atRoof += times * work.bytes / cluster.memoryBytesPerSecond;
      (work.bytes > 0 ? sum.movement : sum.waiting) += times * work.seconds;
    }
}

Report explainKernels(const ExplainedPlan &explained) {
  const Plan &plan = explained.plan;
  const Assignment &assignment = explained.step.assignment;
  const int stage = explained.prediction.slowestStage;
  const StageDevices devices = stageDevices(plan);
  const Cluster &cluster = devices.of(stage);
  const double microBatches = double(plan.accumulation);
  const std::vector<KernelShare> shares = kernelShares(cluster, explained.step.graph);
  KernelSums sums;
  for (int op = 0; op < int(explained.step.graph.ops.size()); ++op)
    if (assignment.stageOf(explained.step.graph.ops[size_t(op)].chunk) == stage)
      addOp(explained, cluster, op, shares[size_t(op)], microBatches, sums);
  for (int chunk = 0; chunk < assignment.numChunks(); ++chunk)
    if (assignment.stageOf(chunk) == stage)
      addRest(explained.prediction.chunks[size_t(chunk)], cluster, microBatches, sums);

  KernelSum all;
  for (const auto &[key, sum] : sums) {
    all.launches += sum.launches;
    all.flops += sum.flops;
    all.bytes += sum.bytes;
    all.seconds += sum.seconds;
    all.atRoof += sum.atRoof;
  }
  std::vector<std::pair<PricedKind, KernelSum>> order(sums.begin(), sums.end());
  // Kinds are distinct, so the order is unique.
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return a.second.seconds != b.second.seconds ? a.second.seconds > b.second.seconds
                                                : a.first < b.first;
  });
  Table table{"kernels",
              "kernels of one step and device, as the plan prices them",
              {{"phase", "phase"},
               {"kind", "kernel"},
               {"class", "rate of"},
               {"launches", "launches"},
               {"flops", "FLOPs"},
               {"bytes", "bytes"},
               {"seconds", "seconds"},
               {"roof_seconds", "at the roof"},
               {"share", "share"},
               {"bound_by", "bound by"}},
              {},
              ""};
  for (const auto &[key, sum] : order)
    table.rows.push_back(
        {Cell::of(std::get<0>(key)), Cell::of(std::get<1>(key)), Cell::of(std::get<2>(key)),
         Cell::count(sum.launches), Cell::amount(sum.flops), Cell::bytes(sum.bytes),
         Cell::seconds(sum.seconds), Cell::seconds(sum.atRoof),
         Cell::share(all.seconds > 0 ? sum.seconds / all.seconds : 0), Cell::of(sum.boundBy())});
  keepFirst(table, 24);
  Report report;
  report.facts = {{"stage", "stage that bounds the step", Cell::count(stage)},
                  {"seconds", "its kernels and update", Cell::seconds(all.seconds)},
                  {"roof_seconds", "the same at the device's own rates", Cell::seconds(all.atRoof)},
                  {"launches", "launches, without those of the update", Cell::count(all.launches)},
                  {"bytes", "bytes moved", Cell::bytes(all.bytes)},
                  {"flops", "FLOPs", Cell::amount(all.flops)}};
  report.tables = {table};
  return report;
}

} // namespace tbc::planner
