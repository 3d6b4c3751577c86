//===- Quantization.cpp - Floats as small integers --------------------------===//
//
// y = saturate(round(x / scale) + zero point), halves rounded to even, and the inverse. Source:
// ONNX's definitions of the ops. Rounding has the gradient 0, but for a pair of both ops, the fake
// quantization of torch.fake_quantize_per_tensor_affine and _per_channel_affine: its gradient is 1
// where y is not saturated, else 0 (Bengio et al., arXiv 1308.3432, straight-through).
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Detach.h"
#include "frontend/onnx/ops/Families.h"
#include "frontend/onnx/ops/Window.h"

namespace tbc::frontend {

namespace {

/// Broadcasts a scale or zero point over x: one number, one per index of dim `axis`, or one per
/// block of `block` indices.
Value spread(Emitter &e, Value value, const Value &x, unsigned axis, int64_t block) {
  if (value.rank() == 0 || value.shape == Shape{1})
    return value.rank() == 0 ? value : squeeze(e, value, {0});
  if (block == 0) {
    if (value.rank() != 1 || axis >= x.rank() || value.shape[0] != x.shape[axis])
      throw ImportError("has scales of shape " + printShape(value.shape, e.marker) + " for " +
                        printShape(x.shape, e.marker) + " along dim " + std::to_string(axis));
    std::vector<unsigned> behind;
    for (unsigned dim = axis + 1; dim < x.rank(); ++dim)
      behind.push_back(dim - axis);
    return unsqueeze(value, behind);
  }
  Shape blocks = x.shape;
  if (block > 0 && axis < x.rank())
    blocks[axis] = (x.shape[axis] + block - 1) / block;
  if (value.shape != blocks)
    throw ImportError("has scales of shape " + printShape(value.shape, e.marker) + " for blocks " +
                      printShape(blocks, e.marker));
  value = unsqueeze(value, {axis + 1});
  Shape wide = value.shape;
  wide[axis + 1] = block;
  Shape joined = blocks;
  joined[axis] *= block;
  value = reshape(e, expand(e, value, wide), joined);
  return slice(e, value, axis, 0, 1, x.shape[axis]);
}

/// Returns the smallest and the largest number of a quantized type.
std::pair<double, double> limitsOf(DType dtype) {
  if (dtype != DType::I8 && dtype != DType::U8 && dtype != DType::I16 && dtype != DType::U16)
    throw ImportError("quantizes to " + std::string(kernels::name(dtype)) +
                      "; i8, u8, i16 and u16 are supported");
  bool isSigned = kernels::wrapTo(dtype, -1) < 0;
  double count = double(int64_t(1) << (8 * kernels::byteWidth(dtype)));
  return isSigned ? std::pair(-count / 2, count / 2 - 1) : std::pair(0.0, count - 1);
}

/// saturate(round(ratio) + zero) in `dtype`; `ratio` in f32.
Value quantize(Emitter &e, const Value &ratio, const Value &zero, DType dtype) {
  Formula f{e};
  auto [low, high] = limitsOf(dtype);
  Value y = f.add(f.round(ratio), cast(e, zero, ratio.dtype));
  return cast(e, f.maximum(f.minimum(y, number(y, high)), number(y, low)), dtype);
}

/// Returns x - zero point as f64, exact for 32-bit integers and sums of their products.
Value centred(Emitter &e, const Value &x, const std::optional<Value> &zero) {
  Value wide = cast(e, x, DType::F64);
  return zero ? elementwise(e, "sub", {wide, cast(e, *zero, DType::F64)}) : wide;
}

void importQuantizeLinear(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  // Ignored for one scale of any rank.
  int64_t along = node.attrInt("axis", 1);
  unsigned axis = checkAxis(x.rank() < 2 && along == 1 ? 0 : along, std::max(x.rank(), 1U));
  int64_t block = node.attrInt("block_size", 0), named = node.attrInt("output_dtype", 0);
  int64_t precision = node.attrInt("precision", 0);
  if (precision != 0 && precision != onnx::TensorProto::FLOAT)
    throw ImportError("divides in element type " + std::to_string(precision) +
                      "; only f32 is supported");
  node.attrInt("saturate", 1); // of float8 types, which are refused
  DType dtype = DType::U8;
  if (named != 0)
    dtype = dtypeOfOnnx(int32_t(named), "attribute 'output_dtype'");
  if (node.hasInput(2))
    dtype = node.input(2).dtype;
  Value scale = spread(e, cast(e, node.input(1), DType::F32), x, axis, block);
  Value zero =
      node.hasInput(2) ? spread(e, node.input(2), x, axis, block) : Value::ofSplat(dtype, {}, 0);
  Value ratio = elementwise(e, "div", {cast(e, x, DType::F32), scale});
  node.setOutput(0, quantize(e, ratio, zero, dtype));
}

/// If `x` was made by `quantize`, returns 0 with a gradient to its float: 1 where it is not
/// saturated, else 0. Example: 300 / 1 as u8 is saturated to 255, and 3.4 is 3.
std::optional<Value> straightThrough(Emitter &e, const Value &x) {
  using namespace mlir;
  mlir::Value quantized = x.isKnown() ? mlir::Value() : e.core(x);
  auto from = [](mlir::Value value, const char *name, unsigned operand) {
    Operation *op = value ? value.getDefiningOp() : nullptr;
    return op && op->getName().stripDialect() == name ? op->getOperand(operand) : mlir::Value();
  };
  mlir::Value limited = from(from(quantized, "cast", 0), "maximum", 0);
  mlir::Value sum = from(limited, "minimum", 0);
  mlir::Value rounded = sum;
  if (mlir::Value withoutZero = from(sum, "add", 0))
    rounded = withoutZero;
  mlir::Value wide = from(from(rounded, "round", 0), "div", 0);
  if (!wide || shapeOf(wide) != shapeOf(quantized))
    return std::nullopt;
  auto [low, high] = limitsOf(x.dtype);
  auto as = [&](mlir::Value value) { return Value::ofCore(DType::F32, x.shape, x.dims, value); };
  Value exact = as(sum), input = as(wide);
  Value isInside = elementwise(
      e, "and",
      {compare(e, "ge", exact, number(exact, low)), compare(e, "le", exact, number(exact, high))});
  Formula f{e};
  return select(e, isInside, f.sub(input, detach(e, input)), number(input, 0));
}

void importDequantizeLinear(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  // Ignored for one scale of any rank.
  int64_t along = node.attrInt("axis", 1);
  unsigned axis = checkAxis(x.rank() < 2 && along == 1 ? 0 : along, std::max(x.rank(), 1U));
  int64_t block = node.attrInt("block_size", 0), named = node.attrInt("output_dtype", 0);
  if (kernels::isFloat(x.dtype) || x.dtype == DType::Bool)
    throw ImportError("needs integers");
  DType dtype =
      named == 0 ? node.input(1).dtype : dtypeOfOnnx(int32_t(named), "attribute 'output_dtype'");
  Value scale = spread(e, cast(e, node.input(1), DType::F32), x, axis, block);
  std::optional<Value> zero;
  if (node.hasInput(2))
    zero = spread(e, node.input(2), x, axis, block);
  Value exact = cast(e, centred(e, x, zero), DType::F32);
  Value y = elementwise(e, "mul", {exact, scale});
  if (std::optional<Value> gradient = straightThrough(e, x))
    y = elementwise(e, "add", {y, *gradient});
  node.setOutput(0, cast(e, y, dtype));
}

/// The scale maps the range of x, extended to 0, to 0 .. 255.
void importDynamicQuantizeLinear(NodeContext &node) {
  Emitter &e = node.emitter;
  Formula f{e};
  const Value &x = node.input(0);
  std::vector<unsigned> all;
  for (unsigned dim = 0; dim < x.rank(); ++dim)
    all.push_back(dim);
  auto largest = [&](const Value &value) {
    Value highest = reduce(e, "reduce_max", value, all, false);
    return f.maximum(highest, number(highest, 0));
  };
  Value high = largest(x), low = f.neg(largest(f.neg(x)));
  Value scale = f.div(f.sub(high, low), number(high, 255));
  Value none = Value::ofSplat(DType::U8, {}, 0);
  Value zero = quantize(e, f.div(f.neg(low), scale), none, DType::U8);
  node.setOutput(0, quantize(e, f.div(x, scale), zero, DType::U8));
  node.setOutput(1, scale);
  node.setOutput(2, zero);
}

/// One zero point, or one per row of a left operand.
std::optional<Value> zeroPoint(NodeContext &node, size_t input, bool isLeft) {
  if (!node.hasInput(input))
    return std::nullopt;
  const Value &value = node.input(input);
  return isLeft && value.rank() == 1 && value.shape[0] != 1 ? unsqueeze(value, {1}) : value;
}

void importMatMulInteger(NodeContext &node) {
  Emitter &e = node.emitter;
  Value a = centred(e, node.input(0), zeroPoint(node, 2, true));
  Value b = centred(e, node.input(1), zeroPoint(node, 3, false));
  node.setOutput(0, cast(e, matmul(e, a, b), DType::I32));
}

void importQLinearMatMul(NodeContext &node) {
  Emitter &e = node.emitter;
  Formula f{e};
  auto scale = [&](size_t input, bool isLeft) {
    return cast(e, *zeroPoint(node, input, isLeft), DType::F32);
  };
  Value product = matmul(e, centred(e, node.input(0), zeroPoint(node, 2, true)),
                         centred(e, node.input(3), zeroPoint(node, 5, false)));
  Value factor = f.div(f.mul(scale(1, true), scale(4, false)), scale(6, true));
  Value ratio = f.mul(cast(e, product, DType::F32), factor);
  const Value &zero = node.input(7);
  node.setOutput(0, quantize(e, ratio, *zeroPoint(node, 7, true), zero.dtype));
}

//===- convolutions --------------------------------------------------------===//

/// Returns one number, or one for each channel of dim `dim`, so that it broadcasts to `rank` dims.
Value perChannel(const Value &value, unsigned dim, unsigned rank) {
  if (value.rank() == 0)
    return value;
  std::vector<unsigned> added;
  for (unsigned i = 0; i < rank; ++i)
    if (i != dim)
      added.push_back(i);
  return unsqueeze(value, added);
}

/// Returns the convolution of integers in f64, exact; their zero points are inputs `xZero` and
/// `wZero`.
Value convolveIntegers(NodeContext &node, size_t weight, size_t xZero, size_t wZero) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0), &w = node.input(weight);
  int64_t groups = node.attrInt("group", 1);
  if (x.rank() < 3 || w.rank() != x.rank() || groups < 1 || x.shape[1] != w.shape[1] * groups ||
      w.shape[0] % groups != 0)
    throw ImportError("its weight and groups do not fit its input");
  auto zeroOf = [&](size_t input, unsigned dim) -> std::optional<Value> {
    if (!node.hasInput(input))
      return std::nullopt;
    return perChannel(node.input(input), dim, x.rank());
  };
  Window window = readWindow(node, x.shape, {w.shape.begin() + 2, w.shape.end()});
  return convolve(e, centred(e, x, zeroOf(xZero, 1)), centred(e, w, zeroOf(wZero, 0)), window,
                  groups);
}

