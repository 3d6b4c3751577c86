//===- DeriveUses.cpp - Communication of values to their users ------------===//

#include "planner/reshard/Derive.h"

#include "planner/reshard/Move.h"
#include "planner/reshard/TokenExchange.h"

#include <algorithm>

namespace tbc::reshard {

CommunicationDeriver::CommunicationDeriver(const Graph &graph, const Assignment &assignment,
                                           const StepIndex &index, const CollectiveCost &cost,
                                           Derivation &out)
    : graph(graph), assignment(assignment), index(index), memo(assignment.mesh, cost), out(out),
      copies(graph.values.size()) {}

void CommunicationDeriver::run() {
  for (size_t op = 0; op < graph.ops.size(); ++op)
    emit(static_cast<int>(op));
  finishStep();
}

bool CommunicationDeriver::isForward(int value) const {
  int producer = graph.values[value].producer;
  return producer < 0 || graph.ops[producer].phase == Phase::Forward;
}

bool CommunicationDeriver::isGenerated(int value) const {
  int producer = graph.values[value].producer;
  return producer >= 0 && graph.ops[producer].generator;
}

/// Adds a reshard, and derives its collectives if they are not given.
int CommunicationDeriver::add(Reshard reshard) {
  if (reshard.steps.empty())
    reshard.steps = memo.steps(graph.values[reshard.value].layout, reshard.from, reshard.to);
  out.reshards.push_back(std::move(reshard));
  return static_cast<int>(out.reshards.size()) - 1;
}

const CommunicationDeriver::Copy *CommunicationDeriver::findCopy(int value, int chunk, Phase phase,
                                                                 const Sharding &sharding) const {
  for (const Copy &copy : copies[value])
    if (copy.chunk == chunk && copy.phase == phase && copy.sharding == sharding)
      return &copy;
  return nullptr;
}

void CommunicationDeriver::emit(int op) {
  const GraphOp &o = graph.ops[op];
  if (index.skipped[op])
    return;
  for (size_t k = 0; k < o.operands.size() && !o.generator; ++k)
    use(op, static_cast<int>(k));
  keepRows(op);
  for (int value : o.results) {
    complete(op, value); // a generator may be a gradient: of a parameter that the loss adds
    if (!o.generator)
      send(value);
  }
}

/// Whether every op that needs `value` in this sharding reads that share of its rows alone.
static bool isRoutedEverywhere(const Graph &graph, const Assignment &assignment,
                               const Derivation &derivation, int value, const Sharding &sharding,
                               double share) {
  for (int user : graph.values[value].users)
    for (size_t k = 0; k < derivation.operands[user].size(); ++k)
      if (graph.ops[user].operands[k] == value &&
          derivation.operands[user][k].sharding == sharding &&
          (!hasRoutedRows(graph.ops[user], /*isResult=*/false, int(k)) ||
           expertRows(graph.ops[user], assignment.strategies[user]).share != share))
        return false;
  return true;
}

/// Derives the steps of a reshard of tensor `tensor` of `op`, if tokens travel to their experts.
void CommunicationDeriver::exchange(Reshard &reshard, int op, bool isResult, int tensor) {
  const GraphOp &o = graph.ops[op];
  if (!assignment.exchangesTokens || !hasRoutedRows(o, isResult, tensor))
    return;
  const ExpertRows rows = expertRows(o, assignment.strategies[op]);
  const Sharding &whole = isResult ? reshard.from : reshard.to;
  if (!isResult && !isRoutedEverywhere(graph, assignment, out, reshard.value, whole, rows.share))
    return;
  std::vector<Collective> steps =
      memo.steps(graph.values[reshard.value].layout, reshard.from, reshard.to);
  if (!exchangeTokens(steps, rows))
    return;
  reshard.steps = std::move(steps);
  out.routed[reshard.value] = {whole, rows.share};
}

/// Counts what forward op `op` keeps of its tokens.
void CommunicationDeriver::keepRows(int op) {
  const GraphOp &o = graph.ops[op];
  if (!assignment.exchangesTokens || o.phase != Phase::Forward || o.isRecomputed)
    return;
  int64_t bytes = 0;
  for (size_t k = 0; k < o.operands.size(); ++k)
    if (hasRoutedRows(o, /*isResult=*/false, int(k))) {
      const int value = o.operands[k];
      bytes += keptRowBytes(graph, op, assignment.strategies[op], int(k),
                            localBytes(graph.values[value].layout, out.home[value]));
    }
  if (bytes > 0)
    out.keptRows.push_back({op, bytes});
}

/// Whether backward op `op` has the rows of operand `operand` from forward.
bool CommunicationDeriver::hasKeptRows(int op, int operand) const {
  const GraphOp &o = graph.ops[op];
  return assignment.exchangesTokens && o.phase != Phase::Forward && o.forwardOp >= 0 &&
         !graph.ops[o.forwardOp].isRecomputed && hasRoutedRows(o, /*isResult=*/false, operand) &&
         graph.values[o.operands[operand]].cotangentOf < 0;
}

/// Provides one operand of `op` in its required sharding. A second use of the same value, sharding,
/// chunk and phase reuses the first reshard.
void CommunicationDeriver::use(int op, int operand) {
  const GraphOp &o = graph.ops[op];
  int value = o.operands[operand];
  Derivation::Operand &need = out.operands[op][operand];
  if (hasKeptRows(op, operand))
    return;
  if (index.parameterOf[value] >= 0)
    need.reshard = gather(index.parameterOf[value], op);
  const Sharding &from = baseOf(value, op, need.sharding);
  if (from == need.sharding)
    return;
  if (const Copy *copy = findCopy(value, o.chunk, o.phase, need.sharding)) {
    need.reshard = copy->reshard;
    return;
  }
  Reshard reshard;
  reshard.value = value;
  reshard.phase = o.phase;
  reshard.stage = assignment.stageOf(o.chunk);
  reshard.chunk = o.chunk;
  reshard.op = op;
  reshard.from = from;
  reshard.to = need.sharding;
  exchange(reshard, op, /*isResult=*/false, operand);
  need.reshard = add(std::move(reshard));
  copies[value].push_back({o.chunk, o.phase, need.sharding, need.reshard});
}

int holderOf(const Graph &graph, const Assignment &assignment, int value, int chunk) {
  int producer = graph.values[value].producer;
  if (producer < 0)
    return chunk;
  int from = graph.ops[producer].chunk;
  return assignment.stageOf(from) == assignment.stageOf(chunk) ? from : chunk;
}

Phase phaseHeld(const Graph &graph, const Assignment &assignment, int value, int chunk) {
  int producer = graph.values[value].producer;
  if (producer < 0)
    return Phase::Forward;
  const GraphOp &op = graph.ops[producer];
  if (assignment.stageOf(op.chunk) == assignment.stageOf(chunk))
    return op.phase;
  // Received: forward values in forward, unless their chunk comes later.
  return op.phase == Phase::Forward && op.chunk < chunk ? Phase::Forward : Phase::Backward;
}

/// The sharding in which the block with `value`, in sharding `atHand`, saves it for other blocks of
/// its stage; chosen at the first use there, which requires `wanted`.
const Sharding &CommunicationDeriver::keep(int value, int chunk, const Sharding &atHand,
                                           const Sharding &wanted) {
  auto [it, isNew] = kept.try_emplace({value, chunk}, atHand);
  if (isNew) {
    Phase phase = phaseHeld(graph, assignment, value, chunk);
    if (findCopy(value, chunk, phase, wanted))
      it->second = wanted;
    bool isOnHost = phase == Phase::Forward && assignment.offloads(graph.values[value].producer);
    out.residuals.push_back({value, chunk, it->second, phase, isOnHost});
  }
  return it->second;
}

/// The sharding in which `value` is available to `op`: its home, or the saved sharding of another
/// block of the stage.
const Sharding &CommunicationDeriver::baseOf(int value, int op, const Sharding &wanted) {
  const GraphOp &o = graph.ops[op];
  const Sharding *atHand = &out.home[value];
  if (isGenerated(value) || graph.values[value].role == ValueRole::Parameter ||
      graph.values[value].role == ValueRole::OptimizerState)
    return *atHand;
  int holder = holderOf(graph, assignment, value, o.chunk);
  Phase phase = phaseHeld(graph, assignment, value, holder);
  bool comesBack = phase == Phase::Backward && isForward(value);
  if (comesBack) {
    // Sent with the cotangents, in the saved sharding of its stage.
    atHand = &keep(value, chunkOf(value), *atHand, *atHand);
    transfer(value, holder, Phase::Backward, *atHand);
  }
  if (holder == o.chunk && phase == o.phase)
    return *atHand;
  return keep(value, holder, *atHand, wanted);
}

/// Gathers a flat stored parameter in the block of `op`. Returns the reshard, or -1 if the
/// parameter is already whole.
int CommunicationDeriver::gather(int parameter, int op) {
  const GraphOp &o = graph.ops[op];
  int value = graph.parameters[parameter].value;
  if (out.stored[parameter] == out.home[value])
    return -1;
  auto [it, isNew] = gathered.try_emplace({parameter, o.chunk, o.phase}, -1);
  if (!isNew)
    return it->second;
  if (o.phase != Phase::Forward && assignment.parameterPlans[parameter].keepGathered &&
      gathered.count({parameter, o.chunk, Phase::Forward})) {
    if (kept.try_emplace({value, o.chunk}, out.home[value]).second)
      out.residuals.push_back({value, o.chunk, out.home[value]});
    return -1;
  }
  Reshard reshard;
  reshard.value = value;
  reshard.where = Where::ParameterUse;
  reshard.phase = o.phase;
  reshard.stage = assignment.stageOf(o.chunk);
  reshard.chunk = o.chunk;
  reshard.op = op;
  reshard.from = out.stored[parameter];
  reshard.to = out.home[value];
  return it->second = add(std::move(reshard));
}

/// Reshards a result of `op` from its produced sharding to its home, and a part of a gradient on to
/// the accumulated sharding.
void CommunicationDeriver::complete(int op, int value) {
  if (index.gradientsFor[value].empty() && out.raw[value] == out.home[value])
    return;
  Reshard reshard;
  reshard.value = value;
  reshard.phase = graph.ops[op].phase;
  reshard.stage = assignment.stageOf(graph.ops[op].chunk);
  reshard.chunk = graph.ops[op].chunk;
  reshard.from = out.raw[value];
  reshard.to = out.home[value];
  if (reshard.from != reshard.to) {
    Reshard completion = reshard;
    exchange(completion, op, /*isResult=*/true, graph.values[value].producerResult);
    add(std::move(completion));
  }
  reshard.where = Where::GradientMicro;
  reshard.from = out.home[value];
  for (int parameter : index.gradientsFor[value]) {
    reshard.to = out.gradient[parameter];
    if (reshard.from != reshard.to && !findCopy(value, reshard.chunk, reshard.phase, reshard.to))
      copies[value].push_back({reshard.chunk, reshard.phase, reshard.to, add(reshard)});
  }
}

/// Sends a fresh result to chunks of other stages with a use.
void CommunicationDeriver::send(int value) {
  if (assignment.numStages == 1)
    return;
  int chunk = chunkOf(value), stage = stageOf(value);
  std::set<int> chunks;
  for (int user : graph.values[value].users)
    if (!index.skipped[user] && assignment.stageOf(graph.ops[user].chunk) != stage)
      chunks.insert(graph.ops[user].chunk);
  Phase phase = isForward(value) ? Phase::Forward : Phase::Backward;
  for (int to : chunks)
    if (phase == Phase::Backward || to > chunk)
      transfer(value, to, phase, out.home[value]);
}

/// Adds a send of `value` to chunk `toChunk`, once per value, chunk and phase.
void CommunicationDeriver::transfer(int value, int toChunk, Phase phase, const Sharding &sharding) {
  if (!sent.insert({value, toChunk, phase}).second)
    return;
  int fromChunk = chunkOf(value);
  out.transfers.push_back({value, fromChunk, toChunk, phase, sharding});
  Collective step;
  step.kind = CollectiveKind::Send;
  if (assignment.pipelineAxis >= 0)
    step.axes = {wholeAxis(assignment.mesh, assignment.pipelineAxis)};
  step.stages = {assignment.stageOf(fromChunk), assignment.stageOf(toChunk)};
  step.bytes = localBytes(graph.values[value].layout, sharding);
  step.numElements = step.bytes / graph.values[value].layout.elementBytes;
  Reshard reshard;
  reshard.value = value;
  reshard.where = Where::Stage;
  reshard.phase = phase;
  reshard.stage = step.stages[0];
  reshard.chunk = fromChunk;
  reshard.from = reshard.to = sharding;
  reshard.steps = {step};
  add(std::move(reshard));
}

} // namespace tbc::reshard
