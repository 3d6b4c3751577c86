//===- OpSeconds.cpp - Seconds of the ops of a derived step -----------------===//

#include "planner/predict/OpSeconds.h"
#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/plan/MeshShape.h"
#include "planner/predict/BlockEnds.h"
#include "planner/predict/CollectivePrices.h"

#include <algorithm>
#include <tuple>

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

std::vector<KernelShare> sharesOf(const Graph &graph, const StageDevices &devices) {
  return kernelShares(devices.of(0), graph); // all stages have one executor
}

namespace {

/// Prices the ops of a derived step and its communication, and writes the work of the latter.
class OpPricer {
public:
  OpPricer(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
           const StageDevices &devices, const Overlap &overlap, std::vector<ChunkSeconds> *work)
      : graph(graph), assignment(assignment), derivation(derivation), devices(devices),
        overlap(overlap), work(work), firstChunk(firstChunks(assignment)),
        networks(devices, assignment.mesh, assignment.pipelineAxis),
        // One executor and one ZeRO stage for all.
        reducesLater(
            !assignment.parameterPlans.empty() &&
            devices.of(0).executor.reducesInLastBackward(assignment.parameterPlans[0].zero)) {
    for (std::vector<double> *byOp :
         {&seconds.gather, &seconds.reduceMicro, &seconds.firstGather, &seconds.lastReduce})
      byOp->assign(graph.ops.size(), 0);
    for (std::vector<double> *byStage : {&seconds.reduceStep, &seconds.reduceLast,
                                         &seconds.lastReduceStep, &seconds.parameterStep})
      byStage->assign(size_t(assignment.numStages), 0);
    for (std::vector<double> *byChunk : {&seconds.sendForward, &seconds.sendBackward})
      byChunk->assign(size_t(assignment.numChunks()), 0);
  }

  OpSeconds run(const std::vector<KernelShare> &shares, bool isInOrder) {
    for (size_t op = 0; op < graph.ops.size(); ++op)
      addKernel(int(op), shares[op], isInOrder);
    addCollectives();
    for (const Transfer &transfer : derivation.transfers)
      addTransfer(transfer);
    return std::move(seconds);
  }

private:
  /// A collective with its seconds.
  struct Priced {
    const Reshard &reshard;
    const Collective &step;
    double time;
    bool ofGradient, isOfData;
    bool isEnd = false; ///< of a block
  };

  void addKernel(int op, const KernelShare &share, bool isInOrder) {
    const int stage = assignment.stageOf(graph.ops[size_t(op)].chunk);
    const Cluster &cluster = devices.of(stage);
    const OpStrategy &strategy = derivation.strategyOf(assignment, op);
    const double kernel = opKernelSeconds(cluster, graph, op, strategy, share, isInOrder);
    seconds.kernel.push_back(kernel);
    seconds.launch.push_back(cluster.executor.hostSeconds * networks.of(stage).launchFactor() *
                             opLaunches(graph, op, strategy, share));
    // A block travels while the kernel of the previous one runs, so all kernels but the last can
    // hide it.
    double round = 0, blocks = double(streamedBlocks(graph, op, strategy));
    for (const Collective &step : ringCollectives(graph, op, strategy))
      round += networks.seconds(step, stage);
    const double room = cluster.overlapFraction * kernel * (blocks - 1) / blocks;
    seconds.operands.push_back(cluster.exposedSeconds(round, room));
    if (work && round > 0)
      writeRing(op, seconds.operands.back());
  }

  /// Writes the work of the blocks of a ring. `exposed`: the seconds that kernels do not hide.
  void writeRing(int op, double exposed) {
    double bytes = 0;
    const std::vector<Collective> ring =
        ringCollectives(graph, op, assignment.strategies[size_t(op)]);
    for (const Collective &step : ring)
      bytes += double(step.bytes);
    const GraphOp &of = graph.ops[size_t(op)];
    (*work)[size_t(of.chunk)].add(operandsPart(of.phase), name(ring.front().kind),
                                  toString(assignment.mesh, ring.front().axes), bytes, exposed);
  }

