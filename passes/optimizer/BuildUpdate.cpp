//===- BuildUpdate.cpp - The optimizer's step ------------------------------===//

#include "passes/optimizer/BuildUpdate.h"

#include "ir/Formula.h"
#include "ir/MatrixUpdate.h"
#include "ir/Movement.h"
#include "ir/Optimizer.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"
#include "passes/autodiff/FrozenParameters.h"
#include "passes/decompose/PadVocabulary.h"
#include "passes/loss/AttachLoss.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_BUILDUPDATEPASS
#include "passes/Passes.h.inc"

std::optional<OptimizerKind> parseOptimizerKind(StringRef text) {
  return llvm::StringSwitch<std::optional<OptimizerKind>>(text)
      .Case("sgd", OptimizerKind::Sgd)
      .Case("adam", OptimizerKind::Adam)
      .Case("adamw", OptimizerKind::AdamW)
      .Case("muon", OptimizerKind::Muon)
      .Case("adafactor", OptimizerKind::Adafactor)
      .Case("adagrad", OptimizerKind::Adagrad)
      .Case("rowwise-adagrad", OptimizerKind::RowwiseAdagrad)
      .Default(std::nullopt);
}

namespace {

/// A scalar state of @update.
struct StepState {
  Value value, newValue;
};

/// The values of @update for one parameter.
struct Parameter {
  std::string name;
  RankedTensorType type;
  SmallVector<int64_t> unpadded; // sizes without a padded vocabulary
  Type gradientType;
  Value value, gradient; // arguments
  double weightDecay = 0;
  std::optional<MatrixSizes> matrix; // of Muon
  bool isTable = false;              // of RowwiseAdagrad
  SmallVector<Value, 3> states;      // arguments: moments, then the master copy if there is one
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
  LogicalResult findDecay();
  LogicalResult findMatrices();
  Value addStepState(StringRef name, Type type, double initial = 0);
  void addStepStates();
  void addStepArguments();
  void buildTotals();
  void correctByCount(Formula &f, Value total);
  void unscale(Formula &f, Value notFinite);
  void clipByNorm(Formula &f, Value squares);
  void countStep();
  void updateLossScale(Formula &f, Value isFinite);
  Value chosen(Formula &f, Value old, Value replacement, Value when) const;
  SmallVector<StringRef, 2> momentNames(const Parameter &parameter) const;
  Value addArgument(Type type, Location loc, TensorRole role, StringRef name, StringRef of = "",
                    bool isMaster = false);
  void addArguments();
  Operation *buildOptimizer(Parameter &parameter, Value value, Value gradient);
  void stepOnMatrices(Formula &f, Parameter &p, Value value, Value gradient);
  LogicalResult findRows();
  void addInitial();
  void stepByRows(Formula &f, Parameter &p, Value value, Value gradient);
  void stepByAdafactor(Formula &f, Parameter &p, Value value, Value gradient);
  Value ifTaken(Formula &f, Value old, Value replacement) const;
  void buildStep(Parameter &parameter);
  void setResults();

  ModuleOp module;
  func::FuncOp train;
  const OptimizerOptions &options;
  OpBuilder builder;
  func::FuncOp update;
  /// Attributes of the arguments of @update. Set one by one, they would be copied as often as there
  /// are arguments.
  SmallVector<NamedAttrList> argumentAttrs;
  SmallVector<Parameter> parameters;
  Value rate;
  StepState scale, tracker, stepsTaken; // null if absent
  Value step;                           // from 1; null for SGD
  Value loss, count;                    // arguments, where the update has to do with them
  Value newLoss, newCount;              // of the whole step
  Value factor;                         // of every gradient; null: 1
  Value countsAny;                      // null: every step counts something
  Value condition;                      // to take the step; null: always
};

} // namespace

static std::string stringAttr(Attribute attr) {
  auto text = dyn_cast_or_null<StringAttr>(attr);
  return text ? text.str() : "";
}

