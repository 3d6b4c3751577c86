//===- Window.h - Windows of convolutions and poolings ---------------------===//

#ifndef TBC_FRONTEND_ONNX_OPS_WINDOW_H
#define TBC_FRONTEND_ONNX_OPS_WINDOW_H

#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

/// The window of a convolution or pooling over the spatial dims of x[n, c, *].
struct Window {
  /// `pads` cover the last window; with ceil_mode they exceed `givenPads`.
  std::vector<int64_t> kernel, strides, dilations, pads, givenPads;
  Shape output;

  /// Returns the elements spanned by a window in spatial dim `i`. Example: kernel 3 with dilation 2
  /// spans 5.
  int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

/// Returns the window of a node's attributes for inputs of shape `input`; `kernel` is that of the
/// weight, or empty. ImportError if it does not fit.
Window readWindow(NodeContext &node, const Shape &input, std::vector<int64_t> kernel);

/// Returns input 0; it must be floats with spatial dims.
const Value &imageInput(NodeContext &node);

/// [n, c, spatial...]
Shape withSpatial(int64_t n, int64_t c, const Shape &spatial);

/// Returns `value` plus the optional bias per channel, input `i` of the node.
Value addChannelBias(NodeContext &node, const Value &value, size_t i);

/// Returns the sum over each window of each channel: a convolution with ones.
Value sumWindows(Emitter &emitter, const Value &x, const Window &window);

/// Returns the convolution of `x` with `weight` in `groups`; see tbc.conv.
Value convolve(Emitter &emitter, const Value &x, const Value &weight, const Window &window,
               int64_t groups);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_WINDOW_H
