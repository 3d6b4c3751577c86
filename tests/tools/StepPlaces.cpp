//===- StepPlaces.cpp - The placements of a step's values -----------------===//

#include "tests/tools/StepPlaces.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace tbc::reshard;

namespace tbc::test {

void beyond(const std::string &what) {
  std::fprintf(stderr, "expectedSignature: %s\n", what.c_str());
  std::abort();
}

bool isAlong(const std::vector<TensorDim> &dims, int tensor) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const TensorDim &dim) { return dim.tensor == tensor; });
}

StepPlaces::StepPlaces(const Graph &graph, const Assignment &assignment)
    : graph(graph), assignment(assignment), skipped(graph.ops.size(), false),
      uses(graph.values.size()), raw(graph.values.size()), home(graph.values.size()),
      takesOn(graph.ops.size()), parameterOf(graph.values.size(), -1),
      parameters(graph.parameters.size()), isPart(graph.values.size(), false) {
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    findParts(p);
  findUsers();
  placeInputs();
  placeResults();
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    placeParameter(p);
}

// Placements from strategies.

std::vector<int> StepPlaces::axisNumbers(const std::vector<AxisRef> &axes) const {
  std::vector<int> result;
  for (const AxisRef &axis : axes) {
    int64_t whole = assignment.mesh.axes[axis.axis].size;
    if (axis.pre != 1 || axis.size != whole)
      beyond("part of an axis");
    if (whole > 1)
      result.push_back(axis.axis);
  }
  return result;
}

Placement StepPlaces::wanted(int op, int operand) const {
  Placement placement;
  if (graph.ops[op].generator)
    return placement;
  forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
    for (const TensorDim &at : loop.operandDims)
      if (at.tensor == operand)
        placement.split[{at.dim, loop.factor}] = axes;
  });
  return placement;
}

Placement StepPlaces::produced(int op, int result) const {
  Placement placement;
  if (graph.ops[op].generator)
    return placement;
  forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
    bool present = false;
    for (const TensorDim &at : loop.resultDims)
      if (at.tensor == result) {
        placement.split[{at.dim, loop.factor}] = axes;
        present = true;
      }
    if (present || loop.kind == LoopKind::Parallel || loop.kind == LoopKind::Fixed ||
        loop.kind == LoopKind::Streamed)
      return;
    for (int axis : axes)
      if (!goesRound(op, result, axis)) // otherwise it is summed while it travels
        placement.partial[axis] = loop.kind == LoopKind::Max ? ReduceKind::Max : ReduceKind::Sum;
  });
  return placement;
}

/// Returns whether the result travels around the ring of `axis`, i.e. lies along a streamed loop
/// split over it.
bool StepPlaces::goesRound(int op, int result, int axis) const {
  bool round = false;
  forEachSplitLoop(op, [&](const Loop &loop, const std::vector<int> &axes) {
    round |= loop.kind == LoopKind::Streamed && isAlong(loop.resultDims, result) &&
             std::count(axes.begin(), axes.end(), axis) > 0;
  });
  return round;
}

// Gradients.

/// Returns the chunks with terms of `value`, looking through sums of cotangents.
std::set<int> StepPlaces::contributors(int value) const {
  int producer = graph.values[value].producer;
  if (!isCotangentSum(producer))
    return {graph.ops[producer].chunk};
  std::set<int> stages;
  for (int operand : graph.ops[producer].operands)
    stages.merge(contributors(operand));
  return stages;
}

bool StepPlaces::isCotangentSum(int op) const {
  const GraphOp &sum = graph.ops[op];
  if (sum.phase == Phase::Forward || !sum.additive || sum.operands.size() != 2)
    return false;
  return std::all_of(sum.operands.begin(), sum.operands.end(),
                     [&](int operand) { return graph.values[operand].users.size() == 1; });
}

/// Returns whether the complete sum is needed: by another op, or (for an operand of a sum) by a
/// parameter.
bool StepPlaces::isWantedWhole(int value, bool isOperand) const {
  bool isGradient =
      std::any_of(graph.parameters.begin(), graph.parameters.end(),
                  [&](const GraphParameter &parameter) { return parameter.gradient == value; });
  return isOperand ? isGradient : !graph.values[value].users.empty();
}

