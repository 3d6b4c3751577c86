//===- AttachLoss.cpp - From a model to the forward of its training step ---===//

#include "passes/loss/AttachLoss.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/FactorAnalysis.h"
#include "ir/Formula.h"
#include "ir/Loss.h"
#include "ir/LostBatch.h"
#include "ir/Movement.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"
#include "passes/loss/BatchStatistics.h"
#include "passes/loss/LossTerms.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_ATTACHLOSSPASS
#include "passes/Passes.h.inc"

std::optional<LossKind> parseLossKind(StringRef text) {
  return llvm::StringSwitch<std::optional<LossKind>>(text)
      .Case("cross-entropy", LossKind::CrossEntropy)
      .Case("mse", LossKind::MeanSquaredError)
      .Case("output", LossKind::Output)
      .Default(std::nullopt);
}

namespace {

/// The remark at a loss that has no shares of micro-batches.
constexpr llvm::StringLiteral kWholeLoss =
    "the loss is no sum of means over samples, so each step takes its batch as one micro-batch";

/// The remark at a statistic over the samples on which the losses of samples depend.
constexpr llvm::StringLiteral kStatistic =
    "computes a statistic over the samples, which the loss of each sample depends on; each "
    "micro-batch has its own, over all data ranks; --pin accumulation=1 has one of the whole batch";

/// The remark at an op along the samples, on which the loss depends.
constexpr llvm::StringLiteral kAlongSamples =
    "runs along the samples of the batch, so that they depend on each other; each micro-batch has "
    "its own result, over all data ranks; --pin accumulation=1 has one of the whole batch. Was "
    "another dim meant, as with batch_first=True?";

/// The remark at an output that is no loss.
constexpr llvm::StringLiteral kNoLoss =
    "the loss is the mean of a matmul, which falls without end; for logits take --loss "
    "cross-entropy, for predictions --loss mse";

/// The position of the batch in a tensor: `dim` is the batch, or a flattened dim, the batch times
/// `inner`, or joins several such parts (`inner` is 0). Example: rows of two views of each sample,
/// [batch + batch].
struct BatchDim {
  unsigned dim = 0;
  int64_t size = 1;
  int64_t inner = 1;
};

class LossAttacher {
public:
  LossAttacher(func::FuncOp train, const LossOptions &options)
      : train(train), options(options), builder(train.getContext()),
        loc(NameLoc::get(builder.getStringAttr("loss"),
                         NameLoc::get(builder.getStringAttr("loss")))) {}

  LogicalResult run();

private:
  static bool isState(func::FuncOp function, unsigned result);
  bool pairsSamples(const FactorAnalysis &analysis, Value value) const;
  bool samplesMeetBefore(Value output) const;
  LogicalResult checkNumbers();
  FailureOr<unsigned> findOutput();
  static std::optional<BatchDim> batchOf(const FactorAnalysis &analysis, Value output);
  bool hasBatch(Value output) const;
  bool isOverSamples(Value elements) const;
  FailureOr<BatchDim> findBatch(Value output);
  Value meanOf(Value output);
  Value addLabels(RankedTensorType type, const BatchDim &batch);
  Value elementLoss(Value output, const BatchDim &batch);
  Value sumOverAll(Value tensor);
  Value meanShare(Value losses, const BatchDim &batch, int64_t perSample);
  void addMean(Value losses, const BatchDim &batch);
  FailureOr<bool> addTerms(Value output);
  void setResults();

  func::FuncOp train;
  const LossOptions &options;
  OpBuilder builder;
  Location loc;
  Value weights;      // the weight of each element; null if all weights are 1
  double epsilon = 0; // added to the sum of all weights
  Value loss;         // the micro-batch's share of the mean over the global batch
  Value count;        // the micro-batch's share of the elements counted; null if all count
};

} // namespace

bool LossAttacher::isState(func::FuncOp function, unsigned result) {
  return resultRole(function, result) == TensorRole::State;
}

/// Returns the number of the result for the loss.
FailureOr<unsigned> LossAttacher::findOutput() {
  std::string names;
  for (unsigned i = 0; i < train.getNumResults(); ++i) {
    if (isState(train, i))
      continue;
    auto name = train.getResultAttrOfType<StringAttr>(i, kNameAttr);
    if (options.output.empty() || (name && name.getValue() == options.output))
      return i;
    if (name)
      names += " \"" + name.str() + "\"";
  }
  if (options.output.empty())
    return train.emitError("the model has no output to make a loss from");
  return train.emitError() << "the model has no output \"" << options.output << "\"; it has"
                           << names;
}

