//===- OpSeconds.cpp - Seconds of the ops of a derived step -----------------===//

#include "planner/predict/OpSeconds.h"
#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/plan/MeshShape.h"
#include "planner/predict/BlockEnds.h"
#include "planner/predict/JoinedGathers.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

/// Whether `step` is over `axis` alone.
static bool isOver(const Collective &step, int axis) {
  return !step.axes.empty() && std::all_of(step.axes.begin(), step.axes.end(),
                                           [&](const AxisRef &ref) { return ref.axis == axis; });
}

/// Returns the op charged for the communication `reshard`.
static int chargedOp(const Graph &graph, const Reshard &reshard) {
  return reshard.op >= 0 ? reshard.op : graph.values[reshard.value].producer;
}

/// Returns the part of a chunk that counts a collective between ops in `phase`.
static StagePart operandsPart(Phase phase) {
  return phase == Phase::Forward  ? &StageSeconds::operandsForward
         : phase == Phase::Weight ? &StageSeconds::operandsWeight
                                  : &StageSeconds::operandsBackward;
}

/// Returns the part of a chunk that counts a collective at the end of a block: the first gather of
/// `phase`, or the last reduction.
static StagePart endPart(Where where, Phase phase) {
  return where == Where::GradientMicro  ? &StageSeconds::lastReduceMicro
         : where == Where::GradientLast ? &StageSeconds::lastReduceStep
         : phase == Phase::Forward      ? &StageSeconds::firstGatherForward
                                        : &StageSeconds::firstGatherBackward;
}

/// Returns the part of a chunk that counts a collective at `where`, in an op of `phase`.
/// `isLater`: the executor sums accumulated gradients during the last backward.
static StagePart partOf(Where where, Phase phase, bool touchesData, bool isLater) {
  switch (where) {
  case Where::ParameterUse:
    return phase == Phase::Forward  ? &StageSeconds::gatherForward
           : phase == Phase::Weight ? &StageSeconds::dataWeight
                                    : &StageSeconds::gatherBackward;
  case Where::GradientMicro:
    if (touchesData && isLater) // once per step: of one micro-batch
      return &StageSeconds::reduceLast;
    if (touchesData)
      return phase == Phase::Weight ? &StageSeconds::dataWeight : &StageSeconds::reduceMicro;
    return operandsPart(phase);
  case Where::GradientLast:
    return &StageSeconds::reduceLast;
  case Where::GradientStep:
    return isLater ? &StageSeconds::reduceLast : &StageSeconds::reduceStep;
  case Where::Loss:
  case Where::StepTotal:
  case Where::MatrixStep:
  case Where::MatrixTotals:
  case Where::ParameterStep:
    return &StageSeconds::parameterStep;
  case Where::Operand:
  case Where::Stage:
    break;
  }
  return operandsPart(phase);
}

std::vector<int> firstChunks(const Assignment &assignment) {
  std::vector<int> first(size_t(assignment.numStages), 0);
  for (int chunk = assignment.numChunks() - 1; chunk >= 0; --chunk)
    first[size_t(assignment.stageOf(chunk))] = chunk;
  return first;
}

/// Adds the blocks of a ring to `work`. `exposed`: the seconds that kernels do not hide.
static void addRing(const Graph &graph, const Assignment &assignment, int op, double exposed,
                    ChunkSeconds &work) {
  double bytes = 0;
  const std::vector<Collective> ring = ringCollectives(graph, op, assignment.strategies[op]);
  for (const Collective &step : ring)
    bytes += double(step.bytes);
  work.add(operandsPart(graph.ops[op].phase), name(ring.front().kind),
           toString(assignment.mesh, ring.front().axes), bytes, exposed);
}

std::vector<KernelShare> sharesOf(const Graph &graph, const StageDevices &devices) {
  return kernelShares(devices.of(0), graph); // all stages have one executor
}

