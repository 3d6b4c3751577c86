//===- KeptBytesBound.cpp - Bound on the bytes kept for backward ----------===//

#include "planner/search/KeptBytesBound.h"
#include "planner/bound/PipelineRoom.h"
#include "planner/graph/Stages.h"

#include <algorithm>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the last forward op that reads `value`, also through views.
static int lastReader(const Graph &graph, int value) {
  int last = -1;
  for (int user : graph.values[value].users) {
    const GraphOp &op = graph.ops[user];
    if (op.phase != Phase::Forward)
      continue;
    last = std::max(last, user);
    if (op.kernelClass == KernelClass::None)
      for (int result : op.results)
        last = std::max(last, lastReader(graph, result));
  }
  return last;
}

namespace {

/// The forward ops [first, first + length) of one occurrence of the repeated block.
struct BlockOps {
  int first = 0, length = 0;
};

} // namespace

/// Returns the first occurrence of the repeated block. Its length is 0 if other ops lie between its
/// first and its last occurrence.
static BlockOps consecutiveBlock(const SearchProblem &problem) {
  const Repeat &repeat = problem.repeat;
  const int numForward = problem.numForward;
  BlockOps block;
  while (block.first < numForward && !repeat.ops[block.first])
    ++block.first;
  while (block.first + block.length < numForward && repeat.ops[block.first + block.length])
    ++block.length;
  auto isCounted = [&](int op) { return repeat.like[op] >= 0; };
  int begin = 0, end = numForward, counted = 0;
  while (begin < numForward && !isCounted(begin))
    ++begin;
  while (end > begin && !isCounted(end - 1))
    --end;
  for (int op = begin; op < end; ++op)
    counted += isCounted(op);
  if (counted != end - begin || counted != block.length * repeat.count)
    block.length = 0;
  return block;
}

/// Adds `parameter` to the first op of `block` that reads it, unless an op outside the block reads
/// it.
static void addParameter(const SearchProblem &problem, const Candidate &candidate,
                         const DataMode &mode, const GraphParameter &parameter, int first,
                         std::vector<BlockPart> &block) {
  const Graph &graph = problem.graph;
  const GraphValue &value = graph.values[parameter.value];
  if (value.users.empty() || value.users[0] < first || value.users[0] >= first + int(block.size()))
    return;
  bool inBackward = false, isExpert = false;
  for (int user : value.users) {
    if (!problem.repeat.ops[user])
      return;
    inBackward |= graph.ops[user].phase != Phase::Forward;
    isExpert |= graph.ops[user].expertLoop >= 0;
  }
  ParameterTotals of;
  double elements = double(value.layout.numElements());
  of.bytes = elements * double(value.layout.elementBytes);
  of.backwardBytes = inBackward ? of.bytes : 0;
  if (parameter.gradient >= 0) {
    of.gradientBytes = elements * double(graph.values[parameter.gradient].layout.elementBytes);
    of.castBytes = masterBytes(value.layout.elementBytes) > 0 ? of.bytes : 0;
    of.stateBytes = elements * double(problem.job.stateBytesPerElement(parameter) +
                                      masterBytes(value.layout.elementBytes));
  }
  block[size_t(value.users[0] - first)].fixedBytes +=
      leastParameterBytes(candidate.mesh, mode, of, isExpert);
}

/// Returns the parts of the repeated block by op, in forward order. Empty if other ops lie between
/// its first and its last occurrence, or if it keeps nothing.
static std::vector<BlockPart> blockParts(const BoundTables &tables, const Candidate &candidate,
                                         const DataMode &mode) {
  const SearchProblem &problem = tables.costs.problem;
  const Graph &graph = problem.graph;
  const MeshShape &mesh = candidate.mesh;
  const int64_t devices = mesh.tp * mesh.cp * mesh.ep, samples = candidate.microBatch * mesh.ep;
  const auto [first, length] = consecutiveBlock(problem);
  if (length == 0)
    return {};
  const DividedWork &work = tables.workFor(devices, samples);
  const std::vector<double> &kept = tables.keepBoundFor(devices, samples).keptWhereFree();
  std::vector<BlockPart> block(static_cast<size_t>(length));
  double keptBytes = 0;
  for (int i = 0; i < length; ++i) {
    int op = first + i;
    const WorkShare &share = work.byOp[size_t(op)];
    block[size_t(i)].seconds = share.forward + share.backward + share.weight;
    block[size_t(i)].keptBytes = kept[size_t(op)];
    keptBytes += kept[size_t(op)];
    if (kept[size_t(op)] == 0)
      continue;
    int last = op;
    for (int value : graph.ops[op].results)
      last = std::max(last, lastReader(graph, value));
    for (int position = op; position < last; ++position) // between ops of this block and later ones
      block[size_t((position - first) % length)].crossingBytes += kept[size_t(op)];
  }
  for (const GraphParameter &parameter : graph.parameters)
    addParameter(problem, candidate, mode, parameter, first, block);
  return keptBytes > 0 ? block : std::vector<BlockPart>();
}

