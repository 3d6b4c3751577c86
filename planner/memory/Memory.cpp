//===- Memory.cpp - Memory of every stage, line by line -------------------===//

#include "planner/memory/Memory.h"
#include "planner/memory/Buffers.h"
#include "planner/reshard/Fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

static const char *const workspaceLine = "kernel workspace";
static const char *const fp8Line = "fp8 operands";
static const char *const contextLine = "device context";
static const char *const marginLine = "allocator margin";

int64_t programBytes(const StageMemory &memory) {
  int64_t total = 0;
  for (const MemoryLine &line : memory.lines)
    if (line.name != workspaceLine && line.name != fp8Line && line.name != contextLine &&
        line.name != marginLine)
      total += line.bytes;
  return total;
}

std::pair<int64_t, int64_t> memoryInterval(const StageMemory &memory, const Cluster &cluster) {
  int64_t owned = programBytes(memory), total = memory.totalBytes();
  int64_t context = cluster.contextUncertaintyBytes;
  int64_t margin = int64_t(std::ceil(cluster.allocatorUncertainty * double(owned)));
  if (!cluster.executor.isOwn()) // its program is not known to the byte
    return {std::max<int64_t>(0, total - context - margin), total + context + margin};
  int64_t low = owned + std::max<int64_t>(0, cluster.contextBytes - context);
  low += std::max<int64_t>(0, total - owned - cluster.contextBytes - margin);
  return {low, total + context + margin};
}

Cluster atUpperEnd(const Cluster &cluster) {
  Cluster upper = cluster;
  upper.contextBytes += upper.contextUncertaintyBytes;
  upper.allocatorFraction += upper.allocatorUncertainty;
  upper.contextUncertaintyBytes = 0;
  upper.allocatorUncertainty = 0;
  for (Cluster &group : upper.groups)
    group = atUpperEnd(group);
  // A mixed cluster's own values are the least of its groups.
  for (size_t i = 0; i < upper.groups.size(); ++i) {
    const Cluster &group = upper.groups[i];
    upper.contextBytes =
        i == 0 ? group.contextBytes : std::min(upper.contextBytes, group.contextBytes);
    upper.allocatorFraction = i == 0 ? group.allocatorFraction
                                     : std::min(upper.allocatorFraction, group.allocatorFraction);
  }
  return upper;
}

static double aligned(int64_t bytes) { return double(memory::alignedBytes(bytes)); }

/// Returns the bytes of the states of a parameter, without the master copy: moments of the elements
/// of its shard, and states of whole matrices. Each is a buffer of its own.
static double stateBytes(const Job &job, const GraphParameter &parameter,
                         const TensorLayout &layout, const Sharding &state) {
  constexpr int64_t bytesPerMoment = 4;
  const int64_t owned = localBytes(layout, state) / layout.elementBytes;
  const int64_t numMoments = job.stateBytesPerElement(parameter) / bytesPerMoment;
  double bytes = double(numMoments) * aligned(owned * bytesPerMoment);
  for (int64_t whole : wholeStateBytes(parameter, layout, state))
    bytes += aligned(whole);
  return bytes;
}

namespace {

using KindBytes = std::array<double, numBufferKinds>;

double total(const KindBytes &bytes) { return bytes[0] + bytes[1] + bytes[2]; }

/// Returns the live bytes at each instruction of a block, by kind of buffer.
std::vector<KindBytes> liveAt(const BlockBuffers &block) {
  std::vector<KindBytes> live(block.opOf.size() + 1, KindBytes{});
  for (size_t b = 0; b < block.lifetimes.size(); ++b) {
    const memory::Lifetime &lifetime = block.lifetimes[b];
    double bytes = aligned(lifetime.bytes);
    live[size_t(lifetime.first)][size_t(block.kinds[b])] += bytes;
    live[size_t(lifetime.last) + 1][size_t(block.kinds[b])] -= bytes;
  }
  for (size_t i = 1; i < live.size(); ++i)
    for (size_t kind = 0; kind < numBufferKinds; ++kind)
      live[i][kind] += live[i - 1][kind];
  live.pop_back();
  return live;
}

} // namespace

