//===- Differentiate.cpp - The backward phase of @train --------------------===//

#include "passes/autodiff/Differentiate.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Gradient.h"
#include "ir/Movement.h"
#include "ir/Roles.h"
#include "ir/Vocabulary.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"
#include "passes/autodiff/FrozenParameters.h"
#include "passes/autodiff/RepeatFreeOps.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "passes/Passes.h.inc"

namespace {

class Differentiator {
public:
  Differentiator(func::FuncOp train, ArrayRef<bool> isTrained, const LossScale &lossScale)
      : train(train), isTrained(isTrained), lossScale(lossScale), ids(train),
        listener([this](Operation *op) { tag(op); }), builder(train.getContext(), &listener) {}

  LogicalResult run();

private:
  bool isActive(Value value) const { return active.contains(value); }
  void findActive();
  LogicalResult sweep(Operation *op);
  void accumulate(Value value, Value part, Operation *user);
  Value joinedPads(Value a, Value b, Location loc);
  void tag(Operation *op);
  void markCotangent(Value cotangent, Value of);
  Value firstCotangent(Value loss);
  void removeDetached();
  void setResults();

  func::FuncOp train;
  ArrayRef<bool> isTrained;
  const LossScale &lossScale;
  OpIds ids;
  InsertionListener listener;
  OpBuilder builder;
  Operation *forward = nullptr; // the op whose backward ops are being built
  llvm::DenseSet<Value> active; // values that depend on a trained parameter
  llvm::DenseMap<Value, Value> cotangents;
};

} // namespace

void Differentiator::findActive() {
  auto isFloat = [](Value value) { return isa<FloatType>(tensorType(value).getElementType()); };
  for (BlockArgument arg : train.getArguments())
    if (isTrained[arg.getArgNumber()])
      active.insert(arg);
  for (Operation &op : train.getBody().front().without_terminator())
    // The loss does not depend on a row max: it cancels out.
    if (!isa<StabilizerMaxOp, ClassMaxOp, DetachOp>(op) &&
        llvm::any_of(op.getOperands(), [&](Value v) { return isActive(v); }))
      for (Value result : op.getResults())
        if (isFloat(result))
          active.insert(result);
}

void Differentiator::tag(Operation *op) {
  setPhase(op, reshard::Phase::Backward);
  op->setAttr(kForwardIdAttr, forward->getAttr(kIdAttr));
  op->setAttr(kIdAttr, builder.getStringAttr(ids.numbered((getId(forward) + ".bwd").str())));
  if (Attribute stage = forward->getAttr(kChunkAttr))
    op->setAttr(kChunkAttr, stage);
}

/// Marks the op that made `cotangent` as the producer of a cotangent of the forward value `of`. An
/// earlier mark stays.
void Differentiator::markCotangent(Value cotangent, Value of) {
  auto made = dyn_cast<OpResult>(cotangent);
  auto result = dyn_cast<OpResult>(of);
  if (!made || !result)
    return;
  Operation *op = made.getOwner();
  SmallVector<Attribute> marks(op->getNumResults(), builder.getUnitAttr());
  if (auto old = op->getAttrOfType<ArrayAttr>(kCotangentOfAttr))
    marks.assign(old.begin(), old.end());
  if (!isa<UnitAttr>(marks[made.getResultNumber()]))
    return;
  marks[made.getResultNumber()] = builder.getArrayAttr(
      {result.getOwner()->getAttr(kIdAttr), builder.getI64IntegerAttr(result.getResultNumber())});
  op->setAttr(kCotangentOfAttr, builder.getArrayAttr(marks));
}

