//===- Cost.cpp - Seconds of an op and of a collective --------------------===//

#include "planner/cost/Cost.h"
#include "planner/graph/Values.h"
#include "planner/reshard/Fp8.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace tbc::reshard;

namespace tbc::planner {

bool isFused(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  if (producer < 0 || graph.ops[producer].generator ||
      graph.ops[producer].kernelClass != KernelClass::Elementwise)
    return false;
  for (;;) {
    const std::vector<int> &users = graph.values[value].users;
    if (users.size() != 1)
      return false;
    const GraphOp &user = graph.ops[users[0]];
    if (user.phase != graph.ops[producer].phase)
      return false;
    if (!isView(user))
      return readsRegisters(user.kernelClass);
    value = user.results[0];
  }
}

/// Returns the bytes read for operand `value`: for a view, at most those of its source; 0 for a
/// fused producer or a constant-derived value.
static double readBytes(const Graph &graph, int value) {
  double bytes = fullBytes(graph, value);
  for (;;) {
    int producer = graph.values[value].producer;
    if (producer < 0)
      return bytes;
    const GraphOp &op = graph.ops[producer];
    if (op.generator)
      return 0;
    if (!isView(op))
      return isFused(graph, value) ? 0 : bytes;
    value = op.operands[0];
    bytes = std::min(bytes, fullBytes(graph, value));
  }
}

KernelShare frameworkShare(const Graph &graph, const GraphOp &op) {
  KernelShare share;
  share.isFused = op.results.size() == 1 && isFused(graph, op.results[0]);
  for (int value : op.operands)
    share.readBytes.push_back(readBytes(graph, value));
  for (int value : op.results)
    share.writtenBytes.push_back(share.isFused ? 0 : fullBytes(graph, value));
  return share;
}

/// Returns the launches of a kernel on one rank.
static double launchesOf(const Graph &graph, int op, const OpStrategy &strategy,
                         const KernelShare &share) {
  return share.own.launchesOf
             ? double(share.own.launchesOf(localOperandShapes(graph, op, strategy)))
             : share.own.launches;
}

std::vector<double> flopsOnce(const Graph &graph, const std::vector<int> &cloneOf) {
  std::vector<double> flops, ofGradients(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp &op = graph.ops[i];
    flops.push_back(op.flops);
    if (op.phase == Phase::Forward || op.forwardOp < 0 || (!cloneOf.empty() && cloneOf[i] >= 0))
      continue;
    const GraphOp &forward = graph.ops[size_t(op.forwardOp)];
    if (!isMatrixClass(forward.kernelClass) || !isMatrixClass(op.kernelClass))
      continue;
    double &others = ofGradients[size_t(op.forwardOp)];
    flops.back() = std::min(op.flops, 2 * forward.flops - others);
    others += flops.back();
  }
  return flops;
}

LocalWork localWork(const Graph &graph, int opIndex, const OpStrategy &strategy) {
  return localWork(graph, opIndex, strategy, frameworkShare(graph, graph.ops[opIndex]));
}

/// Divides the bytes of each operand and result of `op` by the parts of `strategy`.
static void divideBytes(const GraphOp &op, const OpStrategy &strategy,
                        std::vector<double> &ofOperands, std::vector<double> &ofResults) {
  for (const auto &[loop, axes] : strategy.loopAxes) {
    const double parts = double(groupSize(axes));
    for (const TensorDim &place : op.loops[loop].operandDims)
      ofOperands[place.tensor] /= parts;
    for (const TensorDim &place : op.loops[loop].resultDims)
      ofResults[place.tensor] /= parts;
  }
}

LocalWork localWork(const Graph &graph, int op, const OpStrategy &strategy,
                    const KernelShare &share) {
  return isInFp8(graph, op, strategy) ? workInFp8(graph, op, strategy, share)
                                      : workInOwnTypes(graph, op, strategy, share);
}

LocalWork workInFp8(const Graph &graph, int op, const OpStrategy &strategy,
                    const KernelShare &share) {
  // The matmul reads a byte for each element. Whoever rounds reads the operands as they are.
  KernelShare rounded = share;
  const std::vector<int> &operands = graph.ops[op].operands;
  for (size_t k = 0; k < operands.size(); ++k)
    rounded.readBytes[k] = double(graph.values[operands[k]].layout.numElements());
  LocalWork work = workInOwnTypes(graph, op, strategy, rounded);
  work.dtype = DType::F8E4M3;
  if (share.roundingBytes.empty()) // the matmul alone is asked for
    return work;
  std::vector<double> none(graph.ops[op].results.size());
  divideBytes(graph.ops[op], strategy, rounded.roundingBytes, none);
  for (size_t k = 0; k < operands.size(); ++k) {
    work.roundingBytes += rounded.roundingBytes[k];
    work.roundingLaunches += share.roundingLaunches[k];
  }
  return work;
}

LocalWork workInOwnTypes(const Graph &graph, int opIndex, const OpStrategy &strategy,
                         const KernelShare &share) {
  const GraphOp &op = graph.ops[opIndex];
  LocalWork work;
  work.flops = op.flops * share.own.work;
  work.launches = launchesOf(graph, opIndex, strategy, share);
  work.isFused = share.isFused;
  work.isCopy = share.isCopy;
  std::vector<double> operandBytes = share.readBytes, resultBytes = share.writtenBytes;
  double most = 0; // elements of a float operand
  for (int value : op.operands) {
    const TensorLayout &layout = graph.values[value].layout;
    double elements = double(layout.numElements());
    const DType dtype = graph.values[value].dtype;
    if (!isFloat(dtype) || elements < most)
      continue;
    if (elements > most || byteWidth(dtype) > byteWidth(work.dtype))
      work.dtype = dtype;
    most = elements;
  }

  // Loops of kind Fixed do not tell if they are summed, so the depth comes from the FLOPs.
  if (op.kernelClass == KernelClass::Matmul && !op.results.empty())
    work.depth = op.flops / (2 * double(graph.values[op.results[0]].layout.numElements()));
  for (const auto &[loop, axes] : strategy.loopAxes) {
    double parts = double(groupSize(axes));
    if (op.loops[loop].kind == LoopKind::Reduction)
      work.depth /= parts;
    // Each expert has its rows; the fullest rank sets the time.
    const bool isRouted = op.routing.copies > 0 && loop == op.routing.experts;
    work.flops /= isRouted ? op.routing.divisor(groupSize(axes)) : parts;
  }
  divideBytes(op, strategy, operandBytes, resultBytes);
  double results = 0;
  for (double bytes : resultBytes)
    results += bytes;
  const bool isPart = readsPart(op.kernelClass) || share.isCopy;
  for (double bytes : operandBytes)
    work.bytes += isPart ? std::min(bytes, results) : bytes;
  work.bytes += results;
  return work;
}

KernelClass ratedClass(KernelClass kernelClass, DType dtype) {
  const bool isProduct =
      kernelClass == KernelClass::Matmul || kernelClass == KernelClass::GroupedMatmul;
  return isProduct && dtype == DType::F8E4M3 ? KernelClass::Fp8Matmul : kernelClass;
}

double roundingSeconds(const Cluster &cluster, const LocalWork &work) {
  if (work.roundingLaunches == 0)
    return 0;
  const double rate =
      cluster.memoryBytesPerSecond * cluster.kernel(KernelClass::Rounding).memoryFraction;
  return std::max(work.roundingLaunches * cluster.floorSeconds,
                  work.roundingLaunches * cluster.launchSeconds + work.roundingBytes / rate);
}

double arithmeticSeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work) {
  const KernelEfficiency &kernel = cluster.kernel(ratedClass(kernelClass, work.dtype));
  double peak = cluster.peakFlops(kernelClass, work.dtype) * kernel.flopsFraction;
  double executed = 1 - (1 - kernel.executedFraction) / work.partsInOrder;
  double fill = work.depth > 0 ? 1 + kernel.halfDepth / work.depth : 1;
  return executed * work.flops * fill / peak;
}

