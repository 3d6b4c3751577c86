//===- GraphSimulator.cpp - Executes a derivation on many ranks ------------===//

#include "tests/planner/reshard/GraphSimulator.h"

#include <algorithm>

namespace tbc::reshard::test {

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

static int64_t product(const std::vector<int64_t> &sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

/// Returns the stride of tensor number `tensor` along each loop.
static std::vector<int64_t> stridesOf(const GraphOp &op, std::vector<TensorDim> Loop::*dims,
                                      int tensor, const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(op.loops.size(), 0);
  for (size_t loop = 0; loop < op.loops.size(); ++loop)
    for (const TensorDim &d : op.loops[loop].*dims)
      if (d.tensor == tensor)
        strides[loop] += product({shape.begin() + d.dim + 1, shape.end()});
  return strides;
}

static int64_t positive(int64_t value) { return (value % kPrime + kPrime) % kPrime; }

/// Executes `op` on local operands; `shapes` are the shapes of the local results.
static std::vector<LocalTensor> evaluate(const GraphOp &op,
                                         const std::vector<const LocalTensor *> &operands,
                                         const std::vector<std::vector<int64_t>> &shapes) {
  std::vector<int64_t> sizes(op.loops.size());
  for (size_t loop = 0; loop < sizes.size(); ++loop) {
    for (const TensorDim &d : op.loops[loop].operandDims)
      sizes[loop] = operands[d.tensor]->shape[d.dim];
    for (const TensorDim &d : op.loops[loop].resultDims)
      sizes[loop] = shapes[d.tensor][d.dim];
  }
  std::vector<std::vector<int64_t>> in;
  for (size_t k = 0; k < operands.size(); ++k)
    in.push_back(stridesOf(op, &Loop::operandDims, static_cast<int>(k), operands[k]->shape));
  std::vector<LocalTensor> results;
  for (size_t r = 0; r < shapes.size(); ++r) {
    LocalTensor result{shapes[r], std::vector<int64_t>(product(shapes[r]), 0)};
    std::vector<int64_t> out = stridesOf(op, &Loop::resultDims, static_cast<int>(r), shapes[r]);
    bool reduces = std::any_of(op.loops.begin(), op.loops.end(),
                               [&](const Loop &loop) { return loop.kind == LoopKind::Reduction; });
    for (int64_t point = 0, n = product(sizes); point < n; ++point) {
      std::vector<int64_t> from(operands.size(), 0);
      int64_t to = 0, rest = point;
      for (size_t loop = 0; loop < sizes.size(); ++loop) {
        int64_t index = rest % sizes[loop];
        rest /= sizes[loop];
        to += index * out[loop];
        for (size_t k = 0; k < operands.size(); ++k)
          from[k] += index * in[k][loop];
      }
      int64_t value = op.additive ? 0 : static_cast<int64_t>(r) + 3;
      for (size_t k = 0; k < operands.size(); ++k) {
        int64_t operand = positive(operands[k]->data[from[k]]);
        value = op.additive ? value + operand : value * operand % kPrime;
      }
      if (!reduces && !op.additive)
        value = (value * value + 1) % kPrime;
      result.data[to] = (result.data[to] + value) % kPrime;
    }
    results.push_back(std::move(result));
  }
  return results;
}

/// Returns an input of the step, or a data-independent value.
static LocalTensor given(const Graph &graph, int value) {
  LocalTensor tensor{graph.values[value].layout.shape(), {}};
  for (int64_t i = 0; i < product(tensor.shape); ++i)
    tensor.data.push_back(valueOf(i * 131 + value * 977));
  return tensor;
}

std::vector<LocalTensor> runSerially(const Graph &graph) {
  std::vector<LocalTensor> values(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].producer < 0)
      values[v] = given(graph, static_cast<int>(v));
  for (const GraphOp &op : graph.ops) {
    std::vector<const LocalTensor *> operands;
    for (int value : op.operands)
      operands.push_back(&values[value]);
    std::vector<std::vector<int64_t>> shapes;
    for (int value : op.results)
      shapes.push_back(graph.values[value].layout.shape());
    std::vector<LocalTensor> results = evaluate(op, operands, shapes);
    for (size_t r = 0; r < results.size(); ++r)
      values[op.results[r]] = op.generator ? given(graph, op.results[r]) : results[r];
  }
  return values;
}

//===----------------------------------------------------------------------===//
// The derivation
//===----------------------------------------------------------------------===//

GraphSimulator::GraphSimulator(const Graph &graph, const Assignment &assignment,
                               const Derivation &derivation)
    : graph(graph), assignment(assignment), derivation(derivation), serial(runSerially(graph)) {}

/// Provides parameters as stored to every block of their stages, inputs to every forward, and
/// data-independent values to all blocks.
void GraphSimulator::provideInputs() {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    int value = static_cast<int>(i);
    const GraphValue &v = graph.values[value];
    bool generated = v.producer >= 0 && graph.ops[v.producer].generator;
    if (v.producer >= 0 && !generated)
      continue;
    Sharding sharding = generated ? Sharding{} : derivation.home[value];
    bool isParameter = false;
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      if (graph.parameters[p].value == value) {
        sharding = derivation.stored[p];
        isParameter = true;
      }
    Ranks ranks = distribute(assignment.mesh, v.layout, sharding,
                             [&](int64_t index) { return serial[value].data[index]; });
    for (int chunk = 0; chunk < assignment.numChunks(); ++chunk)
      for (Phase phase : {Phase::Forward, Phase::Backward, Phase::Weight})
        if (phase == Phase::Forward || generated || isParameter)
          blocks[{chunk, phase}][{value, sharding}] = ranks;
  }
}