LiveBytes liveBytes(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
                    const Overlap &overlap) {
  std::vector<KindBytes> most(graph.ops.size(), KindBytes{});
  StepBuffers buffers = stepBuffers(graph, assignment, derivation, overlap);
  auto add = [&](const BlockBuffers &block) {
    std::vector<KindBytes> live = liveAt(block);
    auto first = std::find_if(block.opOf.begin(), block.opOf.end(), [](int op) { return op >= 0; });
    if (first == block.opOf.end())
      return;
    for (size_t i = 0; i < live.size(); ++i) {
      KindBytes &best = most[size_t(block.opOf[i] < 0 ? *first : block.opOf[i])];
      if (total(live[i]) > total(best))
        best = live[i];
    }
  };
  for (const auto &[key, block] : buffers.blocks)
    add(block);
  if (buffers.lastBackward)
    add(*buffers.lastBackward);
  LiveBytes result;
  for (const KindBytes &bytes : most) {
    result.transients.push_back(bytes[size_t(BufferKind::Transient)]);
    result.gathered.push_back(bytes[size_t(BufferKind::Gathered)]);
    result.buffers.push_back(bytes[size_t(BufferKind::Collective)]);
  }
  return result;
}

int64_t workspaceBytes(const Graph &graph, int op, const OpStrategy &strategy,
                       const Cluster &cluster) {
  const WorkspaceFn workspace = graph.ops[size_t(op)].workspace;
  if (!workspace || !cluster.hasKernelWorkspace || !cluster.executor.isOwn())
    return 0;
  return workspace(localOperandShapes(graph, op, strategy));
}

int64_t fp8Bytes(const Graph &graph, int op, const OpStrategy &strategy, const Cluster &cluster) {
  return cluster.executor.isOwn() && isInFp8(graph, op, strategy)
             ? fp8OperandBytes(graph, op, strategy)
             : 0;
}

Logits logitsOf(const Graph &graph, const Derivation &derivation) {
  Logits logits;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const int operand = graph.ops[op].logitsOperand;
    if (operand < 0 || graph.ops[op].phase != Phase::Forward)
      continue;
    const TensorLayout &layout =
        graph.values[size_t(graph.ops[op].operands[size_t(operand)])].layout;
    const int64_t bytes = localBytes(layout, derivation.operands[op][size_t(operand)].sharding);
    if (bytes / layout.elementBytes > logits.elements)
      logits = {int(op), bytes / layout.elementBytes, layout.elementBytes};
  }
  return logits;
}

std::vector<StaticBytes> staticBytes(const Graph &graph, const Assignment &assignment,
                                     const Derivation &derivation, const Job &job) {
  std::vector<StaticBytes> stages(assignment.numStages);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    double stored = aligned(localBytes(layout, derivation.stored[p]));
    int64_t owned = localBytes(layout, derivation.state[p]) / layout.elementBytes;
    for (int stage : derivation.parameterStages[p]) {
      stages[stage].parameters += stored;
      if (parameter.gradient < 0)
        continue; // frozen: neither gradient nor state
      if (assignment.parameterPlans[p].zero == 3 && masterBytes(layout.elementBytes) > 0)
        stages[stage].castShards += stored;
      const TensorLayout &gradient = graph.values[parameter.gradient].layout;
      for (const GradientParts::Part &part : derivation.gradientParts[p].parts)
        if (assignment.stageOf(part.chunk) == stage) {
          stages[stage].gradients += aligned(localBytes(gradient, derivation.gradient[p]));
          break;
        }
      if (derivation.isReducedLast[p] && !derivation.isReducedInPlace(int(p)))
        stages[stage].gradients += aligned(localBytes(gradient, derivation.state[p]));
      bool onHost = assignment.offloadsStates;
      (onHost ? stages[stage].hostMaster : stages[stage].master) +=
          aligned(owned * masterBytes(layout.elementBytes));
      (onHost ? stages[stage].hostState : stages[stage].state) +=
          stateBytes(job, parameter, layout, derivation.state[p]);
    }
  }
  // The scalars kept by the update, of at most 8 bytes each, and the learning rate.
  constexpr int64_t mostScalarBytes = 8;
  int64_t numScalars = (graph.stepStateBytes + mostScalarBytes - 1) / mostScalarBytes + 1;
  for (StaticBytes &stage : stages)
    stage.state += double(numScalars) * aligned(mostScalarBytes);
  for (int total : {graph.loss, graph.count}) {
    if (total < 0)
      continue;
    int producer = graph.values[total].producer;
    stages[producer < 0 ? 0 : assignment.stageOf(graph.ops[producer].chunk)].state +=
        aligned(localBytes(graph.values[total].layout, derivation.home[total]));
  }
  for (size_t value = 0; value < graph.values.size(); ++value) {
    const GraphValue &graphValue = graph.values[value];
    if (graphValue.producer >= 0 || graphValue.role == ValueRole::Parameter ||
        graphValue.role == ValueRole::OptimizerState)
      continue;
    std::set<int> users;
    for (int user : graphValue.users)
      users.insert(assignment.stageOf(graph.ops[user].chunk));
    if (users.empty() && graphValue.role == ValueRole::State)
      users.insert(0); // still part of the model
    double bytes = aligned(localBytes(graphValue.layout, derivation.home[value]));
    for (int stage : users)
      (graphValue.role == ValueRole::State ? stages[stage].modelState : stages[stage].inputs) +=
          bytes;
  }
  return stages;
}

