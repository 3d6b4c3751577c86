//===- Loss.cpp - Losses and dropout ------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"

#include "llvm/ADT/SetVector.h"

#include <numeric>

namespace tbc::frontend {

namespace {

/// Active with training_mode (or is_test = 0 before operator set 7, which is not read here).
void importDropout(NodeContext &node) {
  bool trains = node.hasInput(2) && node.scalar(2) != 0;
  double ratio = node.hasInput(1) ? node.scalar(1) : 0.5;
  if (trains && !(ratio >= 0 && ratio < 1))
    throw ImportError("has a ratio that is not at least 0 and less than 1");
  const Value &input = node.input(0);
  bool drops = trains && ratio != 0;
  if (!drops) {
    node.setOutput(0, input);
  } else {
    Emitter &e = node.emitter;
    mlir::Value tensor = e.full(input);
    node.setOutput(0,
                   Value::ofTensor(input.dtype, e.createOne("dropout", {tensor}, tensor.getType(),
                                                            {e.real("ratio", ratio)})));
  }
  if (!node.wantsOutput(1))
    return;
  Value mask = Value::ofSplat(DType::Bool, input.shape, 1);
  if (drops) {
    // Exporters name the mask output even if it is unused.
    mask.known = nullptr;
    mask.dims.resize(input.rank());
    std::iota(mask.dims.begin(), mask.dims.end(), 0u);
    mask.emitted = std::make_shared<mlir::Value>();
    mask.deferred = []() -> mlir::Value {
      throw ImportError(
          "reads the mask of a Dropout that drops out, which is not supported; export "
          "without it");
    };
  }
  node.setOutput(1, mask);
}

//===----------------------------------------------------------------------===//
// Losses: scores or log-probabilities [N, C, d1 .. dk], labels [N, d1 .. dk], weights [C]
//===----------------------------------------------------------------------===//

/// A label that never occurs, for nodes without ignore_index.
constexpr int64_t noLabel = -(int64_t(1) << 40);

/// Whether an op passes its elements on.
bool isView(mlir::Operation *op) {
  return op && mlir::isa<SliceOp, ReshapeOp, TransposeOp, BroadcastOp, CastOp>(op);
}

/// Whether labels are numbers of an input that also selects the rows of a table, so that none is
/// negative. Example: the tokens input_ids[:, 1:] of a model that embeds input_ids.
bool areRowsOfATable(const Value &labels) {
  mlir::Value source = labels.ir;
  while (source && isView(source.getDefiningOp()))
    source = source.getDefiningOp()->getOperand(0);
  if (!mlir::isa_and_nonnull<mlir::BlockArgument>(source))
    return false;
  llvm::SetVector<mlir::Value> views;
  views.insert(source);
  for (size_t i = 0; i < views.size(); ++i)
    for (mlir::OpOperand &use : views[i].getUses()) {
      if (mlir::isa<GatherOp>(use.getOwner()) && use.getOperandNumber() == 1)
        return true;
      if (isView(use.getOwner()))
        views.insert(use.getOwner()->getResult(0));
    }
  return false;
}

/// The operands of a loss node, with the classes in the last dim.
struct LossInputs {
  Value scores, labels;
  int64_t ignored;
  /// The weight of each label, in the labels' shape; undefined if all weights are 1.
  Value weights;
  /// Whether each label counts; undefined if all do.
  Value counts;