const GraphSimulator::Ranks *GraphSimulator::get(const Block &block, int value,
                                                 const Sharding &sharding) {
  auto found = blocks[block].find({value, sharding});
  if (found != blocks[block].end())
    return &found->second;
  // An earlier block of the same stage may keep it.
  for (const Residual &r : derivation.residuals) {
    Block keeper{r.chunk, r.phase};
    bool isBefore = keeper.phase != block.phase     ? keeper.phase < block.phase
                    : block.phase == Phase::Forward ? keeper.chunk < block.chunk
                                                    : keeper.chunk > block.chunk;
    auto kept = blocks[keeper].find({value, sharding});
    if (r.value == value && r.sharding == sharding && isBefore && kept != blocks[keeper].end() &&
        assignment.stageOf(r.chunk) == assignment.stageOf(block.chunk))
      return &kept->second;
  }
  const char *phases[] = {"forward", "backward", "the weight phase"};
  fail(nameOf(value) + " is not at hand as " + toString(assignment.mesh, sharding) + " in chunk " +
       std::to_string(block.chunk) + " in " + phases[int(block.phase)]);
  return nullptr;
}

GraphSimulator::Ranks GraphSimulator::reshardTensor(const Reshard &reshard, Ranks ranks) {
  Sharding unflattened = reshard.from;
  unflattened.flat.clear();
  for (const Collective &step : reshard.steps)
    execute(assignment.mesh, step, localShape(graph.values[reshard.value].layout, unflattened),
            ranks);
  return ranks;
}

void GraphSimulator::runReshards(const std::function<bool(const Reshard &)> &mine) {
  for (; cursor < derivation.reshards.size() && mine(derivation.reshards[cursor]); ++cursor) {
    const Reshard &r = derivation.reshards[cursor];
    const Ranks *from = get({r.chunk, r.phase}, r.value, r.from);
    if (r.stage != assignment.stageOf(r.chunk))
      fail("a reshard of " + nameOf(r.value) + " is not on the stage of its chunk");
    if (!from)
      return;
    if (r.where != Where::Stage) {
      blocks[{r.chunk, r.phase}][{r.value, r.to}] = reshardTensor(r, *from);
      continue;
    }
    const std::vector<int> ends = r.steps.at(0).stages;
    const Transfer &t = derivation.transfers.at(numSent++); // listed in the order of the sends
    if (t.value != r.value || t.fromChunk != r.chunk || t.phase != r.phase ||
        t.sharding != r.from || assignment.stageOf(t.toChunk) != ends.at(1) ||
        r.stage != ends.at(0) || ends.at(0) == ends.at(1))
      return fail("a send of " + nameOf(r.value) + " is not the next of the transfers");
    Ranks copy = *from;
    blocks[{t.toChunk, r.phase}][{r.value, r.from}] = std::move(copy);
  }
}