void StepPlaces::splitParts(int value, std::vector<std::pair<int, int>> &parts, bool isOperand) {
  int producer = graph.values[value].producer;
  if (contributors(value).size() == 1 || isWantedWhole(value, isOperand)) {
    parts.push_back({graph.ops[producer].chunk, value});
    isPart[value] = true;
    return;
  }
  skipped[producer] = true;
  for (int operand : graph.ops[producer].operands)
    splitParts(operand, parts, true);
}

void StepPlaces::findParts(size_t p) {
  const GraphParameter &parameter = graph.parameters[p];
  parameterOf[parameter.value] = int(p);
  if (parameter.gradient >= 0)
    splitParts(parameter.gradient, parameters[p].parts);
}

// Homes.

void StepPlaces::findUsers() {
  for (int op = 0; op < int(graph.ops.size()); ++op)
    if (!skipped[op])
      for (int i = 0; i < int(graph.ops[op].operands.size()); ++i)
        uses[graph.ops[op].operands[i]].push_back({op, i});
}

void StepPlaces::placeInputs() {
  for (size_t value = 0; value < graph.values.size(); ++value) {
    if (graph.values[value].producer >= 0)
      continue;
    std::vector<std::pair<Placement, int>> votes;
    for (const Use &use : uses[value]) {
      Placement placement = wanted(use.op, use.operand);
      auto vote = std::find_if(votes.begin(), votes.end(),
                               [&](const auto &v) { return v.first == placement; });
      if (vote == votes.end())
        votes.push_back({placement, 1});
      else
        ++vote->second;
    }
    int best = 0;
    for (const auto &[placement, count] : votes)
      if (count > best) {
        best = count;
        home[value] = placement;
      }
  }
}

bool StepPlaces::sameBlock(int a, int b) const {
  return graph.ops[a].chunk == graph.ops[b].chunk && graph.ops[a].phase == graph.ops[b].phase;
}

/// Returns the axes over which all operands of an additive op are partial, if it can add them
/// unreduced; else {}.
std::map<int, ReduceKind> StepPlaces::deferred(int op) const {
  const GraphOp &sum = graph.ops[op];
  if (!sum.additive || sum.operands.empty())
    return {};
  std::map<int, ReduceKind> partial = raw[sum.operands[0]].partial;
  for (int i = 0; i < int(sum.operands.size()); ++i) {
    int operand = sum.operands[i], producer = graph.values[operand].producer;
    if (producer < 0 || !sameBlock(producer, op) || raw[operand].partial != partial ||
        isPart[operand])
      return {};
    for (const Use &use : uses[operand])
      if (use.op != op)
        return {};
    for (const auto &[axis, kind] : partial)
      if (kind != ReduceKind::Sum || test::uses(wanted(op, i), axis))
        return {};
  }
  // A result repeated along an axis would no longer be a partial sum over it.
  for (int i = 0; i < int(sum.results.size()); ++i)
    for (const auto &[axis, kind] : partial)
      if (test::uses(produced(op, i), axis))
        return {};
  return partial;
}

void StepPlaces::placeResults() {
  std::map<int, int> stateOf; // new value -> input
  for (auto [input, next] : graph.stateUpdates)
    stateOf[next] = input;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    takesOn[op] = deferred(op);
    for (int result = 0; result < int(graph.ops[op].results.size()); ++result) {
      int value = graph.ops[op].results[result];
      raw[value] = produced(op, result);
      raw[value].partial.insert(takesOn[op].begin(), takesOn[op].end());
    }
  }
  for (size_t value = 0; value < graph.values.size(); ++value) {
    if (graph.values[value].producer < 0)
      continue;
    if (stateOf.count(int(value)))
      home[value] = home[stateOf.at(int(value))];
    else
      home[value] = completed(int(value));
  }
}

Placement StepPlaces::completed(int value) const {
  Placement placement = raw[value];
  if (placement.partial.empty() || uses[value].empty() || !takesOn[uses[value][0].op].empty())
    return placement;
  placement.partial.clear();
  std::map<int, ReduceKind> rest = raw[value].partial;
  for (bool found = true; found;) {
    found = false;
    for (const auto &[axis, kind] : rest) {
      auto place = commonPlace(value, placement, axis);
      if (!place || kind != ReduceKind::Sum)
        continue;
      placement.split[*place].push_back(axis);
      rest.erase(axis);
      found = true;
      break;
    }
  }
  return placement;
}

