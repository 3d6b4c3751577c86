//===- LocalUpdate.cpp - The update function of one stage ------------------===//

#include "passes/partition/LocalUpdate.h"

#include "ir/Tbc.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tbc {

using reshard::Sharding;
using reshard::Where;

LocalUpdate::LocalUpdate(const PartitionInput &input, ModuleOp module, int stage)
    : in(input), stage(stage), function(module, "update_" + std::to_string(stage)) {
  assignParameters();
}

static StringRef argAttr(func::FuncOp func, unsigned index, StringRef attr) {
  auto value = func.getArgAttrOfType<StringAttr>(index, attr);
  return value ? value.getValue() : "";
}

/// Finds for each value of @update the parameter it belongs to: by the name of parameter and
/// gradient arguments, then through the ops.
void LocalUpdate::assignParameters() {
  llvm::StringMap<int> byName;
  for (auto [p, parameter] : llvm::enumerate(in.graph.parameters))
    byName[in.graph.values[parameter.value].name] = p;
  for (BlockArgument arg : in.update.getArguments()) {
    StringRef role = argAttr(in.update, arg.getArgNumber(), kRoleAttr);
    auto it = byName.find(argAttr(in.update, arg.getArgNumber(), kNameAttr));
    if ((role == "param" || role == "grad") && it != byName.end())
      parameterOf[arg] = it->second;
  }
  for (Operation &op : in.update.getBody().front().without_terminator()) {
    auto known = llvm::find_if(op.getOperands(), [&](Value v) { return parameterOf.count(v); });
    if (known == op.getOperands().end())
      continue;
    int parameter = parameterOf.lookup(*known);
    for (Value operand : op.getOperands())
      if (auto arg = dyn_cast<BlockArgument>(operand))
        if (argAttr(in.update, arg.getArgNumber(), kRoleAttr) == "opt_state")
          parameterOf[arg] = parameter;
    for (Value result : op.getResults())
      parameterOf[result] = parameter;
  }
}

bool LocalUpdate::holds(int parameter) const {
  return llvm::is_contained(in.derivation.parameterStages[parameter], stage);
}

Value LocalUpdate::apply(Value value, int graphValue, Where where, const Sharding &from,
                         const Sharding &to) {
  const reshard::TensorLayout &layout = in.graph.values[graphValue].layout;
  Sharding current = from;
  for (const reshard::Reshard &reshard : in.derivation.reshards) {
    if (reshard.where != where || reshard.stage != stage || reshard.value != graphValue)
      continue;
    value = emitReshard(function.builder(), in.update.getLoc(), value, reshard, layout,
                        in.assignment.mesh);
    current = reshard.to;
  }
  if (current == to)
    return value;
  // What is left is cutting a replicated tensor into shards, which moves nothing.
  reshard::Reshard rest;
  rest.from = current;
  rest.to = to;
  rest.steps = reshard::reshard(in.assignment.mesh, layout, current, to);
  for (const reshard::Collective &step : rest.steps)
    if (step.kind != reshard::CollectiveKind::ShardSlice) {
      emitError(in.update.getLoc())
          << "the derivation lacks the collectives that take \"" << in.graph.values[graphValue].name
          << "\" from " << reshard::toString(in.assignment.mesh, current) << " to "
          << reshard::toString(in.assignment.mesh, to) << " in the update";
      return {};
    }
  return emitReshard(function.builder(), in.update.getLoc(), value, rest, layout,
                     in.assignment.mesh);
}