void GraphSimulator::runOp(int index) {
  const GraphOp &op = graph.ops[index];
  Block block{op.chunk, op.phase};
  runReshards([&](const Reshard &r) {
    bool late = r.where == Where::Stage &&
                (r.phase == Phase::Forward) == (op.phase == Phase::Forward) &&
                graph.values[r.value].producer < index;
    return !r.perStep && (r.op == index || late);
  });
  std::vector<const Ranks *> operands;
  for (size_t k = 0; k < op.operands.size() && failure.empty(); ++k) {
    const Derivation::Operand &need = derivation.operands[index][k];
    if (need.reshard >= 0 && (static_cast<size_t>(need.reshard) >= cursor ||
                              derivation.reshards[need.reshard].to != need.sharding ||
                              derivation.reshards[need.reshard].value != op.operands[k]))
      fail("operand " + std::to_string(k) + " of " + op.id + " names the wrong reshard");
    operands.push_back(get(block, op.operands[k], need.sharding));
  }
  if (!failure.empty())
    return;
  for (int value : op.results)
    blocks[block][{value, derivation.raw[value]}].clear();
  std::vector<std::vector<int64_t>> shapes;
  for (int value : op.results)
    shapes.push_back(localShape(graph.values[value].layout, derivation.raw[value]));
  for (int64_t rank = 0; rank < assignment.mesh.numRanks(); ++rank) {
    std::vector<const LocalTensor *> local;
    for (const Ranks *ranks : operands)
      local.push_back(&(*ranks)[rank]);
    std::vector<LocalTensor> results = evaluate(op, local, shapes);
    for (size_t r = 0; r < results.size(); ++r)
      blocks[block][{op.results[r], derivation.raw[op.results[r]]}].push_back(results[r]);
  }
  for (int value : op.results)
    compare("result", value, derivation.raw[value], blocks[block][{value, derivation.raw[value]}]);
  runReshards([&](const Reshard &r) {
    return !r.perStep && r.op < 0 && r.phase == op.phase && graph.values[r.value].producer == index;
  });
}

void GraphSimulator::compare(const std::string &what, int value, const Sharding &sharding,
                             const Ranks &ranks) {
  std::string why = difference(
      assignment.mesh, graph.values[value].layout, sharding, ranks,
      [&](int64_t index) { return serial[value].data[index]; }, kPrime);
  if (!why.empty())
    fail(what + " " + nameOf(value) + " as " + toString(assignment.mesh, sharding) + ": " + why);
}

//===----------------------------------------------------------------------===//
// The end of the step
//===----------------------------------------------------------------------===//

void GraphSimulator::finishLoss() {
  if (graph.loss < 0)
    return;
  int chunk = graph.ops[graph.values[graph.loss].producer].chunk;
  Sharding sharding = derivation.home[graph.loss];
  const Ranks *ranks = get({chunk, Phase::Forward}, graph.loss, sharding);
  if (!ranks)
    return;
  Ranks loss = *ranks;
  for (const Reshard &r : derivation.reshards)
    if (r.where == Where::Loss) {
      loss = reshardTensor(r, loss);
      sharding = r.to;
    }
  compare("loss", graph.loss, sharding, loss);
  if (!sharding.partial.empty())
    fail("the loss is not completed");
}

