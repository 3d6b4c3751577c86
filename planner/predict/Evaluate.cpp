//===- Evaluate.cpp - Seconds and bytes of a derived step ------------------===//

#include "planner/predict/Evaluate.h"
#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/memory/Buffers.h"
#include "planner/memory/Memory.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Update.h"
#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

/// Adds the time for which the executor holds both ranks of a message between stages.
static void addMessages(const Assignment &assignment, const StageDevices &devices,
                        std::vector<StageSeconds> &chunks, std::vector<ChunkSeconds> *work) {
  for (int chunk = 0; chunk < assignment.numChunks(); ++chunk) {
    auto isElsewhere = [&](int other) {
      return other >= 0 && other < assignment.numChunks() &&
             assignment.stageOf(other) != assignment.stageOf(chunk);
    };
    const double seconds = messageSeconds(devices.of(assignment.stageOf(chunk)),
                                          isElsewhere(chunk - 1), isElsewhere(chunk + 1));
    for (StagePart part : {&StageSeconds::messageForward, &StageSeconds::messageBackward}) {
      chunks[size_t(chunk)].*part += seconds;
      if (work && seconds > 0)
        (*work)[size_t(chunk)].add(part, "messages", "", 0, seconds);
    }
  }
}

/// Residuals on the host are copied out once, and back once for each block that reads them.
static void addResidualCopies(const PlannedStep &step, const Derivation &derivation,
                              const StageDevices &devices, std::vector<StageSeconds> &chunks,
                              std::vector<ChunkSeconds> *work) {
  bool any = std::any_of(derivation.residuals.begin(), derivation.residuals.end(),
                         [](const Residual &residual) { return residual.isOnHost; });
  if (!any)
    return;
  for (const KeptSlot &slot : stepBuffers(step.graph, step.assignment, derivation).kept) {
    if (!slot.isOnHost)
      continue;
    double seconds = devices.of(slot.stage).hostCopySeconds(double(slot.bytes));
    for (auto [chunk, phase] : slot.users) {
      const StagePart part = phase == Phase::Forward    ? &StageSeconds::hostForward
                             : phase == Phase::Backward ? &StageSeconds::hostBackward
                                                        : &StageSeconds::hostWeight;
      chunks[chunk].*part += seconds;
      if (work)
        (*work)[size_t(chunk)].add(part, "copy of residuals", "", double(slot.bytes), seconds);
    }
  }
}

/// Returns the seconds to copy the states of `owned` elements of a parameter, and those of its
/// whole matrices, from the host and back.
static double stateCopySeconds(int64_t stateBytes, const std::vector<int64_t> &whole,
                               const Cluster &cluster, double owned, int64_t parameterBytes) {
  constexpr int64_t bytesPerMoment = 4;
  int64_t master = masterBytes(parameterBytes), numMoments = stateBytes / bytesPerMoment;
  double copies = double(numMoments) * cluster.hostCopySeconds(owned * double(bytesPerMoment));
  if (master > 0)
    copies += cluster.hostCopySeconds(owned * double(master));
  for (int64_t bytes : whole)
    copies += cluster.hostCopySeconds(double(bytes));
  return 2 * copies;
}

/// Returns the part of a chunk that counts kernels of `phase`.
static StagePart kernelPart(Phase phase, bool isRecomputed) {
  if (phase == Phase::Forward)
    return &StageSeconds::forward;
  if (phase == Phase::Weight)
    return isRecomputed ? &StageSeconds::recomputeWeight : &StageSeconds::weight;
  return isRecomputed ? &StageSeconds::recompute : &StageSeconds::backward;
}

/// Returns the part of a chunk that counts launches of kernels of `phase`.
static StagePart launchPart(Phase phase) {
  return phase == Phase::Forward  ? &StageSeconds::launchForward
         : phase == Phase::Weight ? &StageSeconds::launchWeight
                                  : &StageSeconds::launchBackward;
}

namespace {
/// Seconds of forward ops on the device, and of the host to launch them.
struct MoreRecomputed {
  double device = 0, launches = 0;
};
} // namespace