/// Returns the sum of two tensors of zeros around neighbouring parts, without an addition, or null
/// if they are no such tensors. The parts are joined, with zeros around both. Example: the
/// gradients of the slices q, k and v of one tensor become their concatenation.
Value Differentiator::joinedPads(Value a, Value b, Location loc) {
  auto first = a.getDefiningOp<PadOp>(), second = b.getDefiningOp<PadOp>();
  if (!first || !second || first.getDim() != second.getDim())
    return nullptr;
  if (second.getLow() < first.getLow())
    std::swap(first, second);
  const int64_t dim = first.getDim();
  auto sizeOf = [&](PadOp pad) { return tensorType(pad.getInput()).getDimSize(dim); };
  if (first.getLow() + sizeOf(first) != second.getLow())
    return nullptr;
  SmallVector<Value> inputs;
  for (PadOp pad : {first, second}) {
    auto joined = pad.getInput().getDefiningOp<ConcatOp>();
    if (joined && joined.getDim() == dim && joined->hasOneUse())
      llvm::append_range(inputs, joined.getInputs());
    else
      inputs.push_back(pad.getInput());
  }
  const int64_t low = first.getLow(), high = second.getHigh();
  auto concat = builder.create<ConcatOp>(loc, inputs, dim);
  if (low == 0 && high == 0)
    return concat;
  return builder.create<PadOp>(loc, concat, dim, low, high);
}

/// Adds `part`, the contribution of `user`, to the cotangent of `value`. Gradients of parameters
/// narrower than f32 are accumulated in f32, over the uses here as over the micro-batches later.
void Differentiator::accumulate(Value value, Value part, Operation *user) {
  auto type = tensorType(part);
  if (isa<BlockArgument>(value) && type.getElementTypeBitWidth() < 32) {
    forward = user;
    part = builder.create<CastOp>(
        user->getLoc(), RankedTensorType::get(type.getShape(), builder.getF32Type()), part);
  }
  Value &sum = cotangents[value];
  if (sum) {
    // The sum belongs to the producer of the value; for a parameter, to its user.
    forward = value.getDefiningOp() ? value.getDefiningOp() : user;
    Value joined = joinedPads(sum, part, user->getLoc());
    if (!joined) {
      markCotangent(part, value);
      joined = builder.create<AddOp>(user->getLoc(), sum, part);
    }
    part = joined;
  }
  markCotangent(part, value);
  sum = part;
}

/// Builds the cotangents of the op's operands from the cotangents of its results.
LogicalResult Differentiator::sweep(Operation *op) {
  SmallVector<Value> resultCotangents;
  for (Value result : op->getResults())
    resultCotangents.push_back(cotangents.lookup(result));
  SmallVector<bool> needed;
  for (Value operand : op->getOperands())
    needed.push_back(isActive(operand));
  if (llvm::none_of(resultCotangents, [](Value v) { return bool(v); }) ||
      !llvm::is_contained(needed, true))
    return success();

  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  if (!differentiable)
    return op->emitOpError(
        "has no derivative, but the loss depends on a trained parameter through it; "
        "freeze that parameter or rewrite the model");
  forward = op;
  SmallVector<Value> operandCotangents(op->getNumOperands());
  if (failed(differentiable.buildVjp(builder, resultCotangents, needed, operandCotangents)))
    return op->emitOpError("cannot be differentiated");
  for (auto [operand, part, isNeeded] : llvm::zip(op->getOperands(), operandCotangents, needed)) {
    if (!part || !isNeeded)
      continue;
    if (part.getType() != operand.getType())
      return op->emitOpError() << "has a derivative of type " << part.getType()
                               << " for an operand of type " << operand.getType();
    accumulate(operand, part, op);
  }
  return success();
}

/// The cotangent of the loss: its scale.
Value Differentiator::firstCotangent(Value loss) {
  RankedTensorType type = tensorType(loss);
  if (!lossScale.isDynamic())
    return splat(builder, loss.getLoc(), type, lossScale.isOn() ? lossScale.initial : 1);
  NamedAttrList attrs;
  attrs.push_back(namedRole(train.getContext(), TensorRole::OptimizerState));
  attrs.append(kNameAttr, builder.getStringAttr(kLossScaleName));
  attrs.append(kInitialAttr, builder.getF64FloatAttr(lossScale.initial));
  unsigned index = train.getNumArguments();
  auto scaleType = RankedTensorType::get({}, builder.getF32Type());
  train.insertArgument(index, scaleType, attrs.getDictionary(builder.getContext()), loss.getLoc());
  Value scale = train.getArgument(index);
  return type == scaleType ? scale : builder.create<CastOp>(loss.getLoc(), type, scale).getResult();
}