/// Whether a reshard of the accumulated gradient `value` on `stage`, in the last backward or the
/// update.
static bool isOfTotal(const Reshard &r, int value, int stage) {
  return (r.where == Where::GradientLast || r.where == Where::GradientStep) && r.value == value &&
         r.stage == stage;
}

static void addTo(std::vector<LocalTensor> &sum, const std::vector<LocalTensor> &more) {
  for (size_t rank = 0; rank < sum.size(); ++rank)
    for (size_t i = 0; i < sum[rank].data.size(); ++i)
      sum[rank].data[i] = (sum[rank].data[i] + more[rank].data[i]) % kPrime;
}

/// Adds up the parts on every stage, then does the reductions once per step.
void GraphSimulator::finishGradient(int p) {
  const GraphParameter &parameter = graph.parameters[p];
  if (parameter.gradient < 0)
    return;
  const TensorLayout &layout = graph.values[parameter.value].layout;
  std::map<int, Ranks> byStage;
  for (int stage : derivation.parameterStages[p])
    byStage[stage] =
        distribute(assignment.mesh, layout, derivation.gradient[p], [](int64_t) { return 0; });
  for (const GradientParts::Part &part : derivation.gradientParts[p].parts) {
    Phase phase = graph.ops[graph.values[part.value].producer].phase;
    const Ranks *ranks = get({part.chunk, phase}, part.value, derivation.gradient[p]);
    int stage = assignment.stageOf(part.chunk);
    if (!ranks || !byStage.count(stage))
      return fail("a part of a gradient is on a stage without the parameter");
    addTo(byStage[stage], *ranks);
  }
  std::map<int, Sharding> sharding;
  std::map<int, Ranks> summed;
  for (auto &[stage, ranks] : byStage) {
    sharding[stage] = derivation.gradient[p];
    for (const Reshard &r : derivation.reshards) {
      if (!isOfTotal(r, parameter.gradient, stage))
        continue;
      if (!r.steps.empty() && !r.steps[0].stages.empty())
        continue; // below, when all stages have theirs
      if (r.from != sharding[stage])
        fail("the gradient of " + nameOf(parameter.value) + " is not where the update takes it");
      ranks = reshardTensor(r, ranks);
      sharding[stage] = r.to;
    }
  }
  for (auto &[stage, ranks] : byStage) {
    summed[stage] = ranks;
    for (const Reshard &r : derivation.reshards)
      if (isOfTotal(r, parameter.gradient, stage) && !r.steps.empty())
        for (int other : r.steps[0].stages)
          if (other != stage)
            addTo(summed[stage], byStage.at(other));
    if (sharding[stage] != derivation.state[p])
      fail("the gradient of " + nameOf(parameter.value) + " does not end as the state is");
    compare("gradient", parameter.gradient, sharding[stage], summed[stage]);
  }
}

std::string GraphSimulator::run() {
  provideInputs();
  for (size_t op = 0; op < graph.ops.size() && failure.empty(); ++op) {
    int index = static_cast<int>(op);
    bool skipped = false;
    for (const GradientParts &parts : derivation.gradientParts)
      skipped |= std::count(parts.skippedAdds.begin(), parts.skippedAdds.end(), index) > 0;
    if (!skipped && !graph.ops[op].generator)
      runOp(index);
  }
  if (failure.empty() && cursor < derivation.reshards.size() &&
      !derivation.reshards[cursor].perStep)
    fail("a reshard of " + nameOf(derivation.reshards[cursor].value) + " belongs to no op");
  for (auto [state, updated] : graph.stateUpdates)
    if (failure.empty()) {
      int chunk = graph.ops[graph.values[updated].producer].chunk;
      if (const Ranks *ranks = get({chunk, Phase::Forward}, updated, derivation.home[state]))
        compare("state", updated, derivation.home[state], *ranks);
    }
  if (failure.empty())
    finishLoss();
  for (size_t p = 0; p < graph.parameters.size() && failure.empty(); ++p)
    finishGradient(static_cast<int>(p));
  return failure;
}

} // namespace tbc::reshard::test
