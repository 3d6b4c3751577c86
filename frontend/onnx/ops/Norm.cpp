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

namespace {

void requireFloatInput(const Value &value) {
  if (!kernels::isFloat(value.dtype))
    throw ImportError("needs a float tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

void importSoftmax(NodeContext &node) {
  const Value &value = node.input(0);
  requireFloatInput(value);
  node.setOutput(0,
                 softmax(node.emitter, value, checkAxis(node.attrInt("axis", -1), value.rank())));
}

/// z - log(sum(exp(z))), z = x - stabilizer_max(x)
void importLogSoftmax(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  requireFloatInput(x);
  unsigned axis = checkAxis(node.attrInt("axis", -1), x.rank());
  std::vector<unsigned> dims;
  Value whole = Value::ofCore(x.dtype, x.shape, dims, coreWith(e, x, {axis}, dims));
  whole.dims = dims;
  Value shifted = elementwise(e, "sub", {whole, reduce(e, "stabilizer_max", whole, {axis}, true)});
  Value sum = reduce(e, "reduce_sum", elementwise(e, "exp", {shifted}), {axis}, true);
  node.setOutput(0, elementwise(e, "sub", {shifted, elementwise(e, "log", {sum})}));
}

/// A norm over trailing dims, as tbc has it: over the last of a core, with vectors for weight and
/// bias.
struct TrailingNorm {
  /// The input with its normalized dims as one, and that dim's place.
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

  /// A parameter as a vector over the normalized dims.
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
  /// One number per row, in the shape of the input with ones for the normalized dims.
  Value statistic(mlir::Value core) {
    return Value::ofCore(
        dtypeOf(llvm::cast<mlir::RankedTensorType>(core.getType()).getElementType()), statistics,
        std::vector<unsigned>(dims.begin(), dims.end() - 1), core);
  }
  mlir::Type statisticType(Emitter &e) {
    DType dtype = flat.dtype == DType::F64 ? DType::F64 : DType::F32;
    return e.type(dtype, llvm::ArrayRef<int64_t>(shapeOf(input)).drop_back());
  }
};

} // namespace

Normalized layerNorm(Emitter &e, const Value &x, int64_t axis, const Value &weight,
                     const Value *bias, double epsilon) {
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
  if (!node.attrInt("training_mode", 0)) {
    mlir::Value y = e.createOne("batch_norm", operands, operands[0].getType(), attributes);
    return node.setOutput(0, Value::ofTensor(x.dtype, y));
  }
  mlir::Operation *op =
      e.create("batch_norm_train", operands,
               {operands[0].getType(), operands[3].getType(), operands[4].getType()}, attributes);
  node.setOutput(0, Value::ofTensor(x.dtype, op->getResult(0)));
  for (unsigned i : {1, 2})
    node.setNewState(node.inputName(2 + i), node.input(2 + i).dtype, op->getResult(i), i);
}

/// (x - mean) / sqrt(var + epsilon) over dims `axes`.
Value standardize(Emitter &e, const Value &x, const std::vector<unsigned> &axes, double epsilon) {
  Value centred = elementwise(e, "sub", {x, reduceMean(e, x, axes, true)});
  Value variance = reduceMean(e, elementwise(e, "mul", {centred, centred}), axes, true);
  Value rstd = elementwise(e, "rsqrt", {elementwise(e, "add", {variance, number(x, epsilon)})});
  return elementwise(e, "mul", {centred, rstd});
}

/// `vector` over the channels, dim 1 of a tensor of rank `rank`.
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
  if (node.opset < 21)
    throw ImportError(
        "GroupNormalization before operator set 21 scales groups, not channels, and is "
        "not supported; export with operator set 21");
  Shape grouped = x.shape;
  grouped[1] = x.shape[1] / groups;
  grouped.insert(grouped.begin() + 1, groups);
  std::vector<unsigned> axes;
  for (unsigned dim = 2; dim < grouped.size(); ++dim)
    axes.push_back(dim);
  Value normal = standardize(node.emitter, reshape(node.emitter, x, grouped), axes,
                             node.attrFloat("epsilon", 1e-5));
  node.setOutput(0, scaleAndShift(node, reshape(node.emitter, normal, x.shape)));
}

} // namespace

llvm::ArrayRef<OpImporter> normOps() {
  static const OpImporter ops[] = {
      {"", "BatchNormalization", importBatchNormalization},
      {"", "GroupNormalization", importGroupNormalization},
      {"", "InstanceNormalization", importInstanceNormalization},
      {"", "LayerNormalization", importLayerNormalization},
      {"", "LogSoftmax", importLogSoftmax},
      {"", "RMSNormalization", importRmsNormalization},
      {"", "Softmax", importSoftmax},
  };
  return ops;
}

} // namespace tbc::frontend
