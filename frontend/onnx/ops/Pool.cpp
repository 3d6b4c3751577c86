//===- Pool.cpp - Pooling --------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"
#include "frontend/onnx/ops/Window.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

Value sumWindows(Emitter &emitter, const Value &x, const Window &window) {
  Shape shape{x.shape[1], 1};
  shape.insert(shape.end(), window.kernel.begin(), window.kernel.end());
  return convolve(emitter, x, Value::ofSplat(x.dtype, shape, 1), window, x.shape[1]);
}

namespace {

Value pool(NodeContext &node, llvm::StringRef mnemonic, const Value &x, const Window &window,
           mlir::NamedAttribute last) {
  Emitter &e = node.emitter;
  Shape shape = withSpatial(x.shape[0], x.shape[1], window.output);
  mlir::Value y =
      e.createOne(mnemonic, {e.full(x)}, e.type(x.dtype, shape),
                  {e.integers("kernel", window.kernel), e.integers("strides", window.strides),
                   e.integers("pads", window.pads), last});
  return Value::ofTensor(x.dtype, y);
}

/// Small integers are pooled as floats, which is exact.
void importMaxPool(NodeContext &node) {
  Value x = node.input(0);
  DType dtype = x.dtype;
  if (dtype == DType::I8 || dtype == DType::U8)
    x = cast(node.emitter, x, DType::F32);
  else
    imageInput(node);
  Window window = readWindow(node, x.shape, {});
  if (node.wantsOutput(1))
    throw ImportError("MaxPool with the output Indices is not supported");
  Value y = pool(node, "max_pool", x, window, node.emitter.integers("dilations", window.dilations));
  node.setOutput(0, cast(node.emitter, y, dtype));
}

/// Returns the number of elements in [low, high) of each window along spatial dim `i`.
std::vector<int64_t> windowCounts(const Window &window, size_t i, int64_t low, int64_t high) {
  std::vector<int64_t> counts;
  for (int64_t position = 0; position < window.output[i]; ++position) {
    int64_t count = 0;
    for (int64_t k = 0; k < window.kernel[i]; ++k) {
      int64_t at = position * window.strides[i] - window.pads[i] + k * window.dilations[i];
      count += at >= low && at < high;
    }
    counts.push_back(count);
  }
  return counts;
}

/// The mean over windows not supported by tbc.avg_pool: dilated ones, and ones that ceil_mode
/// extends beyond the counted padding.
Value averageBySum(NodeContext &node, const Window &window, bool includePad) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  size_t dims = window.output.size();
  Value sum = sumWindows(f.emitter, x, window);
  for (size_t i = 0; i < dims; ++i) {
    int64_t low = includePad ? -window.givenPads[i] : 0;
    int64_t high = x.shape[i + 2] + (includePad ? window.givenPads[i + dims] : 0);
    Shape shape(dims, 1);
    shape[i] = window.output[i];
    std::vector<int64_t> counts = windowCounts(window, i, low, high);
    sum =
        f.div(sum, Value::ofKnown(x.dtype, Known::ofReals(shape, {counts.begin(), counts.end()})));
  }
  return sum;
}

void importAveragePool(NodeContext &node) {
  const Value &x = imageInput(node);
  for (const char *op : {"aten.avg_pool2d", "aten.avg_pool3d"})
    if (std::string divisor = node.torchArgument(op, 6, "divisor_override").value_or("None");
        divisor != "None")
      throw ImportError("has the divisor_override " + divisor +
                        " in PyTorch, which its exporter leaves out; multiply a pool without it by "
                        "the size of its window / " +
                        divisor);
  Window window = readWindow(node, x.shape, {});
  bool includePad = node.attrInt("count_include_pad", 0) != 0;
  bool isDilated = llvm::any_of(window.dilations, [](int64_t d) { return d != 1; });
  if (isDilated || (includePad && window.pads != window.givenPads))
    return node.setOutput(0, averageBySum(node, window, includePad));
  node.setOutput(
      0, pool(node, "avg_pool", x, window, node.emitter.flag("count_include_pad", includePad)));
}

std::vector<unsigned> spatialDims(const Value &value) {
  std::vector<unsigned> dims;
  for (unsigned dim = 2; dim < value.rank(); ++dim)
    dims.push_back(dim);
  return dims;
}

void importGlobalAveragePool(NodeContext &node) {
  const Value &x = imageInput(node);
  node.setOutput(0, reduceMean(node.emitter, x, spatialDims(x), true));
}

void importGlobalMaxPool(NodeContext &node) {
  const Value &x = imageInput(node);
  node.setOutput(0, reduce(node.emitter, "reduce_max", x, spatialDims(x), true));
}

/// (sum of |x|^p)^(1/p), with the sum computed by `sum`.
template <typename Sum> Value lpNorm(NodeContext &node, Sum sum) {
  Formula f{node.emitter};
  const Value &x = imageInput(node);
  int64_t p = node.attrInt("p", 2);
  if (p < 1)
    throw ImportError("has p = " + std::to_string(p) + "; expected a positive number");
  if (p == 1)
    return sum(f.abs(x));
  if (p == 2)
    return f.sqrt(sum(f.mul(x, x)));
  return f.pow(sum(f.pow(f.abs(x), number(x, double(p)))), number(x, 1.0 / double(p)));
}

void importLpPool(NodeContext &node) {
  Window window = readWindow(node, imageInput(node).shape, {});
  node.setOutput(0, lpNorm(node, [&](const Value &powers) {
                   return sumWindows(node.emitter, powers, window);
                 }));
}

void importGlobalLpPool(NodeContext &node) {
  node.setOutput(0, lpNorm(node, [&](const Value &powers) {
                   return reduce(node.emitter, "reduce_sum", powers, spatialDims(powers), true);
                 }));
}

} // namespace

llvm::ArrayRef<OpImporter> poolOps() {
  static const OpImporter ops[] = {
      {"", "AveragePool", importAveragePool},
      {"", "GlobalAveragePool", importGlobalAveragePool},
      {"", "GlobalLpPool", importGlobalLpPool},
      {"", "GlobalMaxPool", importGlobalMaxPool},
      {"", "LpPool", importLpPool},
      {"", "MaxPool", importMaxPool, "storage_order"}, // of indices, which are refused
  };
  return ops;
}

} // namespace tbc::frontend
