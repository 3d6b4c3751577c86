//===- Windows.cpp - Sliding windows over spatial dims ---------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Windows.h"

using namespace tbc::kernels;

Shape tbc::kernels::spatialDims(const Shape &shape) {
  require(shape.size() >= 2, "expected a tensor [n, c, spatial..]");
  return Shape(shape.begin() + 2, shape.end());
}

/// The indices of `shape` in row-major order.
static std::vector<Shape> listIndices(const Shape &shape) {
  std::vector<Shape> indices;
  for (int64_t flat = 0, count = numElements(shape); flat < count; ++flat) {
    Shape index(shape.size());
    int64_t rest = flat;
    for (size_t dim = shape.size(); dim-- > 0; rest /= shape[dim])
      index[dim] = rest % shape[dim];
    indices.push_back(std::move(index));
  }
  return indices;
}

Windows tbc::kernels::makeWindows(const Attrs &attrs, const Shape &kernel, const Shape &input,
                                  const Shape &output) {
  size_t rank = input.size();
  const std::vector<int64_t> &strides = attrs.getInts("strides"), &pads = attrs.getInts("pads");
  std::vector<int64_t> dilations(rank, 1);
  if (attrs.has("dilations"))
    dilations = attrs.getInts("dilations");
  require(kernel.size() == rank && strides.size() == rank && dilations.size() == rank &&
              pads.size() == 2 * rank && output.size() == rank,
          "windows need one kernel size, stride, dilation and output size, and two pads, per "
          "spatial dim");
  for (size_t dim = 0; dim < rank; ++dim) {
    int64_t padded = input[dim] + pads[dim] + pads[rank + dim];
    int64_t expected = (padded - dilations[dim] * (kernel[dim] - 1) - 1) / strides[dim] + 1;
    require(output[dim] == expected, [&] {
      return "windows have " + std::to_string(expected) + " positions along spatial dim " +
             std::to_string(dim) + ", the result type says " + std::to_string(output[dim]);
    });
  }

  Windows windows = {numElements(output), numElements(kernel), numElements(input), {}};
  windows.inputIndex.reserve(windows.positions * windows.taps);
  std::vector<Shape> positions = listIndices(output);
  Shape inputStrides = rowMajorStrides(input);
  for (const Shape &tap : listIndices(kernel))
    for (const Shape &position : positions) {
      int64_t flat = 0;
      for (size_t dim = 0; dim < rank && flat >= 0; ++dim) {
        int64_t i = position[dim] * strides[dim] + tap[dim] * dilations[dim] - pads[dim];
        flat = i < 0 || i >= input[dim] ? -1 : flat + i * inputStrides[dim];
      }
      windows.inputIndex.push_back(flat);
    }
  return windows;
}