/// Returns by stage, for each of its chunks at least, the number of micro-batches whose values it
/// keeps at one moment; at least 1, because all chunks keep the first micro-batch at one moment.
/// Example: 1F1B on 4 stages gives 4, 3, 2, 1.
static std::vector<double> leastInFlight(const CostTables &costs, const Candidate &candidate) {
  std::vector<double> inFlight;
  for (const schedule::Moments &stage : costs.schedules.momentsOf(candidate)) {
    int64_t least = stage[0][0].forward;
    for (const schedule::InFlight &chunk : stage[0])
      least = std::min(least, chunk.forward);
    inFlight.push_back(double(std::max<int64_t>(1, least)));
  }
  return inFlight;
}

/// Returns the bytes of the gathered parameters that one micro-batch keeps for its backward, on all
/// stages together.
static double keptGatheredBytes(const BoundTables &tables, const Candidate &candidate,
                                const DataMode &mode) {
  double bytes = 0;
  for (bool isExpert : {false, true})
    if (mode.keepGathered && mode.groups[isExpert].zero.size > 1)
      bytes += tables.totals[isExpert].backwardBytes / parameterParts(candidate.mesh, isExpert);
  return bytes;
}

namespace {

/// The memory of all stages, for any cut.
struct StageRoom {
  double usableBytes = 0;       // of one device
  std::vector<double> inFlight; // leastInFlight(); empty if only one micro-batch is counted
  double keptBytes = 0;         // of one micro-batch, at most
};

} // namespace

static StageRoom roomOf(const BoundTables &tables, const Candidate &candidate,
                        const DataMode &mode) {
  const SearchProblem &problem = tables.costs.problem;
  const Cluster &cluster = problem.cluster;
  const MeshShape &mesh = candidate.mesh;
  StageRoom room;
  room.usableBytes =
      (double(problem.limitBytes) - double(cluster.contextBytes)) / (1 + cluster.allocatorFraction);
  double fixed = 0;
  for (bool isExpert : {false, true})
    fixed += leastParameterBytes(mesh, mode, tables.totals[isExpert], isExpert);
  const double host = candidate.offloadsResiduals ? double(cluster.usableHostBytes()) : 0;
  room.keptBytes = double(mesh.pp) * (room.usableBytes + host) - fixed;
  // Schedules of thousands of stages are long, and the simple bound is close enough there.
  constexpr int64_t mostChunks = 512;
  if (mesh.pp == 1 || mesh.pp * candidate.schedule.chunksPerStage > mostChunks ||
      candidate.offloadsResiduals || room.keptBytes < 0)
    return room;
  const double gathered = keptGatheredBytes(tables, candidate, mode);
  room.inFlight = leastInFlight(tables.costs, candidate);
  room.keptBytes =
      std::min(room.keptBytes,
               mostKeptAnywhere(room.usableBytes, room.inFlight, fixed - gathered) - gathered);
  return room;
}

double mostKeptBytes(const BoundTables &tables, const Candidate &candidate, const DataMode &mode,
                     double limit) {
  const SearchProblem &problem = tables.costs.problem;
  StageRoom stages = roomOf(tables, candidate, mode);
  if (stages.inFlight.empty() || problem.repeat.count == 0 || stages.keptBytes < 0)
    return stages.keptBytes;
  PipelineRoom room;
  room.block = blockParts(tables, candidate, mode);
  if (room.block.empty())
    return stages.keptBytes;
  room.inFlight = std::move(stages.inFlight);
  room.count = double(problem.repeat.count);
  room.chunksPerStage = candidate.schedule.chunksPerStage;
  room.usableBytes = stages.usableBytes;
  room.mostSeconds = limit / double(candidate.accumulation) +
                     tables.mostSaved(double(candidate.microBatch * candidate.mesh.ep), 1);
  return std::min(stages.keptBytes, room.mostKeptBytes());
}

bool keepsTooMuch(const BoundTables &tables, const Candidate &candidate) {
  const MeshShape &mesh = candidate.mesh;
  if (candidate.recompute != RecomputeMode::None || candidate.offloadsResiduals)
    return false;
  const double kept = tables.costs.models.unforcedKeptBytes(candidate.microBatch * mesh.ep) /
                      double(mesh.tp * mesh.cp * mesh.ep);
  return kept > roomOf(tables, candidate, boundMode(tables.costs, candidate)).keptBytes;
}

} // namespace tbc::planner
