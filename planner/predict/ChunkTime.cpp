//===- ChunkTime.cpp - Seconds of the chunks of a derived step --------------===//

#include "planner/predict/ChunkTime.h"
#include "planner/cost/Cost.h"
#include "planner/graph/RecomputeBlocks.h"
#include "planner/memory/Buffers.h"
#include "planner/memory/Memory.h"
#include "planner/predict/Update.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace tbc::reshard;

namespace tbc::planner {

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

/// Returns the part of a chunk that counts copies of residuals in `phase`.
static StagePart hostPart(Phase phase) {
  return phase == Phase::Forward    ? &StageSeconds::hostForward
         : phase == Phase::Backward ? &StageSeconds::hostBackward
                                    : &StageSeconds::hostWeight;
}

namespace {

/// Seconds of forward ops on the device, and of the host to launch them.
struct MoreRecomputed {
  double device = 0, launches = 0;
};

/// Adds up the seconds of the chunks of a derived step, and the work behind them.
class ChunkTime {
public:
  ChunkTime(const PlannedStep &step, const Derivation &derivation, const Overlap &overlap,
            const Job &job, const StageDevices &devices, std::vector<ChunkSeconds> *work,
            const std::vector<KernelShare> *shares)
      : step(step), graph(step.graph), assignment(step.assignment), derivation(derivation),
        overlap(overlap), job(job), devices(devices), work(work),
        firstChunk(firstChunks(assignment)), chunks(size_t(assignment.numChunks())) {
    if (work)
      work->assign(chunks.size(), {});
    ops = opSeconds(graph, assignment, derivation, devices, !step.isZigzag, overlap, work, shares);
  }

  std::vector<StageSeconds> run() {
    for (size_t op = 0; op < graph.ops.size(); ++op)
      addOp(op);
    addRestOfBlocks();
    addGathersAgain();
    addLogits();
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      if (graph.parameters[p].gradient >= 0)
        addUpdate(p);
    addUpdateLaunches();
    takeCommunication();
    addMessages();
    addResidualCopies();
    for (size_t chunk = 0; work && chunk < chunks.size(); ++chunk)
      (*work)[chunk].seconds = chunks[chunk];
    return std::move(chunks);
  }

private:
  /// Adds `seconds` of the work called `what`. `bytes`: of a copy.
  void add(size_t chunk, StagePart part, const char *what, double seconds, double bytes = 0) {
    chunks[chunk].*part += seconds;
    if (work && seconds > 0)
      (*work)[chunk].add(part, what, "", bytes, seconds);
  }

  size_t chunkOf(size_t op) const { return size_t(graph.ops[op].chunk); }
  const Cluster &clusterOf(size_t chunk) const {
    return devices.of(assignment.stageOf(int(chunk)));
  }

  /// Kernels, and collectives of an op; opSeconds() wrote the work of the latter.
  void addOp(size_t op) {
    const Phase phase = graph.ops[op].phase;
    const size_t chunk = chunkOf(op);
    const bool again = phase != Phase::Forward && step.isRecomputed(int(op));
    add(chunk, kernelPart(phase, again), name(graph.ops[op].kernelClass), ops.kernel[op]);
    add(chunk, launchPart(phase), "launches", ops.launch[op]);
    StageSeconds &of = chunks[chunk];
    if (phase == Phase::Forward) {
      of.operandsForward += ops.operands[op];
      of.gatherForward += ops.gather[op];
      of.firstGatherForward += ops.firstGather[op];
    } else if (phase == Phase::Weight) {
      of.operandsWeight += ops.operands[op];
      of.dataWeight += ops.gather[op] + ops.reduceMicro[op];
    } else {
      of.operandsBackward += ops.operands[op];
      of.gatherBackward += ops.gather[op];
      of.firstGatherBackward += ops.firstGather[op];
      of.reduceMicro += ops.reduceMicro[op];
      of.lastReduceMicro += ops.lastReduce[op];
    }
  }