namespace {

schedule::Action::Kind kindOf(Phase phase) {
  return phase == Phase::Forward    ? schedule::Action::Kind::Forward
         : phase == Phase::Backward ? schedule::Action::Kind::Backward
                                    : schedule::Action::Kind::Weight;
}

/// Bytes kept by a stage for all micro-batches in flight.
struct KeptBytes {
  double inputs = 0, residuals = 0, gathered = 0;
  double all() const { return inputs + residuals + gathered; }
};

/// Returns the kept bytes on the device, or on the host if `onHost`. As in the memory plan, slots
/// used by the same blocks form a frame, and the frames are laid out.
KeptBytes keptBytes(const std::vector<KeptSlot> &slots, bool onHost, int stage,
                    const std::vector<int> &chunks, const std::vector<schedule::Action> &actions) {
  std::map<std::set<BlockKey>, std::array<double, 3>> frames; // bytes by KeptSlot::Kind
  for (const KeptSlot &slot : slots)
    if (slot.stage == stage && slot.isOnHost == onHost)
      frames[slot.users][size_t(slot.kind)] += aligned(slot.bytes);
  int64_t microBatches = 0;
  for (const schedule::Action &action : actions)
    microBatches = std::max(microBatches, action.microBatch + 1);
  std::vector<std::vector<memory::Lifetime>> instances;
  for (const auto &[users, bytes] : frames) {
    std::set<std::pair<int, schedule::Action::Kind>> blocks;
    for (const auto &[chunk, phase] : users)
      blocks.insert(
          {int(std::find(chunks.begin(), chunks.end(), chunk) - chunks.begin()), kindOf(phase)});
    auto &lives = instances.emplace_back(
        size_t(microBatches),
        memory::Lifetime{int64_t(bytes[0] + bytes[1] + bytes[2]), int64_t(actions.size()), -1});
    for (size_t a = 0; a < actions.size(); ++a) {
      if (!blocks.count({actions[a].chunk, actions[a].kind}))
        continue;
      memory::Lifetime &life = lives[size_t(actions[a].microBatch)];
      life.first = std::min(life.first, int64_t(a));
      life.last = std::max(life.last, int64_t(a));
    }
  }
  memory::FrameLayout layout = memory::layOutFrames(instances);
  // Divide by the shares of their rings; overlaps between frames reduce all in proportion.
  std::array<double, 3> rings{};
  size_t f = 0;
  for (const auto &[users, bytes] : frames) {
    for (size_t kind = 0; kind < rings.size(); ++kind)
      rings[kind] += bytes[kind] * double(layout.offsets[f].size());
    ++f;
  }
  double sum = rings[0] + rings[1] + rings[2];
  double share = sum > 0 ? double(layout.bytes) / sum : 0;
  return {rings[size_t(KeptSlot::Kind::Input)] * share,
          rings[size_t(KeptSlot::Kind::Residual)] * share,
          rings[size_t(KeptSlot::Kind::Gathered)] * share};
}

/// The bytes of layouts. Stages with the same layers have blocks with the same lifetimes, and a
/// layout is the most expensive part of their memory.
class LayoutBytes {
public:
  /// Returns the bytes of assignOffsets(lifetimes).
  double of(const std::vector<memory::Lifetime> &lifetimes) {
    std::vector<std::array<int64_t, 3>> key;
    key.reserve(lifetimes.size());
    for (const memory::Lifetime &lifetime : lifetimes)
      key.push_back({lifetime.bytes, lifetime.first, lifetime.last});
    auto [found, isNew] = known.try_emplace(std::move(key));
    if (isNew)
      found->second = double(memory::assignOffsets(lifetimes).bytes);
    return found->second;
  }

private:
  std::map<std::vector<std::array<int64_t, 3>>, double> known;
};

/// Returns the peak of the values of a stage's blocks, by kind of buffer. The blocks share this
/// memory.
KindBytes blockPeak(const StepBuffers &buffers, const std::vector<int> &chunks,
                    LayoutBytes &layouts) {
  KindBytes peak{};
  auto add = [&](const BlockBuffers &block) {
    KindBytes most{};
    for (const KindBytes &live : liveAt(block))
      if (total(live) > total(most))
        most = live;
    most[size_t(BufferKind::Transient)] += layouts.of(block.lifetimes) - total(most); // holes
    if (total(most) > total(peak))
      peak = most;
  };
  auto isHere = [&](int chunk) {
    return std::find(chunks.begin(), chunks.end(), chunk) != chunks.end();
  };
  for (const auto &[key, block] : buffers.blocks)
    if (isHere(key.first))
      add(block);
  if (buffers.lastBackward && isHere(0))
    add(*buffers.lastBackward);
  return peak;
}

/// What the executor of a stage keeps beside tbc's program.
struct ExecutorBytes {
  double states = 0;    // more of the gradients, and buffers of parameters
  double gradients = 0; // of one micro-batch, complete when its residuals are free
  double atEnd = 0;     // buffers after the last backward, when all micro-batch data is free
  double logits = 0;    // live at once around the loss
  double ownLogits = 0; // of these, among tbc's residuals
  double queued = 0;    // inputs of collectives that the device has not run yet
};

/// Whether a matmul that may be in fp8 reads `value`, perhaps through views.
bool isReadInFp8(const Graph &graph, int value) {
  return std::any_of(graph.values[size_t(value)].users.begin(),
                     graph.values[size_t(value)].users.end(), [&](int user) {
                       const GraphOp &op = graph.ops[size_t(user)];
                       return op.fp8.isRounded || (op.kernelClass == KernelClass::None &&
                                                   isReadInFp8(graph, op.results[0]));
                     });
}

/// Sets the bytes of parameters and gradients that the executor of a stage keeps beside tbc's
/// program.
void addExecutorStates(const Graph &graph, const Assignment &assignment,
                       const Derivation &derivation, const StageDevices &devices, int stage,
                       const StaticBytes &fixed, ExecutorBytes &bytes) {
  const Executor &executor = devices.of(stage).executor;
  // Of the stage's trained parameters, as gathered.
  double elements = 0, gatheredAtEnd = 0, inFp8 = 0;
  bool isShared = false;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const std::vector<int> &stages = derivation.parameterStages[p];
    if (graph.parameters[p].gradient < 0 ||
        std::find(stages.begin(), stages.end(), stage) == stages.end())
      continue;
    const TensorLayout &layout = graph.values[graph.parameters[p].value].layout;
    const double own =
        double(localBytes(layout, derivation.home[size_t(graph.parameters[p].value)])) /
        double(layout.elementBytes);
    elements += own;
    inFp8 += isReadInFp8(graph, graph.parameters[p].value) ? own : 0;
    const int zero = assignment.parameterPlans[p].zero;
    gatheredAtEnd += zero == 1 || zero == 2 ? own : 0;
  }
  for (Divides divides : {Divides::Samples, Divides::Sequence})
    for (const std::string &name : mesh::axisNames(divides))
      for (const MeshAxis &axis : assignment.mesh.axes)
        isShared |= axis.name == name && axis.size > 1;
  bytes.states = std::max(0.0, executor.gradientBytes * elements - fixed.gradients);
  bytes.gradients = executor.parameterBytes * elements;
  bytes.states += executor.fp8.weightBytes * inFp8;
  if (isShared) {
    bytes.states += executor.dataParallelBytes * (elements - gatheredAtEnd);
    bytes.atEnd = executor.dataParallelBytes * gatheredAtEnd;
  }
}