/// Returns true if two dims of `value`, or two factors of one, are the batch.
bool LossAttacher::pairsSamples(const FactorAnalysis &analysis, Value value) const {
  int count = 0;
  for (const reshard::DimLayout &dim : analysis.tensorLayout(value).dims) {
    int most = 0; // a segment is one of several parts of the dim
    for (const reshard::Segment &segment : dim.segments)
      most = std::max(most, int(llvm::count_if(segment.factors, [&](const reshard::Factor &f) {
                        return f.id == analysis.batchFactor();
                      })));
    count += most;
  }
  return count > 1;
}

/// Returns true if `output` depends on a value that pairs samples. Example: the scores u v^T of u,
/// v[batch, 8].
bool LossAttacher::samplesMeetBefore(Value output) const {
  FactorAnalysis analysis(train);
  if (!analysis.batchFactor())
    return false;
  SetVector<Value> values;
  values.insert(output);
  for (size_t i = 0; i < values.size(); ++i) {
    if (pairsSamples(analysis, values[i]))
      return true;
    if (Operation *op = values[i].getDefiningOp())
      values.insert(op->operand_begin(), op->operand_end());
  }
  return false;
}

/// Checks that the samples of the batch have numbers only if they meet: several micro-batches would
/// number each their own.
LogicalResult LossAttacher::checkNumbers() {
  SmallVector<IotaOp> iotas(train.getOps<IotaOp>());
  if (iotas.empty())
    return success();
  FactorAnalysis analysis(train);
  auto isNumber = [&](IotaOp iota) {
    reshard::DimLayout layout = analysis.dimLayout(iota, iota.getDim());
    return llvm::any_of(layout.segments, [&](const reshard::Segment &segment) {
      return llvm::any_of(segment.factors, [&](const reshard::Factor &factor) {
        return factor.id == analysis.batchFactor();
      });
    });
  };
  auto *found = llvm::find_if(iotas, isNumber);
  Operation *terminator = train.getBody().front().getTerminator();
  if (found == iotas.end() || llvm::any_of(terminator->getOperands(),
                                           [&](Value result) { return samplesMeetBefore(result); }))
    return success();
  return found->emitError("numbers the samples of the batch for a loss in which they do not meet, "
                          "so its meaning depends on the batch size; export the model without it");
}

/// Returns the batch in a segment: in front of all its other factors, unless `isAnywhere`.
static std::optional<BatchDim> batchIn(const reshard::Segment &segment, reshard::FactorId batch,
                                       bool isAnywhere) {
  int64_t inner = 1, size = 0;
  for (const reshard::Factor &f : segment.factors) {
    if (f.id == batch)
      size = f.size;
    else if (size == 0 && f.size != 1 && !isAnywhere)
      return std::nullopt; // something varies slower than the batch
    else
      inner *= f.size;
  }
  return size > 0 ? std::optional(BatchDim{0, size, inner}) : std::nullopt;
}

/// Returns the batch in the first dim of `output` that has it; null if none does.
std::optional<BatchDim> LossAttacher::batchOf(const FactorAnalysis &analysis, Value output) {
  reshard::FactorId factor = *analysis.batchFactor();
  for (unsigned dim = 0; dim < tensorType(output).getRank(); ++dim) {
    reshard::DimLayout layout = analysis.dimLayout(output, dim);
    bool isJoined = layout.segments.size() > 1;
    std::optional<BatchDim> batch;
    for (const reshard::Segment &segment : layout.segments) {
      batch = batchIn(segment, factor, isJoined);
      if (!batch)
        break;
    }
    if (batch)
      return BatchDim{dim, batch->size, isJoined ? 0 : batch->inner};
  }
  return std::nullopt;
}

FailureOr<BatchDim> LossAttacher::findBatch(Value output) {
  FactorAnalysis analysis(train);
  std::optional<reshard::FactorId> factor = analysis.batchFactor();
  if (!factor)
    return emitLostBatch(train) << "; so the loss cannot be averaged over the batch";
  if (pairsSamples(analysis, output))
    return emitError(output.getLoc())
           << "the loss is to be made from an output of type " << output.getType()
           << " that pairs the samples of a batch; export the model with its loss, and plan it "
              "with --loss and the name of that output";
  std::optional<BatchDim> batch = batchOf(analysis, output);
  if (batch && (batch->inner > 0 || options.kind == LossKind::Output))
    return *batch;
  return emitError(output.getLoc())
         << "the loss is to be made from an output of type " << output.getType()
         << ", none of whose dims is the batch or starts with it; it "
            "needs one loss per sample";
}