  /// Returns, by chunk, the forward ops that an executor recomputes with their block and tbc does
  /// not: ops between recomputed ones, such as the last matmul of a block. Counts only blocks that
  /// recompute most of that part of forward. Example: of two layers, the first under "full" and the
  /// other under "selective", only the first counts.
  std::vector<MoreRecomputed> moreRecomputed() const {
    std::vector<int> first(chunks.size(), int(graph.ops.size())), last(chunks.size(), -1);
    std::vector<bool> isCloned(graph.ops.size());
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (const int source = step.cloneOf[op]; source >= 0) {
        const size_t chunk = chunkOf(op);
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
      const size_t chunk = chunkOf(op);
      if (graph.ops[op].phase != Phase::Forward || int(op) < first[chunk] || int(op) > last[chunk])
        continue;
      const int64_t block =
          std::upper_bound(begins.begin(), begins.end(), int(op)) - begins.begin();
      Block &here = blocks[{chunk, block}];
      const double device = ops.kernel[op] + ops.operands[op];
      if (isCloned[op]) {
        here.cloned += device;
      } else {
        here.others.device += device;
        here.others.launches += ops.launch[op];
      }
    }
    std::vector<MoreRecomputed> others(chunks.size());
    for (const auto &[key, block] : blocks)
      if (block.cloned >= block.others.device) {
        others[key.first].device += block.others.device;
        others[key.first].launches += block.others.launches;
      }
    return others;
  }

  /// Adds the forward ops that executors recompute with their block.
  void addRestOfBlocks() {
    const std::vector<MoreRecomputed> more = moreRecomputed();
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      if (more[chunk].device == 0 || !clusterOf(chunk).executor.recomputesBlocks)
        continue;
      add(chunk, &StageSeconds::recompute, "rest of blocks", more[chunk].device);
      add(chunk, &StageSeconds::launchBackward, "rest of blocks", more[chunk].launches);
    }
  }

  /// Adds the gathers of an executor that releases the parameters of recomputed ops before
  /// backward: each is gathered as often as in forward.
  void addGathersAgain() {
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      const size_t chunk = chunkOf(op);
      if (step.cloneOf[op] >= 0 && clusterOf(chunk).executor.gathersAgain)
        add(chunk, &StageSeconds::gatherBackward, "all_gather again",
            ops.gather[size_t(step.cloneOf[op])]);
    }
  }

  /// Adds the passes over the logits that an executor makes and tbc does not: casts to f32, its
  /// copies, the gradient. Half of them are in forward.
  void addLogits() {
    const Logits logits = logitsOf(graph, derivation);
    if (logits.op < 0)
      return;
    const size_t chunk = chunkOf(size_t(logits.op));
    const Cluster &cluster = clusterOf(chunk);
    const double bytes = cluster.executor.logitMovedBytes * double(logits.elements);
    if (bytes == 0)
      return;
    for (StagePart part : {&StageSeconds::forward, &StageSeconds::backward})
      add(chunk, part, "logits", updateSeconds(cluster, bytes, 0) / 2);
  }

  /// Adds the update of a parameter in each of its stages.
  void addUpdate(size_t index) {
    const GraphParameter &parameter = graph.parameters[index];
    const Sharding &state = derivation.state[index];
    const TensorLayout &layout = graph.values[size_t(parameter.value)].layout;
    const double owned = double(localBytes(layout, state)) / double(layout.elementBytes);
    const int64_t stateBytes = job.stateBytesPerElement(parameter);
    const Sharding matrices =
        matrixSharding(state, parameter.matrices.get(), int(layout.dims.size()));
    const std::vector<int64_t> whole = wholeStateBytes(parameter, layout, state);
    const double bytes = updateBytes(owned, stateBytes, layout.elementBytes,
                                     graph.values[size_t(parameter.gradient)].layout.elementBytes) +
                         totalsBytes(parameter, owned);
    const double copied = 2 * (owned * double(stateBytes + masterBytes(layout.elementBytes)) +
                               double(std::accumulate(whole.begin(), whole.end(), int64_t(0))));
    for (int stage : derivation.parameterStages[index]) {
      const size_t chunk = size_t(firstChunk[size_t(stage)]);
      const Cluster &cluster = devices.of(stage);
      add(chunk, &StageSeconds::updateStep, "optimizer", updateSeconds(cluster, bytes, 0), bytes);
      add(chunk, &StageSeconds::updateStep, "optimizer, on matrices",
          matrixSeconds(cluster, parameter, matrices));
      if (assignment.offloadsStates)
        add(chunk, &StageSeconds::hostStep, "copy of optimizer state",
            stateCopySeconds(stateBytes, whole, cluster, owned, layout.elementBytes), copied);
    }
  }

