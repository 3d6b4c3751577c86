//===- BuildUpdate.cpp - The optimizer's step ------------------------------===//

#include "passes/optimizer/BuildUpdate.h"

#include "ir/Formula.h"
#include "ir/Optimizer.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_BUILDUPDATEPASS
#include "passes/Passes.h.inc"

std::optional<OptimizerKind> parseOptimizerKind(StringRef text) {
  return llvm::StringSwitch<std::optional<OptimizerKind>>(text)
      .Case("sgd", OptimizerKind::Sgd)
      .Case("adamw", OptimizerKind::AdamW)
      .Default(std::nullopt);
}

namespace {

/// What @update has for one parameter.
struct Parameter {
  std::string name;
  RankedTensorType type;
  Type gradientType;
  Value value, gradient;        // arguments
  SmallVector<Value, 3> states; // arguments: moments, then the master copy if there is one
  Value newValue;
  SmallVector<Value, 3> newStates;
};

class UpdateBuilder {
public:
  UpdateBuilder(ModuleOp module, func::FuncOp train, const OptimizerOptions &options)
      : module(module), train(train), options(options), builder(module.getContext()) {}

  LogicalResult run();

private:
  LogicalResult findParameters();
  SmallVector<StringRef, 2> momentNames() const;
  Value addArgument(Type type, Location loc, StringRef role, StringRef name, StringRef of = "",
                    bool isMaster = false);
  void addArguments();
  void buildStep(Parameter &parameter);
  void setResults();

  ModuleOp module;
  func::FuncOp train;
  const OptimizerOptions &options;
  OpBuilder builder;
  func::FuncOp update;
  SmallVector<Parameter> parameters;
  Value rate, step;
};

} // namespace

static std::string stringAttr(Attribute attr) {
  auto text = dyn_cast_or_null<StringAttr>(attr);
  return text ? text.str() : "";
}

/// The parameters that have a gradient.
LogicalResult UpdateBuilder::findParameters() {
  for (unsigned i = 0; i < train.getNumResults(); ++i) {
    if (stringAttr(train.getResultAttr(i, kRoleAttr)) != "grad")
      continue;
    Parameter parameter;
    parameter.name = stringAttr(train.getResultAttr(i, kNameAttr));
    parameter.gradientType = train.getResultTypes()[i];
    for (BlockArgument arg : train.getArguments())
      if (stringAttr(train.getArgAttr(arg.getArgNumber(), kRoleAttr)) == "param" &&
          stringAttr(train.getArgAttr(arg.getArgNumber(), kNameAttr)) == parameter.name) {
        parameter.type = tensorType(arg);
        parameter.value = arg;
      }
    if (!parameter.type)
      return train.emitError() << "returns a gradient of \"" << parameter.name
                               << "\", which is no parameter";
    parameters.push_back(parameter);
  }
  if (parameters.empty())
    return train.emitError(
        "returns no gradients, so there is nothing to update; differentiate it first");
  return success();
}

SmallVector<StringRef, 2> UpdateBuilder::momentNames() const {
  if (options.kind == OptimizerKind::AdamW)
    return {"m", "v"};
  if (options.momentum != 0)
    return {"m"};
  return {};
}

Value UpdateBuilder::addArgument(Type type, Location loc, StringRef role, StringRef name,
                                 StringRef of, bool isMaster) {
  NamedAttrList attrs;
  attrs.append(kRoleAttr, builder.getStringAttr(role));
  attrs.append(kNameAttr, builder.getStringAttr(name));
  if (!of.empty())
    attrs.append(kParameterAttr, builder.getStringAttr(of));
  if (isMaster)
    attrs.append(kMasterAttr, builder.getUnitAttr());
  unsigned index = update.getNumArguments();
  update.insertArgument(index, type, attrs.getDictionary(builder.getContext()), loc);
  return update.getArgument(index);
}

void UpdateBuilder::addArguments() {
  for (Parameter &p : parameters)
    p.value = addArgument(p.type, p.value.getLoc(), "param", p.name);
  for (Parameter &p : parameters)
    p.gradient = addArgument(p.gradientType, p.value.getLoc(), "grad", p.name);
  for (Parameter &p : parameters) {
    Location loc = p.value.getLoc();
    // The optimizer computes at least in f32, whatever the parameter is stored in.
    auto wide = RankedTensorType::get(p.type.getShape(), wideElementType(p.type));
    for (StringRef moment : momentNames())
      p.states.push_back(
          addArgument(wide, loc, "opt_state", (p.name + "." + moment).str(), p.name));
    if (wide != p.type)
      p.states.push_back(
          addArgument(wide, loc, "opt_state", p.name + ".master", p.name, /*isMaster=*/true));
  }
  rate = addArgument(RankedTensorType::get({}, builder.getF32Type()), train.getLoc(), "lr", "lr");
  step =
      addArgument(RankedTensorType::get({}, builder.getI64Type()), train.getLoc(), "step", "step");
}