/// Removes tbc.detach; no backward op reads past it any more.
void Differentiator::removeDetached() {
  for (auto op : llvm::make_early_inc_range(train.getBody().front().getOps<DetachOp>())) {
    op.getResult().replaceAllUsesWith(op.getInput());
    op->erase();
  }
}

/// Makes @train return its results and the gradients.
void Differentiator::setResults() {
  Operation *terminator = train.getBody().front().getTerminator();
  SmallVector<Value> values(terminator->getOperands());
  SmallVector<DictionaryAttr> attrs;
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    attrs.push_back(train.getResultAttrDict(i));
  for (auto [arg, trained] : llvm::zip(train.getArguments(), isTrained)) {
    Value gradient = trained ? cotangents.lookup(arg) : Value();
    if (!gradient)
      continue;
    values.push_back(gradient);
    attrs.push_back(builder.getDictionaryAttr(
        {namedRole(train.getContext(), TensorRole::Gradient),
         builder.getNamedAttr(kNameAttr, train.getArgAttr(arg.getArgNumber(), kNameAttr))}));
  }
  terminator->setOperands(values);
  train.setType(builder.getFunctionType(train.getArgumentTypes(), ValueRange(values).getTypes()));
  train.setAllResultAttrs(attrs);
}

LogicalResult Differentiator::run() {
  Operation *terminator = train.getBody().front().getTerminator();
  Value loss = terminator->getOperand(0);
  findActive();
  if (!isActive(loss))
    return train.emitError("the loss depends on no trained parameter");

  SmallVector<Operation *> forwardOps;
  for (Operation &op : train.getBody().front().without_terminator())
    forwardOps.push_back(&op);
  builder.setInsertionPoint(terminator);
  forward = loss.getDefiningOp();
  accumulate(loss, firstCotangent(loss), forward);
  for (Operation *op : llvm::reverse(forwardOps))
    if (failed(sweep(op)))
      return failure();
  bool hasGradient = llvm::any_of(train.getArguments(), [&](BlockArgument arg) {
    return isTrained[arg.getArgNumber()] && cotangents.contains(arg);
  });
  if (!hasGradient)
    return emitError(loss.getLoc())
           << "the loss depends on the trained parameters only through ops whose derivative is 0 "
              "everywhere, such as rounding; make it from another output with --loss";
  setResults();
  removeDetached();
  eraseUnused(train, isBackward);
  repeatFreeOps(train);
  return success();
}

LogicalResult buildTrainFunction(ModuleOp module, const AutodiffOptions &options) {
  auto train = module.lookupSymbol<func::FuncOp>("train");
  if (!train)
    return module.emitError("has no function @train; attach a loss to @model first");
  FailureOr<SmallVector<bool>> isTrained = findTrained(train, options.freeze);
  if (failed(isTrained))
    return failure();
  OpIds(train).assignMissing(train);
  return Differentiator(train, *isTrained, options.lossScale).run();
}

void eraseBackward(func::FuncOp train) {
  Block &body = train.getBody().front();
  llvm::BitVector gradients(train.getNumResults()), scale(train.getNumArguments());
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    gradients[i] = resultRole(train, i) == TensorRole::Gradient;
  body.getTerminator()->eraseOperands(gradients);
  train.eraseResults(gradients);
  SmallVector<Operation *> backward;
  for (Operation &op : body.without_terminator())
    if (isBackward(&op))
      backward.push_back(&op);
  for (Operation *op : llvm::reverse(backward))
    op->erase();
  for (BlockArgument arg : train.getArguments())
    scale[arg.getArgNumber()] =
        argumentRole(train, arg.getArgNumber()) == TensorRole::OptimizerState && arg.use_empty();
  train.eraseArguments(scale);
}

namespace {
struct Differentiate : impl::DifferentiatePassBase<Differentiate> {
  using DifferentiatePassBase::DifferentiatePassBase;
  void runOnOperation() override {
    AutodiffOptions options;
    options.freeze.assign(freeze.begin(), freeze.end());
    options.lossScale.initial = lossScale;
    options.lossScale.growthInterval = growthInterval;
    if (failed(buildTrainFunction(getOperation(), options)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