BusySeconds busySeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work) {
  const KernelEfficiency &kernel = cluster.kernel(ratedClass(kernelClass, work.dtype));
  return {work.flops > 0 ? kernel.rampSeconds + arithmeticSeconds(cluster, kernelClass, work) : 0,
          (work.bytes + kernel.bytesPerFlop * work.flops) /
              (cluster.memoryBytesPerSecond * kernel.memoryFraction)};
}

double kernelSeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work) {
  if (kernelClass == KernelClass::None && !work.isCopy)
    return 0;
  const auto [arithmetic, movement] =
      busySeconds(cluster, work.isCopy ? KernelClass::Elementwise : kernelClass, work);
  const double busy = std::max(arithmetic, movement);
  const double rounding = roundingSeconds(cluster, work);
  return rounding + (work.isFused ? busy
                                  : std::max(cluster.floorSeconds,
                                             work.launches * cluster.launchSeconds + busy));
}

/// Returns the number of parts into which `strategy` splits the sequence of op `op`.
static double sequenceParts(const Graph &graph, int op, const OpStrategy &strategy) {
  double parts = 1;
  for (const auto &[loop, axes] : strategy.loopAxes)
    if (graph.ops[op].loops[loop].factor == graph.sequenceFactor)
      parts = std::max(parts, double(groupSize(axes)));
  return parts;
}

