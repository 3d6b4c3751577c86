//===- StepWalk.cpp - Walks a step as a rank runs it ----------------------===//

#include "tests/tools/StepWalk.h"

#include <numeric>

using namespace tbc::reshard;

namespace tbc::test {

StepMessages StepWalk::run() {
  for (int op = 0; op < int(graph.ops.size()); ++op)
    if (!places.skipped[op])
      execute(op);
  sends();
  update();
  joinAlike();
  return std::move(messages);
}

void StepWalk::execute(int op) {
  const GraphOp &node = graph.ops[op];
  if (node.generator)
    return;
  for (int i = 0; i < int(node.operands.size()); ++i) {
    Placement want = places.wanted(op, i);
    want.partial = places.takesOn[op];
    bring(node.operands[i], node.chunk, node.phase, want);
  }
  sendRound(op);
  int stage = places.stageOf(node.chunk);
  for (int value : node.results) {
    messages.move(value, places.raw[value], places.home[value], stage, assignment.microBatches);
    for (const ParameterPlaces &parameter : places.parameters)
      for (const auto &part : parameter.parts)
        if (part.second == value && parameter.accumulated != places.home[value] &&
            atHand[{value, node.chunk, node.phase}].insert(parameter.accumulated).second)
          joinables.push_back({value, stage, node.chunk, node.phase, places.home[value],
                               parameter.accumulated, assignment.microBatches});
    reduceLast(value, stage);
  }
}

/// Adds the reduction of the total of all micro-batches, right after the last one's gradient.
void StepWalk::reduceLast(int value, int stage) {
  for (size_t p = 0; p < places.parameters.size(); ++p) {
    const ParameterPlaces &parameter = places.parameters[p];
    if (parameter.reducesLast && graph.parameters[p].gradient == value)
      joinables.push_back({value, stage, 0, Phase::Backward, parameter.accumulated, parameter.state,
                           1, Purpose::LastTotal});
  }
}

/// Adds the permutes of a streamed loop. Operands along it travel n - 1 hops. Results also return
/// to their rank: n hops.
void StepWalk::sendRound(int op) {
  const GraphOp &node = graph.ops[op];
  int stage = places.stageOf(node.chunk);
  places.forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
    if (loop.kind != LoopKind::Streamed)
      return;
    auto add = [&](int value, const Placement &placement, int64_t times) {
      messages.add(CollectiveKind::Permute, axes, stage,
                   moves.localBytes(graph.values[value].layout, placement),
                   times * assignment.microBatches);
    };
    int64_t ranks = moves.ranks(axes);
    for (int i = 0; i < int(node.operands.size()); ++i)
      if (isAlong(loop.operandDims, i) && !places.isGenerated(node.operands[i]))
        add(node.operands[i], places.wanted(op, i), ranks - 1);
    for (int i = 0; i < int(node.results.size()); ++i)
      if (isAlong(loop.resultDims, i))
        add(node.results[i], places.produced(op, i), ranks);
  });
}

void StepWalk::bring(int value, int chunk, Phase phase, const Placement &want) {
  int p = places.parameterOf[value];
  if (p >= 0)
    gather(p, chunk, phase);
  bool isKept = p >= 0
                    ? phase != Phase::Forward && isKeptGathered(p, chunk)
                    : !places.isGenerated(value) && blockWith(value, chunk) != Block(chunk, phase);
  Placement have = places.home[value];
  if (isKept)
    have = kept(value, blockWith(value, chunk).first);
  else if (p < 0 && !places.isGenerated(value))
    have = arrived(value, chunk);
  if (want == have)
    return;
  if (atHand[{value, chunk, phase}].insert(want).second)
    messages.move(value, have, want, places.stageOf(chunk), assignment.microBatches);
  else
    readReductions.insert({value, chunk, phase, want}); // counts only if it is a reduction
}

/// Gathers the stored parameter at its first use in a block.
void StepWalk::gather(int p, int chunk, Phase phase) {
  const ParameterPlaces &parameter = places.parameters[p];
  if (parameter.stored == parameter.home || (phase != Phase::Forward && isKeptGathered(p, chunk)))
    return;
  if (gathered.insert({p, chunk, phase}).second)
    joinables.push_back({graph.parameters[p].value, places.stageOf(chunk), chunk, phase,
                         parameter.stored, parameter.home, assignment.microBatches,
                         Purpose::StoredParameter});
}

bool StepWalk::isKeptGathered(int p, int chunk) const {
  const ParameterPlan &plan = assignment.parameterPlans[p];
  return plan.zero >= 3 && plan.keepGathered && gathered.count({p, chunk, Phase::Forward});
}

/// Returns the block in which `chunk` has the value. Values of another chunk of the same stage are
/// in the block that computes them. Inputs, and forward values of earlier chunks, arrive in
/// forward; others in backward.
StepWalk::Block StepWalk::blockWith(int value, int chunk) const {
  int producer = graph.values[value].producer;
  if (producer < 0)
    return {chunk, Phase::Forward};
  int from = graph.ops[producer].chunk;
  if (places.stageOf(from) == places.stageOf(chunk))
    return {from, graph.ops[producer].phase};
  bool inForward = places.isForward(value) && from < chunk;
  return {chunk, inForward ? Phase::Forward : Phase::Backward};
}