  explicit LossInputs(NodeContext &node)
      : ignored(node.hasAttr("ignore_index") ? node.attrInt("ignore_index", 0) : noLabel) {
    Emitter &e = node.emitter;
    const Value &input = node.input(0);
    if (!kernels::isFloat(input.dtype) || input.rank() < 2)
      throw ImportError("takes float scores of two or more dims");
    std::vector<unsigned> order(input.rank());
    std::iota(order.begin(), order.end(), 0u);
    order.erase(order.begin() + 1);
    order.push_back(1);
    scores = transpose(e, input, order);
    labels = cast(e, node.input(1), DType::I64);
    if (numbersExample(e)) {
      node.warn("has labels that number the " + std::to_string(labels.shape[0]) +
                " samples of the export (`len(x)` is no shape to the exporter); they number those "
                "of each batch");
      labels = positions({scores.shape[0]}, 0);
    }
    if (Shape(scores.shape.begin(), scores.shape.end() - 1) != labels.shape)
      throw ImportError("takes labels " + printShape(labels.shape, e.marker) + " for scores " +
                        printShape(input.shape, e.marker) +
                        "; they have the shape of the scores without their classes");
    // Then no label is ignored, and the loss is a mean whose count is known.
    if (ignored < 0 && areRowsOfATable(labels))
      ignored = noLabel;
    findWeights(node);
  }

private:
  /// Whether the labels of scores of all pairs are 0 .. n - 1 for another n than the batch: the
  /// batch of the export, where a model counts its samples by `len`.
  bool numbersExample(const Emitter &e) const {
    if (labels.rank() != 1 || !labels.isKnown() || labels.shape[0] < 2 || scores.rank() != 2 ||
        !e.dependsOnBatch(scores.shape[0]) || scores.shape[0] != scores.shape[1] ||
        labels.shape[0] > kMaxKnownElements)
      return false;
    std::vector<int64_t> elements = fullInts(labels), counted(elements.size());
    std::iota(counted.begin(), counted.end(), 0);
    return elements == counted;
  }

