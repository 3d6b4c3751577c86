//===- GraphBuilder.cpp - Small training steps, written like einsums -------===//

#include "tests/planner/reshard/GraphBuilder.h"

#include <algorithm>
#include <cassert>

namespace tbc::reshard::test {

FactorId GraphBuilder::factorOf(char letter) const {
  auto it = factors.find(letter);
  return it == factors.end() ? letter : it->second;
}

int GraphBuilder::addValue(const std::string &name, const std::string &dims, ValueRole role) {
  GraphValue value;
  value.name = name;
  value.role = role;
  for (char letter : dims)
    value.layout.dims.push_back({{Segment{{{factorOf(letter), sizes.at(letter)}}}}});
  graph.values.push_back(value);
  names.push_back(dims);
  return static_cast<int>(graph.values.size()) - 1;
}

int GraphBuilder::input(const std::string &name, const std::string &dims) {
  return addValue(name, dims, ValueRole::Input);
}
int GraphBuilder::state(const std::string &name, const std::string &dims) {
  return addValue(name, dims, ValueRole::State);
}
int GraphBuilder::parameter(const std::string &name, const std::string &dims) {
  int value = addValue(name, dims, ValueRole::Parameter);
  graph.parameters.push_back({value, -1, -1, nullptr});
  return value;
}
void GraphBuilder::gradient(int parameterValue, int gradientValue) {
  for (GraphParameter &p : graph.parameters)
    if (p.value == parameterValue)
      p.gradient = gradientValue;
}

static std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

int GraphBuilder::addOp(GraphOp op, const std::string &spec) {
  size_t arrow = spec.find("->");
  std::vector<std::string> in = split(spec.substr(0, arrow)), out = split(spec.substr(arrow + 2));
  int index = static_cast<int>(graph.ops.size());
  std::map<char, Loop> loops;
  auto run = [&](const std::vector<std::string> &tensors, std::vector<TensorDim> Loop::*dims) {
    for (size_t t = 0; t < tensors.size(); ++t)
      for (size_t d = 0; d < tensors[t].size(); ++d)
        (loops[tensors[t][d]].*dims).push_back({static_cast<int>(t), static_cast<int>(d)});
  };
  if (!op.operands.empty())
    run(in, &Loop::operandDims);
  run(out, &Loop::resultDims);
  for (auto &[letter, loop] : loops) {
    loop.factor = factorOf(letter);
    loop.size = sizes.at(letter);
    loop.kind = loop.resultDims.empty() ? LoopKind::Reduction : LoopKind::Parallel;
    if (kinds.count(letter))
      loop.kind = kinds.at(letter);
    op.loops.push_back(loop);
  }
  for (size_t r = 0; r < out.size(); ++r) {
    int value = addValue(op.id + (r ? "#" + std::to_string(r) : ""), out[r], ValueRole::Activation);
    graph.values[value].producer = index;
    graph.values[value].producerResult = static_cast<int>(r);
    op.results.push_back(value);
  }
  for (size_t k = 0; k < op.operands.size(); ++k) {
    assert(names[op.operands[k]].size() == in[k].size() && "an operand has other dims");
    std::vector<int> &users = graph.values[op.operands[k]].users;
    if (users.empty() || users.back() != index)
      users.push_back(index);
  }
  op.chunk = stage;
  graph.ops.push_back(op);
  return op.results[0];
}

int GraphBuilder::forward(const std::string &id, const std::string &spec,
                          std::vector<int> operands) {
  GraphOp op;
  op.id = id;
  op.kind = "einsum";
  op.forwardOp = static_cast<int>(graph.ops.size());
  op.operands = std::move(operands);
  return addOp(op, spec);
}

int GraphBuilder::backward(const std::string &id, int of, const std::string &spec,
                           std::vector<int> operands, std::vector<int> cotangentsOf) {
  GraphOp op;
  op.id = id;
  op.kind = "einsum";
  op.phase = Phase::Backward;
  op.forwardOp = graph.values[of].producer;
  op.operands = std::move(operands);
  int first = addOp(op, spec);
  for (size_t i = 0; i < cotangentsOf.size(); ++i)
    graph.values[first + static_cast<int>(i)].cotangentOf = cotangentsOf[i];
  return first;
}

int GraphBuilder::sum(const std::string &id, Phase phase, std::vector<int> operands) {
  GraphOp op;
  op.id = id;
  op.kind = "add";
  op.phase = phase;
  op.additive = true;
  op.function = operands.size() == 2 ? ElementFunction::Sum : ElementFunction::Other;
  std::string spec, one = names[operands[0]];
  for (size_t i = 0; i < operands.size(); ++i)
    spec += (i ? "," : "") + one;
  if (phase == Phase::Forward)
    op.forwardOp = static_cast<int>(graph.ops.size());
  else
    op.forwardOp = opOf(operands[0]).forwardOp;
  int of = graph.values[operands[0]].cotangentOf;
  op.operands = std::move(operands);
  int value = addOp(op, spec + "->" + one);
  graph.values[value].cotangentOf = of;
  return value;
}

int GraphBuilder::generator(const std::string &id, const std::string &dims) {
  GraphOp op;
  op.id = id;
  op.kind = "constant";
  op.generator = true;
  op.forwardOp = static_cast<int>(graph.ops.size());
  return addOp(op, "->" + dims);
}

int GraphBuilder::opIndex(const std::string &id) const {
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].id == id)
      return static_cast<int>(i);
  assert(false && "no such op");
  return -1;
}