double opKernelSeconds(const Cluster &cluster, const Graph &graph, int op,
                       const OpStrategy &strategy, const KernelShare &share, bool isInOrder) {
  LocalWork work = localWork(graph, op, strategy, share);
  if (isInOrder)
    work.partsInOrder = sequenceParts(graph, op, strategy);
  return double(streamedBlocks(graph, op, strategy)) *
         kernelSeconds(cluster, graph.ops[op].kernelClass, work);
}

double opLaunches(const Graph &graph, int op, const OpStrategy &strategy,
                  const KernelShare &share) {
  const bool isLaunched =
      (graph.ops[op].kernelClass != KernelClass::None || share.isCopy) && !share.isFused;
  double launches = isLaunched ? launchesOf(graph, op, strategy, share) : 0;
  if (isInFp8(graph, op, strategy))
    launches =
        std::accumulate(share.roundingLaunches.begin(), share.roundingLaunches.end(), launches);
  return launches * double(streamedBlocks(graph, op, strategy));
}

double updateSeconds(const Cluster &cluster, double bytes, double launches) {
  const KernelEfficiency &kernel = cluster.kernel(KernelClass::Elementwise);
  return cluster.launchSeconds * launches +
         bytes / (cluster.memoryBytesPerSecond * kernel.memoryFraction);
}

double executorSeconds(const Cluster &cluster, CollectiveKind kind, double count, double ranks,
                       double bytes) {
  const Executor &executor = cluster.executor;
  const bool isGather = kind == CollectiveKind::AllGather;
  if (!isGather && kind != CollectiveKind::ReduceScatter)
    return 0;
  const double moved = isGather ? executor.gatherMoved : executor.scatterMoved;
  return executor.gatherRankSeconds * count * ranks + updateSeconds(cluster, moved * bytes, 0);
}

double messageSeconds(const Cluster &cluster, bool hasPrevious, bool hasNext) {
  return cluster.executor.messageSeconds * (double(hasPrevious) + double(hasNext));
}

namespace {

/// Ranks at equal distances, or copies of a group of ranks.
struct RankDigit {
  int64_t size = 1, step = 1;
};

} // namespace

/// Returns the ranks of `digits`, relative to the first one, ascending. The digits are ascending by
/// step, and a step is not shorter than all ranks of the digits before.
static std::vector<int64_t> ranksOf(const std::vector<RankDigit> &digits) {
  std::vector<int64_t> ranks{0};
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    std::vector<int64_t> next;
    for (int64_t rank : ranks)
      for (int64_t i = 0; i < digit->size; ++i)
        next.push_back(rank + i * digit->step);
    ranks = std::move(next);
  }
  return ranks;
}

