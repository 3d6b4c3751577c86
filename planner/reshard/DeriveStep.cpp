//===- DeriveStep.cpp - Communication once per step -----------------------===//

#include "planner/reshard/Derive.h"

#include <algorithm>
#include <utility>

namespace tbc::reshard {

bool isStack(const MatrixUpdate *update, int numDims) {
  return numDims > 2 || (update && update->isByRows);
}

Sharding matrixSharding(const Sharding &state, const MatrixUpdate *update, int numDims) {
  Sharding whole;
  for (const FactorSharding &factor : state.factors)
    if (factor.dim == 0 && isStack(update, numDims))
      whole.factors.push_back(factor);
  return whole;
}

std::vector<int64_t> wholeStateBytes(const GraphParameter &parameter, const TensorLayout &layout,
                                     const Sharding &state) {
  std::vector<int64_t> bytes;
  if (!parameter.matrices)
    return bytes;
  const int64_t local =
      localBytes(layout, matrixSharding(state, parameter.matrices.get(), int(layout.dims.size())));
  const int64_t parts = layout.numElements() * layout.elementBytes / std::max<int64_t>(local, 1);
  for (auto [value, next] : parameter.matrices->graph.stateUpdates) {
    const TensorLayout &whole = parameter.matrices->graph.values[size_t(value)].layout;
    bytes.push_back(whole.numElements() * whole.elementBytes / parts);
  }
  return bytes;
}

OpStrategy matrixStrategy(const MatrixUpdate &update, int op, const Sharding &matrices) {
  OpStrategy strategy;
  std::vector<AxisRef> axes;
  for (const FactorSharding &factor : matrices.factors)
    axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
  const std::vector<Loop> &loops = update.graph.ops[size_t(op)].loops;
  for (size_t loop = 0; loop < loops.size() && !axes.empty(); ++loop)
    if (loops[loop].factor == MatrixUpdate::stackFactor)
      strategy.loopAxes[int(loop)] = axes;
  return strategy;
}

/// Finds the gradients that are completed in the last backward: see rule 5.
void CommunicationDeriver::findReducedLast() {
  out.isReducedLast.assign(graph.parameters.size(), false);
  const bool isSplit = std::any_of(graph.ops.begin(), graph.ops.end(),
                                   [](const GraphOp &op) { return op.phase == Phase::Weight; });
  if (!assignment.reducesInLastBackward || assignment.microBatches == 1 || isSplit ||
      assignment.numChunks() > assignment.numStages)
    return;
  std::map<int, int> numParameters; // by gradient
  for (const GraphParameter &parameter : graph.parameters)
    ++numParameters[parameter.gradient];
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const std::vector<GradientParts::Part> &parts = out.gradientParts[p].parts;
    const int producer = parts.size() == 1 ? graph.values[parts[0].value].producer : -1;
    out.isReducedLast[p] = producer >= 0 && graph.ops[producer].phase == Phase::Backward &&
                           parts[0].chunk == 0 && out.parameterStages[p].size() == 1 &&
                           numParameters.at(graph.parameters[p].gradient) == 1 &&
                           out.gradient[p] != out.state[p];
  }
}

/// Completes gradients in the order in which the backward computes them.
void CommunicationDeriver::reduceInLastBackward() {
  std::vector<int> parameters;
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    if (out.isReducedLast[p])
      parameters.push_back(int(p));
  auto place = [&](int p) {
    const GraphValue &gradient = graph.values[graph.parameters[p].gradient];
    return std::pair(gradient.producer, gradient.producerResult);
  };
  std::sort(parameters.begin(), parameters.end(),
            [&](int a, int b) { return place(a) < place(b); });
  for (int p : parameters) {
    Reshard reshard;
    reshard.value = graph.parameters[p].gradient;
    reshard.where = Where::GradientLast;
    reshard.phase = Phase::Backward;
    reshard.stage = assignment.stageOf(0);
    reshard.chunk = 0;
    reshard.perStep = true;
    reshard.from = out.gradient[p];
    reshard.to = out.state[p];
    add(std::move(reshard));
  }
}

