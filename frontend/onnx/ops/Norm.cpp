//===- Norm.cpp - Softmax and normalizations -------------------------------===//

#include "frontend/onnx/ops/AttentionForm.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace tbc::frontend {

mlir::Value coreWith(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                     std::vector<unsigned> &dims) {
  dims = value.dims;
  for (unsigned axis : axes)
    if (value.coreDim(axis) < 0)
      dims.push_back(axis);
  llvm::sort(dims);
  return emitter.at(value, dims);
}

Value softmax(Emitter &emitter, const Value &value, unsigned axis) {
  std::vector<unsigned> dims;
  mlir::Value input = coreWith(emitter, value, {axis}, dims);
  int64_t dim = llvm::find(dims, axis) - dims.begin();
  mlir::Value core =
      emitter.createOne("softmax", {input}, input.getType(), {emitter.integer("dim", dim)});
  return Value::ofCore(value.dtype, value.shape, dims, core);
}

Value logSoftmax(Emitter &e, const Value &x, unsigned axis) {
  std::vector<unsigned> dims;
  Value whole = Value::ofCore(x.dtype, x.shape, dims, coreWith(e, x, {axis}, dims));
  whole.dims = dims;
  Value shifted = elementwise(e, "sub", {whole, reduce(e, "stabilizer_max", whole, {axis}, true)});
  Value sum = reduce(e, "reduce_sum", elementwise(e, "exp", {shifted}), {axis}, true);
  return elementwise(e, "sub", {shifted, elementwise(e, "log", {sum})});
}

