//===- Evaluate.cpp - Seconds and bytes of a derived step ------------------===//

#include "planner/predict/Evaluate.h"
#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/memory/Memory.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/ChunkTime.h"
#include "planner/predict/CollectivePrices.h"
#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

double collectiveSeconds(const StageNetworks &networks, const Mesh &mesh,
                         const CollectiveCount &count) {
  if (count.kind == CollectiveKind::Send)
    return networks.sendSeconds(count.stage, double(count.bytes));
  std::vector<AxisRef> axes;
  size_t begin = 0;
  while (begin <= count.axes.size()) {
    size_t end = std::min(count.axes.find('+', begin), count.axes.size());
    int axis = mesh.axisIndex(count.axes.substr(begin, end - begin));
    if (axis >= 0)
      axes.push_back(wholeAxis(mesh, axis));
    begin = end + 1;
  }
  return networks.seconds(count.kind, axes, count.stage, double(count.bytes));
}

/// Predicts the memory of the stages and the verdict. The numbers of one device are those of the
/// stage with the least headroom. The upper end of their interval exceeds that stage's limit by the
/// largest excess of any stage over its own limit.
static void predictRoom(const Plan &plan, const StageDevices &devices, Prediction &prediction) {
  int64_t mostBeyond = std::numeric_limits<int64_t>::min() / 2; // at worst
  for (int stage = 0; stage < int(prediction.stages.size()); ++stage) {
    const StageMemory &memory = prediction.stages[size_t(stage)];
    const Cluster &cluster = devices.of(stage);
    const int64_t bytes = memory.totalBytes(), host = memory.hostBytes(),
                  limit = plan.limitBytes(cluster), hostLimit = cluster.usableHostBytes();
    if (stage == 0 || bytes - limit > prediction.peakBytes - prediction.limitBytes) {
      prediction.peakBytes = bytes;
      prediction.limitBytes = limit;
      std::tie(prediction.lowBytes, prediction.highBytes) = memoryInterval(memory, cluster);
    }
    if (stage == 0 || host - hostLimit > prediction.hostBytes - prediction.hostLimitBytes) {
      prediction.hostBytes = host;
      prediction.hostLimitBytes = hostLimit;
    }
    // Another stage may be less certain, and exceed its limit by more.
    mostBeyond = std::max(mostBeyond, memoryInterval(memory, cluster).second - limit);
  }
  prediction.highBytes = std::max(prediction.highBytes, prediction.limitBytes + mostBeyond);
  prediction.memory = memoryVerdict(prediction);
}

Prediction predictStep(const PlannedStep &step, const Plan &plan) {
  return predictStep(step, plan, derive(step.graph, step.assignment));
}

Prediction predictStep(const PlannedStep &step, const Plan &plan, const Derivation &derivation) {
  return StepPredictor(step, plan, derivation).predict(plan.overlap);
}

StepPredictor::StepPredictor(const PlannedStep &step, const Plan &plan,
                             const Derivation &derivation)
    : step(step), plan(plan), derivation(derivation), devices(stageDevices(plan)),
      schedule(scheduleOf(plan)), shares(sharesOf(step.graph, devices)),
      kernels(planKernels(step.graph, step.assignment, derivation)) {}

double StepPredictor::seconds(const OverlapSettings &settings) const {
  const Overlap overlap = planOverlap(step.graph, derivation, overlapOf(plan, settings));
  return simulatedStepTime(
             devices, chunkSeconds(step, derivation, overlap, plan.job, devices, nullptr, &shares),
             schedule)
      .seconds;
}

Prediction StepPredictor::predict(const OverlapSettings &settings) const {
  const Overlap overlap = planOverlap(step.graph, derivation, overlapOf(plan, settings));
  Prediction prediction;
  const std::vector<StageSeconds> seconds =
      chunkSeconds(step, derivation, overlap, plan.job, devices, &prediction.chunks, &shares);
  StepTime time = simulatedStepTime(devices, seconds, schedule);
  prediction.stepSeconds = time.seconds;
  prediction.lowSeconds = time.seconds * (1 - plan.cluster.timeUncertainty);
  prediction.highSeconds = time.seconds * (1 + plan.cluster.timeUncertainty);
  prediction.time = time.split;
  prediction.slowestStage = time.slowestStage;
  for (size_t chunk = 0; chunk < seconds.size(); ++chunk) {
    const Cluster &cluster = devices.of(schedule.pipeline.chunkStage[chunk]);
    prediction.stageSeconds.push_back(expose(cluster, seconds[chunk], schedule).microBatch());
  }

  prediction.stages = stageMemory(step.graph, step.assignment, derivation, overlap, plan.job,
                                  devices, schedule.actions, &kernels);
  predictRoom(plan, devices, prediction);

  double flops = 0;
  std::map<DType, double> flopsOf;
  const std::vector<double> once = flopsOnce(step.graph, step.cloneOf);
  for (size_t op = 0; op < once.size(); ++op)
    if (!step.isRecomputed(int(op)) && isMatrixClass(step.graph.ops[op].kernelClass)) {
      flops += once[op];
      flopsOf[localWork(step.graph, int(op), step.assignment.strategies[op]).dtype] += once[op];
    }
  prediction.modelFlops = flops * double(plan.accumulation);
  // The type of most FLOPs: a file may have another one than the job asks for.
  DType dtype = plan.job.precision == Precision::F32 ? DType::F32 : DType::BF16;
  double most = 0;
  for (const auto &[type, ofType] : flopsOf)
    if (ofType > most)
      dtype = type, most = ofType;
  auto peakOf = [&](int stage) { return devices.of(stage).peakFlops(KernelClass::Matmul, dtype); };
  double peak = peakOf(0), others = 0; // of stages, in the mean
  for (int stage = 1; stage < int(plan.mesh.pp); ++stage)
    others += peakOf(stage) - peak;
  peak += others / double(plan.mesh.pp);
  prediction.mfu =
      prediction.modelFlops / (prediction.stepSeconds * peak * double(plan.mesh.numRanks()));

  prediction.collectives =
      collectiveLines(step.graph, step.assignment, derivation, overlap, devices);
  return prediction;
}

Result<Prediction> predict(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  return predictStep(*step, plan);
}

} // namespace tbc::planner
