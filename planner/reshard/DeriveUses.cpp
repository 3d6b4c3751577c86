//===- DeriveUses.cpp - How values reach the ops that use them -------------===//

#include "planner/reshard/Derive.h"

#include "planner/reshard/Move.h"

#include <algorithm>

namespace tbc::reshard {

/// Adds a reshard with its collectives, unless they were given.
int Deriver::add(Reshard reshard) {
  if (reshard.steps.empty())
    reshard.steps = memo.steps(graph.values[reshard.value].layout, reshard.from, reshard.to);
  out.reshards.push_back(std::move(reshard));
  return static_cast<int>(out.reshards.size()) - 1;
}

const Deriver::Copy *Deriver::findCopy(int value, int stage, Phase phase,
                                       const Sharding &sharding) const {
  for (const Copy &copy : copies[value])
    if (copy.stage == stage && copy.phase == phase && copy.sharding == sharding)
      return &copy;
  return nullptr;
}

void Deriver::emit(int op) {
  const GraphOp &o = graph.ops[op];
  if (skipped[op] || o.generator)
    return;
  for (size_t k = 0; k < o.operands.size(); ++k)
    use(op, static_cast<int>(k));
  for (int value : o.results) {
    complete(op, value);
    send(value);
  }
}

void Deriver::use(int op, int operand) {
  const GraphOp &o = graph.ops[op];
  int value = o.operands[operand];
  Derivation::Operand &need = out.operands[op][operand];
  if (parameterOf[value] >= 0)
    need.reshard = gather(parameterOf[value], op);
  const Sharding &from = baseOf(value, op, need.sharding);
  if (from == need.sharding)
    return;
  if (const Copy *copy = findCopy(value, o.stage, o.phase, need.sharding)) {
    need.reshard = copy->reshard;
    return;
  }
  Reshard reshard;
  reshard.value = value;
  reshard.phase = o.phase;
  reshard.stage = o.stage;
  reshard.op = op;
  reshard.from = from;
  reshard.to = need.sharding;
  need.reshard = add(std::move(reshard));
  copies[value].push_back({o.stage, o.phase, need.sharding, need.reshard});
}

/// The sharding in which `value` is at hand where `op` runs: its home, or the one in which it was
/// kept for backward, which is chosen at the first use there.
const Sharding &Deriver::baseOf(int value, int op, const Sharding &wanted) {
  const GraphOp &o = graph.ops[op];
  const Sharding &home = out.home[value];
  if (o.phase == Phase::Forward || !isForward(value) || isGenerated(value) ||
      graph.values[value].role == ValueRole::Parameter ||
      graph.values[value].role == ValueRole::OptimizerState)
    return home;
  bool isInput = graph.values[value].producer < 0;
  if (!isInput && stageOf(value) > o.stage) {
    // Comes with the cotangents, as its own stage kept it.
    int fromStage = stageOf(value);
    auto [own, isNew] = kept.try_emplace({value, fromStage}, home);
    if (isNew)
      out.residuals.push_back({value, fromStage, home});
    transfer(value, o.stage, Phase::Backward, own->second);
    return own->second;
  }
  auto [it, isNew] = kept.try_emplace({value, o.stage}, home);
  if (isNew) {
    if (findCopy(value, o.stage, Phase::Forward, wanted))
      it->second = wanted;
    out.residuals.push_back({value, o.stage, it->second});
  }
  return it->second;
}

/// Makes the whole of a parameter that is stored flat available in the block of `op`. Returns the
/// reshard that does, or -1 where none is needed.
int Deriver::gather(int parameter, int op) {
  const GraphOp &o = graph.ops[op];
  int value = graph.parameters[parameter].value;
  if (out.stored[parameter] == out.home[value])
    return -1;
  auto [it, isNew] = gathered.try_emplace({parameter, o.stage, o.phase}, -1);
  if (!isNew)
    return it->second;
  if (o.phase == Phase::Backward && assignment.parameterPlans[parameter].keepGathered &&
      gathered.count({parameter, o.stage, Phase::Forward})) {
    out.residuals.push_back({value, o.stage, out.home[value]});
    return -1;
  }
  Reshard reshard;
  reshard.value = value;
  reshard.where = Where::ParameterUse;
  reshard.phase = o.phase;
  reshard.stage = o.stage;
  reshard.op = op;
  reshard.from = out.stored[parameter];
  reshard.to = out.home[value];
  return it->second = add(std::move(reshard));
}

/// Takes a result of `op` from how it was produced to its home, and a part of a gradient on to
/// where gradients are accumulated.
void Deriver::complete(int op, int value) {
  Reshard reshard;
  reshard.value = value;
  reshard.phase = graph.ops[op].phase;
  reshard.stage = graph.ops[op].stage;
  reshard.from = out.raw[value];
  reshard.to = out.home[value];
  if (reshard.from != reshard.to)
    add(reshard);
  if (gradientFor[value] < 0)
    return;
  reshard.where = Where::GradientMicro;
  reshard.from = out.home[value];
  reshard.to = out.gradient[gradientFor[value]];
  if (reshard.from != reshard.to)
    add(reshard);
}

/// Sends a fresh result to the stages that use it.
void Deriver::send(int value) {
  int stage = stageOf(value);
  std::set<int> stages;
  for (int user : graph.values[value].users)
    if (!skipped[user] && graph.ops[user].stage != stage)
      stages.insert(graph.ops[user].stage);
  Phase phase = isForward(value) ? Phase::Forward : Phase::Backward;
  for (int to : stages)
    if (phase == Phase::Backward || to > stage)
      transfer(value, to, phase, out.home[value]);
}

void Deriver::transfer(int value, int toStage, Phase phase, const Sharding &sharding) {
  if (!sent.insert({value, toStage, phase}).second)
    return;
  int fromStage = stageOf(value);
  out.transfers.push_back({value, fromStage, toStage, phase, sharding});
  Collective step;
  step.kind = CollectiveKind::Send;
  if (assignment.pipelineAxis >= 0)
    step.axes = {wholeAxis(assignment.mesh, assignment.pipelineAxis)};
  step.stages = {fromStage, toStage};
  step.bytes = localBytes(graph.values[value].layout, sharding);
  step.numElements = step.bytes / graph.values[value].layout.elementBytes;
  Reshard reshard;
  reshard.value = value;
  reshard.where = Where::Stage;
  reshard.phase = phase;
  reshard.stage = fromStage;
  reshard.from = reshard.to = sharding;
  reshard.steps = {step};
  add(std::move(reshard));
}

} // namespace tbc::reshard