/// Memory of a stage's kernels beside the memory plan, each of the largest of them.
struct KernelBytes {
  int64_t workspace = 0, fp8 = 0;
};

KernelBytes largestOfKernels(const Graph &graph, const Assignment &assignment,
                             const Cluster &cluster, const std::vector<int> &chunks) {
  KernelBytes most;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const GraphOp &of = graph.ops[op];
    if ((!of.workspace && !of.fp8.isRounded) ||
        std::find(chunks.begin(), chunks.end(), of.chunk) == chunks.end())
      continue;
    const OpStrategy &strategy = assignment.strategies[op];
    most.workspace = std::max(most.workspace, workspaceBytes(graph, int(op), strategy, cluster));
    most.fp8 = std::max(most.fp8, fp8Bytes(graph, int(op), strategy, cluster));
  }
  return most;
}

/// Returns the bytes of the largest inputs of reduce_scatters between forward ops over tp, as many
/// as the executor queues; 0 in pipelines. A tensor that a collective reads on a stream of its own
/// is free once that has run, not once the host has freed it (torch.Tensor.record_stream).
/// Example: 32 layers with two of 0.5 GiB, of which 58 are queued, keep 29 GiB.
double queuedBytes(const Assignment &assignment, const Derivation &derivation,
                   const Executor &executor) {
  const int axis = assignment.mesh.axisIndex("tp");
  if (axis < 0 || assignment.numStages > 1 || executor.queuedScatters == 0)
    return 0;
  std::vector<double> inputs;
  for (const Reshard &reshard : derivation.reshards)
    if (reshard.where == Where::Operand && reshard.phase == Phase::Forward)
      for (const Collective &step : reshard.steps)
        if (step.kind == CollectiveKind::ReduceScatter && !step.axes.empty() &&
            step.axes.front().axis == axis)
          inputs.push_back(aligned(step.bytes));
  std::sort(inputs.begin(), inputs.end(), std::greater<>());
  inputs.resize(std::min(inputs.size(), size_t(executor.queuedScatters)));
  return std::accumulate(inputs.begin(), inputs.end(), 0.0);
}