  /// Adds the gaps before the launches of each stage's update, as they are emitted.
  void addUpdateLaunches() {
    int64_t tableBytes = 0; // of the stages so far, which are one Program
    for (int stage = 0; stage < assignment.numStages; ++stage) {
      const std::vector<LaunchedKernel> kernels =
          updateKernels(graph, assignment, derivation, overlap, job, stage);
      const Cluster &cluster = devices.of(stage);
      const size_t launches =
          cluster.joinsLaunches() ? joinLaunches(kernels, tableBytes).size() : kernels.size();
      add(size_t(firstChunk[size_t(stage)]), &StageSeconds::updateStep, "optimizer, launches",
          updateSeconds(cluster, 0, double(launches)));
    }
  }

  /// Takes over the communication of stages and chunks; opSeconds() wrote its work.
  void takeCommunication() {
    for (size_t stage = 0; stage < size_t(assignment.numStages); ++stage) {
      StageSeconds &of = chunks[size_t(firstChunk[stage])];
      of.reduceStep = ops.reduceStep[stage];
      of.reduceLast = ops.reduceLast[stage];
      of.lastReduceStep = ops.lastReduceStep[stage];
      of.parameterStep = ops.parameterStep[stage];
    }
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      chunks[chunk].sendForward = ops.sendForward[chunk];
      chunks[chunk].sendBackward = ops.sendBackward[chunk];
    }
  }

  /// Adds the time for which the executor holds both ranks of a message between stages.
  void addMessages() {
    const int numChunks = assignment.numChunks();
    for (int chunk = 0; chunk < numChunks; ++chunk) {
      const int stage = assignment.stageOf(chunk);
      auto isElsewhere = [&](int other) {
        return other >= 0 && other < numChunks && assignment.stageOf(other) != stage;
      };
      const double seconds =
          messageSeconds(devices.of(stage), isElsewhere(chunk - 1), isElsewhere(chunk + 1));
      for (StagePart part : {&StageSeconds::messageForward, &StageSeconds::messageBackward})
        add(size_t(chunk), part, "messages", seconds);
    }
  }

  /// Residuals on the host are copied out once, and back once for each block that reads them.
  void addResidualCopies() {
    if (std::none_of(derivation.residuals.begin(), derivation.residuals.end(),
                     [](const Residual &residual) { return residual.isOnHost; }))
      return;
    for (const KeptSlot &slot : stepBuffers(graph, assignment, derivation).kept) {
      if (!slot.isOnHost)
        continue;
      const double bytes = double(slot.bytes);
      for (auto [chunk, phase] : slot.users)
        add(size_t(chunk), hostPart(phase), "copy of residuals",
            devices.of(slot.stage).hostCopySeconds(bytes), bytes);
    }
  }

  const PlannedStep &step;
  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  const Overlap &overlap;
  const Job &job;
  const StageDevices &devices;
  std::vector<ChunkSeconds> *work;
  const std::vector<int> firstChunk; // of each stage
  OpSeconds ops;
  std::vector<StageSeconds> chunks;
};

} // namespace

std::vector<StageSeconds> chunkSeconds(const PlannedStep &step, const Derivation &derivation,
                                       const Overlap &overlap, const Job &job,
                                       const StageDevices &devices, std::vector<ChunkSeconds> *work,
                                       const std::vector<KernelShare> *shares) {
  return ChunkTime(step, derivation, overlap, job, devices, work, shares).run();
}

} // namespace tbc::planner