/// Sorts `digits` by step, and joins those at equal distances.
static void normalize(std::vector<RankDigit> &digits) {
  std::sort(digits.begin(), digits.end(),
            [](const RankDigit &a, const RankDigit &b) { return a.step < b.step; });
  std::vector<RankDigit> joined;
  for (const RankDigit &digit : digits)
    if (!joined.empty() && joined.back().step * joined.back().size == digit.step)
      joined.back().size *= digit.size;
    else if (digit.size > 1)
      joined.push_back(digit);
  digits = std::move(joined);
}

/// Returns the nodes of the group of `members` that begins at rank `first`, and its fewest ranks on
/// one of them.
static std::pair<int64_t, int64_t> nodesOf(int64_t first, const std::vector<int64_t> &members,
                                           int64_t devicesPerNode) {
  int64_t nodes = 0, fewest = int64_t(members.size()), run = 0, node = -1;
  for (int64_t member : members) {
    int64_t at = (first + member) / devicesPerNode;
    if (at != node) {
      if (nodes > 0)
        fewest = std::min(fewest, run);
      node = at;
      run = 0;
      ++nodes;
    }
    ++run;
  }
  return {nodes, std::min(fewest, run)};
}

/// Removes `ranks` steps of a digit, and their distance from those of larger steps: `digits` are
/// ascending by step.
static void shorten(std::vector<RankDigit> &digits, size_t digit, int64_t ranks) {
  digits[digit].size -= ranks;
  for (size_t outer = digit + 1; outer < digits.size(); ++outer)
    digits[outer].step -= ranks * digits[digit].step;
}

/// A large group looks alike in its middle: `period` steps of a digit span whole nodes. So its
/// longest digit is shortened by a number of periods, which all have as many nodes. Example: 2^20
/// ranks at a distance of 1 on nodes of 8 have 8 ranks on each of 2^17 nodes, as 24 ranks have on
/// each of 3.
GroupShape NetworkCost::computeShape(const std::vector<AxisRef> &axes) const {
  std::vector<int64_t> stride(mesh.axes.size(), 1);
  for (size_t axis = mesh.axes.size(); axis-- > 1;)
    stride[axis - 1] = stride[axis] * mesh.axes[axis].size;

  std::vector<RankDigit> digits;
  GroupShape shape;
  for (const AxisRef &ref : axes) {
    int64_t rest = mesh.axes[ref.axis].size / (ref.pre * ref.size);
    digits.push_back({ref.size, rest * stride[ref.axis]});
    shape.size *= ref.size;
  }
  shape.perNode = shape.size;
  normalize(digits);

  constexpr int64_t mostRanks = 4096;
  const int64_t perNode = cluster.devicesPerNode;
  std::vector<int64_t> longer; // by one period
  int64_t periods = 0;
  if (shape.size > mostRanks) {
    const auto longest =
        std::max_element(digits.begin(), digits.end(),
                         [](const RankDigit &a, const RankDigit &b) { return a.size < b.size; });
    // The divisor is at most perNode; the maximum shows the analyzer of clang-tidy that it is.
    const int64_t period = std::max<int64_t>(1, perNode / std::gcd(longest->step, perNode));
    periods = std::max<int64_t>(0, (longest->size - 3 * perNode) / period);
    const size_t digit = size_t(longest - digits.begin());
    if (periods > 0) {
      shorten(digits, digit, (periods - 1) * period);
      longer = ranksOf(digits);
      shorten(digits, digit, period);
    }
  }
  const std::vector<int64_t> members = ranksOf(digits);
  for (const auto &[offset, first] : firstRanks(axes, stride)) {
    auto [nodes, fewest] = nodesOf(first, members, perNode);
    if (periods > 0)
      nodes += periods * (nodesOf(first, longer, perNode).first - nodes);
    shape.nodes = std::max(shape.nodes, nodes);
    shape.perNode = std::min(shape.perNode, fewest);
  }
  return shape;
}