/// Returns the bytes that the executor of `stage` keeps; zeros for tbc's own.
ExecutorBytes executorBytes(const Graph &graph, const Assignment &assignment,
                            const Derivation &derivation, const StageDevices &devices, int stage,
                            const StaticBytes &fixed) {
  ExecutorBytes bytes;
  const Executor &executor = devices.of(stage).executor;
  if (executor.isOwn())
    return bytes;
  addExecutorStates(graph, assignment, derivation, devices, stage, fixed, bytes);
  bytes.queued = queuedBytes(assignment, derivation, executor);
  const Logits logits = logitsOf(graph, derivation);
  if (logits.op < 0 || assignment.stageOf(graph.ops[size_t(logits.op)].chunk) != stage)
    return bytes;
  bytes.logits = executor.logitBytes * double(logits.elements);
  bytes.ownLogits = double(logits.elements * logits.elementBytes);
  return bytes;
}

/// Returns the largest number of blocks of `actions` that have run forward and not yet backward.
int64_t mostInFlight(const std::vector<schedule::Action> &actions) {
  int64_t now = 0, most = 1;
  for (const schedule::Action &action : actions) {
    now += action.kind == schedule::Action::Kind::Forward    ? 1
           : action.kind == schedule::Action::Kind::Backward ? -1
                                                             : 0;
    most = std::max(most, now);
  }
  return most;
}

/// Returns the bytes of `executor` beside `microBatches`, the bytes of all micro-batches in flight
/// (`inFlight`) with the peak of their blocks. The gradients of a micro-batch are complete when its
/// residuals are free, and buffers at the end when all are.
/// Example: 2 micro-batches of 10 GiB each and gradients of 12 GiB: 2 GiB more.
double besideMicroBatches(const ExecutorBytes &executor, double microBatches, double residuals,
                          int64_t inFlight) {
  const double free = residuals / double(inFlight) + (microBatches - residuals);
  const double gradients = std::max(0.0, executor.gradients - free);
  return std::max(gradients, executor.atEnd - microBatches);
}

