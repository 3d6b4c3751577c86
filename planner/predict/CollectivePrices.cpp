//===- CollectivePrices.cpp - Seconds of the collectives of a step ---------===//

#include "planner/predict/CollectivePrices.h"
#include "planner/cost/Cost.h"
#include "planner/predict/BlockEnds.h"
#include "planner/predict/Evaluate.h"
#include "planner/reshard/Count.h"

#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

bool isOfGradient(const Reshard &reshard) {
  return reshard.where == Where::GradientMicro || reshard.where == Where::GradientLast ||
         reshard.where == Where::GradientStep;
}

double CollectivePrices::seconds(const Reshard &reshard, const Collective &step) {
  if (reshard.where == Where::ParameterUse)
    return gathers.add(reshard, step, overlap.bucket(derivation, reshard) >= 0);
  double time = networks.seconds(step, reshard.stage);
  if (isOfGradient(reshard) && step.kind == CollectiveKind::ReduceScatter &&
      touchesData(mesh, step.axes))
    time += executorSeconds(devices.of(reshard.stage), step.kind, 1, double(groupSize(step.axes)),
                            double(step.bytes));
  return time;
}

std::vector<CollectiveLine> collectiveLines(const Graph &graph, const Assignment &assignment,
                                            const Derivation &derivation, const Overlap &overlap,
                                            const StageDevices &devices) {
  const Mesh &mesh = assignment.mesh;
  const StageNetworks networks(devices, mesh, assignment.pipelineAxis);
  // Seconds beside those of the network, of all executions; keys have count 0.
  std::map<CollectiveCount, double> beside;
  if (!devices.of(0).executor.isOwn()) {
    CollectivePrices prices(mesh, derivation, overlap, devices, networks);
    forEachCollective(derivation, overlap, [&](const Reshard &reshard, const Collective &step) {
      const double time = prices.seconds(reshard, step);
      if (reshard.where == Where::Stage)
        return;
      const double times = reshard.perStep ? 1 : double(assignment.microBatches);
      beside[{step.kind, axesText(mesh, step), reshard.stage, step.bytes, 0}] +=
          times * (time - networks.seconds(step, reshard.stage));
    });
  }
  std::vector<CollectiveLine> lines;
  for (const CollectiveCount &count : countCollectives(graph, assignment, derivation, overlap)) {
    double seconds = collectiveSeconds(networks, mesh, count);
    CollectiveCount key = count;
    key.count = 0;
    if (auto found = beside.find(key); found != beside.end())
      seconds += found->second / double(count.count);
    lines.push_back({count, seconds});
  }
  return lines;
}

double listedSeconds(const std::vector<CollectiveLine> &lines, const StageNetworks &networks,
                     const Mesh &mesh, const CollectiveCount &count) {
  for (const CollectiveLine &line : lines)
    if (line.count.kind == count.kind && line.count.axes == count.axes &&
        line.count.stage == count.stage && line.count.bytes == count.bytes)
      return line.seconds;
  return collectiveSeconds(networks, mesh, count);
}

} // namespace tbc::planner