/// Finds the parameters with a gradient.
LogicalResult UpdateBuilder::findParameters() {
  llvm::StringMap<BlockArgument> arguments;
  for (BlockArgument arg : train.getArguments())
    if (argumentRole(train, arg.getArgNumber()) == TensorRole::Parameter)
      arguments[stringAttr(train.getArgAttr(arg.getArgNumber(), kNameAttr))] = arg;
  for (unsigned i = 0; i < train.getNumResults(); ++i) {
    if (resultRole(train, i) != TensorRole::Gradient)
      continue;
    Parameter parameter;
    parameter.name = stringAttr(train.getResultAttr(i, kNameAttr));
    parameter.gradientType = train.getResultTypes()[i];
    auto found = arguments.find(parameter.name);
    if (found == arguments.end())
      return train.emitError() << "returns a gradient of \"" << parameter.name
                               << "\", which is no parameter";
    parameter.value = found->second;
    parameter.type = tensorType(found->second);
    auto unpadded =
        train.getArgAttrOfType<DenseI64ArrayAttr>(found->second.getArgNumber(), kUnpaddedAttr);
    parameter.unpadded =
        SmallVector<int64_t>(unpadded ? unpadded.asArrayRef() : parameter.type.getShape());
    parameters.push_back(parameter);
  }
  if (parameters.empty())
    return train.emitError(
        "returns no gradients, so there is nothing to update; differentiate it first");
  return success();
}

/// The groups of parameters by weight decay.
LogicalResult UpdateBuilder::findDecay() {
  FailureOr<SmallVector<bool>> isExempt = matchParameters(train, options.noDecay, "--no-decay");
  if (failed(isExempt))
    return failure();
  for (Parameter &p : parameters)
    p.weightDecay =
        (*isExempt)[cast<BlockArgument>(p.value).getArgNumber()] ? 0 : options.weightDecay;
  return success();
}

/// The matrices that step by Muon.
LogicalResult UpdateBuilder::findMatrices() {
  if (options.kind != OptimizerKind::Muon)
    return success();
  auto matrices = findHiddenMatrices(train, options.muon.exempt);
  if (failed(matrices))
    return failure();
  for (Parameter &p : parameters)
    p.matrix = (*matrices)[cast<BlockArgument>(p.value).getArgNumber()];
  if (llvm::none_of(parameters, [](const Parameter &p) { return p.matrix.has_value(); }))
    return train.emitError("--optimizer muon: no trained parameter is a hidden matrix, which only "
                           "matmuls read; use --optimizer adamw");
  return success();
}

/// The tables that keep a sum for each row.
LogicalResult UpdateBuilder::findRows() {
  if (options.kind != OptimizerKind::RowwiseAdagrad)
    return success();
  const SmallVector<bool> tables = findTables(train);
  for (Parameter &p : parameters)
    p.isTable = tables[cast<BlockArgument>(p.value).getArgNumber()];
  if (llvm::none_of(parameters, [](const Parameter &p) { return p.isTable; }))
    return train.emitError("--optimizer rowwise-adagrad: no trained parameter is a table whose "
                           "rows are looked up; use --optimizer adagrad");
  return success();
}

SmallVector<StringRef, 2> UpdateBuilder::momentNames(const Parameter &parameter) const {
  if (parameter.matrix)
    return {"m"};
  if (parameter.isTable)
    return {};
  switch (options.kind) {
  case OptimizerKind::Adam:
  case OptimizerKind::AdamW:
  case OptimizerKind::Muon:
    return {"m", "v"};
  case OptimizerKind::Sgd:
    if (options.momentum != 0)
      return {"m"};
    return {};
  case OptimizerKind::Adagrad:
  case OptimizerKind::RowwiseAdagrad:
    return {"sum"};
  case OptimizerKind::Adafactor: // factoredStates
    return {};
  }
  llvm_unreachable("an optimizer without a list of states");
}

Value UpdateBuilder::addArgument(Type type, Location loc, TensorRole role, StringRef name,
                                 StringRef of, bool isMaster) {
  NamedAttrList &attrs = argumentAttrs.emplace_back();
  attrs.push_back(namedRole(builder.getContext(), role));
  attrs.append(kNameAttr, builder.getStringAttr(name));
  if (!of.empty())
    attrs.append(kParameterAttr, builder.getStringAttr(of));
  if (isMaster)
    attrs.append(kMasterAttr, builder.getUnitAttr());
  return update.front().addArgument(type, loc);
}