/// The optimizer's op for one parameter.
void UpdateBuilder::buildStep(Parameter &p) {
  Location loc = p.value.getLoc();
  auto wide = RankedTensorType::get(p.type.getShape(), wideElementType(p.type));
  bool hasMaster = wide != p.type;
  Formula f{builder, loc};
  Value value = hasMaster ? p.states.back() : p.value;
  Value gradient = f.cast(p.gradient, wide.getElementType());
  Operation *op;
  if (options.kind == OptimizerKind::AdamW)
    op = builder.create<AdamwOp>(
        loc, value, gradient, p.states[0], p.states[1], rate, step,
        builder.getF64FloatAttr(options.beta1), builder.getF64FloatAttr(options.beta2),
        builder.getF64FloatAttr(options.epsilon), builder.getF64FloatAttr(options.weightDecay));
  else if (options.momentum != 0)
    op = builder.create<SgdMomentumOp>(
        loc, value, gradient, p.states[0], rate, builder.getF64FloatAttr(options.momentum),
        builder.getBoolAttr(options.nesterov), builder.getF64FloatAttr(options.weightDecay));
  else
    op = builder.create<SgdOp>(loc, value, gradient, rate,
                               builder.getF64FloatAttr(options.weightDecay));
  p.newStates.append(op->result_begin() + 1, op->result_end());
  p.newValue = op->getResult(0);
  if (hasMaster) {
    p.newStates.push_back(p.newValue);
    p.newValue = f.cast(p.newValue, p.type.getElementType());
  }
}

/// Returns the new parameters, then the new states.
void UpdateBuilder::setResults() {
  SmallVector<Value> values;
  SmallVector<DictionaryAttr> attrs;
  auto add = [&](Value value, Value argument) {
    values.push_back(value);
    attrs.push_back(update.getArgAttrDict(cast<BlockArgument>(argument).getArgNumber()));
  };
  for (const Parameter &p : parameters)
    add(p.newValue, p.value);
  for (const Parameter &p : parameters)
    for (auto [value, argument] : llvm::zip_equal(p.newStates, p.states))
      add(value, argument);
  builder.create<func::ReturnOp>(update.getLoc(), values);
  update.setType(builder.getFunctionType(update.getArgumentTypes(), ValueRange(values).getTypes()));
  update.setAllResultAttrs(attrs);
}

LogicalResult UpdateBuilder::run() {
  if (failed(findParameters()))
    return failure();
  builder.setInsertionPointToEnd(module.getBody());
  update = builder.create<func::FuncOp>(train.getLoc(), "update", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(update.addEntryBlock());
  addArguments();
  for (Parameter &p : parameters)
    buildStep(p);
  setResults();
  OpIds(update).assignMissing(update);
  return success();
}

LogicalResult buildUpdateFunction(ModuleOp module, const OptimizerOptions &options) {
  auto train = module.lookupSymbol<func::FuncOp>("train");
  if (!train)
    return module.emitError("has no function @train to build an update for");
  if (Operation *old = module.lookupSymbol("update"))
    return old->emitError("@update exists already");
  return UpdateBuilder(module, train, options).run();
}

namespace {
struct BuildUpdate : impl::BuildUpdatePassBase<BuildUpdate> {
  using BuildUpdatePassBase::BuildUpdatePassBase;
  void runOnOperation() override {
    OptimizerOptions options;
    std::optional<OptimizerKind> kind = parseOptimizerKind(optimizer);
    if (!kind) {
      getOperation().emitError() << "unknown optimizer \"" << optimizer
                                 << "\"; expected sgd or adamw";
      return signalPassFailure();
    }
    options.kind = *kind;
    options.momentum = momentum;
    options.nesterov = nesterov;
    options.beta1 = beta1;
    options.beta2 = beta2;
    options.epsilon = epsilon;
    options.weightDecay = weightDecay;
    if (failed(buildUpdateFunction(getOperation(), options)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