/// Returns the factor on which all users want the axis, right after the axes already there.
std::optional<Place> StepPlaces::commonPlace(int value, const Placement &have, int axis) const {
  std::optional<Place> common;
  for (const Use &use : uses[value]) {
    std::optional<Place> here;
    for (const auto &[place, axes] : wanted(use.op, use.operand).split) {
      auto at = have.split.find(place);
      std::vector<int> grown = at == have.split.end() ? std::vector<int>() : at->second;
      grown.push_back(axis);
      if (grown.size() <= axes.size() && std::equal(grown.begin(), grown.end(), axes.begin()))
        here = place;
    }
    if (!here || (common && *common != *here))
      return std::nullopt;
    common = here;
  }
  return common;
}

void StepPlaces::placeParameter(size_t p) {
  ParameterPlaces &places = parameters[p];
  const ParameterPlan &plan = assignment.parameterPlans[p];
  const GraphParameter &parameter = graph.parameters[p];
  places.home = places.stored = places.state = places.accumulated = home[parameter.value];
  for (int axis : axisNumbers(plan.zeroAxes))
    if (!test::uses(places.home, axis))
      places.zeroAxes.push_back(axis);
  if (plan.zero >= 3)
    places.stored.flat = places.zeroAxes;
  if (plan.zero >= 1)
    places.state.flat = places.zeroAxes;
  // A gradient of one part and one micro-batch is complete: no reduction waits for the update.
  bool isWhole =
      places.parts.size() == 1 && assignment.microBatches == 1 && assignment.numStages == 1;
  if (plan.zero >= 2 || (plan.zero == 1 && isWhole))
    places.accumulated.flat = places.zeroAxes;
  std::set<int> stages;
  for (const Use &use : uses[parameter.value])
    stages.insert(stageOf(graph.ops[use.op].chunk));
  for (auto [chunk, part] : places.parts)
    stages.insert(stageOf(chunk));
  places.stages.assign(stages.begin(), stages.end());
  if (stages.empty())
    places.stages = {0};
  // Reduced once per step: data axes over which every part is a partial sum.
  if (!places.parts.empty() && !isWhole)
    for (const auto &[axis, kind] : home[places.parts[0].second].partial) {
      bool isLate =
          (names(axisNumbers(plan.zeroAxes), axis) || names(axisNumbers(plan.reduceAxes), axis)) &&
          !names(places.accumulated.flat, axis);
      for (auto [chunk, part] : places.parts)
        isLate &= home[part].partial.count(axis) != 0;
      if (isLate)
        places.accumulated.partial[axis] = kind;
    }
  places.reducesLast = reducesLast(p);
}

/// Whether the first stage reduces the sum of several micro-batches when its last backward has it.
/// That is the end of the step where each stage has one chunk and no wgrad of its own.
bool StepPlaces::reducesLast(size_t p) const {
  const ParameterPlaces &places = parameters[p];
  const int gradient = graph.parameters[p].gradient;
  if (!assignment.reducesInLastBackward || assignment.microBatches < 2 ||
      places.parts.size() != 1 || places.stages.size() != 1 || places.accumulated == places.state)
    return false;
  const int producer = graph.values[places.parts[0].second].producer;
  bool isAlone = true, isPlain = assignment.chunkStage.empty() ||
                                 int(assignment.chunkStage.size()) == assignment.numStages;
  for (size_t other = 0; other < graph.parameters.size(); ++other)
    isAlone &= other == p || graph.parameters[other].gradient != gradient;
  for (const GraphOp &op : graph.ops)
    isPlain &= op.phase != Phase::Weight;
  return isAlone && isPlain && producer >= 0 && graph.ops[producer].chunk == 0 &&
         graph.ops[producer].phase == Phase::Backward;
}

bool StepPlaces::isGenerated(int value) const {
  int producer = graph.values[value].producer;
  return producer >= 0 && graph.ops[producer].generator;
}

bool StepPlaces::isForward(int value) const {
  int producer = graph.values[value].producer;
  return producer < 0 || graph.ops[producer].phase == Phase::Forward;
}

} // namespace tbc::test