void UpdateBuilder::addArguments() {
  for (Parameter &p : parameters)
    p.value = addArgument(p.type, p.value.getLoc(), TensorRole::Parameter, p.name);
  for (Parameter &p : parameters)
    p.gradient = addArgument(p.gradientType, p.value.getLoc(), TensorRole::Gradient, p.name);
  for (Parameter &p : parameters) {
    Location loc = p.value.getLoc();
    // The optimizer computes at least in f32, for every stored type of the parameter.
    auto wide = RankedTensorType::get(p.type.getShape(), wideElementType(p.type));
    for (StringRef moment : momentNames(p)) {
      p.states.push_back(addArgument(wide, loc, TensorRole::OptimizerState,
                                     (p.name + "." + moment).str(), p.name));
      addInitial();
    }
    if (p.isTable) {
      auto rows = RankedTensorType::get({p.type.getDimSize(0)}, wide.getElementType());
      p.states.push_back(
          addArgument(rows, loc, TensorRole::OptimizerState, p.name + ".row_sum", p.name));
      argumentAttrs.back().append(kWholeAttr, builder.getUnitAttr());
      addInitial();
    }
    if (options.kind == OptimizerKind::Adafactor)
      for (const FactoredState &state : factoredStates(p.type)) {
        auto type = RankedTensorType::get(state.shape, wide.getElementType());
        p.states.push_back(
            addArgument(type, loc, TensorRole::OptimizerState, p.name + "." + state.name, p.name));
        argumentAttrs.back().append(kWholeAttr, builder.getUnitAttr());
      }
    if (wide != p.type)
      p.states.push_back(addArgument(wide, loc, TensorRole::OptimizerState, p.name + ".master",
                                     p.name, /*isMaster=*/true));
  }
  addStepStates();
  addStepArguments();
  rate = addArgument(RankedTensorType::get({}, builder.getF32Type()), train.getLoc(),
                     TensorRole::LearningRate, "lr");
  update.setType(builder.getFunctionType(update.front().getArgumentTypes(), {}));
  SmallVector<DictionaryAttr> attrs;
  for (const NamedAttrList &list : argumentAttrs)
    attrs.push_back(list.getDictionary(builder.getContext()));
  update.setAllArgAttrs(attrs);
}

/// Makes the last argument, a sum of Adagrad, begin at the given value.
void UpdateBuilder::addInitial() {
  const bool isSum =
      options.kind == OptimizerKind::Adagrad || options.kind == OptimizerKind::RowwiseAdagrad;
  if (isSum && options.adagrad.initial != 0)
    argumentAttrs.back().append(kInitialAttr, builder.getF64FloatAttr(options.adagrad.initial));
}

Value UpdateBuilder::addStepState(StringRef name, Type type, double initial) {
  Value state = addArgument(RankedTensorType::get({}, type), train.getLoc(),
                            TensorRole::OptimizerState, name);
  if (initial != 0)
    argumentAttrs.back().append(kInitialAttr, builder.getF64FloatAttr(initial));
  return state;
}

void UpdateBuilder::addStepStates() {
  if (options.lossScale.isDynamic()) {
    scale.value = addStepState(kLossScaleName, builder.getF32Type(), options.lossScale.initial);
    tracker.value = addStepState(kGrowthTrackerName, builder.getI64Type());
  }
  if (options.kind != OptimizerKind::Sgd)
    stepsTaken.value = addStepState(kStepsTakenName, builder.getI64Type());
}

/// Adds loss and count of the step as arguments, if the update has totals over all ranks.
void UpdateBuilder::addStepArguments() {
  Type lossType, countType;
  for (unsigned i = 0; i < train.getNumResults(); ++i) {
    std::optional<TensorRole> role = resultRole(train, i);
    if (role == TensorRole::Loss)
      lossType = train.getResultTypes()[i];
    else if (role == TensorRole::Count)
      countType = train.getResultTypes()[i];
  }
  if (!countType && options.clipNorm == 0 && !options.lossScale.isOn())
    return;
  loss = addArgument(lossType, train.getLoc(), TensorRole::Loss, "loss");
  if (countType)
    count = addArgument(countType, train.getLoc(), TensorRole::Loss, "count");
}