/// The local value of an argument of @update, as the optimizer wants it: on the state's shard.
Value LocalUpdate::argument(BlockArgument arg) {
  if (Value known = local.lookup(arg))
    return known;
  StringRef role = argAttr(in.update, arg.getArgNumber(), kRoleAttr);
  StringRef name = argAttr(in.update, arg.getArgNumber(), kNameAttr);
  auto type = tensorType(arg);
  Value result;
  if (role == "lr" || role == "step") {
    result = function.addArgument(type, role, name.empty() ? role : name);
  } else {
    int p = parameterOf.lookup(arg);
    int value = in.graph.parameters[p].value;
    const reshard::TensorLayout &layout = in.graph.values[value].layout;
    const Sharding &state = in.derivation.state[p];
    auto add = [&](const Sharding &sharding, StringRef argRole) {
      return function.addArgument(
          RankedTensorType::get(reshard::localShape(layout, sharding), type.getElementType()),
          argRole, name);
    };
    if (role == "grad")
      result = apply(add(in.derivation.gradient[p], "acc"), in.graph.parameters[p].gradient,
                     Where::GradientStep, in.derivation.gradient[p], state);
    else if (role == "param")
      result = apply(add(in.derivation.stored[p], "param"), value, Where::GradientStep,
                     in.derivation.stored[p], state);
    else
      result = add(state, role);
  }
  return local[arg] = result;
}

LogicalResult LocalUpdate::emitOp(Operation &op, int parameter) {
  OperationState state(op.getLoc(), op.getName());
  for (Value operand : op.getOperands()) {
    Value value = local.lookup(operand);
    if (!value)
      if (auto arg = dyn_cast<BlockArgument>(operand))
        value = argument(arg);
    if (!value)
      return failure();
    state.operands.push_back(value);
  }
  const reshard::TensorLayout &layout =
      in.graph.values[in.graph.parameters[parameter].value].layout;
  std::vector<int64_t> shape = reshard::localShape(layout, in.derivation.state[parameter]);
  for (Value result : op.getResults())
    state.addTypes(RankedTensorType::get(shape, tensorType(result).getElementType()));
  state.addAttributes(op.getAttrs());
  Operation *clone = function.builder().create(state);
  for (auto [from, to] : llvm::zip_equal(op.getResults(), clone->getResults()))
    local[from] = to;
  return success();
}

void LocalUpdate::emitResults() {
  Operation *terminator = in.update.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    auto it = parameterOf.find(value);
    Value result = local.lookup(value);
    if (it == parameterOf.end() || !result || !holds(it->second))
      continue;
    int p = it->second;
    auto role = in.update.getResultAttrOfType<StringAttr>(i, kRoleAttr).getValue();
    auto name = in.update.getResultAttrOfType<StringAttr>(i, kNameAttr).getValue();
    if (role == "param")
      result = apply(result, in.graph.parameters[p].value, Where::ParameterStep,
                     in.derivation.state[p], in.derivation.stored[p]);
    if (result)
      function.addResult(result, role, name);
  }
}

/// Completes the step's loss over data ranks, once.
void LocalUpdate::emitLoss() {
  int loss = in.graph.loss;
  if (loss < 0)
    return;
  int producer = in.graph.values[loss].producer;
  if (producer < 0 || in.graph.ops[producer].stage != stage)
    return;
  auto type = tensorType(in.step.values[in.step.graph.loss]);
  Value total = function.addArgument(type, "loss_acc", "loss");
  for (const reshard::Reshard &reshard : in.derivation.reshards)
    if (reshard.where == Where::Loss)
      total = emitReshard(function.builder(), in.update.getLoc(), total, reshard,
                          in.graph.values[loss].layout, in.assignment.mesh);
  function.addResult(total, "loss", "loss");
}

LogicalResult LocalUpdate::build() {
  for (Operation &op : in.update.getBody().front().without_terminator()) {
    int parameter = -1;
    for (Value result : op.getResults())
      if (auto it = parameterOf.find(result); it != parameterOf.end())
        parameter = it->second;
    if (parameter < 0)
      return op.emitError(
          "belongs to no parameter; the update of a stage is made of the updates of "
          "its parameters");
    if (holds(parameter) && mlir::failed(emitOp(op, parameter)))
      return failure();
  }
  emitResults();
  emitLoss();
  function.finish();
  return success();
}

} // namespace tbc