/// Returns, by chunk, the forward ops that an executor recomputes with their block and tbc does
/// not: ops between recomputed ones, such as the last matmul of a block. Counts only blocks that
/// recompute most of that part of forward. Example: of two layers, the first under "full" and the
/// other under "selective", only the first counts.
static std::vector<MoreRecomputed> moreRecomputed(const PlannedStep &step, const OpSeconds &ops) {
  const Graph &graph = step.graph;
  const size_t numChunks = size_t(step.assignment.numChunks());
  std::vector<int> first(numChunks, int(graph.ops.size())), last(numChunks, -1);
  std::vector<bool> isCloned(graph.ops.size());
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (const int source = step.cloneOf[op]; source >= 0) {
      const size_t chunk = size_t(graph.ops[op].chunk);
      first[chunk] = std::min(first[chunk], source);
      last[chunk] = std::max(last[chunk], source);
      isCloned[size_t(source)] = true;
    }
  struct Block {
    double cloned = 0;
    MoreRecomputed others;
  };
  const std::vector<int> begins = blockStarts(graph);
  std::map<std::pair<size_t, int64_t>, Block> blocks; // by chunk and block
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const size_t chunk = size_t(graph.ops[op].chunk);
    if (graph.ops[op].phase != Phase::Forward || int(op) < first[chunk] || int(op) > last[chunk])
      continue;
    const int64_t block = std::upper_bound(begins.begin(), begins.end(), int(op)) - begins.begin();
    Block &here = blocks[{chunk, block}];
    const double device = ops.kernel[op] + ops.operands[op];
    if (isCloned[op]) {
      here.cloned += device;
    } else {
      here.others.device += device;
      here.others.launches += ops.launch[op];
    }
  }
  std::vector<MoreRecomputed> others(numChunks);
  for (const auto &[key, block] : blocks)
    if (block.cloned >= block.others.device) {
      others[key.first].device += block.others.device;
      others[key.first].launches += block.others.launches;
    }
  return others;
}

/// Adds the gathers of an executor that releases the parameters of recomputed ops before backward:
/// each is gathered as often as in forward.
static void addGathersAgain(const PlannedStep &step, const OpSeconds &ops,
                            const StageDevices &devices, std::vector<StageSeconds> &chunks,
                            std::vector<ChunkSeconds> *work) {
  for (size_t op = 0; op < step.graph.ops.size(); ++op) {
    const size_t chunk = size_t(step.graph.ops[op].chunk);
    if (step.cloneOf[op] < 0 ||
        !devices.of(step.assignment.stageOf(int(chunk))).executor.gathersAgain)
      continue;
    const double seconds = ops.gather[size_t(step.cloneOf[op])];
    chunks[chunk].gatherBackward += seconds;
    if (work && seconds > 0)
      (*work)[chunk].add(&StageSeconds::gatherBackward, "all_gather again", "", 0, seconds);
  }
}

/// Adds the passes over the logits that an executor makes and tbc does not: casts to f32, its
/// copies, the gradient. Half of them are in forward.
static void addLogits(const Graph &graph, const Derivation &derivation,
                      const Assignment &assignment, const StageDevices &devices,
                      std::vector<StageSeconds> &chunks, std::vector<ChunkSeconds> *work) {
  const Logits logits = logitsOf(graph, derivation);
  if (logits.op < 0)
    return;
  const size_t chunk = size_t(graph.ops[size_t(logits.op)].chunk);
  const Cluster &cluster = devices.of(assignment.stageOf(int(chunk)));
  const double bytes = cluster.executor.logitMovedBytes * double(logits.elements);
  if (bytes == 0)
    return;
  const double seconds = updateSeconds(cluster, bytes, 0);
  for (StagePart part : {&StageSeconds::forward, &StageSeconds::backward}) {
    chunks[chunk].*part += seconds / 2;
    if (work)
      (*work)[chunk].add(part, "logits", "", 0, seconds / 2);
  }
}

