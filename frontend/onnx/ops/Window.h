//===- Window.h - Windows of convolutions and poolings ---------------------===//

#ifndef TBC_FRONTEND_ONNX_OPS_WINDOW_H
#define TBC_FRONTEND_ONNX_OPS_WINDOW_H

#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

/// The window of a convolution or pooling over the spatial dims of x[n, c, *].
struct Window {
  /// `pads` reach as far as the last window does: with ceil_mode further than `givenPads`.
  std::vector<int64_t> kernel, strides, dilations, pads, givenPads;
  Shape output;

  /// Elements that a window spans in spatial dim `i`.
  int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

/// The window that a node's attributes say for inputs of shape `input`; `kernel` is that of the
/// weight, or empty. ImportError where it does not fit.
Window readWindow(NodeContext &node, const Shape &input, std::vector<int64_t> kernel);

/// Input 0, which must be floats with spatial dims.
const Value &imageInput(NodeContext &node);

/// [n, c, spatial...]
Shape withSpatial(int64_t n, int64_t c, const Shape &spatial);

/// `value` plus a bias per channel, input `i` of the node, if it is there.
Value addChannelBias(NodeContext &node, const Value &value, size_t i);

/// The sum over each window of each channel: a convolution with ones.
Value sumWindows(Emitter &emitter, const Value &x, const Window &window);

/// The convolution of `x` with `weight` in `groups`; see tbc.conv.
Value convolve(Emitter &emitter, const Value &x, const Value &weight, const Window &window,
               int64_t groups);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_WINDOW_H