/// Whether a dim of `output` is the batch, which may be of one sample.
bool LossAttacher::hasBatch(Value output) const {
  FactorAnalysis analysis(train);
  return analysis.batchFactor() && batchOf(analysis, output);
}

/// Whether a sum over `elements` is one over the samples: statistics of the batch have no share of
/// a micro-batch. True also without a batch, which findBatch refuses.
bool LossAttacher::isOverSamples(Value elements) const {
  FactorAnalysis analysis(train);
  return !analysis.batchFactor() || batchOf(analysis, elements);
}

/// If `output` is a mean over the batch, returns its elements, with their `weights` if they differ
/// from 1. Otherwise returns `output` itself.
Value LossAttacher::meanOf(Value output) {
  Value scalar = output;
  while (auto cast = scalar.getDefiningOp<CastOp>())
    scalar = cast.getInput();
  auto division = scalar.getDefiningOp<DivOp>();
  Value elements = division ? summedUp(division.getLhs()) : Value();
  if (elements)
    if (auto size = division.getRhs().getDefiningOp<FactorSizeOp>())
      return size.getCount() * size.getSamples() == uint64_t(tensorType(elements).getNumElements())
                 ? elements
                 : output;
  std::optional<WeightedMean> mean = weightedMean(output);
  if (mean && isOverSamples(mean->elements)) {
    weights = mean->weights;
    epsilon = mean->epsilon;
    Formula f{builder, loc};
    return mean->factor == 1 ? mean->elements
                             : f.mul(mean->elements, f.number(mean->elements, mean->factor));
  }
  return output;
}

/// Sets `loss` to the micro-batch's share of a sum of means. Returns false if `output` is no such
/// sum.
FailureOr<bool> LossAttacher::addTerms(Value output) {
  std::optional<LossSum> sum = lossTerms(builder, loc, output);
  if (!sum ||
      !llvm::all_of(sum->terms, [&](const LossTerm &t) { return isOverSamples(t.elements); }))
    return false;
  Formula f{builder, loc};
  for (LossTerm &term : sum->terms) {
    FailureOr<BatchDim> batch = findBatch(term.elements);
    if (failed(batch))
      return failure();
    Value elements = f.wide(term.elements);
    auto type = tensorType(elements);
    int64_t perSample = type.getNumElements() / batch->size;
    auto scaledBy = [&](Value scalar) {
      return broadcastTo(builder, loc, f.cast(scalar, type.getElementType()), type.getShape(), {});
    };
    if (term.coefficient)
      elements = f.mul(elements, scaledBy(term.coefficient));
    // A share of the constant in each element: count / perSample of it, since these are summed and
    // divided by `count`.
    if (sum->constant) {
      Value part =
          f.mul(sum->constant, f.number(sum->constant, double(term.count) / double(perSample)));
      elements = f.add(elements, scaledBy(part));
      sum->constant = nullptr;
    }
    Value share = meanShare(elements, *batch, term.count);
    loss = loss ? f.add(loss, f.cast(share, tensorType(loss).getElementType())) : share;
  }
  return true;
}

/// Returns the argument "labels" as a value of `type`. If the batch is flattened together with
/// another dim, the argument has two separate dims.
Value LossAttacher::addLabels(RankedTensorType type, const BatchDim &batch) {
  SmallVector<int64_t> shape(type.getShape());
  if (batch.inner > 1) {
    shape[batch.dim] = batch.size;
    shape.insert(shape.begin() + batch.dim + 1, batch.inner);
  }
  NamedAttrList attrs;
  attrs.push_back(namedRole(train.getContext(), TensorRole::Label));
  attrs.append(kNameAttr, builder.getStringAttr("labels"));
  attrs.append(kBatchDimAttr, builder.getI64IntegerAttr(batch.dim));
  unsigned index = train.getNumArguments();
  train.insertArgument(index, RankedTensorType::get(shape, type.getElementType()),
                       attrs.getDictionary(builder.getContext()), loc);
  Value labels = train.getArgument(index);
  if (batch.inner == 1)
    return labels;
  SmallVector<int64_t> in(shape.size(), 1), out(type.getRank(), 1);
  out[batch.dim] = 2;
  return builder.create<ReshapeOp>(loc, labels, shape, in, out);
}