/// Builds the values for all parameters: totals over ranks, the factor of the gradients, and the
/// condition of the step.
void UpdateBuilder::buildTotals() {
  if (!loss)
    return;
  Formula f{builder, NameLoc::get(builder.getStringAttr("step"))};
  Type element = tensorType(loss).getElementType();
  SmallVector<Value> gradients;
  for (const Parameter &p : parameters)
    gradients.push_back(p.gradient);
  SmallVector<Value> parts{loss};
  if (count)
    parts.push_back(f.cast(count, element));
  if (options.lossScale.isOn())
    parts.push_back(f.cast(f.make<CountNotFiniteOp>(gradients), element));
  if (options.clipNorm != 0)
    parts.push_back(f.cast(f.make<SquareSumOp>(gradients), element));
  auto totals = builder.create<StepTotalOp>(f.loc, parts);
  auto next = totals.getResults().begin();
  newLoss = *next++;
  if (count)
    correctByCount(f, *next++);
  if (options.lossScale.isOn())
    unscale(f, *next++);
  if (options.clipNorm != 0)
    clipByNorm(f, *next++);
}

/// Corrects the divisor: the loss was divided by all elements of the global batch, not by the
/// counted ones.
void UpdateBuilder::correctByCount(Formula &f, Value total) {
  auto sizes = train.getOps<FactorSizeOp>();
  auto size = llvm::find_if(sizes, [](Operation *op) { return op->hasAttr(kGlobalBatchAttr); });
  Value assumed = f.make<FactorSizeOp>(total.getType(), (*size).getCount(), (*size).getSamples());
  assumed.getDefiningOp()->setAttr(kGlobalBatchAttr, builder.getUnitAttr());
  condition = countsAny = f.compare(total, f.number(total, 0), "ne");
  factor = f.div(assumed, f.select(countsAny, total, assumed));
  newLoss = f.mul(newLoss, factor);
  newCount = f.cast(total, tensorType(count).getElementType());
}

/// Divides the gradients by the loss scale.
void UpdateBuilder::unscale(Formula &f, Value notFinite) {
  Value isFinite = f.compare(notFinite, f.number(notFinite, 0), "eq");
  condition = condition ? f.make<AndOp>(condition, isFinite) : isFinite;
  Value by = scale.value ? f.cast(scale.value, tensorType(notFinite).getElementType())
                         : f.number(notFinite, options.lossScale.initial);
  Value inverse = f.div(f.number(by, 1), by);
  factor = factor ? f.mul(factor, inverse) : inverse;
  if (scale.value)
    updateLossScale(f, isFinite);
}

/// Returns `replacement` if the scalar `when` holds or is null, else `old`.
Value UpdateBuilder::chosen(Formula &f, Value old, Value replacement, Value when) const {
  return when ? f.select(when, replacement, old) : replacement;
}

/// Updates the loss scale, unless the step counts no element.
void UpdateBuilder::updateLossScale(Formula &f, Value isFinite) {
  const LossScale &s = options.lossScale;
  auto next = builder.create<UpdateLossScaleOp>(
      f.loc, scale.value, tracker.value, isFinite, builder.getF64FloatAttr(s.growthFactor),
      builder.getF64FloatAttr(s.backoffFactor), builder.getI64IntegerAttr(s.growthInterval));
  scale.newValue = chosen(f, scale.value, next.getNewScale(), countsAny);
  tracker.newValue = chosen(f, tracker.value, next.getNewTracker(), countsAny);
}

/// Counts the executed steps.
void UpdateBuilder::countStep() {
  if (!stepsTaken.value)
    return;
  Formula f{builder, NameLoc::get(builder.getStringAttr("step"))};
  step = f.add(stepsTaken.value, f.number(stepsTaken.value, 1));
  stepsTaken.newValue = chosen(f, stepsTaken.value, step, condition);
}