  void addCollectives() {
    CollectivePrices prices(assignment.mesh, derivation, overlap, devices, networks);
    const BlockEnds ends = devices.of(0).executor.isOwn()
                               ? BlockEnds(assignment.mesh, derivation, overlap)
                               : BlockEnds();
    forEachCollective(derivation, overlap, [&](const Reshard &reshard, const Collective &step) {
      Priced priced{reshard, step, prices.seconds(reshard, step), isOfGradient(reshard),
                    touchesData(assignment.mesh, step.axes)};
      if (reshard.where == Where::Operand && isOver(step, assignment.mesh.axisIndex("tp")))
        priced.time *= 1 - devices.of(reshard.stage).executor.hiddenOperands;
      if (priced.time == 0)
        return;
      priced.isEnd = ends.has(reshard) && (!priced.ofGradient || priced.isOfData);
      if (work && reshard.where != Where::Stage)
        writeCollective(priced);
      addCollective(priced);
    });
  }

  void writeCollective(const Priced &priced) {
    const Reshard &reshard = priced.reshard;
    // Work once per step has no op.
    const GraphOp *op = reshard.perStep ? nullptr : &graph.ops[size_t(chargedOp(graph, reshard))];
    const int chunk = op ? op->chunk : firstChunk[size_t(reshard.stage)];
    const Phase phase = op ? op->phase : Phase::Backward;
    const StagePart part = priced.isEnd
                               ? endPart(reshard.where, phase)
                               : partOf(reshard.where, phase, priced.isOfData, reducesLater);
    (*work)[size_t(chunk)].add(part, name(priced.step.kind),
                               toString(assignment.mesh, priced.step.axes),
                               double(priced.step.bytes), priced.time);
  }

  void addCollective(const Priced &priced) {
    const size_t op = size_t(chargedOp(graph, priced.reshard)),
                 stage = size_t(priced.reshard.stage);
    const double time = priced.time;
    switch (priced.reshard.where) {
    case Where::Operand:
      seconds.operands[op] += time;
      break;
    case Where::ParameterUse:
      (priced.isEnd ? seconds.firstGather : seconds.gather)[op] += time;
      break;
    case Where::GradientMicro:
      if (reducesLater && priced.isOfData)
        seconds.reduceLast[stage] += time;
      else
        (priced.isEnd      ? seconds.lastReduce
         : priced.isOfData ? seconds.reduceMicro
                           : seconds.operands)[op] += time;
      break;
    case Where::GradientLast:
      (priced.isEnd ? seconds.lastReduceStep : seconds.reduceLast)[stage] += time;
      break;
    case Where::GradientStep:
      (reducesLater ? seconds.reduceLast : seconds.reduceStep)[stage] += time;
      break;
    case Where::Loss:
    case Where::StepTotal:
    case Where::MatrixStep:
    case Where::MatrixTotals:
    case Where::ParameterStep:
      seconds.parameterStep[stage] += time;
      break;
    case Where::Stage:
      break; // priced from the transfers
    }
  }

  void addTransfer(const Transfer &transfer) {
    const double bytes =
        double(localBytes(graph.values[size_t(transfer.value)].layout, transfer.sharding));
    const bool isForward = transfer.phase == Phase::Forward;
    const double time = networks.sendSeconds(assignment.stageOf(transfer.fromChunk),
                                             assignment.stageOf(transfer.toChunk), bytes);
    const size_t chunk = size_t(transfer.fromChunk);
    (isForward ? seconds.sendForward : seconds.sendBackward)[chunk] += time;
    if (work)
      (*work)[chunk].add(isForward ? &StageSeconds::sendForward : &StageSeconds::sendBackward,
                         name(CollectiveKind::Send), mesh::row(mesh::Axis::Pipeline).name, bytes,
                         time);
  }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  const StageDevices &devices;
  const Overlap &overlap;
  std::vector<ChunkSeconds> *work;
  const std::vector<int> firstChunk; // of each stage
  StageNetworks networks;
  /// The executor sums accumulated gradients during the last backward.
  const bool reducesLater;
  OpSeconds seconds;
};

} // namespace

OpSeconds opSeconds(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
                    const StageDevices &devices, bool isInOrder, const Overlap &overlap,
                    std::vector<ChunkSeconds> *work, const std::vector<KernelShare> *known) {
  OpPricer pricer(graph, assignment, derivation, devices, overlap, work);
  return known ? pricer.run(*known, isInOrder) : pricer.run(sharesOf(graph, devices), isInOrder);
}

} // namespace tbc::planner