/// The lines of one stage.
StageMemory linesOf(const Cluster &cluster, const StaticBytes &fixed, const KeptBytes &kept,
                    const KeptBytes &keptOnHost, const KindBytes &peak, double update,
                    const ExecutorBytes &executor, const KernelBytes &ofKernels, bool splitsTensors,
                    int64_t inFlight) {
  StageMemory memory;
  double owned = 0;
  auto add = [&](const char *name, double bytes) {
    memory.lines.push_back({name, int64_t(std::ceil(bytes))});
    owned += bytes;
  };
  add("parameters", fixed.parameters - (cluster.executor.storesWeights ? 0 : fixed.castShards));
  add("master weights", fixed.master);
  add("gradients", fixed.gradients * cluster.executor.gradientFactor());
  add("optimizer state", fixed.state);
  add("model state", fixed.modelState);
  add("inputs", kept.inputs);
  add("saved residuals", kept.residuals);
  // Micro-batch data is free when the update runs.
  add("transients",
      peak[size_t(BufferKind::Transient)] + std::max(0.0, update - kept.all() - total(peak)));
  add("gathered parameters", peak[size_t(BufferKind::Gathered)] + kept.gathered);
  add("collective buffers", peak[size_t(BufferKind::Collective)]);
  if (!cluster.executor.isOwn()) {
    const double logits = std::min(executor.ownLogits, kept.residuals);
    const double factor = splitsTensors && cluster.executor.splitResidualFactor > 0
                              ? cluster.executor.splitResidualFactor
                              : cluster.executor.residualFactor;
    const double more = (factor - 1) * (kept.residuals - logits);
    const double states =
        executor.states + besideMicroBatches(executor, kept.all() + more + total(peak),
                                             kept.residuals + more, inFlight);
    // Transients elsewhere in the step take the same memory.
    const double moreLogits =
        std::max(0.0, executor.logits - logits - peak[size_t(BufferKind::Transient)]);
    // An allocator without free memory waits for the device (release_cached_blocks of PyTorch).
    const double room =
        double(cluster.usableBytes() - cluster.contextBytes) / (1 + cluster.allocatorFraction) -
        owned - states - more - moreLogits;
    add("executor states", states);
    add("executor residuals", more + std::clamp(room, 0.0, executor.queued));
    add("executor logits", moreLogits);
  }
  if (ofKernels.workspace > 0)
    memory.lines.push_back({workspaceLine, ofKernels.workspace});
  if (ofKernels.fp8 > 0)
    memory.lines.push_back({fp8Line, ofKernels.fp8});
  memory.lines.push_back({contextLine, cluster.contextBytes});
  memory.lines.push_back({marginLine, int64_t(std::ceil(cluster.allocatorFraction * owned))});
  for (auto [name, bytes] : {std::pair("master weights", fixed.hostMaster),
                             std::pair("optimizer state", fixed.hostState),
                             std::pair("saved residuals", keptOnHost.all())})
    if (bytes > 0)
      memory.host.push_back({name, int64_t(std::ceil(bytes))});
  return memory;
}

} // namespace

std::vector<StageMemory> stageMemory(const Graph &graph, const Assignment &assignment,
                                     const Derivation &derivation, const Overlap &overlap,
                                     const Job &job, const StageDevices &devices,
                                     const StageActions &actions, const BlockKernels *kernels) {
  StepBuffers buffers = stepBuffers(graph, assignment, derivation, overlap, kernels);
  std::vector<StaticBytes> fixed = staticBytes(graph, assignment, derivation, job);
  schedule::Pipeline pipeline{assignment.numStages, assignment.chunkStage};
  if (assignment.chunkStage.empty())
    pipeline = schedule::Pipeline::plain(assignment.numStages);
  std::vector<StageMemory> stages;
  LayoutBytes layouts;
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    std::vector<int> chunks = pipeline.chunksOf(stage);
    BlockBuffers update = updateBuffers(graph, assignment, derivation, overlap, job, stage);
    KeptBytes kept = keptBytes(buffers.kept, /*onHost=*/false, stage, chunks, actions[stage]);
    KindBytes peak = blockPeak(buffers, chunks, layouts);
    double updateBytes = layouts.of(update.lifetimes);
    stages.push_back(linesOf(
        devices.of(stage), fixed[stage], kept,
        keptBytes(buffers.kept, /*onHost=*/true, stage, chunks, actions[stage]), peak, updateBytes,
        executorBytes(graph, assignment, derivation, devices, stage, fixed[stage]),
        largestOfKernels(graph, assignment, devices.of(stage), chunks),
        assignment.mesh.axisIndex("tp") >= 0, mostInFlight(actions[stage])));
  }
  return stages;
}

} // namespace tbc::planner