void importConvInteger(NodeContext &node) {
  node.setOutput(0, cast(node.emitter, convolveIntegers(node, 1, 2, 3), DType::I32));
}

void importQLinearConv(NodeContext &node) {
  Emitter &e = node.emitter;
  Formula f{e};
  Value sum = convolveIntegers(node, 3, 2, 5);
  if (node.hasInput(8))
    sum = f.add(sum, cast(e, perChannel(node.input(8), 1, sum.rank()), DType::F64));
  auto scale = [&](size_t input) {
    return cast(e, perChannel(node.input(input), 1, sum.rank()), DType::F32);
  };
  Value factor = f.div(f.mul(scale(1), scale(4)), scale(6));
  Value ratio = f.mul(cast(e, sum, DType::F32), factor);
  const Value &zero = node.input(7);
  node.setOutput(0, quantize(e, ratio, perChannel(zero, 1, sum.rank()), zero.dtype));
}

} // namespace

llvm::ArrayRef<OpImporter> quantizationOps() {
  static const OpImporter ops[] = {
      {"", "ConvInteger", importConvInteger},
      {"", "DequantizeLinear", importDequantizeLinear},
      {"", "DynamicQuantizeLinear", importDynamicQuantizeLinear},
      {"", "MatMulInteger", importMatMulInteger},
      {"", "QLinearConv", importQLinearConv},
      {"", "QLinearMatMul", importQLinearMatMul},
      {"", "QuantizeLinear", importQuantizeLinear},
  };
  return ops;
}

} // namespace tbc::frontend