/// Adds the all_reduce of the scalars of an update that are sums over a whole parameter.
void CommunicationDeriver::totalParameter(int parameter, int stage) {
  const GraphParameter &p = graph.parameters[parameter];
  Collective sum;
  sum.axes = usedAxes(out.state[parameter]);
  if (!p.matrices || p.matrices->totals == 0 || sum.axes.empty())
    return;
  constexpr int64_t scalarBytes = 4;
  sum.numElements = p.matrices->totals;
  sum.bytes = sum.numElements * scalarBytes;
  Reshard reshard;
  reshard.value = p.value;
  reshard.where = Where::MatrixTotals;
  reshard.phase = Phase::Backward;
  reshard.stage = stage;
  reshard.perStep = true;
  reshard.steps = {sum};
  add(std::move(reshard));
}

/// Completes the gradient on every stage with the parameter, sums it over these stages, gathers
/// whole matrices where the optimizer reads them, sums its scalars over the state's shards, and
/// redistributes the new parameter.
void CommunicationDeriver::finishParameter(int parameter) {
  const GraphParameter &p = graph.parameters[parameter];
  if (p.gradient < 0)
    return;
  const Sharding &state = out.state[parameter];
  const std::vector<int> &stages = out.parameterStages[parameter];
  for (int stage : stages) {
    Reshard reshard;
    reshard.value = p.gradient;
    reshard.where = Where::GradientStep;
    reshard.phase = Phase::Backward;
    reshard.stage = stage;
    reshard.perStep = true;
    reshard.from = out.gradient[parameter];
    reshard.to = state;
    if (reshard.from != reshard.to && !out.isReducedLast[parameter])
      add(reshard);
    if (stages.size() > 1) {
      Collective sum;
      if (assignment.pipelineAxis >= 0)
        sum.axes = {wholeAxis(assignment.mesh, assignment.pipelineAxis)};
      sum.stages = stages;
      const TensorLayout &layout = graph.values[p.gradient].layout;
      sum.bytes = localBytes(layout, state);
      sum.numElements = sum.bytes / layout.elementBytes;
      reshard.from = state;
      reshard.steps = {sum};
      add(reshard);
    }
    if (p.matrices) {
      Reshard gather = reshard;
      gather.value = p.value;
      gather.where = Where::MatrixStep;
      gather.from = state;
      gather.to =
          matrixSharding(state, p.matrices.get(), int(graph.values[p.value].layout.dims.size()));
      gather.steps.clear();
      if (gather.from != gather.to)
        add(std::move(gather));
    }
    totalParameter(parameter, stage);
    reshard.value = p.value;
    reshard.where = Where::ParameterStep;
    reshard.from = state;
    reshard.to = out.stored[parameter];
    reshard.steps.clear();
    if (reshard.from != reshard.to)
      add(std::move(reshard));
  }
}

/// Sums the scalars of the step over all stages.
void CommunicationDeriver::totalStep() {
  Collective sum;
  for (size_t axis = 0; axis < assignment.mesh.axes.size(); ++axis)
    sum.axes.push_back(wholeAxis(assignment.mesh, static_cast<int>(axis)));
  sum.bytes = graph.stepTotalBytes;
  sum.numElements = sum.bytes / graph.values[graph.loss].layout.elementBytes;
  for (int stage = 0; stage < assignment.numStages && !sum.axes.empty(); ++stage) {
    Reshard reshard;
    reshard.value = graph.loss;
    reshard.where = Where::StepTotal;
    reshard.phase = Phase::Backward;
    reshard.stage = stage;
    reshard.perStep = true;
    reshard.steps = {sum};
    add(std::move(reshard));
  }
}

void CommunicationDeriver::finishStep() {
  findReducedLast();
  reduceInLastBackward();
  if (graph.stepTotalBytes > 0)
    totalStep();
  else if (graph.loss >= 0 && !out.home[graph.loss].partial.empty()) {
    Reshard reshard;
    reshard.value = graph.loss;
    reshard.where = Where::Loss;
    reshard.stage = stageOf(graph.loss);
    reshard.perStep = true;
    reshard.from = reshard.to = out.home[graph.loss];
    reshard.to.partial.clear();
    add(std::move(reshard));
  }
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    finishParameter(static_cast<int>(p));
}

} // namespace tbc::reshard