namespace {

void requireFloatInput(const Value &value) {
  if (!kernels::isFloat(value.dtype))
    throw ImportError("needs a float tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

/// Applies `function`, such as softmax, along `axis`. Before operator set 13 the dims from `axis`
/// on are flattened into one.
template <Value (*function)(Emitter &, const Value &, unsigned)>
void importAlongAxis(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  requireFloatInput(x);
  unsigned axis = checkAxis(node.attrInt("axis", node.opset < 13 ? 1 : -1), x.rank());
  if (node.opset >= 13)
    return node.setOutput(0, function(e, x, axis));
  Shape flat(x.shape.begin(), x.shape.begin() + axis);
  int64_t size = 1;
  for (unsigned dim = axis; dim < x.rank(); ++dim)
    size *= x.shape[dim];
  flat.push_back(size);
  node.setOutput(0, reshape(e, function(e, reshape(e, x, flat), axis), x.shape));
}

/// 1 at the first largest element, 0 elsewhere.
Value hardmax(Emitter &e, const Value &x, unsigned axis) {
  Formula f{e};
  std::vector<int64_t> steps(x.rank(), 0);
  steps[axis] = 1;
  Value index = Value::ofKnown(DType::I64, Known::affine(x.shape, 0, steps, false));
  std::vector<unsigned> dims;
  mlir::Value core = coreWith(e, x, {axis}, dims);
  Value whole = Value::ofCore(x.dtype, x.shape, dims, core);
  Value isLargest = f.compare("eq", whole, reduce(e, "reduce_max", whole, {axis}, true));
  // The smallest index has the largest negation.
  Value candidates = f.select(isLargest, f.neg(index), number(index, double(-x.shape[axis])));
  Value first = f.neg(reduce(e, "reduce_max", candidates, {axis}, true));
  return f.select(f.compare("eq", index, first), number(x, 1), number(x, 0));
}

/// A norm over trailing dims, in tbc's form: over the last dim of a core, with vectors as weight
/// and bias.
struct TrailingNorm {
  /// The input with its normalized dims flattened into one, and that dim's index.
  Value flat;
  std::vector<unsigned> dims;
  mlir::Value input;
  Shape shape, statistics;
  int64_t size = 1;

  TrailingNorm(Emitter &e, const Value &x, int64_t givenAxis) {
    requireFloatInput(x);
    unsigned axis = checkAxis(givenAxis, x.rank());
    shape = statistics = x.shape;
    Shape flattened(shape.begin(), shape.begin() + axis);
    for (unsigned dim = axis; dim < x.rank(); ++dim) {
      size *= shape[dim];
      statistics[dim] = 1;
    }
    flattened.push_back(size);
    flat = reshape(e, x, flattened);
    input = coreWith(e, flat, {axis}, dims);
  }

  /// Returns a parameter as a vector over the normalized dims.
  mlir::Value vector(Emitter &e, const Value &value) {
    Shape trailing(shape.begin() + (flat.rank() - 1), shape.end());
    Value whole = expand(e, value,
                         broadcastShapes({value,
                                          [&] {
                                            Value target;
                                            target.shape = trailing;
                                            return target;
                                          }()},
                                         e.marker));
    if (whole.shape != trailing)
      throw ImportError("scales by a tensor of shape " + printShape(value.shape, e.marker));
    return e.full(reshape(e, whole, {size}));
  }
  Value output(Emitter &e, DType dtype, mlir::Value core) {
    return reshape(e, Value::ofCore(dtype, flat.shape, dims, core), shape);
  }
  /// Returns one number per row, in the input's shape with ones for the normalized dims.
  Value statistic(mlir::Value core) {
    return Value::ofCore(
        *dtypeOf(llvm::cast<mlir::RankedTensorType>(core.getType()).getElementType()), statistics,
        std::vector<unsigned>(dims.begin(), dims.end() - 1), core);
  }
  mlir::Type statisticType(Emitter &e) {
    DType dtype = flat.dtype == DType::F64 ? DType::F64 : DType::F32;
    return e.type(dtype, llvm::ArrayRef<int64_t>(shapeOf(input)).drop_back());
  }
};

} // namespace

/// Whether `weight` is f32 and `x` is narrower. Under torch.autocast of CPUs a norm keeps its f32
/// weights: PyTorch computes in f32 and rounds the result.
static bool isWidened(const Value &x, const Value &weight) {
  return weight.dtype == DType::F32 && (x.dtype == DType::BF16 || x.dtype == DType::F16);
}

Normalized layerNorm(Emitter &e, const Value &x, int64_t axis, const Value &weight,
                     const Value *bias, double epsilon) {
  if (isWidened(x, weight)) {
    Normalized wide = layerNorm(e, cast(e, x, DType::F32), axis, weight, bias, epsilon);
    wide.output = cast(e, wide.output, x.dtype);
    return wide;
  }
  TrailingNorm norm(e, x, axis);
  DType dtype = norm.flat.dtype;
  mlir::Value scale = norm.vector(e, weight);
  mlir::Value shift = norm.vector(e, bias ? *bias : Value::ofSplat(dtype, {1}, 0));
  mlir::Type statistic = norm.statisticType(e);
  mlir::Operation *op =
      e.create("layer_norm", {norm.input, scale, shift},
               {norm.input.getType(), statistic, statistic}, {e.real("epsilon", epsilon)});
  return {norm.output(e, dtype, op->getResult(0)), norm.statistic(op->getResult(1)),
          norm.statistic(op->getResult(2))};
}

Normalized rmsNorm(Emitter &e, const Value &x, int64_t axis, const Value &weight, double epsilon) {
  if (isWidened(x, weight)) {
    Normalized wide = rmsNorm(e, cast(e, x, DType::F32), axis, weight, epsilon);
    wide.output = cast(e, wide.output, x.dtype);
    return wide;
  }
  TrailingNorm norm(e, x, axis);
  mlir::Operation *op =
      e.create("rms_norm", {norm.input, norm.vector(e, weight)},
               {norm.input.getType(), norm.statisticType(e)}, {e.real("epsilon", epsilon)});
  return {norm.output(e, norm.flat.dtype, op->getResult(0)), Value(),
          norm.statistic(op->getResult(1))};
}

namespace {

void importLayerNormalization(NodeContext &node) {
  Normalized result =
      layerNorm(node.emitter, node.input(0), node.attrInt("axis", -1), node.input(1),
                node.hasInput(2) ? &node.input(2) : nullptr, node.attrFloat("epsilon", 1e-5));
  node.setOutput(0, result.output);
  node.setOutput(1, result.mean);
  node.setOutput(2, result.inverse);
}

void importRmsNormalization(NodeContext &node) {
  node.setOutput(0, rmsNorm(node.emitter, node.input(0), node.attrInt("axis", -1), node.input(1),
                            node.attrFloat("epsilon", 1e-5))
                        .output);
}

/// (x - mean) / sqrt(var + epsilon) over dims `axes`.
Value standardize(Emitter &e, const Value &x, const std::vector<unsigned> &axes, double epsilon) {
  Value centred = elementwise(e, "sub", {x, reduceMean(e, x, axes, true)});
  Value variance = reduceMean(e, elementwise(e, "mul", {centred, centred}), axes, true);
  Value rstd = elementwise(e, "rsqrt", {elementwise(e, "add", {variance, number(x, epsilon)})});
  return elementwise(e, "mul", {centred, rstd});
}

/// Broadcasts `vector` over the channels, dim 1 of a tensor of rank `rank`.
Value perChannel(const Value &vector, unsigned rank) {
  std::vector<unsigned> added;
  for (unsigned dim = 0; dim < rank; ++dim)
    if (dim != 1)
      added.push_back(dim);
  return unsqueeze(vector, added);
}

Value scaleAndShift(NodeContext &node, const Value &value) {
  Value scaled = elementwise(node.emitter, "mul", {value, perChannel(node.input(1), value.rank())});
  return elementwise(node.emitter, "add", {scaled, perChannel(node.input(2), value.rank())});
}

/// Whether `value` is computed, and no tensor of the file in another shape or type.
bool isComputed(Emitter &e, const Value &value) {
  if (value.isKnown())
    return false;
  mlir::Operation *op = e.full(value).getDefiningOp();
  while (op && llvm::is_contained({"reshape", "cast"}, op->getName().stripDialect()))
    op = op->getOperand(0).getDefiningOp();
  return op && op->getNumOperands() > 0;
}

/// (x - mean) / sqrt(variance + epsilon) * scale + bias, with inputs 1 to 4 per channel.
void importComputedStatistics(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  auto input = [&](size_t i) { return perChannel(cast(e, node.input(i), x.dtype), x.rank()); };
  Value variance = elementwise(e, "add", {input(4), number(x, node.attrFloat("epsilon", 1e-5))});
  Value y = elementwise(
      e, "mul", {elementwise(e, "sub", {x, input(3)}), elementwise(e, "rsqrt", {variance})});
  node.setOutput(0, elementwise(e, "add", {elementwise(e, "mul", {y, input(1)}), input(2)}));
}

void importBatchNormalization(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  requireFloatInput(x);
  if (x.rank() < 2)
    throw ImportError("needs a tensor of rank 2 or more");
  llvm::SmallVector<mlir::Value> operands{e.full(x)};
  for (size_t i = 1; i < 5; ++i) {
    if (node.input(i).shape != Shape{x.shape[1]})
      throw ImportError("input " + std::to_string(i) + " has shape " +
                        printShape(node.input(i).shape, e.marker) + " for " +
                        std::to_string(x.shape[1]) + " channels");
    operands.push_back(e.full(node.input(i)));
  }
  Attributes attributes{e.real("epsilon", node.attrFloat("epsilon", 1e-5)),
                        e.real("momentum", node.attrFloat("momentum", 0.9))};
  if (!node.attrInt("spatial", 1))
    throw ImportError("normalizes each position by itself (spatial = 0), which is not supported");
  // Older operator sets train if the running statistics are outputs, or if is_test is not set.
  bool trains = node.opset >= 14  ? node.attrInt("training_mode", 0) != 0
                : node.opset >= 7 ? node.wantsOutput(1)
                                  : node.attrInt("is_test", 0) == 0;
  // Weights are standardized so, with the statistics of their own rows: NFNet, BiT.
  if (!trains && (isComputed(e, node.input(3)) || isComputed(e, node.input(4))))
    return importComputedStatistics(node);
  if (!trains) {
    mlir::Value y = e.createOne("batch_norm", operands, operands[0].getType(), attributes);
    return node.setOutput(0, Value::ofTensor(x.dtype, y));
  }
  attributes.push_back(e.flag("unbiased", false));
  mlir::Operation *op =
      e.create("batch_norm_train", operands,
               {operands[0].getType(), operands[3].getType(), operands[4].getType()}, attributes);
  node.setOutput(0, Value::ofTensor(x.dtype, op->getResult(0)));
  for (unsigned i : {1, 2})
    node.setNewState(node.inputName(2 + i), node.input(2 + i).dtype, op->getResult(i), i);
}

void importInstanceNormalization(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloatInput(x);
  std::vector<unsigned> axes;
  for (unsigned dim = 2; dim < x.rank(); ++dim)
    axes.push_back(dim);
  node.setOutput(
      0, scaleAndShift(node, standardize(node.emitter, x, axes, node.attrFloat("epsilon", 1e-5))));
}

void importGroupNormalization(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloatInput(x);
  int64_t groups = node.attrInt("num_groups", 1);
  if (x.rank() < 3 || groups < 1 || x.shape[1] % groups != 0)
    throw ImportError("splits channels of " + printShape(x.shape, node.emitter.marker) + " into " +
                      std::to_string(groups) + " groups");
  Shape grouped = x.shape;
  grouped[1] = x.shape[1] / groups;
  grouped.insert(grouped.begin() + 1, groups);
  std::vector<unsigned> axes;
  for (unsigned dim = 2; dim < grouped.size(); ++dim)
    axes.push_back(dim);
  Value normal = standardize(node.emitter, reshape(node.emitter, x, grouped), axes,
                             node.attrFloat("epsilon", 1e-5));
  // Before operator set 21 there is one scale and bias per group.
  if (node.opset < 21)
    return node.setOutput(0, reshape(node.emitter, scaleAndShift(node, normal), x.shape));
  node.setOutput(0, scaleAndShift(node, reshape(node.emitter, normal, x.shape)));
}

/// x / |x|_p along a dim; 0 if the norm is 0.
void importLpNormalization(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  requireFloatInput(x);
  unsigned axis = checkAxis(node.attrInt("axis", -1), x.rank());
  int64_t p = node.attrInt("p", 2);
  if (p != 1 && p != 2)
    throw ImportError("has p = " + std::to_string(p) + "; expected 1 or 2");
  Value sum = reduce(f.emitter, "reduce_sum", p == 1 ? f.abs(x) : f.mul(x, x), {axis}, true);
  Value isZero = f.compare("eq", sum, number(x, 0));
  // If the sum is 0, so is x; the root of 1 keeps its gradient finite.
  Value norm = f.select(isZero, number(x, 1), sum);
  node.setOutput(0, f.div(x, p == 1 ? norm : f.sqrt(norm)));
}

/// (x - mean) / sqrt(mean of squares - squared mean), as the operator is defined.
void importMeanVariance(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  requireFloatInput(x);
  std::vector<unsigned> axes = checkAxes(node.attrInts("axes", {0, 2, 3}), x.rank());
  Value centred = f.sub(x, reduceMean(f.emitter, x, axes, true));
  Value variance = reduceMean(f.emitter, f.mul(centred, centred), axes, true);
  node.setOutput(0, f.div(centred, f.add(f.sqrt(variance), number(x, 1e-9))));
}

/// x / (bias + alpha / size * sum of squares of the `size` channels around)^beta. The sum is a
/// matmul with a band matrix over the channels. Source: Krizhevsky et al., "ImageNet Classification
/// with Deep Convolutional Neural Networks", 2012, section 3.3.
void importLrn(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  requireFloatInput(x);
  int64_t size = node.attrInt("size", 1);
  if (x.rank() < 2 || size < 1)
    throw ImportError("needs channels and a positive size");
  int64_t channels = x.shape[1], before = (size - 1) / 2, after = size - 1 - before;
  if (channels * channels > kMaxKnownElements)
    throw ImportError("has too many channels");
  std::vector<double> band(channels * channels, 0);
  for (int64_t to = 0; to < channels; ++to)
    for (int64_t from = std::max<int64_t>(0, to - before);
         from <= std::min(channels - 1, to + after); ++from)
      band[to * channels + from] = 1;
  Value around = Value::ofKnown(x.dtype, Known::ofReals({channels, channels}, band));
  std::vector<int64_t> labels, summed;
  for (unsigned dim = 0; dim < x.rank(); ++dim)
    labels.push_back(dim);
  summed = labels;
  summed[1] = x.rank();
  Value sum = einsum(f.emitter, f.mul(x, x), labels, around, {x.rank(), 1}, summed);
  Value scale = f.add(number(x, node.attrFloat("bias", 1)),
                      f.mul(number(x, node.attrFloat("alpha", 1e-4) / double(size)), sum));
  node.setOutput(0, f.div(x, f.pow(scale, number(x, node.attrFloat("beta", 0.75)))));
}

} // namespace

llvm::ArrayRef<OpImporter> normOps() {
  static const OpImporter ops[] = {
      {"", "BatchNormalization", importBatchNormalization, "", weightsAt(1, 2)},
      {"", "GroupNormalization", importGroupNormalization, "", weightsAt(1, 2)},
      {"", "InstanceNormalization", importInstanceNormalization, "", weightsAt(1, 2)},
      {"", "LayerNormalization", importLayerNormalization, "", weightsAt(1, 2)},
      {"com.microsoft", "LayerNormalization", importLayerNormalization, "", weightsAt(1, 2)},
      {"", "LogSoftmax", importAlongAxis<logSoftmax>},
      {"", "LpNormalization", importLpNormalization},
      {"", "LRN", importLrn},
      {"", "MeanVarianceNormalization", importMeanVariance},
      {"", "RMSNormalization", importRmsNormalization, "", weightsAt(1)},
      {"", "Softmax", importAlongAxis<softmax>},
      {"", "Hardmax", importAlongAxis<hardmax>},
  };
  return ops;
}

} // namespace tbc::frontend