/// Returns, for each position within a node of a group's first rank along `axes`, one such rank.
/// Every group is a shift of the first one, and shifts by whole nodes are equivalent. First ranks
/// are sums of the mesh digits not in `axes`. So their positions are found digit by digit, each
/// with at most devicesPerNode steps.
std::map<int64_t, int64_t> NetworkCost::firstRanks(const std::vector<AxisRef> &axes,
                                                   const std::vector<int64_t> &stride) const {
  std::map<int64_t, int64_t> firsts{{0, 0}};
  auto addDigit = [&](int64_t size, int64_t step) {
    std::map<int64_t, int64_t> next;
    for (const auto &[offset, first] : firsts)
      for (int64_t i = 0; i < std::min(size, cluster.devicesPerNode); ++i)
        next.try_emplace((offset + i * step) % cluster.devicesPerNode, first + i * step);
    firsts = std::move(next);
  };
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    std::map<int64_t, int64_t> taken; // sizes of the parts in `axes`, by `pre`
    for (const AxisRef &ref : axes)
      if (size_t(ref.axis) == axis)
        taken[ref.pre] = ref.size;
    int64_t before = 1, rest = mesh.axes[axis].size;
    for (const auto &[pre, size] : taken) {
      rest = mesh.axes[axis].size / pre;
      addDigit(pre / before, rest * stride[axis]);
      before = pre * size;
      rest = mesh.axes[axis].size / before;
    }
    addDigit(rest, stride[axis]);
  }
  return firsts;
}

double NetworkCost::launchFactor() const {
  const int tensorAxis = mesh.axisIndex("tp");
  if (cluster.executor.groupWait == 0 || pipelineAxis < 0 || tensorAxis < 0)
    return 1;
  std::vector<int> stages(static_cast<size_t>(mesh.axes[size_t(pipelineAxis)].size));
  std::iota(stages.begin(), stages.end(), 0);
  if (stageGroupShape(stages).nodes == 1)
    return 1;
  return 1 + cluster.executor.groupWait * double(mesh.axes[size_t(tensorAxis)].size - 1);
}

GroupShape NetworkCost::groupShape(const std::vector<AxisRef> &axes) const {
  return shapes.get(axes, [&] { return computeShape(axes); });
}

GroupShape NetworkCost::stageGroupShape(const std::vector<int> &stages) const {
  return stageShapes.get(stages, [&] { return computeStageShape(stages); });
}

GroupShape NetworkCost::computeStageShape(const std::vector<int> &stages) const {
  int64_t stride = 1;
  for (size_t axis = size_t(pipelineAxis) + 1; axis < mesh.axes.size(); ++axis)
    stride *= mesh.axes[axis].size;
  std::map<int64_t, int64_t> onNode;
  GroupShape shape;
  shape.size = int64_t(stages.size());
  for (int stage : stages)
    ++onNode[stage * stride / cluster.devicesPerNode];
  shape.nodes = int64_t(onNode.size());
  shape.perNode = shape.size;
  for (const auto &[node, count] : onNode)
    shape.perNode = std::min(shape.perNode, count);
  return shape;
}

/// Returns the ranks of a group on its fullest node.
static double ranksInNode(const GroupShape &group) {
  return std::ceil(double(group.size) / double(group.nodes));
}

static double treeLevels(double ranks) { return std::ceil(std::log2(std::max(1.0, ranks))); }

/// All_reduce, all_gather and reduce_scatter within a node.
static double withinNode(const NetworkLevel &level, CollectiveKind kind, double n, double bytes) {
  const double passes = kind == CollectiveKind::AllReduce ? 2 : 1;
  const double wire = passes * (n - 1) / n * bytes, bandwidth = level.bandwidth(int64_t(n));
  double best =
      passes * treeLevels(n) * level.latencySeconds + wire / (bandwidth * level.smallFraction);
  if (level.ringStepSeconds > 0)
    best = std::min(best, passes * (n - 1) * level.ringStepSeconds + wire / bandwidth);
  if (kind == CollectiveKind::AllReduce && level.switchBytesPerSecond > 0)
    best = std::min(best, 2 * n * level.ringStepSeconds + bytes / level.switchBytesPerSecond);
  return level.startSeconds + best;
}