  void findWeights(NodeContext &node) {
    Emitter &e = node.emitter;
    DType dtype = scores.dtype;
    if (ignored != noLabel)
      counts = compare(e, "ne", labels, number(labels, double(ignored)));
    if (node.hasInput(2)) {
      // An ignored label may be outside of the table.
      Value inTable = counts.isDefined() ? select(e, counts, labels, number(labels, 0)) : labels;
      weights = cast(e, gather(e, node.input(2), inTable, 0), dtype);
      if (counts.isDefined())
        weights = select(e, counts, weights, number(weights, 0));
    } else if (counts.isDefined()) {
      weights = cast(e, counts, dtype);
    }
  }
};

std::vector<unsigned> allDims(const Value &value) {
  std::vector<unsigned> dims(value.rank());
  std::iota(dims.begin(), dims.end(), 0u);
  return dims;
}

std::string reductionOf(const NodeContext &node) {
  std::string reduction = node.attrText("reduction", "mean");
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    throw ImportError("has reduction '" + reduction + "'; expected mean, sum or none");
  return reduction;
}

/// Sets output 0 from the loss of every label, times its weight.
void setReduced(NodeContext &node, const LossInputs &in, const Value &losses) {
  Emitter &e = node.emitter;
  std::string reduction = reductionOf(node);
  if (reduction == "none")
    return node.setOutput(0, losses);
  if (reduction == "mean" && !in.weights.isDefined())
    return node.setOutput(0, reduceMean(e, losses, allDims(losses), false));
  Value sum = reduce(e, "reduce_sum", losses, allDims(losses), false);
  if (reduction == "mean")
    sum = elementwise(e, "div", {sum, reduce(e, "reduce_sum", in.weights, allDims(losses), false)});
  node.setOutput(0, sum);
}

Value timesWeights(Emitter &e, const LossInputs &in, const Value &losses) {
  return in.weights.isDefined() ? elementwise(e, "mul", {losses, in.weights}) : losses;
}

/// The label smoothing of the call in PyTorch. torch's newer exporter writes the node without it,
/// for ONNX has no such attribute.
double labelSmoothing(const NodeContext &node) {
  double smoothing = node.torchNumber("aten.cross_entropy_loss", 5, "label_smoothing").value_or(0);
  if (!(smoothing >= 0 && smoothing <= 1))
    throw ImportError("has a label_smoothing that is not between 0 and 1");
  return smoothing;
}

/// Returns the losses of smoothed labels with class weights w, as in PyTorch:
/// (1 - s) w[label] loss + s / C sum_c(-w_c log softmax(x)_c), from (w[label] loss).
Value smoothWeighted(NodeContext &node, const LossInputs &in, Value losses, double smoothing) {
  Emitter &e = node.emitter;
  const unsigned last = in.scores.rank() - 1;
  Value logs = elementwise(e, "mul", {logSoftmax(e, in.scores, last), node.input(2)});
  Value sums = reduce(e, "reduce_sum", logs, {last}, false);
  if (in.counts.isDefined())
    sums = select(e, in.counts, sums, number(sums, 0));
  Value share = number(sums, smoothing / double(in.scores.shape[last]));
  losses = elementwise(e, "mul", {losses, number(losses, 1 - smoothing)});
  return elementwise(e, "sub", {losses, elementwise(e, "mul", {sums, share})});
}

/// The loss of probabilities instead of labels, as F.cross_entropy has it: -sum_c(w_c p_c log
/// softmax(x)_c). Its mean is over all rows: weights do not change the divisor.
void importLossOfProbabilities(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &scores = node.input(0);
  Value targets = cast(e, node.input(1), scores.dtype);
  if (const double smoothing = labelSmoothing(node); smoothing > 0) {
    targets = elementwise(e, "mul", {targets, number(targets, 1 - smoothing)});
    targets =
        elementwise(e, "add", {targets, number(targets, smoothing / double(scores.shape[1]))});
  }
  if (node.hasInput(2)) {
    std::vector<unsigned> behind(scores.rank() - 2);
    std::iota(behind.begin(), behind.end(), 1u);
    targets = elementwise(e, "mul", {targets, unsqueeze(node.input(2), behind)});
  }
  Value products = elementwise(e, "mul", {logSoftmax(e, scores, 1), targets});
  Value losses = elementwise(e, "neg", {reduce(e, "reduce_sum", products, {1}, false)});
  std::string reduction = reductionOf(node);
  if (reduction != "none")
    losses = reduction == "mean" ? reduceMean(e, losses, allDims(losses), false)
                                 : reduce(e, "reduce_sum", losses, allDims(losses), false);
  node.setOutput(0, losses);
}

void importSoftmaxCrossEntropyLoss(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  if (kernels::isFloat(x.dtype) && kernels::isFloat(node.input(1).dtype) && x.rank() >= 2 &&
      node.input(1).shape == x.shape) {
    node.hasAttr("ignore_index"); // probabilities do not have any
    importLossOfProbabilities(node);
  } else {
    LossInputs in(node);
    DType dtype = in.scores.dtype, wide = dtype == DType::F64 ? DType::F64 : DType::F32;
    mlir::Type rows = e.type(wide, in.labels.shape);
    const double smoothing = labelSmoothing(node);
    const bool hasWeights = node.hasInput(2);
    Attributes attributes{e.integer("ignore_index", in.ignored)};
    if (smoothing > 0 && !hasWeights)
      attributes.push_back(e.real("label_smoothing", smoothing));
    mlir::Value loss = e.create("cross_entropy", {e.full(in.scores), e.full(in.labels)},
                                {rows, rows, rows}, attributes)
                           ->getResult(0);
    Value losses = timesWeights(e, in, cast(e, Value::ofTensor(wide, loss), dtype));
    if (smoothing > 0 && hasWeights)
      losses = smoothWeighted(node, in, losses, smoothing);
    setReduced(node, in, losses);
  }
  if (node.wantsOutput(1))
    node.setOutput(1, logSoftmax(e, x, 1));
}

/// Selects the log-probability of the label by comparing all classes with it.
void importNegativeLogLikelihoodLoss(NodeContext &node) {
  Emitter &e = node.emitter;
  LossInputs in(node);
  unsigned last = in.scores.rank() - 1;
  Shape classes(in.scores.rank(), 1);
  classes[last] = in.scores.shape[last];
  std::vector<int64_t> coefficients(in.scores.rank(), 0);
  coefficients[last] = 1;
  Value index = Value::ofKnown(DType::I64, Known::affine(classes, 0, coefficients, false));
  Value isLabel = compare(e, "eq", unsqueeze(in.labels, {last}), index);
  Value chosen = select(e, isLabel, in.scores, number(in.scores, 0));
  Value losses = elementwise(e, "neg", {reduce(e, "reduce_sum", chosen, {last}, false)});
  setReduced(node, in, timesWeights(e, in, losses));
}

} // namespace

llvm::ArrayRef<OpImporter> lossOps() {
  static const OpImporter ops[] = {
      {"", "Dropout", importDropout, "seed"}, // the step has a single seed
      {"", "NegativeLogLikelihoodLoss", importNegativeLogLikelihoodLoss},
      {"", "SoftmaxCrossEntropyLoss", importSoftmaxCrossEntropyLoss},
  };
  return ops;
}

} // namespace tbc::frontend
