//===- Derive.cpp - Required and produced shardings of each op ------------===//

#include "planner/reshard/Derive.h"

#include "planner/reshard/Move.h"

#include <algorithm>

namespace tbc::reshard {

//===----------------------------------------------------------------------===//
// Memo
//===----------------------------------------------------------------------===//

static void appendAxes(const std::vector<AxisRef> &axes, std::vector<int64_t> &key) {
  key.push_back(static_cast<int64_t>(axes.size()));
  for (const AxisRef &axis : axes)
    key.insert(key.end(), {axis.axis, axis.pre, axis.size});
}

static void appendSharding(const Sharding &sharding, std::vector<int64_t> &key) {
  key.push_back(static_cast<int64_t>(sharding.factors.size()));
  for (const FactorSharding &f : sharding.factors) {
    key.insert(key.end(), {f.dim, f.factor});
    appendAxes(f.axes, key);
  }
  key.push_back(static_cast<int64_t>(sharding.partial.size()));
  for (const Partial &p : sharding.partial)
    key.insert(key.end(), {p.axis.axis, p.axis.pre, p.axis.size, static_cast<int64_t>(p.kind)});
  appendAxes(sharding.flat, key);
}

static void appendLayout(const TensorLayout &layout, std::vector<int64_t> &key) {
  key.insert(key.end(), {layout.elementBytes, static_cast<int64_t>(layout.dims.size())});
  for (const DimLayout &dim : layout.dims) {
    key.push_back(static_cast<int64_t>(dim.segments.size()));
    for (const Segment &segment : dim.segments) {
      key.push_back(static_cast<int64_t>(segment.factors.size()));
      for (const Factor &factor : segment.factors)
        key.insert(key.end(), {factor.id, factor.size});
    }
  }
}

const std::vector<Collective> &ReshardMemo::steps(const TensorLayout &layout, const Sharding &from,
                                                  const Sharding &to) {
  std::vector<int64_t> key;
  appendSharding(from, key);
  appendSharding(to, key);
  appendLayout(layout, key);
  auto [it, isNew] = known.try_emplace(std::move(key));
  if (isNew)
    it->second = reshard(mesh, layout, from, to, cost);
  return it->second;
}

//===----------------------------------------------------------------------===//
// Required and produced shardings
//===----------------------------------------------------------------------===//

static StepIndex indexStep(const Graph &graph, const std::vector<GradientParts> &gradientParts) {
  StepIndex index;
  size_t numValues = graph.values.size();
  index.skipped.assign(graph.ops.size(), false);
  index.parameterOf.assign(numValues, -1);
  index.gradientsFor.resize(numValues);
  index.stateFor.assign(numValues, -1);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    index.parameterOf[graph.parameters[p].value] = static_cast<int>(p);
    for (const GradientParts::Part &part : gradientParts[p].parts)
      index.gradientsFor[part.value].push_back(static_cast<int>(p));
    for (int op : gradientParts[p].skippedAdds)
      index.skipped[op] = true;
  }
  for (auto [state, updated] : graph.stateUpdates)
    index.stateFor[updated] = state;
  return index;
}

ShardingChooser::ShardingChooser(const Graph &graph, const Assignment &assignment,
                                 const StepIndex &index, Derivation &out)
    : graph(graph), assignment(assignment), index(index), out(out),
      deferred(graph.values.size(), false) {}

/// Generators have no strategy in an assignment: see splitGenerators().
void ShardingChooser::findWanted() {
  out.operands.resize(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    int op = static_cast<int>(i);
    if (index.skipped[op])
      continue;
    out.operands[op].resize(graph.ops[op].operands.size());
    if (graph.ops[op].generator)
      continue;
    for (size_t k = 0; k < out.operands[op].size(); ++k)
      out.operands[op][k].sharding =
          operandSharding(graph, op, assignment.strategies[op], static_cast<int>(k));
  }
}

std::vector<const Sharding *> ShardingChooser::wantsOf(int value) const {
  std::vector<const Sharding *> result;
  for (int user : graph.values[value].users) {
    const std::vector<int> &operands = graph.ops[user].operands;
    for (size_t k = 0; k < operands.size() && !index.skipped[user]; ++k)
      if (operands[k] == value)
        result.push_back(&out.operands[user][k].sharding);
  }
  return result;
}

bool ShardingChooser::isUsed(int value) const {
  const std::vector<int> &users = graph.values[value].users;
  return std::any_of(users.begin(), users.end(), [&](int user) { return !index.skipped[user]; });
}

/// Whether additive op `op` passes on the partial sums of its operands.
bool ShardingChooser::defers(int op) const {
  const GraphOp &o = graph.ops[op];
  if (!o.additive || o.generator || o.operands.empty())
    return false;
  const std::vector<Partial> &partial = out.raw[o.operands[0]].partial;
  if (partial.empty() || partial.front().kind != ReduceKind::Sum)
    return false;
  for (int value : o.operands) {
    int producer = graph.values[value].producer;
    if (out.raw[value].partial != partial || graph.values[value].users.size() != 1 ||
        value == graph.loss || !index.gradientsFor[value].empty() || index.stateFor[value] >= 0 ||
        graph.ops[producer].phase != o.phase || graph.ops[producer].chunk != o.chunk)
      return false;
  }
  // The axes must be unused in the required and produced shardings of the op.
  auto isFree = [&](const Sharding &sharding) {
    std::vector<AxisRef> used = usedAxes(sharding);
    return std::none_of(partial.begin(), partial.end(),
                        [&](const Partial &p) { return overlap(used, p.axis); });
  };
  for (const Derivation::Operand &operand : out.operands[op])
    if (!isFree(operand.sharding))
      return false;
  return std::all_of(o.results.begin(), o.results.end(),
                     [&](int value) { return isFree(out.raw[value]); });
}

/// Sets the produced shardings of `op`. A deferring op takes partial operands and gives partial
/// results.
void ShardingChooser::produce(int op) {
  const GraphOp &o = graph.ops[op];
  if (index.skipped[op] || o.generator)
    return;
  for (size_t k = 0; k < o.results.size(); ++k)
    out.raw[o.results[k]] =
        resultSharding(graph, op, assignment.strategies[op], static_cast<int>(k));
  if (!defers(op))
    return;
  const std::vector<Partial> partial = out.raw[o.operands[0]].partial;
  auto addPartial = [&](Sharding &sharding) {
    sharding.partial.insert(sharding.partial.end(), partial.begin(), partial.end());
    normalize(sharding);
  };
  for (int value : o.operands)
    deferred[value] = true;
  for (Derivation::Operand &operand : out.operands[op])
    addPartial(operand.sharding);
  for (int value : o.results)
    addPartial(out.raw[value]);
}

void ShardingChooser::run() {
  findWanted();
  out.raw.resize(graph.values.size());
  splitGenerators();
  for (size_t op = 0; op < graph.ops.size(); ++op)
    produce(static_cast<int>(op));
  chooseHomes();
}

Derivation derive(const Graph &graph, const Assignment &assignment, const CollectiveCost &cost) {
  if (assignment.strategies.size() != graph.ops.size() ||
      assignment.parameterPlans.size() != graph.parameters.size())
    brokenContract("an assignment needs a strategy for every op and a plan for every parameter");
  Derivation out;
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    out.gradientParts.push_back(gradientParts(graph, static_cast<int>(p)));
  const StepIndex index = indexStep(graph, out.gradientParts);
  ShardingChooser(graph, assignment, index, out).run();
  CommunicationDeriver(graph, assignment, index, cost, out).run();
  return out;
}

} // namespace tbc::reshard