void UpdateBuilder::clipByNorm(Formula &f, Value squares) {
  Value norm = f.make<SqrtOp>(squares);
  if (factor)
    norm = f.mul(norm, factor);
  norm.getDefiningOp()->setAttr(kIdAttr, builder.getStringAttr(kGradientNormId));
  // The constant with which PyTorch's clip_grad_norm_ avoids a division by 0.
  constexpr double smallest = 1e-6;
  Value ratio = f.div(f.number(norm, options.clipNorm), f.add(norm, f.number(norm, smallest)));
  Value coefficient = f.make<MinimumOp>(ratio, f.number(ratio, 1));
  factor = factor ? f.mul(factor, coefficient) : coefficient;
}

/// The optimizer's op; its results are the new value, then the new moments.
Operation *UpdateBuilder::buildOptimizer(Parameter &p, Value value, Value gradient) {
  Location loc = p.value.getLoc();
  FloatAttr decay = builder.getF64FloatAttr(p.weightDecay);
  FloatAttr beta1 = builder.getF64FloatAttr(options.beta1),
            beta2 = builder.getF64FloatAttr(options.beta2),
            epsilon = builder.getF64FloatAttr(options.epsilon);
  if (options.kind == OptimizerKind::AdamW || options.kind == OptimizerKind::Muon)
    return builder.create<AdamwOp>(loc, value, gradient, p.states[0], p.states[1], rate, step,
                                   beta1, beta2, epsilon, decay);
  if (options.kind == OptimizerKind::Adam)
    return builder.create<AdamOp>(loc, value, gradient, p.states[0], p.states[1], rate, step, beta1,
                                  beta2, epsilon, decay);
  if (options.kind == OptimizerKind::Adagrad || options.kind == OptimizerKind::RowwiseAdagrad)
    return builder.create<AdagradOp>(loc, value, gradient, p.states[0], rate, step,
                                     builder.getF64FloatAttr(options.adagrad.rateDecay), epsilon,
                                     decay);
  if (options.momentum != 0)
    return builder.create<SgdMomentumOp>(loc, value, gradient, p.states[0], rate,
                                         builder.getF64FloatAttr(options.momentum),
                                         builder.getBoolAttr(options.nesterov), decay);
  return builder.create<SgdOp>(loc, value, gradient, rate, decay);
}

Value UpdateBuilder::ifTaken(Formula &f, Value old, Value replacement) const {
  return condition ? f.make<UpdateIfOp>(old, replacement, condition) : replacement;
}

/// Muon: the momentum, its orthogonalized direction, and the step along it.
void UpdateBuilder::stepOnMatrices(Formula &f, Parameter &p, Value value, Value gradient) {
  const MuonOptions &muon = options.muon;
  auto momentum = builder.create<MuonMomentumOp>(f.loc, gradient, p.states[0],
                                                 builder.getF64FloatAttr(muon.momentum),
                                                 builder.getBoolAttr(muon.nesterov));
  p.newStates.push_back(ifTaken(f, p.states[0], momentum.getNewBuffer()));
  Value direction = f.cast(momentum.getDirection(), p.type.getElementType());
  direction = f.wide(orthogonalize(f, direction, muon));
  Value next = f.make<MuonStepOp>(value, direction, rate,
                                  builder.getF64FloatAttr(rateScale(*p.matrix, muon)),
                                  builder.getF64FloatAttr(p.weightDecay));
  p.newValue = ifTaken(f, value, next);
}

/// Row-wise Adagrad: the sums, the direction, and the step along it.
void UpdateBuilder::stepByRows(Formula &f, Parameter &p, Value value, Value gradient) {
  gradient = f.cast(gradient, p.type.getElementType());
  RowwiseStep rowwise =
      buildRowwiseStep(f, gradient, p.states[0], options.epsilon,
                       [&](Value old, Value replacement) { return ifTaken(f, old, replacement); });
  p.newStates.push_back(rowwise.sums);
  Value next = f.make<SgdOp>(value, rowwise.direction, rate, builder.getF64FloatAttr(0));
  p.newValue = ifTaken(f, value, next);
}