int GraphBuilder::valueIndex(const std::string &name) const {
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].name == name)
      return static_cast<int>(i);
  assert(false && "no such value");
  return -1;
}

//===----------------------------------------------------------------------===//
// Assignments
//===----------------------------------------------------------------------===//

void shard(const Graph &graph, OpStrategy &strategy, int op, char letter,
           const std::vector<AxisRef> &axes) {
  const std::vector<Loop> &loops = graph.ops[op].loops;
  for (size_t i = 0; i < loops.size(); ++i)
    if (loops[i].factor == letter)
      strategy.loopAxes[static_cast<int>(i)] = axes;
}

Assignment replicated(const Graph &graph, const Mesh &mesh) {
  Assignment assignment;
  assignment.mesh = mesh;
  assignment.pipelineAxis = mesh.axisIndex("pp");
  for (const GraphOp &op : graph.ops)
    assignment.numStages = std::max(assignment.numStages, op.chunk + 1);
  assignment.strategies.resize(graph.ops.size());
  assignment.parameterPlans.resize(graph.parameters.size());
  return assignment;
}

Assignment dataParallel(const Graph &graph, const Mesh &mesh, const std::vector<AxisRef> &axes) {
  Assignment assignment = replicated(graph, mesh);
  for (size_t op = 0; op < graph.ops.size(); ++op)
    assignment.strategies[op] = batchStrategy(graph, static_cast<int>(op), axes);
  for (ParameterPlan &plan : assignment.parameterPlans)
    plan.reduceAxes = axes;
  return assignment;
}

GraphBuilder mlp(int64_t b, int64_t i, int64_t h, int64_t o) {
  GraphBuilder g({{'b', b}, {'i', i}, {'h', h}, {'o', o}});
  g.graph.batchFactor = 'b';
  int x = g.input("x", "bi"), labels = g.input("labels", "b");
  int w1 = g.parameter("w1", "ih"), b1 = g.parameter("b1", "h");
  int w2 = g.parameter("w2", "ho"), b2 = g.parameter("b2", "o");
  int h1 = g.forward("fc1", "bi,ih->bh", {x, w1});
  int h2 = g.forward("bias1", "bh,h->bh", {h1, b1});
  int h3 = g.forward("relu", "bh->bh", {h2});
  int y1 = g.forward("fc2", "bh,ho->bo", {h3, w2});
  int y2 = g.forward("bias2", "bo,o->bo", {y1, b2});
  int losses = g.forward("entropy", "bo,b->b", {y2, labels});
  g.graph.loss = g.forward("loss", "b->", {losses});
  g.graph.values[g.graph.loss].role = ValueRole::Loss;

  int dlosses = g.generator("dlosses", "b");
  g.opOf(dlosses).phase = Phase::Backward;
  int dy = g.backward("entropy.bwd", losses, "bo,b,b->bo", {y2, labels, dlosses}, {y2});
  int db2 = g.backward("bias2.bwd", y2, "bo->o", {dy}, {b2});
  int dw2 = g.backward("fc2.bwd.w", y1, "bh,bo->ho", {h3, dy}, {w2});
  int dh3 = g.backward("fc2.bwd.x", y1, "bo,ho->bh", {dy, w2}, {h3});
  int dh2 = g.backward("relu.bwd", h3, "bh,bh->bh", {h2, dh3}, {h2});
  int db1 = g.backward("bias1.bwd", h2, "bh->h", {dh2}, {b1});
  int dw1 = g.backward("fc1.bwd.w", h1, "bi,bh->ih", {x, dh2}, {w1});
  g.gradient(w1, dw1);
  g.gradient(b1, db1);
  g.gradient(w2, dw2);
  g.gradient(b2, db2);
  return g;
}

int64_t executions(const std::vector<CollectiveCount> &counts, CollectiveKind kind,
                   const std::string &axes) {
  int64_t total = 0;
  for (const CollectiveCount &c : counts)
    if (c.kind == kind && (axes.empty() || c.axes == axes))
      total += c.count;
  return total;
}

std::string show(const std::vector<CollectiveCount> &counts) {
  std::string text;
  for (const CollectiveCount &c : counts)
    text += "stage " + std::to_string(c.stage) + " " + name(c.kind) + "(" + c.axes + ") " +
            std::to_string(c.bytes) + " x " + std::to_string(c.count) + "\n";
  return text;
}

} // namespace tbc::reshard::test
