//===- Conv.cpp - Convolution ----------------------------------------------===//

#include "frontend/onnx/ops/Families.h"
#include "frontend/onnx/ops/Window.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

namespace {

constexpr int64_t maxWindow = int64_t(1) << 31;

/// Reads and checks kernel_shape, strides and dilations.
Window readGeometry(NodeContext &node, const Shape &input, const std::vector<int64_t> &kernel) {
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
  for (size_t i = 0; i < dims; ++i)
    for (int64_t number : {window.kernel[i], window.strides[i], window.dilations[i]})
      if (number < 1 || number > maxWindow)
        throw ImportError("kernel_shape, strides and dilations must be positive");
  for (int64_t pad : window.pads)
    if (pad < 0 || pad > maxWindow)
      throw ImportError("negative pads are not supported");
  return window;
}

/// Splits `total` padding of a dim in two halves; if it is odd, the larger half is low if
/// `lowFirst`.
void splitPads(int64_t total, bool lowFirst, int64_t &low, int64_t &high) {
  low = lowFirst ? total - total / 2 : total / 2;
  high = total - low;
}

/// "NOTSET", "VALID", "SAME_UPPER" or "SAME_LOWER".
std::string readAutoPad(NodeContext &node) {
  std::string autoPad = node.attrText("auto_pad", "NOTSET");
  if (!llvm::is_contained({"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}, autoPad))
    throw ImportError("unknown auto_pad '" + autoPad + "'");
  return autoPad.empty() ? "NOTSET" : autoPad;
}

} // namespace

Window readWindow(NodeContext &node, const Shape &input, std::vector<int64_t> kernel) {
  if (input.size() < 3)
    throw ImportError("needs a tensor of rank 3 or more");
  Window window = readGeometry(node, input, kernel);
  std::string autoPad = readAutoPad(node);
  bool roundsUp = node.attrInt("ceil_mode", 0) != 0;
  size_t dims = input.size() - 2;
  window.givenPads = window.pads;
  for (size_t i = 0; i < dims; ++i) {
    int64_t size = input[i + 2], stride = window.strides[i];
    int64_t &low = window.pads[i], &high = window.pads[i + dims];
    if (autoPad == "VALID")
      low = high = 0;
    else if (autoPad != "NOTSET")
      splitPads(std::max<int64_t>(0, ((size + stride - 1) / stride - 1) * stride + window.reach(i) -
                                         size),
                autoPad == "SAME_LOWER", low, high);
    window.givenPads[i] = low;
    window.givenPads[i + dims] = high;
    // Rounding up keeps the one window that exceeds the input, as far as it has elements. Example:
    // the pooling of EfficientNet has a window of 1280 x 1280 for pictures of 7 x 7.
    int64_t padded = size + low + high;
    if (roundsUp && padded < window.kernel[i] && padded + stride > window.kernel[i] &&
        window.dilations[i] == 1)
      window.kernel[i] = padded;
    int64_t reach = window.reach(i);
    if (padded < reach)
      throw ImportError("the window does not fit into an input of shape " +
                        printShape(input, node.emitter.marker));
    int64_t rest = padded - reach, last = rest / stride;
    // Rounding up adds a window only if it starts before the padding at the end.
    if (roundsUp && rest % stride != 0 && (last + 1) * stride < size + low) {
      ++last;
      high = last * stride + reach - size - low;
    }
    window.output.push_back(last + 1);
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

Value addChannelBias(NodeContext &node, const Value &value, size_t i) {
  if (!node.hasInput(i))
    return value;
  const Value &bias = node.input(i);
  if (bias.shape != Shape{value.shape[1]})
    throw ImportError("has a bias of shape " + printShape(bias.shape, node.emitter.marker) +
                      " for " + std::to_string(value.shape[1]) + " channels");
  std::vector<unsigned> added{0};
  for (unsigned dim = 2; dim < value.rank(); ++dim)
    added.push_back(dim);
  return elementwise(node.emitter, "add", {value, unsqueeze(bias, added)});
}

Value convolve(Emitter &e, const Value &x, const Value &weight, const Window &window,
               int64_t groups) {
  Shape shape = withSpatial(x.shape[0], weight.shape[0], window.output);
  mlir::Value y =
      e.createOne("conv", {e.full(x), e.full(weight)}, e.type(x.dtype, shape),
                  {e.integers("strides", window.strides), e.integers("pads", window.pads),
                   e.integers("dilations", window.dilations), e.integer("groups", groups)});
  return Value::ofTensor(x.dtype, y);
}

namespace {

/// Throws unless `x` and the weight have consistent shapes and types. Dim `weightDim` of the weight
/// is x's channels (per group, if it is dim 1).
void checkWeight(NodeContext &node, const Value &x, const Value &w, int64_t groups,
                 unsigned weightDim) {
  int64_t marker = node.emitter.marker;
  if (w.rank() != x.rank() || w.dtype != x.dtype)
    throw ImportError("convolves tensors of rank " + std::to_string(x.rank()) + " and " +
                      std::to_string(w.rank()) + " or of different types");
  if (groups < 1 || x.shape[1] % groups != 0 || w.shape[0] % groups != 0 ||
      w.shape[weightDim] != (weightDim == 1 ? x.shape[1] / groups : x.shape[1]))
    throw ImportError("convolves " + printShape(x.shape, marker) + " with " +
                      printShape(w.shape, marker) + " in " + std::to_string(groups) + " groups");
}

void importConv(NodeContext &node) {
  const Value &x = imageInput(node), &w = node.input(1);
  int64_t groups = node.attrInt("group", 1);
  checkWeight(node, x, w, groups, 1);
  Window window = readWindow(node, x.shape, {w.shape.begin() + 2, w.shape.end()});
  node.setOutput(0, addChannelBias(node, convolve(node.emitter, x, w, window, groups), 2));
}

/// The transpose of a convolution, i.e. the map of its input gradient. Along a spatial dim
///     output = stride * (input - 1) + output_padding + reach - low - high.
void importConvTranspose(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = imageInput(node), &w = node.input(1);
  int64_t groups = node.attrInt("group", 1);
  checkWeight(node, x, w, groups, 0);
  Window window = readGeometry(node, x.shape, {w.shape.begin() + 2, w.shape.end()});
  std::string autoPad = readAutoPad(node);
  size_t dims = window.kernel.size();
  std::vector<int64_t> extra = node.attrInts("output_padding", std::vector<int64_t>(dims, 0));
  std::vector<int64_t> sizes = node.attrInts("output_shape", {});
  if (extra.size() != dims || (!sizes.empty() && sizes.size() != dims))
    throw ImportError("output_padding or output_shape does not fit an input of rank " +
                      std::to_string(x.rank()));
  for (size_t i = 0; i < dims; ++i) {
    int64_t &low = window.pads[i], &high = window.pads[i + dims];
    if (extra[i] < 0 || extra[i] > maxWindow)
      throw ImportError("output_padding must not be negative");
    int64_t full = window.strides[i] * (x.shape[i + 2] - 1) + window.reach(i);
    if (autoPad == "VALID")
      low = high = 0;
    if (!sizes.empty() || autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER") {
      int64_t size = sizes.empty() ? x.shape[i + 2] * window.strides[i] : sizes[i];
      int64_t total = full + extra[i] - size;
      if (total >= 0)
        splitPads(total, autoPad != "SAME_UPPER", low, high);
      else
        low = high = 0, extra[i] -= total;
    }
    // Padding and cropping at the end cancel.
    int64_t both = std::min(high, extra[i]);
    high -= both, extra[i] -= both;
    if (extra[i] >= window.strides[i])
      throw ImportError("has " + std::to_string(extra[i]) +
                        " elements behind the last window, and a stride of " +
                        std::to_string(window.strides[i]) + ", which is not supported");
    window.output.push_back(full + extra[i] - low - high);
    if (window.output.back() < 1)
      throw ImportError("cuts off the whole output");
  }
  Shape shape = withSpatial(x.shape[0], w.shape[1] * groups, window.output);
  mlir::Value y =
      e.createOne("conv_grad_input", {e.full(x), e.full(w)}, e.type(x.dtype, shape),
                  {e.integers("strides", window.strides), e.integers("pads", window.pads),
                   e.integers("dilations", window.dilations), e.integer("groups", groups)});
  node.setOutput(0, addChannelBias(node, Value::ofTensor(x.dtype, y), 2));
}

/// A causal convolution per channel, over the carried last elements followed by the input. The new
/// state is the last elements of both.
void importCausalConv(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = imageInput(node), &w = node.input(1);
  checkWeight(node, x, w, x.shape[1], 1);
  int64_t carried = w.rank() == 3 ? w.shape[2] - 1 : 0;
  std::string activation = node.attrText("activation", "none");
  if (w.rank() != 3 || w.shape[0] != x.shape[1])
    throw ImportError("needs a weight [channels, 1, k] and an input [batch, channels, length]");
  if (activation != "none" && activation != "silu" && activation != "swish")
    throw ImportError("unknown activation '" + activation + "'");
  if (node.wantsOutput(1) && carried == 0)
    throw ImportError("has a state without elements, which is not supported");
  Value all = x;
  if (carried > 0) {
    Value past = node.hasInput(3) ? node.input(3)
                                  : Value::ofSplat(x.dtype, {x.shape[0], x.shape[1], carried}, 0);
    all = concat(f.emitter, {past, x}, 2);
  }
  Window window{{w.shape[2]}, {1}, {1}, {0, 0}, {0, 0}, {x.shape[2]}};
  Value y = addChannelBias(node, convolve(f.emitter, all, w, window, x.shape[1]), 2);
  node.setOutput(0, activation == "none" ? y : elementwise(f.emitter, "silu", {y}));
  if (node.wantsOutput(1))
    node.setOutput(1, slice(f.emitter, all, 2, all.shape[2] - carried, 1, carried));
}

} // namespace

llvm::ArrayRef<OpImporter> convOps() {
  static const OpImporter ops[] = {
      {"", "CausalConvWithState", importCausalConv, "", weightsAt(1, 2)},
      {"", "Conv", importConv, "", weightsAt(1, 2)},
      {"", "ConvTranspose", importConvTranspose, "", weightsAt(1, 2)},
  };
  return ops;
}

} // namespace tbc::frontend