/// Returns the placement of a value in its block before it is resharded there.
Placement StepWalk::arrived(int value, int chunk) {
  int producer = graph.values[value].producer;
  bool comesBack = producer >= 0 && places.isForward(value) && graph.ops[producer].chunk > chunk &&
                   places.stageOf(graph.ops[producer].chunk) != places.stageOf(chunk);
  // It is sent in backward, as kept there.
  return comesBack ? kept(value, graph.ops[producer].chunk) : places.home[value];
}

/// Returns the placement in which the block of `chunk` keeps a value for other blocks.
Placement StepWalk::kept(int value, int chunk) {
  if (places.parameterOf[value] >= 0)
    return places.home[value];
  auto found = keptAs.find({value, chunk});
  if (found == keptAs.end())
    found = keptAs.emplace(std::pair(value, chunk), choose(value, chunk)).first;
  return found->second;
}

Placement StepWalk::choose(int value, int chunk) {
  Block block = blockWith(value, chunk);
  for (const StepPlaces::Use &use : places.uses[value]) { // the first use outside the block decides
    const GraphOp &user = graph.ops[use.op];
    if (user.generator || places.stageOf(user.chunk) != places.stageOf(chunk)) {
      bool back = !user.generator && places.isForward(value) && user.chunk < chunk &&
                  block.second == Phase::Forward && graph.values[value].producer >= 0 &&
                  graph.ops[graph.values[value].producer].chunk == chunk;
      if (back)
        return places.home[value]; // sent back; no earlier use
      continue;
    }
    if (blockWith(value, user.chunk) != block || block == Block(user.chunk, user.phase))
      continue;
    Placement first = places.wanted(use.op, use.operand);
    first.partial = places.takesOn[use.op];
    auto had = atHand.find({value, block.first, block.second});
    bool hadSo = had != atHand.end() && had->second.count(first);
    return hadSo ? first : arrived(value, chunk);
  }
  return arrived(value, chunk);
}

void StepWalk::sends() {
  for (int value = 0; value < int(graph.values.size()); ++value) {
    int producer = graph.values[value].producer;
    if (producer < 0 || graph.ops[producer].generator || places.skipped[producer])
      continue;
    int from = graph.ops[producer].chunk;
    std::set<int> receivers;
    for (const StepPlaces::Use &use : places.uses[value])
      if (places.stageOf(graph.ops[use.op].chunk) != places.stageOf(from) &&
          !graph.ops[use.op].generator)
        receivers.insert(graph.ops[use.op].chunk);
    for (int to : receivers) {
      if (to > from && !places.isForward(value))
        beyond("a cotangent wanted by a later stage");
      Placement placement =
          to < from && places.isForward(value) ? kept(value, from) : places.home[value];
      messages.add(CollectiveKind::Send, {assignment.pipelineAxis}, places.stageOf(from),
                   moves.localBytes(graph.values[value].layout, placement),
                   assignment.microBatches);
    }
  }
}

void StepWalk::update() {
  for (size_t p = 0; p < places.parameters.size(); ++p) {
    const ParameterPlaces &parameter = places.parameters[p];
    int value = graph.parameters[p].value;
    if (graph.parameters[p].gradient < 0)
      continue;
    for (int stage : parameter.stages) {
      if (parameter.stages.size() > 1)
        messages.move(graph.parameters[p].gradient, parameter.accumulated, parameter.state, stage,
                      1);
      else if (parameter.accumulated != parameter.state && !parameter.reducesLast)
        joinables.push_back({graph.parameters[p].gradient, stage, -1, Phase::Backward,
                             parameter.accumulated, parameter.state, 1});
      if (parameter.stages.size() > 1)
        messages.add(CollectiveKind::AllReduce, {assignment.pipelineAxis}, stage,
                     moves.localBytes(places.gradientLayout(p), parameter.state), 1);
      if (parameter.stages.size() > 1)
        messages.move(value, parameter.state, parameter.stored, stage, 1);
      else if (parameter.state != parameter.stored)
        joinables.push_back({value, stage, -1, Phase::Backward, parameter.state, parameter.stored,
                             1, Purpose::NewParameter});
    }
  }
  if (graph.stepTotalBytes > 0) {
    std::vector<int> all(assignment.mesh.axes.size());
    std::iota(all.begin(), all.end(), 0);
    for (int stage = 0; stage < assignment.numStages && !all.empty(); ++stage)
      messages.add(CollectiveKind::AllReduce, all, stage, graph.stepTotalBytes, 1);
  } else if (graph.loss >= 0 && places.uses[graph.loss].empty()) {
    Placement whole = places.home[graph.loss];
    whole.partial.clear();
    messages.move(graph.loss, places.home[graph.loss], whole,
                  places.stageOf(graph.ops[graph.values[graph.loss].producer].chunk), 1);
  }
}

} // namespace tbc::test