OpSeconds opSeconds(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
                    const StageDevices &devices, bool isInOrder, const Overlap &overlap,
                    std::vector<ChunkSeconds> *work, const std::vector<KernelShare> *known) {
  OpSeconds seconds;
  const std::vector<int> firstChunk = firstChunks(assignment);
  size_t numOps = graph.ops.size();
  StageNetworks networks(devices, assignment.mesh, assignment.pipelineAxis);
  const std::vector<KernelShare> own =
      known ? std::vector<KernelShare>() : sharesOf(graph, devices);
  const std::vector<KernelShare> &shares = known ? *known : own;
  for (int op = 0; op < int(numOps); ++op) {
    const int stage = assignment.stageOf(graph.ops[op].chunk);
    const Cluster &cluster = devices.of(stage);
    const OpStrategy &strategy = derivation.strategyOf(assignment, op);
    seconds.kernel.push_back(opKernelSeconds(cluster, graph, op, strategy, shares[op], isInOrder));
    seconds.launch.push_back(cluster.executor.hostSeconds * networks.of(stage).launchFactor() *
                             opLaunches(graph, op, strategy, shares[op]));
    // A block travels while the kernel of the previous one runs, so all kernels but the last can
    // hide it.
    double round = 0, blocks = double(streamedBlocks(graph, op, strategy));
    for (const Collective &step : ringCollectives(graph, op, strategy))
      round += networks.seconds(step, stage);
    double room = cluster.overlapFraction * seconds.kernel[op] * (blocks - 1) / blocks;
    seconds.operands.push_back(cluster.exposedSeconds(round, room));
    if (work && round > 0)
      addRing(graph, assignment, op, seconds.operands.back(), (*work)[size_t(graph.ops[op].chunk)]);
  }
  for (std::vector<double> *byOp :
       {&seconds.gather, &seconds.reduceMicro, &seconds.firstGather, &seconds.lastReduce})
    byOp->assign(numOps, 0);
  for (std::vector<double> *byStage :
       {&seconds.reduceStep, &seconds.reduceLast, &seconds.lastReduceStep, &seconds.parameterStep})
    byStage->assign(assignment.numStages, 0);
  for (std::vector<double> *byChunk : {&seconds.sendForward, &seconds.sendBackward})
    byChunk->assign(assignment.numChunks(), 0);

  // One executor and one ZeRO stage for all.
  const bool reducesLater =
      !assignment.parameterPlans.empty() &&
      devices.of(0).executor.reducesInLastBackward(assignment.parameterPlans[0].zero);
  JoinedGathers gathers(devices, networks);
  const BlockEnds ends = devices.of(0).executor.isOwn()
                             ? BlockEnds(assignment.mesh, derivation, overlap)
                             : BlockEnds();
  const int tensorAxis = assignment.mesh.axisIndex("tp");
  forEachCollective(derivation, overlap, [&](const Reshard &reshard, const Collective &step) {
    double time = reshard.where == Where::ParameterUse
                      ? gathers.add(reshard, step, overlap.bucket(derivation, reshard) >= 0)
                      : networks.seconds(step, reshard.stage);
    if (reshard.where == Where::Operand && isOver(step, tensorAxis))
      time *= 1 - devices.of(reshard.stage).executor.hiddenOperands;
    const bool ofGradient = reshard.where == Where::GradientMicro ||
                            reshard.where == Where::GradientLast ||
                            reshard.where == Where::GradientStep;
    if (ofGradient && step.kind == CollectiveKind::ReduceScatter &&
        touchesData(assignment.mesh, step.axes))
      time += executorSeconds(devices.of(reshard.stage), step.kind, 1, double(groupSize(step.axes)),
                              double(step.bytes));
    if (time == 0)
      return;
    int op = chargedOp(graph, reshard);
    const bool isEnd =
        ends.has(reshard) && (!ofGradient || touchesData(assignment.mesh, step.axes));
    if (work && reshard.where != Where::Stage) {
      const int chunk = reshard.perStep ? firstChunk[size_t(reshard.stage)] : graph.ops[op].chunk;
      const Phase phase = reshard.perStep ? Phase::Backward : graph.ops[op].phase;
      (*work)[size_t(chunk)].add(
          isEnd
              ? endPart(reshard.where, phase)
              : partOf(reshard.where, phase, touchesData(assignment.mesh, step.axes), reducesLater),
          name(step.kind), toString(assignment.mesh, step.axes), double(step.bytes), time);
    }
    switch (reshard.where) {
    case Where::Operand:
      seconds.operands[op] += time;
      break;
    case Where::ParameterUse:
      (isEnd ? seconds.firstGather : seconds.gather)[op] += time;
      break;
    case Where::GradientMicro:
      if (reducesLater && touchesData(assignment.mesh, step.axes)) {
        seconds.reduceLast[reshard.stage] += time;
        break;
      }
      (isEnd                                     ? seconds.lastReduce
       : touchesData(assignment.mesh, step.axes) ? seconds.reduceMicro
                                                 : seconds.operands)[op] += time;
      break;
    case Where::GradientLast:
      (isEnd ? seconds.lastReduceStep : seconds.reduceLast)[reshard.stage] += time;
      break;
    case Where::GradientStep:
      (reducesLater ? seconds.reduceLast : seconds.reduceStep)[reshard.stage] += time;
      break;
    case Where::Loss:
    case Where::StepTotal:
    case Where::MatrixStep:
    case Where::MatrixTotals:
    case Where::ParameterStep:
      seconds.parameterStep[reshard.stage] += time;
      break;
    case Where::Stage:
      break; // priced from the transfers
    }
  });
  for (const Transfer &transfer : derivation.transfers) {
    int from = assignment.stageOf(transfer.fromChunk), to = assignment.stageOf(transfer.toChunk);
    double bytes = double(localBytes(graph.values[transfer.value].layout, transfer.sharding));
    const bool isForward = transfer.phase == Phase::Forward;
    const double time = networks.sendSeconds(from, to, bytes);
    (isForward ? seconds.sendForward : seconds.sendBackward)[transfer.fromChunk] += time;
    if (work)
      (*work)[size_t(transfer.fromChunk)].add(
          isForward ? &StageSeconds::sendForward : &StageSeconds::sendBackward,
          name(CollectiveKind::Send), mesh::row(mesh::Axis::Pipeline).name, bytes, time);
  }
  return seconds;
}

} // namespace tbc::planner