/// Adafactor: the states, the direction, and the step along it.
void UpdateBuilder::stepByAdafactor(Formula &f, Parameter &p, Value value, Value gradient) {
  gradient = f.cast(gradient, p.type.getElementType());
  const size_t numStates = factoredStates(p.type).size();
  FactoredStep factored = buildFactoredStep(
      f, gradient, p.unpadded, ArrayRef(p.states).take_front(numStates), step, options.adafactor,
      [&](Value old, Value replacement) { return ifTaken(f, old, replacement); });
  p.newStates.append(factored.states.begin(), factored.states.end());
  Value next = buildAdafactorStep(f, value, factored.direction, p.unpadded, rate, step,
                                  p.weightDecay, options.adafactor);
  p.newValue = ifTaken(f, value, next);
}

/// One parameter's step.
void UpdateBuilder::buildStep(Parameter &p) {
  Location loc = p.value.getLoc();
  auto wide = RankedTensorType::get(p.type.getShape(), wideElementType(p.type));
  bool hasMaster = wide != p.type;
  Formula f{builder, loc};
  Value value = hasMaster ? p.states.back() : p.value;
  Value gradient = f.cast(p.gradient, wide.getElementType());
  if (factor)
    gradient = f.make<ScaleByOp>(gradient, factor);
  if (options.clipValue != 0)
    gradient = f.make<ClipValueOp>(gradient, builder.getF64FloatAttr(options.clipValue));
  if (p.matrix) {
    stepOnMatrices(f, p, value, gradient);
  } else if (p.isTable) {
    stepByRows(f, p, value, gradient);
  } else if (options.kind == OptimizerKind::Adafactor) {
    stepByAdafactor(f, p, value, gradient);
  } else {
    Operation *op = buildOptimizer(p, value, gradient);
    p.newValue = ifTaken(f, value, op->getResult(0));
    for (auto [i, replacement] : llvm::enumerate(llvm::drop_begin(op->getResults())))
      p.newStates.push_back(ifTaken(f, p.states[i], replacement));
  }
  if (hasMaster) {
    p.newStates.push_back(p.newValue);
    p.newValue = f.cast(p.newValue, p.type.getElementType());
  }
}

/// Returns the new parameters, then the new states, then loss and count.
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
  for (const StepState &state : {scale, tracker, stepsTaken})
    if (state.value)
      add(state.newValue, state.value);
  if (newLoss)
    add(newLoss, loss);
  if (newCount)
    add(newCount, count);
  builder.create<func::ReturnOp>(update.getLoc(), values);
  update.setType(builder.getFunctionType(update.getArgumentTypes(), ValueRange(values).getTypes()));
  update.setAllResultAttrs(attrs);
}

LogicalResult UpdateBuilder::run() {
  if (options.clipNorm != 0 && options.clipValue != 0)
    return train.emitError("gradients can be clipped by norm or by value, not by both");
  if (failed(findParameters()) || failed(findDecay()) || failed(findMatrices()) ||
      failed(findRows()))
    return failure();
  builder.setInsertionPointToEnd(module.getBody());
  update = builder.create<func::FuncOp>(train.getLoc(), "update", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(update.addEntryBlock());
  addArguments();
  buildTotals();
  countStep();
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
                                 << "\"; expected sgd, adam, adamw, muon, adafactor, adagrad or "
                                    "rowwise-adagrad";
      return signalPassFailure();
    }
    options.kind = *kind;
    options.momentum = momentum;
    options.nesterov = nesterov;
    options.beta1 = beta1;
    options.beta2 = beta2;
    options.epsilon = epsilon;
    options.weightDecay = weightDecay;
    if (*kind == OptimizerKind::Muon) {
      options.muon.momentum = momentum;
      options.muon.nesterov = nesterov;
      options.muon.steps = steps;
      options.muon.matchesRms = matchRms;
      options.muon.exempt.assign(noMuon.begin(), noMuon.end());
    }
    options.adagrad = {rateDecay, initialAccumulator};
    options.adafactor.beta2Decay = beta2Decay;
    if (epsilon1 >= 0)
      options.adafactor.epsilon = epsilon1;
    options.adafactor.epsilon2 = epsilon2;
    options.adafactor.clipThreshold = clipThreshold;
    options.noDecay.assign(noDecay.begin(), noDecay.end());
    options.clipNorm = clipNorm;
    options.clipValue = clipValue;
    options.lossScale = {lossScale, growthFactor, backoffFactor, growthInterval};
    if (failed(buildUpdateFunction(getOperation(), options)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