/// The loss of every element, in f32 or f64.
Value LossAttacher::elementLoss(Value output, const BatchDim &batch) {
  Formula f{builder, loc};
  // Cross entropy widens each logit as it reads it, so no wide copy of all logits is stored.
  output = options.kind == LossKind::CrossEntropy ? beforeWidening(output) : f.wide(output);
  auto type = tensorType(output);
  switch (options.kind) {
  case LossKind::CrossEntropy: {
    auto labelType = RankedTensorType::get(type.getShape().drop_back(), builder.getI64Type());
    Value labels = addLabels(labelType, batch);
    auto op = builder.create<CrossEntropyOp>(loc, output, labels,
                                             builder.getI64IntegerAttr(options.ignoreIndex),
                                             builder.getF64FloatAttr(options.labelSmoothing));
    Value ignored = f.number(labels, double(options.ignoreIndex));
    Value counts = f.compare(labels, ignored, "ne");
    weights = f.cast(counts, builder.getF32Type());
    return op.getLoss();
  }
  case LossKind::MeanSquaredError: {
    Value error = f.sub(output, addLabels(type, batch));
    return f.mul(error, error);
  }
  case LossKind::Output:
    return output;
  }
  llvm_unreachable("unknown loss kind");
}

Value LossAttacher::sumOverAll(Value tensor) {
  SmallVector<int64_t> all;
  for (int64_t dim = 0; dim < tensorType(tensor).getRank(); ++dim)
    all.push_back(dim);
  return builder.create<ReduceSumOp>(loc, tensor, all);
}

/// Returns the sum of `losses` / (`perSample` * samples of the global batch), or their sum if
/// `perSample` is 0. The division comes before the sum. So the sum stays partial over data ranks
/// and is completed once per step, not once per micro-batch in front of a division.
Value LossAttacher::meanShare(Value losses, const BatchDim &batch, int64_t perSample) {
  if (perSample == 0)
    return sumOverAll(losses);
  auto type = tensorType(losses);
  int64_t samples = options.samples ? options.samples : batch.size;
  Value size = builder.create<FactorSizeOp>(loc, RankedTensorType::get({}, type.getElementType()),
                                            perSample, samples);
  size.getDefiningOp()->setAttr(kGlobalBatchAttr, builder.getUnitAttr());
  Value sizes = broadcastTo(builder, loc, size, type.getShape(), {});
  // Every weight takes its part of epsilon, so that all counts together have it once.
  if (weights && epsilon != 0) {
    Formula f{builder, loc};
    weights = f.cast(weights, type.getElementType());
    weights = f.add(weights, f.div(f.number(weights, epsilon), sizes));
  }
  return sumOverAll(builder.create<DivOp>(loc, losses, sizes));
}

void LossAttacher::addMean(Value losses, const BatchDim &batch) {
  loss = meanShare(losses, batch, tensorType(losses).getNumElements() / batch.size);
  if (weights)
    count = sumOverAll(Formula{builder, loc}.cast(weights, builder.getF32Type()));
}

/// Makes @train return (loss, [count], new states ..).
void LossAttacher::setResults() {
  Operation *terminator = train.getBody().front().getTerminator();
  SmallVector<Value> values;
  SmallVector<DictionaryAttr> attrs;
  auto add = [&](Value value, TensorRole role, StringRef name) {
    values.push_back(value);
    attrs.push_back(
        builder.getDictionaryAttr({namedRole(train.getContext(), role),
                                   builder.getNamedAttr(kNameAttr, builder.getStringAttr(name))}));
  };
  add(loss, TensorRole::Loss, "loss");
  if (count)
    add(count, TensorRole::Count, "count");
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    if (isState(train, i)) {
      values.push_back(terminator->getOperand(i));
      attrs.push_back(train.getResultAttrDict(i));
    }
  terminator->setOperands(values);
  train.setType(builder.getFunctionType(train.getArgumentTypes(), ValueRange(values).getTypes()));
  train.setAllResultAttrs(attrs);
}

/// Whether `value` is a matmul, perhaps with a bias.
static bool isOfMatmul(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<EinsumOp>(op) ||
         (isa_and_nonnull<AddOp, CastOp>(op) && llvm::any_of(op->getOperands(), isOfMatmul));
}

