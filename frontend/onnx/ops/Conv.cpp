//===- Conv.cpp - Convolution and pooling ----------------------------------===//

#include "frontend/onnx/ops/Families.h"

namespace tbc::frontend {

namespace {

/// The window of a convolution or pooling over the spatial dims of x[n, c, *].
struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
  Shape output;
};

Window readWindow(NodeContext &node, const Shape &input, std::vector<int64_t> kernel) {
  size_t dims = input.size() - 2;
  Window window;
  window.kernel = node.attrInts("kernel_shape", kernel);
  window.strides = node.attrInts("strides", std::vector<int64_t>(dims, 1));
  window.dilations = node.attrInts("dilations", std::vector<int64_t>(dims, 1));
  window.pads = node.attrInts("pads", std::vector<int64_t>(2 * dims, 0));
  if (window.kernel.size() != dims || window.strides.size() != dims ||
      window.dilations.size() != dims || window.pads.size() != 2 * dims)
    throw ImportError("kernel_shape, strides, dilations and pads do not fit an input of rank " +
                      std::to_string(input.size()));
  if (!kernel.empty() && window.kernel != kernel)
    throw ImportError("kernel_shape is not that of the weight");
  std::string autoPad = node.attrText("auto_pad", "NOTSET");
  constexpr int64_t limit = int64_t(1) << 31;
  for (size_t i = 0; i < dims; ++i) {
    int64_t size = input[i + 2], stride = window.strides[i];
    for (int64_t number : {window.kernel[i], stride, window.dilations[i]})
      if (number < 1 || number > limit)
        throw ImportError("kernel_shape, strides and dilations must be positive");
    int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    int64_t &low = window.pads[i], &high = window.pads[i + dims];
    if (autoPad == "VALID") {
      low = high = 0;
    } else if (autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER") {
      int64_t total =
          std::max<int64_t>(0, ((size + stride - 1) / stride - 1) * stride + reach - size);
      low = autoPad == "SAME_LOWER" ? total - total / 2 : total / 2;
      high = total - low;
    } else if (autoPad != "NOTSET") {
      throw ImportError("unknown auto_pad '" + autoPad + "'");
    }
    if (low < 0 || high < 0 || low > limit || high > limit)
      throw ImportError("negative pads are not supported");
    if (size + low + high < reach)
      throw ImportError("the window does not fit into an input of shape " +
                        printShape(input, node.emitter.marker));
    window.output.push_back((size + low + high - reach) / stride + 1);
    // Rounding up makes another window only where one would be partly outside.
    if (node.attrInt("ceil_mode", 0) && (size + low + high - reach) % stride != 0)
      throw ImportError(
          "ceil_mode is not supported where it adds a partial window; pad the input instead");
  }
  return window;
}

const Value &imageInput(NodeContext &node) {
  const Value &x = node.input(0);
  if (!kernels::isFloat(x.dtype) || x.rank() < 3)
    throw ImportError("needs a float tensor of rank 3 or more");
  return x;
}

Shape withSpatial(int64_t n, int64_t c, const Shape &spatial) {
  Shape shape{n, c};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

void importConv(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = imageInput(node), &w = node.input(1);
  int64_t groups = node.attrInt("group", 1);
  if (w.rank() != x.rank() || w.dtype != x.dtype)
    throw ImportError("convolves tensors of rank " + std::to_string(x.rank()) + " and " +
                      std::to_string(w.rank()) + " or of different types");
  if (groups < 1 || x.shape[1] % groups != 0 || w.shape[0] % groups != 0 ||
      w.shape[1] != x.shape[1] / groups)
    throw ImportError("convolves " + printShape(x.shape, e.marker) + " with " +
                      printShape(w.shape, e.marker) + " in " + std::to_string(groups) + " groups");
  Window window = readWindow(node, x.shape, {w.shape.begin() + 2, w.shape.end()});
  Shape shape = withSpatial(x.shape[0], w.shape[0], window.output);
  mlir::Value y =
      e.createOne("conv", {e.full(x), e.full(w)}, e.type(x.dtype, shape),
                  {e.integers("strides", window.strides), e.integers("pads", window.pads),
                   e.integers("dilations", window.dilations), e.integer("groups", groups)});
  Value result = Value::ofTensor(x.dtype, y);
  if (node.hasInput(2)) {
    if (node.input(2).shape != Shape{w.shape[0]})
      throw ImportError("has a bias of shape " + printShape(node.input(2).shape, e.marker) +
                        " for " + std::to_string(w.shape[0]) + " channels");
    std::vector<unsigned> added{0};
    for (unsigned dim = 2; dim < x.rank(); ++dim)
      added.push_back(dim);
    result = elementwise(e, "add", {result, unsqueeze(node.input(2), added)});
  }
  node.setOutput(0, result);
}

Value pool(NodeContext &node, llvm::StringRef mnemonic, const Window &window,
           mlir::NamedAttribute last) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  Shape shape = withSpatial(x.shape[0], x.shape[1], window.output);
  mlir::Value y =
      e.createOne(mnemonic, {e.full(x)}, e.type(x.dtype, shape),
                  {e.integers("kernel", window.kernel), e.integers("strides", window.strides),
                   e.integers("pads", window.pads), last});
  return Value::ofTensor(x.dtype, y);
}

void importMaxPool(NodeContext &node) {
  Window window = readWindow(node, imageInput(node).shape, {});
  if (node.wantsOutput(1))
    throw ImportError("MaxPool with the output Indices is not supported");
  node.setOutput(
      0, pool(node, "max_pool", window, node.emitter.integers("dilations", window.dilations)));
}

void importAveragePool(NodeContext &node) {
  Window window = readWindow(node, imageInput(node).shape, {});
  if (llvm::any_of(window.dilations, [](int64_t d) { return d != 1; }))
    throw ImportError("AveragePool with dilations is not supported");
  bool includePad = node.attrInt("count_include_pad", 0) != 0;
  node.setOutput(
      0, pool(node, "avg_pool", window, node.emitter.flag("count_include_pad", includePad)));
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

} // namespace

llvm::ArrayRef<OpImporter> convOps() {
  static const OpImporter ops[] = {
      {"", "AveragePool", importAveragePool},
      {"", "Conv", importConv},
      {"", "GlobalAveragePool", importGlobalAveragePool},
      {"", "GlobalMaxPool", importGlobalMaxPool},
      {"", "MaxPool", importMaxPool},
  };
  return ops;
}

} // namespace tbc::frontend
