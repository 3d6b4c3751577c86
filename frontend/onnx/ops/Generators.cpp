//===- Generators.cpp - Constants, ranges, triangles, sums along a dim -----===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace tbc::frontend {

Value positions(const Shape &shape, unsigned dim, int64_t offset, int64_t step) {
  return Value::ofKnown(DType::I64, shape, {dim},
                        Known::affine({shape[dim]}, offset, {step}, false));
}

namespace {

void importConstant(NodeContext &node) {
  if (node.hasAttr("value"))
    return node.setOutput(0, node.attrTensor("value"));
  if (node.hasAttr("value_int"))
    return node.setOutput(0,
                          Value::ofKnown(DType::I64, Known::ofInt(node.attrInt("value_int", 0))));
  if (node.hasAttr("value_ints"))
    return node.setOutput(0, Value::ofInts(node.attrInts("value_ints", {})));
  if (const onnx::AttributeProto *real = node.find("value_float"))
    return node.setOutput(0, Value::ofKnown(DType::F32, Known::ofReal(real->f())));
  if (node.hasAttr("value_floats")) {
    std::vector<double> elements = node.attrFloats("value_floats");
    Shape shape{int64_t(elements.size())};
    return node.setOutput(0,
                          Value::ofKnown(DType::F32, Known::ofReals(shape, std::move(elements))));
  }
  throw ImportError("holds neither a tensor nor numbers");
}

void importConstantOfShape(NodeContext &node) {
  Shape shape = checkedShape(node.ints(0));
  Value fill =
      node.hasAttr("value") ? node.attrTensor("value") : Value::ofSplat(DType::F32, {1}, 0);
  if (!fill.isSplat())
    throw ImportError("attribute 'value' must hold one element");
  node.setOutput(0, Value::ofKnown(fill.dtype, shape, {}, *fill.known));
}

void importRange(NodeContext &node) {
  const Value &first = node.input(0);
  if (kernels::isFloat(first.dtype)) {
    double start = node.scalar(0), limit = node.scalar(1), step = node.scalar(2);
    double count = std::ceil((limit - start) / step);
    if (!(count <= double(kMaxKnownElements)))
      throw ImportError("counts through too many steps");
    std::vector<double> elements;
    for (int64_t i = 0; i < count; ++i)
      elements.push_back(kernels::roundTo(first.dtype, start + double(i) * step));
    Shape shape{int64_t(elements.size())};
    return node.setOutput(0,
                          Value::ofKnown(first.dtype, Known::ofReals(shape, std::move(elements))));
  }
  int64_t start = node.integer(0), limit = node.integer(1), step = node.integer(2);
  if (step == 0)
    throw ImportError("counts in steps of 0");
  __int128 span = __int128(limit) - start;
  __int128 count = span / step + (span % step != 0 && (span < 0) == (step < 0));
  if (count > (int64_t(1) << 40))
    throw ImportError("counts through too many steps");
  int64_t size = std::max<int64_t>(int64_t(count), 0);
  node.setOutput(0, Value::ofKnown(first.dtype, size == 0
                                                    ? Known::ofInts({0}, {})
                                                    : Known::affine({size}, start, {step}, false)));
}

/// The upper (j >= i + k) or lower (j <= i + k) triangle; zero elsewhere.
void importTrilu(NodeContext &node) {
  const Value &value = node.input(0);
  if (value.rank() < 2)
    throw ImportError("needs a matrix");
  int64_t k = node.hasInput(1) ? node.integer(1) : 0;
  unsigned rows = value.rank() - 2, columns = value.rank() - 1;
  Value keep = compare(node.emitter, node.attrInt("upper", 1) ? "ge" : "le",
                       positions(value.shape, columns), positions(value.shape, rows, k));
  node.setOutput(0, select(node.emitter, keep, value, number(value, 0)));
}

/// 1 where j = i + k, 0 elsewhere.
void importEyeLike(NodeContext &node) {
  const Value &value = node.input(0);
  if (value.rank() != 2)
    throw ImportError("needs a matrix");
  DType dtype = node.hasAttr("dtype") ? dtypeOfOnnx(int32_t(node.attrInt("dtype", 0)), "the result")
                                      : value.dtype;
  Value isDiagonal = compare(node.emitter, "eq", positions(value.shape, 1),
                             positions(value.shape, 0, node.attrInt("k", 0)));
  node.setOutput(0, cast(node.emitter, isDiagonal, dtype));
}

/// Windows: the sum of c_k cos(2 pi k i / n), with n = the size if periodic, else size - 1.
template <int numTerms> void importWindow(NodeContext &node, const double (&terms)[numTerms]) {
  std::vector<int64_t> sizes = node.ints(0);
  if (sizes.size() != 1 || sizes[0] < 1 || sizes[0] > kMaxKnownElements)
    throw ImportError("needs one size between 1 and " + std::to_string(kMaxKnownElements));
  DType dtype = dtypeOfOnnx(int32_t(node.attrInt("output_datatype", 1)), "the result");
  if (!kernels::isFloat(dtype))
    throw ImportError("makes integers, which is not supported");
  double period = double(sizes[0]) - (node.attrInt("periodic", 1) ? 0 : 1);
  WorkBudget::spend(sizes[0]);
  std::vector<double> elements;
  for (int64_t i = 0; i < sizes[0]; ++i) {
    double sum = 0;
    for (int k = 0; k < numTerms; ++k)
      sum += terms[k] * std::cos(2 * M_PI * k * double(i) / period);
    elements.push_back(kernels::roundTo(dtype, sum));
  }
  node.setOutput(0, Value::ofKnown(dtype, Known::ofReals({sizes[0]}, std::move(elements))));
}

constexpr double kHann[] = {0.5, -0.5}, kHamming[] = {25.0 / 46, -21.0 / 46},
                 kBlackman[] = {0.42, -0.5, 0.08};

//===- running sums and products -------------------------------------------===//

/// The range of elements in a running sum along dim `axis`.
struct Running {
  unsigned axis;
  bool exclusive, reverse, isProduct;
};

double combined(double a, double b, bool isProduct) { return isProduct ? a * b : a + b; }
int64_t combined(int64_t a, int64_t b, bool isProduct) {
  return isProduct ? productOf(a, b) : sumOf(a, b);
}

/// Computes the running sum of a known tensor.
Known accumulateKnown(const Value &value, const Running &running) {
  WorkBudget::spend(saturatedElements(value.shape));
  Known full = fullKnown(value);
  int64_t inner = 1, size = value.shape[running.axis];
  for (unsigned dim = running.axis + 1; dim < value.rank(); ++dim)
    inner *= value.shape[dim];
  auto accumulate = [&](auto elements) {
    auto result = elements;
    for (int64_t first = 0; first < int64_t(elements.size()); ++first) {
      if (first / inner % size != 0)
        continue;
      auto sum = decltype(elements[0] + elements[0])(running.isProduct);
      for (int64_t i = 0; i < size; ++i) {
        int64_t at = first + (running.reverse ? size - 1 - i : i) * inner;
        auto next = combined(sum, elements[at], running.isProduct);
        result[at] = running.exclusive ? sum : next;
        sum = next;
      }
    }
    return result;
  };
  return full.isFloat() ? Known::ofReals(value.shape, accumulate(full.reals()))
                        : Known::ofInts(value.shape, accumulate(full.ints()));
}

/// Computes the running sum of a known tensor. Copies along other dims than the axis are not
/// listed. Example: positions of pixels, from a mask of ones over [batch, height, width].
Value accumulateCore(const Value &value, Running running) {
  std::vector<unsigned> dims = value.dims, within;
  const unsigned axis = running.axis;
  if (value.coreDim(axis) < 0)
    dims.insert(llvm::lower_bound(dims, axis), axis);
  Shape shape;
  for (auto [i, dim] : llvm::enumerate(dims)) {
    shape.push_back(value.shape[dim]);
    if (value.coreDim(dim) >= 0)
      within.push_back(i);
    if (dim == axis)
      running.axis = i;
  }
  Value core = Value::ofKnown(value.dtype, shape, within, *value.known);
  return Value::ofKnown(value.dtype, value.shape, dims, accumulateKnown(core, running));
}

void importRunning(NodeContext &node, bool isProduct) {
  Emitter &emitter = node.emitter;
  // ONNX has no sums of booleans. torch's older exporter writes them so, and PyTorch counts.
  const Value value =
      node.input(0).dtype == DType::Bool ? cast(emitter, node.input(0), DType::I64) : node.input(0);
  Running running{checkAxis(node.integer(1), value.rank()), node.attrInt("exclusive", 0) != 0,
                  node.attrInt("reverse", 0) != 0, isProduct};
  unsigned axis = running.axis;
  bool isPlain = !running.exclusive && !running.reverse && !isProduct;
  if (isPlain && value.coreDim(axis) < 0 && value.isSplat() && !value.known->isFloat()) {
    int64_t step = value.splatInt(); // c, 2c, 3c ...
    Known sums = Known::affine({value.shape[axis]}, step, {step}, false);
    return node.setOutput(0, Value::ofKnown(value.dtype, value.shape, {axis}, sums));
  }
  if (value.isKnown())
    return node.setOutput(0, accumulateCore(value, running));

  if (!isProduct) {
    std::vector<unsigned> dims;
    mlir::Value input = coreWith(emitter, value, {axis}, dims);
    int64_t dim = std::find(dims.begin(), dims.end(), axis) - dims.begin();
    mlir::Value sums = emitter.createOne("running_sum", {input}, input.getType(),
                                         {emitter.integer("dim", dim),
                                          emitter.flag("exclusive", running.exclusive),
                                          emitter.flag("reverse", running.reverse)});
    return node.setOutput(0, Value::ofCore(value.dtype, value.shape, dims, sums));
  }
  // A triangular matrix from element i to position o, over dim `axis`.
  Shape square{value.shape[axis], value.shape[axis]};
  llvm::StringRef predicate =
      running.reverse ? (running.exclusive ? "gt" : "ge") : (running.exclusive ? "lt" : "le");
  Value triangle = compare(emitter, predicate, positions(square, 0), positions(square, 1));
  std::vector<unsigned> behind;
  for (unsigned dim = axis + 1; dim < value.rank(); ++dim)
    behind.push_back(dim - axis + 1);
  Value terms =
      select(emitter, unsqueeze(triangle, behind), unsqueeze(value, {axis + 1}), number(value, 1));
  node.setOutput(0, reduceProduct(emitter, terms, {axis}, false));
}

} // namespace

llvm::ArrayRef<OpImporter> generatorOps() {
  static const OpImporter ops[] = {
      {"", "BlackmanWindow", [](NodeContext &node) { importWindow(node, kBlackman); }},
      {"", "Constant", importConstant},
      {"", "ConstantOfShape", importConstantOfShape},
      {"", "CumSum", [](NodeContext &node) { importRunning(node, false); }},
      {"", "CumProd", [](NodeContext &node) { importRunning(node, true); }},
      {"", "EyeLike", importEyeLike},
      {"", "HammingWindow", [](NodeContext &node) { importWindow(node, kHamming); }},
      {"", "HannWindow", [](NodeContext &node) { importWindow(node, kHann); }},
      {"", "Range", importRange},
      {"", "Trilu", importTrilu},
  };
  return ops;
}

} // namespace tbc::frontend