/// Adds the gaps before the launches of each stage's update, as they are emitted.
static void addUpdateLaunches(const PlannedStep &step, const Derivation &derivation,
                              const Overlap &overlap, const Job &job, const StageDevices &devices,
                              std::vector<StageSeconds> &chunks, std::vector<ChunkSeconds> *work) {
  const std::vector<int> firstChunk = firstChunks(step.assignment);
  int64_t tableBytes = 0; // of the stages so far, which are one Program
  for (int stage = 0; stage < step.assignment.numStages; ++stage) {
    const std::vector<LaunchedKernel> kernels =
        updateKernels(step.graph, step.assignment, derivation, overlap, job, stage);
    const Cluster &cluster = devices.of(stage);
    const size_t launches =
        cluster.joinsLaunches() ? joinLaunches(kernels, tableBytes).size() : kernels.size();
    const double seconds = updateSeconds(cluster, 0, double(launches));
    const size_t chunk = size_t(firstChunk[size_t(stage)]);
    chunks[chunk].updateStep += seconds;
    if (work && seconds > 0)
      (*work)[chunk].add(&StageSeconds::updateStep, "optimizer, launches", "", 0, seconds);
  }
}

std::vector<StageSeconds> chunkSeconds(const PlannedStep &step, const Derivation &derivation,
                                       const Overlap &overlap, const Job &job,
                                       const StageDevices &devices, std::vector<ChunkSeconds> *work,
                                       const std::vector<KernelShare> *shares) {
  const Graph &graph = step.graph;
  const Assignment &assignment = step.assignment;
  if (work)
    work->assign(size_t(assignment.numChunks()), {});
  OpSeconds ops =
      opSeconds(graph, assignment, derivation, devices, !step.isZigzag, overlap, work, shares);
  std::vector<StageSeconds> chunks(assignment.numChunks());
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    StageSeconds &stage = chunks[graph.ops[op].chunk];
    bool again = graph.ops[op].phase != Phase::Forward && step.isRecomputed(int(op));
    const StagePart part = kernelPart(graph.ops[op].phase, again);
    stage.*part += ops.kernel[op];
    if (work && ops.kernel[op] > 0)
      (*work)[size_t(graph.ops[op].chunk)].add(part, name(graph.ops[op].kernelClass), "", 0,
                                               ops.kernel[op]);
    const StagePart launch = launchPart(graph.ops[op].phase);
    stage.*launch += ops.launch[op];
    if (work && ops.launch[op] > 0)
      (*work)[size_t(graph.ops[op].chunk)].add(launch, "launches", "", 0, ops.launch[op]);
    if (graph.ops[op].phase == Phase::Forward) {
      stage.operandsForward += ops.operands[op];
      stage.gatherForward += ops.gather[op];
      stage.firstGatherForward += ops.firstGather[op];
    } else if (graph.ops[op].phase == Phase::Weight) {
      stage.operandsWeight += ops.operands[op];
      stage.dataWeight += ops.gather[op] + ops.reduceMicro[op];
    } else {
      stage.operandsBackward += ops.operands[op];
      stage.gatherBackward += ops.gather[op];
      stage.firstGatherBackward += ops.firstGather[op];
      stage.reduceMicro += ops.reduceMicro[op];
      stage.lastReduceMicro += ops.lastReduce[op];
    }
  }
  const std::vector<MoreRecomputed> more = moreRecomputed(step, ops);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    if (more[chunk].device == 0 ||
        !devices.of(assignment.stageOf(int(chunk))).executor.recomputesBlocks)
      continue;
    for (auto [part, seconds] : {std::pair(&StageSeconds::recompute, more[chunk].device),
                                 std::pair(&StageSeconds::launchBackward, more[chunk].launches)}) {
      chunks[chunk].*part += seconds;
      if (work && seconds > 0)
        (*work)[chunk].add(part, "rest of blocks", "", 0, seconds);
    }
  }
  addGathersAgain(step, ops, devices, chunks, work);
  addLogits(graph, derivation, assignment, devices, chunks, work);
  // Work once per step of a stage is added to its first chunk.
  const std::vector<int> firstChunk = firstChunks(assignment);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    if (graph.parameters[p].gradient < 0)
      continue;
    const TensorLayout &layout = graph.values[graph.parameters[p].value].layout;
    double owned = double(localBytes(layout, derivation.state[p])) / double(layout.elementBytes);
    const int64_t stateBytes = job.stateBytesPerElement(graph.parameters[p]);
    const Sharding matrices = matrixSharding(
        derivation.state[p], graph.parameters[p].matrices.get(), int(layout.dims.size()));
    const std::vector<int64_t> whole =
        wholeStateBytes(graph.parameters[p], layout, derivation.state[p]);
    double bytes = updateBytes(owned, stateBytes, layout.elementBytes,
                               graph.values[graph.parameters[p].gradient].layout.elementBytes) +
                   totalsBytes(graph.parameters[p], owned);
    for (int stage : derivation.parameterStages[p]) {
      StageSeconds &chunk = chunks[firstChunk[stage]];
      const Cluster &cluster = devices.of(stage);
      const double update = updateSeconds(cluster, bytes, 0);
      const double copies = assignment.offloadsStates ? stateCopySeconds(stateBytes, whole, cluster,
                                                                         owned, layout.elementBytes)
                                                      : 0;
      const double onMatrices = matrixSeconds(cluster, graph.parameters[p], matrices);
      chunk.updateStep += update + onMatrices;
      chunk.hostStep += copies;
      if (work)
        (*work)[size_t(firstChunk[stage])].add(&StageSeconds::updateStep, "optimizer", "", bytes,
                                               update);
      if (work && onMatrices > 0)
        (*work)[size_t(firstChunk[stage])].add(&StageSeconds::updateStep, "optimizer, on matrices",
                                               "", 0, onMatrices);
      if (work && copies > 0)
        (*work)[size_t(firstChunk[stage])].add(
            &StageSeconds::hostStep, "copy of optimizer state", "",
            (owned * double(stateBytes + masterBytes(layout.elementBytes)) +
             double(std::accumulate(whole.begin(), whole.end(), int64_t(0)))) *
                2,
            copies);
    }
  }
  addUpdateLaunches(step, derivation, overlap, job, devices, chunks, work);
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    chunks[firstChunk[stage]].reduceStep = ops.reduceStep[stage];
    chunks[firstChunk[stage]].reduceLast = ops.reduceLast[stage];
    chunks[firstChunk[stage]].lastReduceStep = ops.lastReduceStep[stage];
    chunks[firstChunk[stage]].parameterStep = ops.parameterStep[stage];
  }
  for (int chunk = 0; chunk < assignment.numChunks(); ++chunk) {
    chunks[chunk].sendForward = ops.sendForward[chunk];
    chunks[chunk].sendBackward = ops.sendBackward[chunk];
  }
  addMessages(assignment, devices, chunks, work);
  addResidualCopies(step, derivation, devices, chunks, work);
  for (size_t chunk = 0; work && chunk < chunks.size(); ++chunk)
    (*work)[chunk].seconds = chunks[chunk];
  return chunks;
}

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
  bool middleFits = true;
  int64_t mostBeyond = std::numeric_limits<int64_t>::min() / 2; // at worst
  for (int stage = 0; stage < int(prediction.stages.size()); ++stage) {
    const StageMemory &memory = prediction.stages[size_t(stage)];
    const Cluster &cluster = devices.of(stage);
    const int64_t bytes = memory.totalBytes(), host = memory.hostBytes(),
                  limit = plan.limitBytes(cluster), hostLimit = cluster.usableHostBytes();
    middleFits &= bytes <= limit && host <= hostLimit;
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
  prediction.memory = !middleFits      ? MemoryVerdict::DoesNotFit
                      : mostBeyond > 0 ? MemoryVerdict::Tight
                                       : MemoryVerdict::Fits;
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

  double flops = 0; // without clones: they are work, but not the model's
  std::map<DType, double> flopsOf;
  for (size_t op = 0; op < step.graph.ops.size(); ++op)
    if (!step.isRecomputed(int(op))) {
      const GraphOp &graphOp = step.graph.ops[op];
      if (isMatrixClass(graphOp.kernelClass)) {
        flops += graphOp.flops;
        flopsOf[localWork(step.graph, int(op), OpStrategy()).dtype] += graphOp.flops;
      }
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

  StageNetworks networks(devices, step.assignment.mesh, step.assignment.pipelineAxis);
  for (const CollectiveCount &count :
       countCollectives(step.graph, step.assignment, derivation, overlap))
    prediction.collectives.push_back(
        {count, collectiveSeconds(networks, step.assignment.mesh, count)});
  return prediction;
}

Result<Prediction> predict(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  return predictStep(*step, plan);
}

} // namespace tbc::planner