/// Seconds of an all_reduce over several nodes by two trees between nodes, without the start. A
/// node with two subtrees sends the message to both and to its parent, at the rate of all its
/// cards. Measured rates drop with the depth d of the tree: 2 d - 1 passes of the message.
static double treesBetweenNodes(const NetworkLevel &intra, const NetworkLevel &inter,
                                const GroupShape &group, double bytes) {
  const double n = double(group.size), inNode = ranksInNode(group);
  const double depth = treeLevels(double(group.nodes));
  const double cards = inter.bytesPerSecond * double(group.perNode);
  double inside = 2 * (n - 1) / n / intra.bandwidth(group.perNode); // seconds for a byte
  if (intra.switchBytesPerSecond > 0)
    inside = std::min(inside, 1 / intra.switchBytesPerSecond);
  return 2 * ((inNode - 1) * intra.ringStepSeconds + depth * inter.ringStepSeconds) +
         bytes * std::max((2 * depth - 1) / cards, inside);
}

/// All_reduce, all_gather and reduce_scatter over several nodes.
static double betweenNodes(const NetworkLevel &intra, const NetworkLevel &inter,
                           CollectiveKind kind, const GroupShape &group, double bytes) {
  const bool isSum = kind == CollectiveKind::AllReduce;
  const double n = double(group.size), nodes = double(group.nodes), passes = isSum ? 2 : 1;
  const double wire = passes * (n - 1) / n * bytes;
  const double bandwidth =
      std::min(intra.bandwidth(group.perNode), inter.bytesPerSecond * double(group.perNode));
  // Only all_reduces have trees. In a ring a small message passes every device and every node.
  const double hops = isSum
                          ? treeLevels(ranksInNode(group)) * intra.latencySeconds +
                                treeLevels(nodes) * inter.latencySeconds
                          : (n - nodes) * intra.latencySeconds + (nodes - 1) * inter.latencySeconds;
  double best = passes * hops + wire / (bandwidth * inter.smallFraction);
  if (inter.ringStepSeconds > 0) {
    // All links of a ring work in step, at the pace of the slowest.
    const double step = std::max(intra.ringStepSeconds, inter.ringStepSeconds);
    best = std::min(best, passes * (n - 1) * step + wire / bandwidth);
    if (isSum)
      best = std::min(best, treesBetweenNodes(intra, inter, group, bytes));
  }
  return inter.startSeconds + best;
}

double networkSeconds(const NetworkLevel &intra, const NetworkLevel &inter, CollectiveKind kind,
                      const GroupShape &group, double bytes) {
  if (kind == CollectiveKind::ShardSlice || group.size <= 1)
    return 0;
  bool spans = group.nodes > 1;
  double n = double(group.size);
  double start = spans ? inter.startSeconds : intra.startSeconds;
  double inside = intra.bandwidth(group.perNode);
  double steps = treeLevels(ranksInNode(group)) * intra.latencySeconds +
                 treeLevels(double(group.nodes)) * inter.latencySeconds;
  switch (kind) {
  case CollectiveKind::AllReduce:
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
    return spans ? betweenNodes(intra, inter, kind, group, bytes)
                 : withinNode(intra, kind, n, bytes);
  case CollectiveKind::AllToAll: {
    // Each rank has bytes/n for every other rank. Ranks on its node use the inner network, the
    // others its network card.
    double outside = spans ? (n - double(group.perNode)) / n : 0;
    return start + steps + ((n - 1) / n - outside) * bytes / inside +
           outside * bytes / inter.bytesPerSecond;
  }
  case CollectiveKind::Send:
  case CollectiveKind::Permute:
    return start + (spans ? inter : intra).latencySeconds +
           bytes / (spans ? inter.bytesPerSecond : intra.bandwidth(2));
  case CollectiveKind::ShardSlice:
    break;
  }
  return 0;
}

double NetworkCost::seconds(CollectiveKind kind, const GroupShape &group, double bytes) const {
  return networkSeconds(cluster.intraNode, cluster.interNode, kind, group, bytes);
}

GroupShape NetworkCost::groupShape(const Collective &collective) const {
  return collective.stages.empty() ? groupShape(collective.axes)
                                   : stageGroupShape(collective.stages);
}

double NetworkCost::seconds(const Collective &collective) const {
  if (collective.kind == CollectiveKind::ShardSlice)
    return 0;
  return seconds(collective.kind, groupShape(collective), double(collective.bytes));
}

} // namespace tbc::planner