LogicalResult LossAttacher::run() {
  Operation *terminator = train.getBody().front().getTerminator();
  FailureOr<unsigned> result = findOutput();
  if (failed(result))
    return failure();
  Value output = terminator->getOperand(*result);
  // If samples meet, or the loss has no shares, the step has one micro-batch (firstMeeting of
  // planner/reshard), so a scalar is the loss of the step.
  builder.setInsertionPoint(terminator);
  if (options.kind == LossKind::Output && tensorType(output).getNumElements() == 1 &&
      !hasBatch(output))
    output = scalarOf(builder, output);
  bool isScalar = options.kind == LossKind::Output && tensorType(output).getRank() == 0;
  bool isWhole = isScalar && samplesMeetBefore(output);
  const Value asExported = output;
  if (isScalar && !isWhole)
    output = meanOf(output);
  auto type = tensorType(output);
  if (!isa<FloatType>(type.getElementType()) ||
      (options.kind == LossKind::CrossEntropy && type.getRank() < 2))
    return emitError(output.getLoc()) << "the loss is to be made from an output of type " << type
                                      << (options.kind == LossKind::CrossEntropy
                                              ? "; cross-entropy needs logits [batch, .., classes]"
                                              : ", which is no float");
  FailureOr<bool> isSum = false;
  if (isScalar && !isWhole && tensorType(output).getRank() == 0)
    isSum = addTerms(output);
  if (failed(isSum))
    return failure();
  if (isScalar && !isWhole && !*isSum && tensorType(output).getRank() == 0 &&
      FactorAnalysis(train).batchFactor()) {
    isWhole = true;
    emitRemark(output.getLoc()) << kWholeLoss;
  }
  if (Operation *statistic = isWhole ? nullptr : statisticInSamples(train, asExported))
    emitRemark(statistic->getLoc()) << kStatistic;
  if (Operation *along = isWhole ? nullptr : runAlongSamples(train, asExported))
    emitRemark(along->getLoc()) << kAlongSamples;
  // A critic's one value for each sample may be a loss.
  if (options.kind == LossKind::Output && !isWhole && type.getRank() > 1 &&
      type.getShape().back() > 1 && isOfMatmul(output))
    emitRemark(output.getLoc()) << kNoLoss;
  if (isWhole) {
    loss = Formula{builder, loc}.wide(output);
  } else if (!*isSum) {
    FailureOr<BatchDim> batch = findBatch(output);
    if (failed(batch))
      return failure();
    if (options.kind == LossKind::CrossEntropy && batch->dim + 1 == type.getRank())
      return emitError(output.getLoc()) << "cross-entropy needs the classes in the last dim of the "
                                           "logits, but that is the batch of "
                                        << type;
    addMean(elementLoss(output, *batch), *batch);
  }
  setResults();

  OpIds ids(train);
  for (Operation &op : train.getBody().front().without_terminator()) {
    setPhase(&op, reshard::Phase::Forward);
    if (getId(&op).empty() && op.getLoc() == loc)
      op.setAttr(kIdAttr,
                 builder.getStringAttr(ids.unique(("loss." + op.getName().stripDialect()).str())));
  }
  ids.assignMissing(train);
  eraseUnused(train);
  return checkNumbers();
}

LogicalResult attachLoss(ModuleOp module, const LossOptions &options) {
  auto model = module.lookupSymbol<func::FuncOp>("model");
  if (!model)
    return module.emitError("has no function @model to train");
  if (Operation *old = module.lookupSymbol("train"))
    return old->emitError("@train exists already");
  func::FuncOp train = model.clone();
  train.setName("train");
  module.push_back(train);
  return LossAttacher(train, options).run();
}

void setBatchSizes(func::FuncOp function, int64_t globalBatch, int64_t samples) {
  for (FactorSizeOp size : function.getOps<FactorSizeOp>())
    size.setSamples(size->hasAttr(kGlobalBatchAttr) ? globalBatch : samples);
}

namespace {
struct AttachLoss : impl::AttachLossPassBase<AttachLoss> {
  using AttachLossPassBase::AttachLossPassBase;
  void runOnOperation() override {
    LossOptions options;
    std::optional<LossKind> kind = parseLossKind(loss);
    if (!kind) {
      getOperation().emitError() << "unknown loss \"" << loss
                                 << "\"; expected cross-entropy, mse or output";
      return signalPassFailure();
    }
    options.kind = *kind;
    options.output = output;
    options.samples = samples;
    options.labelSmoothing = labelSmoothing;
    options.ignoreIndex = ignoreIndex;
    if (failed(attachLoss(getOperation(), options)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
